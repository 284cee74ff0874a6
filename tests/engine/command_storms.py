"""Random runs under random commands: valid ones, nonsense, duplicates, stale ones and late ones, while leases are out,
checkpoints are written, workers die and the run is paused.

`play_storm(seed, folder)` plays the one that a finding names again.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from engine.config import DevicesConfig, settings_of
from engine.run.commands import RunCommands
from storage.mailbox import Mailbox
from storage.words import CHANGE_KINDS
from tests.engine.random_deaths import Killer, ended_by_deaths
from tests.engine.random_runs import LENDING, Way, draw_job, draw_physics, replay_check
from tests.engine.simulated_run import SimulatedRun

DEVICES = 4

NONSENSE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("staleness", {"staleness": -1}),
    ("staleness", {"staleness": "1"}),
    ("staleness", {}),
    ("partition", {"partition": "4:0"}),
    ("partition", {"partition": "5:5"}),
    ("partition", {"partition": "much"}),
    ("partition", {"partition": 12}),
    ("policy", {"arm": "colocated"}),
    ("policy", {"arm": "fast"}),
    ("policy", {"lend_cap": -1}),
    ("policy", {"min_lease_s": 1e9}),
    ("policy", {"rollout_on_train": 1}),
    ("policy", {"color": "red"}),
    ("stop", {"mode": "perhaps"}),
)


def draw_command(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Something that an operator might send."""
    match rng.choice(("staleness", "partition", "partition", "policy", "policy", "undo", "rest", "nonsense")):
        case "staleness":
            return "staleness", {"staleness": rng.choice((0, 0.25, 0.5, 1, 1.5, 2, 3))}
        case "partition":
            return "partition", {"partition": rng.choice(("1:3", "2:2", "3:1"))}
        case "policy":
            change = rng.choice(
                (
                    {"arm": rng.choice(("no_borrow", *LENDING))},
                    {rng.choice(("rollout_on_train", "train_on_rollout")): rng.random() < 0.5},
                    {"lend_cap": rng.choice((None, 0, 1, 2)), "min_lease_s": rng.choice((0.0, 0.5, 3.0))},
                )
            )
            return "policy", dict(change)
        case "undo":
            return "undo", {}
        case "rest":
            return rng.choice(("pause", "resume", "resume", "checkpoint")), {}
        case _:
            return rng.choice(NONSENSE)


class Storm:
    """A run and its operators."""

    def __init__(self, seed: int, folder: Path, counts: Counter[str]) -> None:
        self.rng = rng = random.Random(f"storm {seed}")
        self.counts = counts
        way = Way(rng.choice(("no_borrow", "bidirectional", *LENDING)), rng.choice(("stream", "whole_batch")))
        job, physics = draw_job(rng, way), draw_physics(rng, way)
        devices = job.devices.model_copy(update={"partition": job.devices.partition, "count": "auto"})
        job = job.model_copy(
            update={
                "devices": DevicesConfig.model_validate(
                    devices.model_dump() | {"partition": rng.choice(("1:3", "2:2", "3:1"))}
                ),
                "schedule": job.schedule.model_copy(update={"consume": None}),
                "algorithm": job.algorithm.model_copy(update={"steps": rng.randint(8, 16)}),
                "task": job.task.model_copy(update={"epochs": None, "items": 300}),
            }
        )
        self.sim = SimulatedRun(job, folder / "run", seed=rng.randrange(2**32), physics=physics)
        self.mailbox = Mailbox(folder / "control.db", clock=lambda: self.sim.workers.clock.now)
        self.commands = RunCommands(self.sim.run, self.mailbox)
        self.sim.each_tick = self.commands.settle
        self.expected = settings_of(job)
        """What governs after the commands accepted so far, by this file's own count."""
        self.history: list[dict[str, Any]] = []
        self.sent: list[int] = []
        if rng.random() < 0.3:
            Killer(self.sim, rng, counts)
        algorithm = job.algorithm
        length_s = algorithm.steps * (algorithm.prompts_per_step * physics.group_s / 2 + physics.chunk_s)
        for _ in range(rng.randint(4, 20)):
            self.sim.at(rng.uniform(0, length_s), partial(self.send, *draw_command(rng)))
        if rng.random() < 0.3:
            mode = rng.choice(("now", "drain"))
            self.sim.at(rng.uniform(length_s / 2, length_s), partial(self.send, "stop", {"mode": mode}))
        self.sim.at(length_s * 1.2, self._go_on)

    def _go_on(self) -> None:
        """Whatever the storm did, the run is not left paused."""
        self.mailbox.send("resume", {}, "run", who="bob")
        for command in self.mailbox.pending():
            self.commands.receive(command)

    def send(self, kind: str, payload: dict[str, Any]) -> None:
        """A command arrives, now and then twice, or made for another version, or too late."""
        rng, version = self.rng, self.commands.config_version
        stale = rng.random() < 0.15
        expected = version - 1 if stale else rng.choice((None, version))
        key = f"key {len(self.sent)}"
        times = 2 if rng.random() < 0.2 else 1
        ids = {
            self.mailbox.send(kind, payload, "run", who="ann", idem_key=key, expected_config_version=expected)
            for _ in range(times)
        }
        assert len(ids) == 1, "the same key is the same command"
        if rng.random() < 0.1:
            late = self.mailbox.send(kind, payload, "run", who="ann", expires_in_s=1e-6)
            self.mailbox.expire(self.sim.workers.clock.now + 1.0)
            assert self.mailbox.get(late).state == "expired"
            self.counts["expired"] += 1
        (command_id,) = ids
        self.sent.append(command_id)
        for command in self.mailbox.pending():
            self.commands.receive(command)
        self.counts["commands"] += 1
        answer = self.mailbox.get(command_id)
        assert answer.state != "pending"
        assert answer.answer or kind == "resume", f"{kind} {payload} has no answer"
        if answer.state == "rejected":
            self.counts["rejected"] += 1
            assert not stale or expected is None or answer.answer
            return
        assert not (stale and expected is not None), f"{kind} {payload} was made for another version and accepted"
        self.counts[f"accepted {kind}"] += 1
        if kind in CHANGE_KINDS:
            self.history.append({name: self.expected[name] for name in payload})
            self.expected |= payload
        elif kind == "undo":
            self.expected |= self.history.pop()

    def play(self) -> None:
        """To its end; every answer and the state that is left are looked at."""
        sim = self.sim
        sim.play()
        self.commands.end()
        assert settings_of(sim.book.job) == self.expected
        assert sim.book.bound.staleness == self.expected["staleness"]
        assert sim.recorder.columns.get("settings", settings_of(sim.job)) == self.expected
        assert self.mailbox.list(state="pending") == self.mailbox.list(state="accepted") == []
        answers = [self.mailbox.get(command_id) for command_id in self.sent]
        for answer in answers:
            self.counts[answer.state] += 1
        partitions = [a for a in answers if a.kind == "partition" and a.state in ("applied", "superseded")]
        undone = any(answer.kind == "undo" and answer.state == "applied" for answer in answers)
        if partitions and not undone and partitions[-1].state == "applied":
            rollout = int(partitions[-1].payload["partition"].split(":")[0])
            late = [a for a in answers if a.kind == "partition" and a.id > partitions[-1].id and a.accepted_at]
            if not late:
                homes = [spec.home for spec in sim.run.specs]
                assert homes == ["rollout"] * rollout + ["train"] * (DEVICES - rollout)
                assert tuple(sim.book.trainers) == tuple(range(rollout, DEVICES))
        self.counts["moved devices"] += sum(len((a.result or {}).get("moved", ())) for a in answers)
        self.counts["leases"] += sim.run.lending.count
        self.counts["steps"] += len(sim.recorder.steps)
        self.counts["replayed"] += replay_check(sim)
        self.counts[sim.run.state] += 1
        if sim.run.state == "failed":
            assert ended_by_deaths(sim), sim.run.error
        if sim.run.state == "finished":
            assert len(sim.recorder.steps) == sim.job.algorithm.steps
        self.mailbox.close()


def play_storm(seed: int, folder: Path, counts: Counter[str] | None = None) -> Storm:
    """One storm, to its end."""
    storm = Storm(seed, folder, Counter() if counts is None else counts)
    storm.play()
    return storm
