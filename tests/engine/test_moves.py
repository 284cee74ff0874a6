"""Real workers on the tiny model that change their home: what goes along, what is checked, and what stays behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.learning.snapshot import Snapshot, check_same
from engine.worker import messages as msg
from tests.engine.hot_switch_rig import Worker, make_job, make_request, renumbered, with_signal


class Rig:
    """One rollout device and two train devices of an arm that lends nothing: each has its own role only."""

    def __init__(self, folder: Path) -> None:
        job = make_job(schedule={"arm": "no_borrow"})
        self.folder = folder
        self.workers = tuple(Worker(device, folder, job, both=False) for device in range(3))
        self.roll, self.first, self.second = self.workers
        ready = [worker.next(msg.Ready) for worker in self.workers]
        assert ready[1].snapshot is not None
        self.snapshot = ready[1].snapshot
        self.weights = msg.Weights(version=0, handle=ready[1].handle)
        self.roll.send(msg.LoadWeights(version=0, handle=self.weights.handle))
        self.roll.next(msg.WeightsLoaded)
        self.second.send(msg.Restore(snapshot=self.snapshot))
        self.second.next(msg.Restored)

    def groups(self, count: int) -> list[msg.SealedGroup]:
        answers = self.roll.generate(*(make_request(place) for place in range(count)))
        return [with_signal(renumbered(group, place)) for place, group in enumerate(answers)]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    torch.set_num_threads(1)
    made = Rig(tmp_path)
    yield made
    for worker in made.workers:
        worker.close()


def test_a_rollouter_becomes_a_primary_trainer_that_steps_bit_by_bit_as_the_others(rig: Rig) -> None:
    groups = rig.groups(2)
    rig.roll.send(msg.Generate(requests=(make_request(7), make_request(8))))
    rig.roll.send(msg.Move(home="train", step=1, weights=rig.weights, snapshot=rig.snapshot, reference=None))
    assert len(rig.roll.next(msg.GroupsAborted).groups) == 2, "its groups go on elsewhere"
    moved = rig.roll.next(msg.Moved)
    assert (moved.home, moved.version) == ("train", 0)
    for worker in (rig.first, rig.second, rig.roll):
        worker.train(1, groups)
        worker.finish_step(1, (), own=True)
    digests = {worker.parameters_sha256(rig.folder / str(number), 1) for number, worker in enumerate(rig.workers)}
    assert len(digests) == 1
    rig.roll.send(msg.Evaluate(step=1, name="held_out", prefix="", part=1, parts=2))
    assert rig.roll.next(msg.EvalDone).items == 1, "the second of two held-out items"
    assert any(span.kind == "switch_in" and span.ref == "move" for span in rig.roll.spans)


def test_a_trainer_becomes_a_rollouter_that_answers_as_the_one_before_and_ships_what_it_had(rig: Rig) -> None:
    (wanted,) = rig.roll.generate(make_request(3))
    groups = rig.groups(1)
    rig.second.train(1, groups)
    rig.second.send(msg.Move(home="rollout", step=1, weights=rig.weights, snapshot=None, reference=None))
    shipped = rig.second.next(msg.GradientShipped)
    assert shipped.gradient.tokens > 0
    moved = rig.second.next(msg.Moved)
    assert (moved.home, moved.version) == ("rollout", 0)
    (answer,) = rig.second.generate(make_request(3))
    assert all(np.array_equal(a.tokens, b.tokens) for a, b in zip(answer.responses, wanted.responses, strict=True))
    back = replace(rig.snapshot)
    rig.second.send(msg.Move(home="train", step=1, weights=rig.weights, snapshot=back, reference=None))
    assert rig.second.next(msg.Moved).home == "train"
    # the step that its gradient belongs to, made by it and by the one that stayed
    for worker in (rig.first, rig.second):
        worker.finish_step(1, (shipped.gradient,), own=False)
    assert rig.first.parameters_sha256(rig.folder / "a", 1) == rig.second.parameters_sha256(rig.folder / "b", 1)


def test_a_device_that_takes_its_other_role_can_be_lent(rig: Rig) -> None:
    rig.roll.send(msg.Prepare(reference=None))
    prepared = rig.roll.next(msg.Prepared)
    assert set(prepared.memory) == {"train", "rollout"}
    assert prepared.rehearsal is not None
    assert prepared.rehearsal.in_s > 0
    groups = rig.groups(1)
    rig.roll.begin_lease(0, rig.weights)
    assert rig.roll.train(1, groups).trained == (0,)
    rig.roll.end_lease(0, 1, weights=rig.weights)
    assert rig.roll.next(msg.LeaseReleased).version == 0


SNAPSHOT = Snapshot(
    version=3,
    parameters=np.array([1.0, 2.0], dtype=np.float32),
    moments=np.array([[0.1, 0.2], [0.3, 0.4]], dtype=np.float32),
    optimizer_steps=3,
)


def test_a_trainer_that_holds_what_it_was_sent_passes() -> None:
    check_same(replace(SNAPSHOT), SNAPSHOT)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "version"),
        ({"optimizer_steps": 2}, "optimizer steps"),
        ({"parameters": np.array([1.0, 2.0000002], dtype=np.float32)}, "parameters"),
        ({"moments": np.zeros((2, 2), dtype=np.float32)}, "optimizer state"),
        ({"moments": np.zeros((0, 0), dtype=np.float32)}, "optimizer state"),
    ],
)
def test_one_that_does_not_is_named(change: dict, told: str) -> None:
    with pytest.raises(RuntimeError, match=f"does not hold the snapshot of version 3: {told}$"):
        check_same(replace(SNAPSHOT, **change), SNAPSHOT)


def test_a_snapshot_that_is_not_finite_makes_no_trainer() -> None:
    broken = replace(SNAPSHOT, parameters=np.array([1.0, np.inf], dtype=np.float32))
    with pytest.raises(RuntimeError, match=r"parameters \(not finite\)"):
        check_same(replace(broken), broken)
