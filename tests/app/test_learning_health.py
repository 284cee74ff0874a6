"""Findings about learning, and its panels: what is not known is a gap, parts are told apart by lag and role."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.figures.panels import panels
from app.learning_health import EFFECTIVE_SHARE, MISMATCH_KL, NORM_TIMES, health
from app.learning_panels import Seen, legend, of_learning, of_speed, parts
from app.modelled import REAL, Pace
from app.step_speed import Axis
from storage.records import EvalRow, StepRow


def make_step(step: int = 1, **fields: Any) -> StepRow:
    values: dict[str, Any] = {
        "run_id": "run-1", "step": step, "t_start": 0.0, "t_end": float(step), "groups": 4, "prompt_tokens": 10,
        "response_tokens": 20, "reward_mean": 0.5, "entropy": 0.5, "grad_norm": 0.6, "staleness": 1.0,
        "metrics": {"mismatch_kl": 0.002, "ess": 0.9, "capped_share": 0.001},
    }  # fmt: skip
    return StepRow(**(values | fields))


def make_steps(count: int = 12, **last: Any) -> list[StepRow]:
    """Healthy steps; `last` are fields of the newest one."""
    steps = [make_step(n) for n in range(1, count + 1)]
    return [*steps[:-1], replace(steps[-1], **last)]


def test_a_healthy_run_has_no_findings() -> None:
    assert health(make_steps()) == []
    assert health([]) == []


def test_a_mismatch_above_its_limit_is_told_with_the_lag_that_is_worst() -> None:
    by_lag = {"0": {"mismatch_kl": 0.1, "ess": 0.8}, "2": {"mismatch_kl": 0.5, "ess": 0.3}}
    steps = [make_step(n, metrics={"mismatch_kl": 0.3, "ess": 0.9, "by_lag": by_lag}) for n in range(1, 9)]
    (card,) = health(steps)
    assert card.title == f"Mismatch KL 0.3 > {MISMATCH_KL}"
    assert "Mean of the last 8 steps, nats per token, worst at lag 2 (0.5)" in card.text
    assert health([replace(s, metrics={"mismatch_kl": MISMATCH_KL}) for s in steps]) == [], "at the limit it is well"


def test_a_small_effective_sample_is_told_with_the_lag_that_has_the_smallest() -> None:
    by_lag = {"0": {"ess": 0.8}, "2": {"ess": 0.3}}
    steps = [make_step(n, metrics={"ess": 0.4, "by_lag": by_lag}) for n in range(1, 9)]
    (card,) = health(steps)
    assert card.title == f"Effective sample size 40% < {EFFECTIVE_SHARE:.0%}"
    assert "worst at lag 2 (0.3)" in card.text


def test_an_entropy_that_collapsed_is_told() -> None:
    steps = [make_step(n, entropy=1.0 if n <= 10 else 0.05) for n in range(1, 21)]
    assert [card.title for card in health(steps)] == ["Entropy fell from 1 to 0.05 nats"]
    assert health([replace(s, entropy=None) for s in steps]) == [], "what is not reported is not low"


def test_a_gradient_far_beyond_its_usual_size_names_its_step() -> None:
    (card,) = health(make_steps(grad_norm=0.6 * NORM_TIMES * 2))
    assert card.title == "Gradient norm 12 in step 12, 20 times the usual"
    assert health(make_steps(4, grad_norm=100.0)) == [], "of four steps none is usual"


def seen_of(steps: list[StepRow], evals: list[EvalRow] | None = None) -> Seen:
    x = [float(s.step) for s in steps]
    on = Axis(title="step", x=x, zero=0.0)
    return Seen(steps=steps, evals=evals or [], axis=on, speed=[10.0] * len(x), idle=[0.25] * len(x))


BY_ROLE = {"primary": {"groups": 3, "ess": 0.9, "mismatch_kl": 0.1}, "auxiliary": {"groups": 1, "ess": 0.5}}


def test_learning_stands_beside_speed() -> None:
    shown = of_learning(seen_of(make_steps()), "", REAL)
    assert [panel.name for panel in shown[:3]] == ["Reward", "Tokens/s", "Idle share"]
    names = {panel.name for panel in shown}
    assert {"Loss", "Entropy", "Mismatch KL", "Effective sample size", "Capped and clipped", "Response length",
            "Groups without signal", "Gradient norm", "Learning rate", "Held-out accuracy"} <= names  # fmt: skip
    figure = panels(shown, axis={}, title="step", index="step", revision="a")
    assert all(trace.customdata is not None for trace in figure.data), "a click on any line tells its step"
    assert {figure.layout[f"xaxis{n}"].matches for n in range(2, len(shown) + 1)} == {"x"}, "all zoom together"


def test_parts_of_a_step_are_lines_of_their_own_and_a_step_without_a_part_is_a_gap() -> None:
    steps = [make_step(1, metrics={"by_role": BY_ROLE}), make_step(2, metrics={"by_role": {"primary": {"ess": 0.8}}})]
    panel = next(p for p in of_learning(seen_of(steps), "by_role", REAL) if p.name == "Effective sample size")
    assert {series.name: series.y for series in panel.series} == {
        "ESS, primary trainers": [0.9, 0.8],
        "ESS, auxiliary trainers": [0.5, None],
    }
    kl = next(p for p in of_learning(seen_of(steps), "by_role", REAL) if p.name == "Mismatch KL")
    assert {series.name: series.y for series in kl.series}["mismatch KL, auxiliary trainers"] == [None, None]


def test_lags_are_told_apart_in_their_order_and_what_is_not_recorded_is_no_part() -> None:
    steps = [make_step(1, metrics={"by_lag": {"10": {}, "2": {}}}), make_step(2, metrics={"by_lag": {"0": {}}})]
    assert parts(steps, "by_lag") == {"0": "lag 0", "2": "lag 2", "10": "lag 10"}
    assert parts(steps, "by_role") == {}
    assert parts([make_step(metrics={"by_lag": "nonsense"})], "by_lag") == {}
    assert [item["name"] for item in legend(steps, "by_lag")] == ["lag 0", "lag 2", "lag 10"]
    assert len({item["colour"] for item in legend(steps, "by_lag")}) == 3


def test_what_a_step_did_not_report_is_a_gap_and_its_title_a_dash() -> None:
    steps = make_steps(2, loss=None, metrics={"mismatch_kl": float("nan")})
    by_name = {panel.name: panel for panel in of_learning(seen_of(steps), "", REAL)}
    assert by_name["Mismatch KL"].series[0].y == [0.002, None]
    assert (by_name["Mismatch KL"].latest, by_name["Loss"].latest) == ("–", "–")
    assert by_name["Held-out accuracy"].series == []


def test_an_evaluation_stands_at_the_end_of_the_step_that_made_its_version() -> None:
    evals = [EvalRow(run_id="run-1", step=n, name="held_out", accuracy=0.5, items=8, at=0.0) for n in (0, 2)]
    seen = replace(seen_of([make_step(1), make_step(2)], evals), axis=Axis(title="tokens", x=[300.0, 700.0], zero=0.0))
    panel = next(p for p in of_learning(seen, "", REAL) if p.name == "Held-out accuracy")
    assert panel.series[0].x == [0.0, 700.0]


def test_devices_that_learn_nothing_have_panels_of_speed_only() -> None:
    shown = of_speed(seen_of(make_steps()), Pace(scale=0.02))
    assert [panel.name for panel in shown] == ["Tokens/s", "Idle share", "Lag against its cap"]
    assert shown[0].latest == "10, modelled"


@pytest.mark.parametrize("count", [0, 1, 1201, 5000])
def test_any_number_of_steps_is_drawn_with_the_newest_among_them(count: int) -> None:
    steps = [make_step(n) for n in range(1, count + 1)]
    seen = replace(seen_of(steps), speed=[1.0] * count)
    for panel in of_learning(seen, "", REAL):
        for series in panel.series:
            assert len(series.x) == len(series.y) <= 1200
            assert not count or series.x[-1] == count
