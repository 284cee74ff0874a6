"""Random runs: a job, speeds and an operator drawn from a seed, workers that die, and what must hold in the end.

`play_chain(Way(...), seed, folder)` plays the one that a finding names again.
"""

from __future__ import annotations

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
from planner.replay import replay
from tests.engine.random_deaths import Killer, ended_by_deaths
from tests.engine.simulated import Physics
from tests.engine.simulated_run import GROUP_SIZE, SimulatedRun, items_are_those_of_the_order, make_job

STALENESSES = (0, 0.25, 0.5, 1, 1.5, 2, 2.3, 3)

PARTITIONS = ("1:1", "2:1", "1:2", "2:2", "3:1", "1:3")

LENDING = ("rollout_on_train", "train_on_rollout", "opportunistic", "bidirectional_paper", "bidirectional")


@dataclass(frozen=True)
class Way:
    """How runs are scheduled, and whether their workers die."""

    arm: str
    consume: str = "whole_batch"
    deaths: bool = False

    def __str__(self) -> str:
        return f"{self.arm} {self.consume}{' with deaths' if self.deaths else ''}"

    @property
    def lends(self) -> bool:
        return self.arm in LENDING


@dataclass
class Tally:
    """What the random runs have exercised."""

    counts: Counter[str] = field(default_factory=Counter)


def draw_job(rng: random.Random, way: Way) -> Job:
    B = rng.randint(1, 7)
    # leases need measured speeds, and these a few steps
    steps = rng.randint(6, 16) if way.lends else rng.randint(2, 7)
    schedule: dict[str, Any] = {
        "arm": way.arm,
        "staleness": rng.choice(STALENESSES),
        "in_flight_updates": rng.choice((None, None, False)),
        "max_chunk_groups": rng.randint(1, 4),
        "consume": way.consume,
        "record_states": way.lends and rng.random() < 0.2,
    }
    epochs = rng.choice((None, None, 1, 2))
    # with epochs hardly more items than the steps need, so that exclusions use them up
    items = rng.choice((16, 300)) if epochs is None else -(-steps * B // epochs) + rng.randint(0, 2)
    # few slots: then more rollouters are of use
    slots = rng.choice((1, 2, rng.randint(1, 2 * B + 1)))
    devices: dict[str, Any] = {"rollout_slots": GROUP_SIZE * slots}
    if way.arm == "colocated":
        devices |= {"partition": "auto", "count": rng.randint(1, 3)}
    else:
        devices |= {"partition": rng.choice(PARTITIONS)}
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
        **({"profile": draw_profile(rng, slots)} if way.lends and rng.random() < 0.3 else {}),
    )


def draw_profile(rng: random.Random, slots: int) -> dict[str, Any]:
    """What a job may say of its speeds: the policy lends from the first moment on, rightly or wrongly."""
    cost_s = rng.choice((0.001, 0.05, 1.0))
    return {
        "rollout": {
            "slots": GROUP_SIZE * slots,
            "tokens_per_s": rng.choice((20.0, 200.0, 2000.0)),
            "half_batch": rng.choice((0.0, 2.0)),
            "resume_tokens": 1.0,
        },
        "train": {"tokens_per_s": rng.choice((50.0, 500.0)), "chunk_s": 0.01, "max_chunk_groups": 4},
        "optimizer_s": 0.05,
        "weight_sync_s": 0.05,
        "switch": {
            "rollout_on_train": {"in_s": cost_s, "out_s": cost_s},
            "train_on_rollout": {"in_s": cost_s, "out_s": cost_s, "grad_s": cost_s / 2},
        },
        "response_tokens": {"median": 30.0, "max": 200},
        "prompt_tokens": 3.0,
    }


def draw_physics(rng: random.Random, way: Way) -> Physics:
    # where devices are lent one role is mostly much slower than the other, so that a pool idles
    group_s, chunk_s = rng.choice(((0.1, 2.0), (1.0, 1.0), (3.0, 0.05), (3.0, 0.3), (1.0, 0.3)))
    if not way.lends:
        group_s, chunk_s = rng.choice((0.1, 1.0, 3.0)), rng.choice((0.02, 0.3, 2.0))
    return Physics(
        delay_s=rng.choice((0.001, 0.02, 0.02 if way.lends else 0.5)),
        group_s=group_s,
        tail=rng.choice((0.0, 0.5, 1.0 if way.lends else 2.0)),
        chunk_s=chunk_s,
        switch_s=rng.choice((0.001, 0.02, 0.1, 1.0)),
        excluded=rng.choice((0.0, 0.05, 0.05, 0.3)),
        back_s=rng.choice((0.2, 2.0, 10.0)),
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


def count_run(run: SimulatedRun, tally: Tally) -> None:
    """What it has exercised."""
    counts, recorder = tally.counts, run.recorder
    counts["runs"] += 1
    counts[run.run.state] += 1
    counts["steps"] += len(recorder.steps)
    counts["stale groups"] += sum(s.version > g.version for s, _ in recorder.steps for g in s.taken)
    counts["replayed"] += replay_check(run)
    for row in {row.lease: row for row in recorder.leases}.values():
        counts["leases"] += 1
        counts[f"lease: {row.direction}"] += 1
        counts[f"ended by {row.ended_by}"] += 1
        counts["measured gains"] += row.measured_gain_s is not None
    for decision in recorder.decided:
        counts[decision.action] += 1


def replay_check(run: SimulatedRun) -> int:
    """The policy, asked again, decides the same from every state that was kept."""
    count, differences = replay(row.data for row in run.recorder.kept)
    assert not differences, differences[:1]
    return count


def play_chain(way: Way, seed: int, folder: Path, tally: Tally | None = None) -> None:
    """A random run; each time it is stopped, another one continues it from its newest checkpoint."""
    rng, tally = random.Random(f"{seed} {way}"), tally or Tally()
    job, physics = draw_job(rng, way), draw_physics(rng, way)
    start, consumed, excluded = StartPoint(), [], []
    for life in range(20):
        run = SimulatedRun(job, folder / str(life), seed=rng.randrange(2**32), physics=physics, start=start)
        disturb(run, rng, tally)
        if way.deaths:
            Killer(run, rng, tally.counts)
        run.play()
        count_run(run, tally)
        if way.deaths and run.run.state == "failed" and (cause := ended_by_deaths(run)):
            tally.counts[cause] += 1
            return
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
    check_data_order(run, job, consumed, excluded, tally)


def check_data_order(run: SimulatedRun, job: Job, consumed: list[int], excluded: list[int], tally: Tally) -> None:
    """Places of the data order, each once: nothing twice, and nothing skipped."""
    reached, B = run.book.step.version, job.algorithm.prompts_per_step
    assert len(consumed) == reached * B
    used = sorted(consumed + excluded)
    if not run.used_up:
        assert reached == job.algorithm.steps
        assert used == list(range(len(used)))
        return
    tally.counts["used up"] += 1
    assert job.task.epochs is not None
    assert len(set(used)) == len(used)
    assert job.task.epochs * job.task.size - len(used) < B
