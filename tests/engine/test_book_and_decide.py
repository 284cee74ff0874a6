"""Books, policy and run loop together on random runs: they end, keep the staleness rules, and lose no prompt.

    BIDIRL_RANDOM_RUNS=20000 pytest tests/engine/test_book_and_decide.py -k random --timeout 0

plays more of them. A finding names its seed; `play_chain(seed, arm, consume, folder)` plays that one again.
"""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import checkpoints
from engine.config import Job
from engine.run.book import StartPoint
from planner.policy.staleness import Bound
from tests.engine.simulated import Physics
from tests.engine.simulated_run import GROUP_SIZE, SimulatedRun, items_are_those_of_the_order, make_job

RUNS = int(os.environ.get("BIDIRL_RANDOM_RUNS", 360))
"""Random runs in all, a third for each way to schedule."""

STALENESSES = (0, 0.25, 0.5, 1, 1.5, 2, 3)

WAYS = (("no_borrow", "whole_batch"), ("no_borrow", "stream"), ("colocated", "whole_batch"))


@dataclass
class Tally:
    """What the random runs have exercised."""

    counts: Counter[str] = field(default_factory=Counter)


def draw_job(rng: random.Random, arm: str, consume: str) -> Job:
    staleness = rng.choice(STALENESSES)
    steps = rng.randint(2, 7)
    schedule: dict[str, Any] = {
        "arm": arm,
        "staleness": staleness,
        "in_flight_updates": rng.choice((None, False)),
        "max_chunk_groups": rng.randint(1, 4),
        "consume": consume,
    }
    B = rng.randint(1, 7)
    epochs = rng.choice((None, None, 1, 2))
    # with epochs hardly more items than the steps need, so that exclusions use them up
    items = rng.choice((16, 300)) if epochs is None else -(-steps * B // epochs) + rng.randint(0, 2)
    devices: dict[str, Any] = {"rollout_slots": GROUP_SIZE * rng.randint(1, 2 * B + 1)}
    if arm == "colocated":
        devices |= {"partition": "auto", "count": rng.randint(1, 3)}
    else:
        devices |= {"partition": f"{rng.randint(1, 3)}:{rng.randint(1, 3)}"}
    return make_job(
        algorithm={"prompts_per_step": B, "steps": steps},
        task={"items": items, "shuffle": rng.random() < 0.8, "epochs": epochs},
        eval={
            "items": rng.choice((0, 4)),
            "every_steps": rng.randint(0, 3),
            "control_prefix": rng.choice((None, "<think>")),
        },
        schedule=schedule,
        devices=devices,
        checkpoint={"every_steps": rng.randint(0, 3), "keep": rng.randint(1, 3)},
    )


def draw_physics(rng: random.Random) -> Physics:
    return Physics(
        delay_s=rng.choice((0.001, 0.02, 0.5)),
        group_s=rng.choice((0.1, 1.0, 3.0)),
        tail=rng.choice((0.0, 0.5, 2.0)),
        chunk_s=rng.choice((0.02, 0.3, 2.0)),
        excluded=rng.choice((0.0, 0.05, 0.05, 0.3)),
    )


def disturb(run: SimulatedRun, rng: random.Random, tally: Tally) -> None:
    """Pauses, changes of staleness and a stop at random moments."""
    physics, algorithm = run.workers.physics, run.job.algorithm
    length_s = algorithm.steps * (algorithm.prompts_per_step * physics.group_s / 2 + physics.chunk_s)
    for _ in range(rng.choice((0, 0, 1, 2))):
        begin = rng.uniform(0, length_s)
        run.at(begin, partial(set_paused, run, True))
        run.at(begin + rng.uniform(0, length_s / 4), partial(set_paused, run, False))
        tally.counts["pauses"] += 1
    if run.job.schedule.arm != "colocated":
        for _ in range(rng.choice((0, 0, 1, 3))):
            bound = Bound(staleness=rng.choice(STALENESSES), prompts_per_step=algorithm.prompts_per_step)
            run.at(rng.uniform(0, length_s), partial(setattr, run.book, "bound", bound))
            tally.counts["changes of staleness"] += 1
    if rng.random() < 0.4:
        run.at(rng.uniform(0, length_s), run.run.request_stop)


def set_paused(run: SimulatedRun, paused: bool) -> None:
    run.book.paused = paused


def check_evaluations(run: SimulatedRun) -> None:
    """Held-out ones at the first version, every N and the last; those of a version before its step is made."""
    job, begin, reached = run.job, run.start.version, run.book.step.version
    every = job.eval.every_steps
    ends = {begin, reached} if run.book.steps_left == 0 else {begin}
    due = ends | {v for v in range(begin, reached + 1) if every and v % every == 0}
    expected = {(v, "held_out") for v in due if job.eval.items}
    if job.eval.items and job.eval.control_prefix:
        expected |= {(v, "control") for v in ends}
    done = run.recorder.evals
    assert set(done) <= expected
    assert len(set(done)) == len(done)
    missing = expected - set(done)
    assert all(version == reached for version, _ in missing), missing
    assert not (run.run.state == "finished" and missing), missing


def check_checkpoints(run: SimulatedRun) -> None:
    """Every N steps, after the last one, and where a run was stopped; the newest ones are kept."""
    job, begin, reached = run.job, run.start.version, run.book.step.version
    every = job.checkpoint.every_steps
    due = {v for v in range(begin + 1, reached + 1) if every and v % every == 0} | (
        {reached} if reached > begin else set()
    )
    assert [saved.step for saved in run.run.observer.saved] == sorted(due), run.describe()
    kept = [version for version, _ in checkpoints.checkpoints(run.folder)]
    assert kept == sorted(due)[-job.checkpoint.keep :]


def play_chain(seed: int, arm: str, consume: str, folder: Path, tally: Tally | None = None) -> None:
    """A random run; each time it is stopped, another one continues it from its newest checkpoint."""
    rng, tally = random.Random(f"{seed} {arm} {consume}"), tally or Tally()
    job, physics = draw_job(rng, arm, consume), draw_physics(rng)
    start, consumed, excluded = StartPoint(), [], []
    for life in range(20):
        run = SimulatedRun(job, folder / str(life), seed=rng.randrange(2**32), physics=physics, start=start)
        disturb(run, rng, tally)
        run.play()
        tally.counts[run.run.state] += 1
        tally.counts["steps"] += len(run.recorder.steps)
        tally.counts["stale groups"] += sum(s.version > g.version for s, _ in run.recorder.steps for g in s.taken)
        assert run.run.error is None, run.run.error
        check_evaluations(run)
        check_checkpoints(run)
        assert items_are_those_of_the_order([g for step, _ in run.recorder.steps for g in step.taken], job)
        if run.run.state == "finished":
            consumed += run.consumed()
            excluded += run.excluded()
            break
        assert run.run.state == "stopped"
        found = checkpoints.newest(run.folder)
        if found is None:  # nothing was learnt in this life: the next one begins where it began
            assert run.book.step.version == start.version
            continue
        point = found[1]
        consumed += run.consumed(point.version)
        excluded += run.excluded(point)
        assert len(excluded) == point.excluded, "the starting rule counts what the history does not say"
        start = point
        if start.version == job.algorithm.steps:
            return
    else:
        pytest.fail("twenty lives and not finished")
    reached, B = run.book.step.version, job.algorithm.prompts_per_step
    assert len(consumed) == reached * B
    # places of the data order, each once: nothing twice, and nothing skipped
    used = sorted(consumed + excluded)
    if not run.used_up:
        assert reached == job.algorithm.steps
        assert used == list(range(len(used)))
    else:
        tally.counts["used up"] += 1
        assert job.task.epochs is not None
        assert len(set(used)) == len(used)
        assert job.task.epochs * job.task.items - len(used) < B


@pytest.mark.parametrize(("arm", "consume"), WAYS, ids=lambda word: word)
def test_random_runs_end_and_use_every_prompt_once_within_its_bound(
    arm: str, consume: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tally = Tally()
    for seed in range(RUNS // len(WAYS)):
        with caplog.at_level(logging.WARNING):
            try:
                play_chain(seed, arm, consume, tmp_path / str(seed), tally)
            except Exception as error:
                raise AssertionError(f"seed {seed}, {arm} {consume}: {error}") from error
        assert "without settling" not in caplog.text, f"seed {seed}"
    share = RUNS // len(WAYS)
    assert tally.counts["stopped"] > share / 10
    assert tally.counts["pauses"] > share / 4
    assert tally.counts["used up"] > 0
    assert arm == "colocated" or tally.counts["stale groups"] > 3 * share


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
