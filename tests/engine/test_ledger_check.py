"""The check that closes every run: gaps, overlaps and CPU seconds that do not fit what the spans claim."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ledger_check import CORE_TAKEN, Account, Life
from engine.ledger_check import check as check_account
from storage.records import Span
from tests.storage.builders import T0

BUSY_S, IDLE_S = 6.0, 4.0
"""What a device of these tests lives through, in this order."""


def make_life(**overrides: float) -> Life:
    return Life(**({"began": T0, "ended": T0 + BUSY_S + IDLE_S, "other_cpu_s": 0.1} | overrides))


def make_spans(device: int = 0, *, busy_cpu_s: float = 5.7, idle_cpu_s: float = 0.1, late_s: float = 0.0) -> list[Span]:
    """Work, then idle time that begins `late_s` after the work ended (before it, when negative)."""
    common = {"run_id": "run", "device": device}
    edge, end = T0 + BUSY_S, T0 + BUSY_S + IDLE_S
    return [
        Span(**common, t0=T0, t1=edge, kind="rollout", role="primary", cpu_s=busy_cpu_s),
        Span(**common, t0=edge + late_s, t1=end, kind="idle", cause="no_work", cpu_s=idle_cpu_s),
    ]


def check(spans: list[Span], life: dict[int, Life], **options: Any) -> dict[str, Any]:
    """The check of these spans, told in the order of time."""
    account = Account()
    account.add(sorted(spans, key=lambda span: span.t0))
    return check_account(account, life, **options)


def test_telemetry_that_holds_less_than_the_spans_is_found() -> None:
    life = {0: make_life()}
    assert check(make_spans(), life, cpu_witness=False, stored_s={0: 9.99})["ok"]
    found = check(make_spans(), life, cpu_witness=False, stored_s={0: 9.0})
    assert found["problems"] == ["device 0: telemetry differs from its spans by 10.00% of their time, allowed are 0.5%"]


def test_a_sound_ledger_passes_and_gives_its_figures() -> None:
    found = check([*make_spans(0), *make_spans(1)], {0: make_life(), 1: make_life()}, cpu_witness=True)
    assert (found["ok"], found["problems"], found["max_gap_fraction"]) == (True, [], 0.0)
    assert found["cpu_over_busy"] == pytest.approx(5.7 / 6)
    assert found["cpu_over_idle"] == pytest.approx(0.1 / 4)
    assert found["other_cpu_over_wall"] == pytest.approx(0.1 / 10)
    assert list(found["devices"]) == ["0", "1"]
    assert found["devices"]["0"]["wall_s"] == 10.0


def test_a_start_up_is_time_of_the_device_but_no_work_that_used_its_core() -> None:
    waits = Span(run_id="run", device=0, t0=T0 - 40, t1=T0, kind="startup", cpu_s=3.0)
    life = {0: make_life(began=T0 - 40)}
    found = check([waits, *make_spans()], life, cpu_witness=True, stored_s={0: 50.0})
    assert (found["problems"], found["max_gap_fraction"]) == ([], 0.0)
    assert found["cpu_over_busy"] == pytest.approx(5.7 / 6)
    assert not check(make_spans(), life, cpu_witness=True)["ok"]


@pytest.mark.parametrize(
    ("spans", "life", "problem"),
    [
        pytest.param(make_spans(late_s=0.04), make_life(), None, id="a gap of 0.4% is allowed"),
        pytest.param(
            make_spans(late_s=0.1),
            make_life(),
            "device 0: spans miss or double 1.00% of its wall time, allowed are 0.5%",
            id="a gap of 1%",
        ),
        pytest.param(
            make_spans(late_s=-0.1),
            make_life(),
            "device 0: spans miss or double 1.00% of its wall time, allowed are 0.5%",
            id="an overlap of 1%",
        ),
        pytest.param(
            make_spans(),
            make_life(began=T0 - 1),
            "device 0: spans miss or double 9.09% of its wall time, allowed are 0.5%",
            id="the first second is missing",
        ),
        pytest.param(
            make_spans(),
            make_life(ended=T0 + 11),
            "device 0: spans miss or double 9.09% of its wall time, allowed are 0.5%",
            id="the last second is missing",
        ),
        pytest.param(
            [], make_life(), "device 0: spans miss or double 100.00% of its wall time, allowed are 0.5%", id="no span"
        ),
        pytest.param(
            make_spans(busy_cpu_s=4.8),
            make_life(),
            f"device 0: CPU over busy seconds is 0.80, expected 0.85 to 1.02; {CORE_TAKEN}",
            id="busy spans claim work that was not done",
        ),
        pytest.param(
            make_spans(busy_cpu_s=6.3),
            make_life(),
            "device 0: CPU over busy seconds is 1.05, expected 0.85 to 1.02; a span holds work of more than its own "
            "time",
            id="more work than time",
        ),
        pytest.param(
            make_spans(idle_cpu_s=0.4),
            make_life(),
            "device 0: CPU over idle seconds is 0.100, expected at most 0.05",
            id="an idle span hides work",
        ),
        pytest.param(
            make_spans(),
            make_life(other_cpu_s=1.5),
            "device 0: other threads took 15.0% of its wall time, expected at most 10%",
            id="another thread works",
        ),
    ],
)
def test_what_is_wrong_with_a_device_is_said_in_a_sentence(spans: list[Span], life: Life, problem: str | None) -> None:
    found = check(spans, {0: life}, cpu_witness=True)
    assert found["problems"] == ([] if problem is None else [problem])
    assert found["ok"] == (problem is None)


def test_one_bad_device_is_enough_and_the_others_are_not_blamed() -> None:
    found = check([*make_spans(0), *make_spans(1, late_s=0.2)], {0: make_life(), 1: make_life()}, cpu_witness=True)
    assert [problem.split(":")[0] for problem in found["problems"]] == ["device 1"]
    assert found["max_gap_fraction"] == pytest.approx(0.02)


def test_without_a_cpu_witness_only_the_time_is_checked() -> None:
    found = check(make_spans(busy_cpu_s=0.0, idle_cpu_s=4.0), {0: make_life(other_cpu_s=9.0)}, cpu_witness=False)
    assert (found["ok"], found["cpu_witness"]) == (True, False)


def test_less_than_a_second_is_too_short_for_the_cpu_witness() -> None:
    span = Span(run_id="run", device=0, t0=T0, t1=T0 + 0.5, kind="optimizer", cpu_s=0.0)
    assert check([span], {0: make_life(ended=T0 + 0.5, other_cpu_s=0.4)}, cpu_witness=True)["ok"]


def test_the_spans_of_a_worker_that_died_are_its_life() -> None:
    found = check(make_spans(), {}, cpu_witness=True)
    assert (found["ok"], found["devices"]["0"]["wall_s"]) == (True, 10.0)


def test_a_run_without_any_span_has_figures_that_are_not_known() -> None:
    found = check([], {}, cpu_witness=True)
    assert (found["ok"], found["max_gap_fraction"], found["cpu_over_busy"], found["cpu_over_idle"]) == (
        True,
        None,
        None,
        None,
    )


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=20), st.data())
def test_a_gapless_sequence_has_no_gap_and_a_missing_span_is_a_gap_of_its_length(
    lengths: list[float], data: st.DataObject
) -> None:
    spans, edge = [], T0
    for length in lengths:
        spans.append(Span(run_id="run", device=0, t0=edge, t1=edge + length, kind="optimizer"))
        edge = spans[-1].t1
    life = {0: Life(began=T0, ended=edge, other_cpu_s=0.0)}
    shuffled = data.draw(st.permutations(spans))
    assert check(shuffled, life, cpu_witness=False)["max_gap_fraction"] == 0.0
    lost = data.draw(st.sampled_from(spans))
    found = check([span for span in shuffled if span is not lost], life, cpu_witness=False)
    assert found["max_gap_fraction"] == pytest.approx(lost.seconds / (edge - T0), rel=1e-6)
