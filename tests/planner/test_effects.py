"""What a change did: comparable steps on both sides, and nothing where there are too few."""

from __future__ import annotations

import math

import pytest

from planner.effects import LEAST_STEPS, MOST_STEPS, Change, StepTime, Windows, effect, lately, mean_lag, windows


def steps(count: int, *, seconds: float = 1.0, tokens: int = 100, first: int = 1, at: float = 0.0) -> list[StepTime]:
    return [
        StepTime(
            step=first + place,
            began_at=at + place * seconds,
            ended_at=at + (place + 1) * seconds,
            tokens=tokens,
            lag={0: 3, 1: 1},
        )
        for place in range(count)
    ]


def change(sent_at: float, step: int, *, staleness: float = 1.0) -> Change:
    return Change(sent_at=sent_at, effective_step=step, staleness=staleness)


def test_as_many_steps_on_both_sides_and_the_transition_on_neither() -> None:
    found = windows(steps(30), [change(12.5, 15, staleness=2.0)], 0)
    assert [step.step for step in found.before] == list(range(3, 13))
    assert [step.step for step in found.after] == list(range(17, 27)), "two steps more are made of older groups"
    assert len(found.before) == MOST_STEPS


def test_steps_that_another_change_governs_are_left_out() -> None:
    changes = [change(5.5, 6), change(12.5, 13), change(20.5, 21)]
    found = windows(steps(30), changes, 1)
    assert [step.step for step in found.before] == [7, 8, 9, 10, 11, 12]
    assert [step.step for step in found.after] == [14, 15, 16, 17, 18, 19]


@pytest.mark.parametrize(
    ("changes", "place", "why_not"),
    [
        pytest.param([(2.5, 3)], 0, "fewer than 3 steps lie between it and the change before it", id="early"),
        pytest.param([(28.5, 29)], 0, "1 of 3 steps that it governs wholly have ended", id="just now"),
        pytest.param(
            [(10.5, 11), (13.5, 14)], 0, "fewer than 3 steps lie between it and the change after it", id="another soon"
        ),
    ],
)
def test_too_few_steps_say_on_which_side(changes: list[tuple[float, int]], place: int, why_not: str) -> None:
    found = windows(steps(30), [change(*each) for each in changes], place)
    assert (LEAST_STEPS, found.why_not) == (3, why_not)
    assert effect(found) is None


def test_the_ratio_is_that_of_tokens_over_time_and_its_interval_holds_it() -> None:
    before = tuple(steps(4, seconds=2.0))
    after = tuple(
        StepTime(step=place, began_at=0.0, ended_at=seconds, tokens=100, lag={2: 1})
        for place, seconds in enumerate((0.9, 1.1, 1.0, 1.0))
    )
    found = effect(Windows(before=before, after=after))
    assert found is not None
    assert found.ratio == pytest.approx(2.0)
    assert found.low < 2.0 < found.high
    assert math.log(found.high / 2.0) == pytest.approx(math.log(2.0 / found.low))
    assert (found.before_lag, found.after_lag, found.steps) == (0.25, 2.0, 4)
    assert (found.before_tokens_per_s, found.after_tokens_per_s) == pytest.approx((50.0, 100.0))


def test_a_later_change_may_take_effect_before_an_earlier_one() -> None:
    changes = [change(2.5, 12, staleness=2.0), change(5.5, 6)]
    assert [step.step for step in lately(steps(20), changes)] == [14, 15, 16, 17, 18, 19, 20]
    assert windows(steps(20), [*changes, change(16.5, 17)], 2).before[0].step == 14


def test_idle_time_is_summed_over_the_spans_of_the_windows() -> None:
    found = windows(steps(30), [change(12.5, 13)], 0)
    assert found.spans == ((2.0, 12.0), (13.0, 23.0))
    measured = effect(found, before_idle={"no_work": 0.1}, after_idle={"staleness_cap": 0.2})
    assert measured is not None
    assert (measured.before_idle, measured.after_idle) == ({"no_work": 0.1}, {"staleness_cap": 0.2})
    assert windows(steps(30), [change(1.5, 2)], 0).spans is None


def test_what_was_lately_is_what_the_last_change_governs() -> None:
    assert [step.step for step in lately(steps(30), [change(12.5, 24, staleness=2.0)])] == [26, 27, 28, 29, 30]
    assert [step.step for step in lately(steps(5), [])] == [2, 3, 4, 5], "the first one fills the pipeline"
    assert lately([], []) == ()


def test_no_groups_have_no_lag() -> None:
    assert mean_lag([StepTime(step=1, began_at=0.0, ended_at=1.0, tokens=1)]) is None
