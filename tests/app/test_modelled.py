"""Emulated time: what is reckoned, by how much, and that real runs come back as they are."""

from __future__ import annotations

from typing import Any

import pytest

from app.clock import PageClock
from app.decision_rows import summaries
from app.key_figures import five_numbers
from app.lending import Lending
from app.modelled import REAL, Pace, explained, pace_of
from app.runs_table import Figures, Listed, row
from storage.records import LeaseOutcome, RunRow
from storage.words import DIRECTIONS
from tests.app.fake_lending import make_decision, make_lease
from tests.app.test_key_figures import make_run, make_step

FIFTY = Pace(scale=0.02)


def emulated(**fields: Any) -> RunRow:
    return make_run(**{"kind": "emulated", "time_scale": 0.02, **fields})


def test_real_seconds_are_their_own() -> None:
    lease, decision = make_lease(), make_decision()
    assert pace_of(make_run(kind="cpu")) == REAL
    assert (REAL.seconds(2.5), REAL.rate(2.5), REAL.sums({"train": 1.0})) == (2.5, 2.5, {"train": 1.0})
    assert (REAL.lease(lease), REAL.decision(decision)) == (lease, decision)
    assert (REAL.unit, REAL.badge, REAL.hover, REAL.wall_time) == ("", "", "", "")


def test_costs_and_gains_are_fifty_times_what_they_took_and_moments_stay() -> None:
    lease = FIFTY.lease(make_lease(gain_s=1.0, cost_s=None, in_s=0.25, measured_gain_s=-0.5, granted_at=7.0))
    assert (lease.gain_s, lease.cost_s, lease.in_s, lease.measured_gain_s) == (50.0, None, 12.5, -25.0)
    assert (lease.granted_at, lease.released_at) == (7.0, 1.0)
    assert FIFTY.decision(make_decision(gain_s=0.25, at=3.0)).gain_s == 12.5
    assert FIFTY.outcome(LeaseOutcome(in_out_median_s=None, judged=0, paid_off=0, lost=0)).in_out_median_s is None


@pytest.mark.parametrize(
    ("scale", "speed", "second"),
    [
        (0.02, "50 times faster", "1 second here stands for 50"),
        (1.0, "as fast", "1 second here stands for 1"),
        (2.0, "2 times slower", "1 second here stands for 0.5"),
    ],
)
def test_how_much_faster_is_told_in_words(scale: float, speed: str, second: str) -> None:
    pace = Pace(scale=scale)
    assert (pace.speed, pace.second) == (speed, second)
    assert pace.wall_time.startswith(f"wall time, {speed}")
    assert second in explained(pace)


def test_an_emulated_run_without_a_scale_is_still_emulated() -> None:
    assert pace_of(emulated(time_scale=None)) == Pace(scale=1.0)
    assert pace_of(emulated(time_scale=None)).unit == ", modelled"


def test_key_figures_of_emulated_devices_are_modelled_and_each_says_so() -> None:
    steps = [make_step(i) for i in range(1, 5)]
    whole = {"rollout": 9.0, "idle_no_work": 1.0}
    found = {n.key: n for n in five_numbers(emulated(), recent=whole, whole=whole, steps=steps, prompts_per_step=8)}
    # 400 tokens in 2 s here are 400 in 100 s there, and one idle second is fifty
    assert (found["tokens"].label, found["tokens"].exact) == ("Tokens/s, modelled", pytest.approx(4.0))
    assert found["tokens"].spark == pytest.approx((4.0,) * 4)
    assert (found["idle"].label, found["idle"].value) == ("Idle so far, modelled", "50 device-s")
    assert found["busy"].exact == pytest.approx(0.9)
    assert {n.tag for n in found.values()} == {"EMULATED"}


def test_a_row_of_the_runs_table_is_modelled_and_has_no_rewards() -> None:
    figures = Figures(idle=0.1, device_s=360.0, tokens_per_s=200_000.0)
    told = row(Listed(run=emulated(name="e"), state="running", figures=figures), PageClock())
    assert (told["kind"], told["lost device-h"], told["tokens/s"]) == ("EMULATED", pytest.approx(0.5), 4000.0)
    assert told["reward"] is None


def test_the_line_above_the_decisions_says_that_its_costs_are_modelled() -> None:
    direction = DIRECTIONS[0]
    lending = Lending(
        decisions=[],
        leases={},
        marked=[],
        counts={d: {"admitted": 1, "refused": 0, "delivered": 1} for d in DIRECTIONS},
        outcomes={
            d: LeaseOutcome(in_out_median_s=13.0 if d == direction else None, judged=0, paid_off=0, lost=0)
            for d in DIRECTIONS
        },
        summed_at=0.0,
    )
    assert "C\\_out 13 s, modelled" in summaries(lending, {}, FIFTY)[0]
