"""Books, policy and run loop together on random runs: they end, keep the staleness rules, and lose no prompt.

    BIDIRL_RANDOM_RUNS=2000 pytest tests/engine/test_book_and_decide.py -k random --timeout 0

plays that many of each kind. A finding names its way and its seed; `random_runs.play_chain` plays that one again.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from pathlib import Path

import pytest

from planner.policy.staleness import Bound
from tests.engine.random_runs import LENDING, STALENESSES, Tally, Way, play_chain
from tests.engine.simulated import Physics
from tests.engine.simulated_run import SimulatedRun, make_job

RUNS = int(os.environ.get("BIDIRL_RANDOM_RUNS", 0))
"""Random runs of each kind; 0: few enough for every day."""

WITHOUT_LEASES = (Way("no_borrow", "whole_batch"), Way("no_borrow", "stream"), Way("colocated"))

DYING = (Way("no_borrow", "whole_batch", deaths=True), Way("no_borrow", "stream", deaths=True))


def play(way: Way, few: int, folder: Path, caplog: pytest.LogCaptureFixture) -> Tally:
    """Random runs of one kind."""
    tally = Tally()
    for seed in range(RUNS or few):
        with caplog.at_level(logging.WARNING):
            try:
                play_chain(way, seed, folder / str(seed), tally)
            except Exception as error:
                raise AssertionError(f"seed {seed}, {way}: {error}") from error
        assert "without settling" not in caplog.text, f"seed {seed}, {way}"
    return tally


@pytest.mark.parametrize("way", WITHOUT_LEASES, ids=str)
def test_random_runs_end_and_use_every_prompt_once_within_its_bound(
    way: Way, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tally = play(way, 60, tmp_path, caplog)
    share = tally.counts["runs"] / 2
    assert tally.counts["stopped"] > share / 10
    assert tally.counts["pauses"] > share / 4
    assert tally.counts["used up"] > 0
    assert way.arm == "colocated" or tally.counts["stale groups"] > 3 * share
    assert tally.counts["leases"] == tally.counts["lend"] == 0


@pytest.mark.parametrize("way", DYING, ids=str)
def test_random_runs_whose_workers_die_end_alike(way: Way, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tally = play(way, 25, tmp_path, caplog)
    assert tally.counts["deaths"] > tally.counts["runs"]
    assert tally.counts["finished"] > tally.counts["failed"] * 3


@pytest.mark.parametrize("consume", ["whole_batch", "stream"])
@pytest.mark.parametrize("arm", LENDING)
def test_random_runs_that_lend_devices_end_alike(
    arm: str, consume: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tally = play(Way(arm, consume), 8, tmp_path, caplog)
    assert tally.counts["lend"] == tally.counts["leases"] > 0
    assert tally.counts["measured gains"] > 0
    assert tally.counts["ended by policy"] > 0
    assert tally.counts["replayed"] > 0


@pytest.mark.parametrize("consume", ["whole_batch", "stream"])
@pytest.mark.parametrize("arm", LENDING)
def test_random_runs_that_lend_devices_whose_workers_die_end_alike(
    arm: str, consume: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tally = play(Way(arm, consume, deaths=True), 9, tmp_path, caplog)
    assert tally.counts["leases"] > 0
    assert tally.counts["deaths"] > tally.counts["runs"]
    assert tally.counts["finished"] > tally.counts["failed"] * 3


def test_two_plays_of_one_seed_are_equal(tmp_path: Path) -> None:
    first, second = (
        SimulatedRun(make_job(schedule={"staleness": 1.5}), tmp_path / name, seed=4) for name in ("first", "second")
    )
    first.play()
    second.play()
    assert first.workers.clock.now == second.workers.clock.now
    assert first.workers.trained == second.workers.trained
    assert [row for _, row in first.recorder.steps] == [row for _, row in second.recorder.steps]


@pytest.mark.parametrize("rollout", [1, 2, 3])
@pytest.mark.parametrize("staleness", STALENESSES)
def test_the_whole_staleness_is_used_and_no_more(staleness: float, rollout: int, tmp_path: Path) -> None:
    # rollouts are much faster than training, so groups wait as long as they may
    run = SimulatedRun(
        make_job(
            algorithm={"prompts_per_step": 4, "steps": 8},
            schedule={"staleness": staleness},
            devices={"partition": f"{rollout}:1"},
        ),
        tmp_path,
        physics=Physics(group_s=0.1, chunk_s=5.0, excluded=0.0, delay_s=0.001),
    )
    run.play()
    lags = Counter(step.version - group.version for step, _ in run.recorder.steps for group in step.taken)
    bound = Bound(staleness=staleness, prompts_per_step=4)
    assert max(lags) == bound.k + (bound.F > 0)
    if bound.F:
        last = [sum(step.version - g.version == bound.k + 1 for g in step.taken) for step, _ in run.recorder.steps]
        assert max(last) == bound.F
