"""What a change is expected to do: from the simulator, relative to what was measured, and nothing outside of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from engine.config import load_job, settings_of, to_profile
from engine.config.steering import LIVE_ARMS
from engine.config.whatif import groups_wanted, idle_shares, recent, undone, work_of
from planner.simulator.setup import Setup
from planner.simulator.simulator import Simulator
from planner.whatif import LEAST_STEPS, Lately, Work, predict

ROOT = Path(__file__).parents[2]
JOB = load_job(ROOT / "jobs" / "emulated_16.yaml", ["devices.partition=8:8", "algorithm.prompts_per_step=24"])
WORK = work_of(JOB, None)
assert JOB.profile is not None
PROFILE = to_profile(JOB.profile)
NOW = settings_of(JOB)
LATELY = Lately(steps=10, tokens_per_s=5000.0, idle={"waiting_for_groups": 0.1, "staleness_cap": 0.05}, lag=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A stored step."""

    step: int
    t_start: float
    t_end: float
    prompt_tokens: int = 40
    response_tokens: int = 60
    lag: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A stored command, one that was applied at once unless told otherwise."""

    id: int
    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    state: str = "applied"
    created_at: float = 0.0
    accepted_at: float | None = 0.0
    applied_at: float | None = 0.0
    effective_step: int | None = 1
    result: Mapping[str, Any] | None = None


def ask(lately: Lately = LATELY, work: Work = WORK, **changes: Any) -> Any:
    return predict(work, NOW, NOW | changes, lately)


def test_nothing_changes_where_nothing_is_changed() -> None:
    found = ask()
    assert found.why_not is None
    assert found.ratio.middle == 1.0
    assert found.tokens_per_s.middle == LATELY.tokens_per_s
    assert found.idle == pytest.approx(LATELY.idle)
    assert found.lag == pytest.approx(LATELY.lag)


def test_a_worse_arm_is_expected_to_be_slower_and_to_idle_more() -> None:
    found = ask(arm="no_borrow")
    assert found.ratio.middle < 0.95
    assert found.tokens_per_s.middle == pytest.approx(found.ratio.middle * 5000.0)
    assert sum(found.idle.values()) > sum(LATELY.idle.values())


def test_the_model_s_error_on_this_run_widens_the_band_and_moves_nothing() -> None:
    simulated = 5000.0 * (1 + ask().model_error)
    right = ask(replace(LATELY, tokens_per_s=simulated), partition="4:12")
    wrong = ask(replace(LATELY, tokens_per_s=simulated / 1.2), partition="4:12")
    assert (right.model_error, wrong.model_error) == pytest.approx((0.0, 0.2), abs=1e-9)
    assert wrong.ratio.middle == right.ratio.middle
    assert wrong.ratio.high / wrong.ratio.middle == pytest.approx(1.2 * right.ratio.high / right.ratio.middle)


def test_more_staleness_means_more_lag() -> None:
    assert ask(staleness=3.0).lag > LATELY.lag > ask(staleness=0.0).lag == 0.0


def test_a_cap_of_no_lent_devices_is_as_an_arm_that_lends_nothing() -> None:
    capped, off = ask(lend_cap=0), ask(rollout_on_train=False, train_on_rollout=False)
    assert capped.ratio.middle == pytest.approx(off.ratio.middle, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"staleness": 4.5}, "staleness 4.5 is outside 0 to 4, where the model was tested", id="staleness"),
        pytest.param(
            {"partition": "6:10"}, "the simulator cannot play it: 10 train devices are no multiple", id="split"
        ),
        pytest.param({"partition": None}, "a run without pools is not predicted", id="no pools"),
    ],
)
def test_outside_of_what_was_tested_there_is_a_reason_and_no_number(changes: dict[str, Any], told: str) -> None:
    found = ask(**changes)
    assert found.why_not.startswith(told)
    assert (found.ratio, found.tokens_per_s, found.lag, found.model_error, found.idle) == (None, None, None, None, {})


def test_a_run_that_has_hardly_begun_or_measured_nothing_is_not_predicted() -> None:
    few = ask(replace(LATELY, steps=LEAST_STEPS - 1), staleness=2.0)
    assert few.why_not == "4 steps were made with the present settings; 5 are needed"
    unknown = ask(work=replace(WORK, profile=None), staleness=2.0)
    assert unknown.why_not == "the run has not measured all of its speeds and switch costs"


def test_a_job_too_large_to_be_waited_for_is_not_simulated() -> None:
    found = ask(work=replace(WORK, prompts_per_step=4096), staleness=2.0)
    assert "too much to simulate while somebody waits" in found.why_not


@pytest.mark.parametrize("arm", LIVE_ARMS)
@pytest.mark.parametrize("min_lease_s", [20.0, 60.0, 1000.0])
def test_a_least_length_of_leases_is_played_to_its_end(arm: str, min_lease_s: float) -> None:
    # with leases that end only when their time is over nothing else may happen until then
    for partition, staleness in (("8:8", 0.0), ("4:12", 0.5), ("12:4", 1.0)):
        found = ask(arm=arm, partition=partition, staleness=staleness, min_lease_s=min_lease_s)
        assert found.why_not is None


def test_no_simulated_lease_ends_before_its_least_length_and_some_end_with_it() -> None:
    trace = Simulator(
        Setup(profile=PROFILE, arm="opportunistic", streaming=False, staleness=0.0, rollout_devices=8, train_devices=8,
              prompts_per_step=24, steps=8, min_lease_s=60.0)
    ).run()  # fmt: skip
    lasted = [lease.ended_at - lease.granted_at for lease in trace.leases if lease.ended_at is not None]
    assert min(lasted) == pytest.approx(60.0, abs=1e-3)
    assert min(lasted) >= 60.0


def test_no_more_devices_are_lent_than_the_cap_allows() -> None:
    setup = Setup(profile=PROFILE, arm="bidirectional", streaming=True, staleness=0.0, rollout_devices=8,
                  train_devices=8, prompts_per_step=24, steps=8, lend_cap=4)  # fmt: skip
    trace = Simulator(setup).run()
    turns = sorted(
        [(lease.released_at or trace.wall_s, -setup.block_size) for lease in trace.leases]
        + [(lease.granted_at, setup.block_size) for lease in trace.leases]
    )
    assert max(accumulate(devices for _, devices in turns)) == 4


def test_every_expected_figure_lies_in_its_band_and_the_model_s_error_is_part_of_it() -> None:
    found = ask(staleness=0.0)
    assert list(found.idle_bands) == list(found.idle)
    for cause, band in found.idle_bands.items():
        assert 0.0 <= band.low <= band.middle == found.idle[cause] <= band.high <= 1.0
    assert found.idle_total.low <= sum(found.idle.values()) <= found.idle_total.high
    # nothing differs, so the band is what the simulator is off: above and below as much
    band = ask().idle_bands["waiting_for_groups"]
    assert band.middle == pytest.approx(0.1)
    assert band.high - band.middle == pytest.approx(band.middle - band.low) or band.low == 0.0
    late = ask(staleness=3.0).lag_band
    assert 0.0 <= late.low <= late.middle <= late.high <= 3.0


def test_only_steps_that_the_present_settings_govern_and_no_pause_interrupted_are_recent() -> None:
    rows = [Row(step=step, t_start=10.0 * step, t_end=10.0 * step + 10.0) for step in range(1, 21)]
    assert [each.step for each in recent(rows, [])] == list(range(11, 21))
    paused = [
        Command(id=1, kind="pause", created_at=151.0, effective_step=15),
        Command(id=2, kind="resume", created_at=152.0, effective_step=15),
    ]
    assert [each.step for each in recent(rows, paused)] == [16, 17, 18, 19, 20]
    refused = Command(id=3, kind="pause", created_at=191.0, state="rejected", effective_step=None)
    assert recent(rows, [refused, *paused]) == recent(rows, paused)
    under_way = Command(id=4, kind="staleness", created_at=191.0, state="accepted", effective_step=None)
    assert recent(rows, [under_way]) == ()


def test_an_undo_takes_back_the_last_change_that_was_not_taken_back() -> None:
    began = {"staleness": 1.0, "partition": "8:8", "lend_cap": None, "arm": "bidirectional"}
    first = Command(id=1, kind="staleness", payload={"staleness": 2})
    second = Command(id=2, kind="policy", payload={"lend_cap": 4, "arm": "no_borrow"})
    third = Command(id=3, kind="staleness", payload={"staleness": 0.5})
    refused = Command(id=4, kind="partition", payload={"partition": "4:12"}, state="rejected", accepted_at=None)
    undo = Command(id=5, kind="undo")
    assert undone(began, []) is None
    assert undone(began, [second, first]) == ("policy", {"lend_cap": None, "arm": "bidirectional"})
    assert undone(began, [refused, third, second, first]) == ("staleness", {"staleness": 2.0})
    assert undone(began, [undo, refused, third, second, first]) == (
        "policy",
        {"lend_cap": None, "arm": "bidirectional"},
    )
    assert undone(began, [undo, first]) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A stored group."""

    responses: tuple[Mapping[str, Any], ...]


def groups(count: int, tokens: int, size: int = JOB.algorithm.group_size) -> list[Group]:
    return [Group(responses=({"text": "", "tokens": tokens},) * size) for _ in range(count)]


def test_responses_are_as_long_as_those_of_the_newest_groups() -> None:
    assert groups_wanted(JOB) == 10 * 24
    short, long = (ask(work=work_of(JOB, None, groups(48, tokens))) for tokens in (200, 2000))
    # another length is another work: what the simulator reaches with it is another rate
    assert short.model_error != pytest.approx(long.model_error, rel=0.05)
    assert short.ratio.middle == long.ratio.middle == 1.0


def test_without_enough_whole_groups_lengths_are_drawn_from_the_profile() -> None:
    assert work_of(JOB, None, groups(47, 100)).recorded is None
    assert work_of(JOB, None, groups(48, 100, size=3)).recorded is None
    assert work_of(JOB, None, groups(48, 0)).recorded == (((1,) * JOB.algorithm.group_size,) * 48)


def test_each_seed_takes_the_recorded_groups_in_another_order() -> None:
    some = [group for tokens in (300, 600, 900, 1200) for group in groups(12, tokens)]
    found = ask(work=work_of(JOB, None, some), partition="4:12")
    assert found.ratio.low < found.ratio.middle < found.ratio.high


def test_idle_shares_are_of_all_device_time() -> None:
    assert idle_shares({0: {"rollout": 6.0, "idle_no_work": 2.0}, 1: {"train": 8.0, "idle_staleness_cap": 4.0}}) == {
        "staleness_cap": 0.2,
        "no_work": 0.1,
    }
    assert idle_shares({}) == {}
