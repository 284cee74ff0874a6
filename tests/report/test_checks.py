"""Criteria of the report: met at the bound, not met beyond it, and never met without a measurement."""

from __future__ import annotations

from typing import Any

import pytest

from tests.report import checks
from tests.report.builders import make_comparison, make_scale, make_section
from tests.report.checks import Criterion
from tests.report.trimming import Document


def criteria(section: str, document: Document | None, what: str) -> list[Criterion]:
    """Those of a section whose words hold `what`."""
    found = checks.all_of(dict.fromkeys(("real", "improvements", "emulated", "scale")) | {section: document})[section]
    return [criterion for criterion in found if what in criterion.what]


def real(job: str = "rollout_heavy", staleness: float = 1.0, repeats: int = 1, **changes: Any) -> Document:
    """A comparison with x = 1.5, so that 0.88 * 2x/(1+x) is 1.056."""
    speeds = {"no_borrow": 100.0, "no_borrow:stream": 90.0, "bidirectional": 110.0, "bidirectional_paper": 50.0}
    for name in list(changes):
        if name in speeds:
            speeds[name] = changes.pop(name)
    return make_section(make_comparison(job, {staleness: speeds}, repeats=repeats, **changes))


@pytest.mark.parametrize(("speed", "met"), [(105.7, True), (105.5, False), (None, None)])
def test_an_unbalanced_job_must_win_most_of_what_theory_allows(speed: float | None, met: bool | None) -> None:
    (found,) = criteria("real", real(bidirectional=speed), "over no_borrow")
    assert (found.met, found.must) == (met, "at least 0.88 x 2x/(1+x) = 1.056")


def test_the_balanced_job_and_staleness_0_have_nothing_to_win_of_the_limit() -> None:
    assert criteria("real", real("balanced"), "over no_borrow") == []
    assert criteria("real", real(staleness=0.0), "over no_borrow") == []


@pytest.mark.parametrize(("speed", "met"), [(97.5, True), (96.5, False), (None, None)])
def test_no_cell_may_lie_below_the_best_other_arm(speed: float | None, met: bool | None) -> None:
    (found,) = criteria("real", real("balanced", bidirectional=speed), "best other arm")
    assert found.met is met


def test_the_interval_counts_where_there_is_one() -> None:
    document = real("balanced", bidirectional=90.0, repeats=3)
    over = document["comparisons"][0]["cells"][0]["ratios"]["bidirectional"]["over"]["best_other_arm"]
    over |= {"low": 0.83, "high": 0.98}
    (found,) = criteria("real", document, "best other arm")
    assert (found.met, found.measured) == (True, "0.900 [0.830, 0.980] (over no_borrow)")


@pytest.mark.parametrize(
    ("staleness", "bound", "met"), [(1.0, 0.9, True), (1.0, 0.89, False), (0.0, 0.8, True), (0.0, 0.79, False)]
)
def test_most_of_the_work_bound_must_be_reached(staleness: float, bound: float, met: bool) -> None:
    document = real(staleness=staleness)
    spread = dict.fromkeys(("mean", "min", "max"), bound)
    document["comparisons"][0]["cells"][0]["ratios"]["bidirectional"]["bound_ratio"] = spread
    (found,) = criteria("real", document, "work bound")
    assert found.met is met


@pytest.mark.parametrize(("step_s", "met"), [(10.4, True), (10.6, False)])
def test_a_baseline_whose_busier_stage_waits_is_crippled(step_s: float, met: bool) -> None:
    busy = {"steady": {"steps": 18, "step_s": step_s, "rollout_s": 10.0, "train_s": 7.0}}
    found = criteria("real", real(more={"busy": busy}), "busier stage")
    assert [(each.met, each.measured) for each in found] == [(met, f"{step_s / 10:.3f}")] * 2
    assert criteria("real", real(staleness=0.0, more={"busy": busy}), "busier stage") == []


def test_a_baseline_without_measured_stages_is_not_taken_for_a_good_one() -> None:
    assert {each.met for each in criteria("real", real(), "busier stage")} == {None}


def emulated(ours: float | None, *, streaming: float = 99.0, **changes: Any) -> Document:
    speeds = {"no_borrow": 100.0, "no_borrow:stream": streaming, "bidirectional": ours}
    made = make_comparison("emulated_16", {1.0: speeds}, kind="emulated", partition="8:8", **changes)
    return make_section(made, planned={"no_borrow": "8:8", "bidirectional": "4:12"})


@pytest.mark.parametrize(("speed", "met"), [(99.5, True), (98.5, False), (None, None)])
def test_no_emulated_cell_may_be_slower_than_the_better_baseline(speed: float | None, met: bool | None) -> None:
    (found,) = criteria("emulated", emulated(speed), "better no_borrow")
    assert found.met is met


@pytest.mark.parametrize(
    ("speed", "share", "met"),
    [(102.9, 0.279, (True, True)), (103.1, 0.22, (False, True)), (100.0, 0.219, (True, False))],
    ids=["both", "throughput", "idle"],
)
def test_the_simulator_must_be_near_in_both(speed: float, share: float, met: tuple[bool, bool]) -> None:
    idle = {"fraction": share, "by_cause": {"staleness_cap": share}}  # the run: 0.25
    more = {"simulated": {"throughput_tokens_per_s": speed, "idle": idle}}
    found = criteria("emulated", emulated(100.0, streaming=100.0, more=more), "simulator")
    assert tuple(each.met for each in found) == met


def test_without_a_simulated_run_the_simulator_is_not_taken_for_right() -> None:
    assert [each.met for each in criteria("emulated", emulated(100.0), "simulator")] == [None, None]


def test_a_planned_split_that_never_ran_is_not_taken_for_the_best() -> None:
    found = criteria("emulated", emulated(100.0), "planner")
    assert [(each.met, each.measured) for each in found] == [
        (True, "1.000 (8:8; best 8:8)"),
        (None, "- (4:12; best 8:8)"),
    ]


@pytest.mark.parametrize(("longest", "dropped", "met"), [(0.25, 0, [True, True]), (0.26, 3, [False, False])])
def test_the_engine_must_keep_up_and_lose_nothing(longest: float, dropped: int, met: list[bool]) -> None:
    found = criteria("scale", make_scale(longest_pass_s=longest, spans_dropped=dropped), "")
    assert [each.met for each in found] == met
