"""Leases on real workers with the tiny model: what goes back, what is shipped, which weights are held afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.learning.sequences import FinishedGroup
from engine.worker import messages as msg
from tests.engine.hot_switch_rig import (
    PATIENCE_S,
    B,
    Worker,
    make_job,
    make_request,
    renumbered,
    with_signal,
)


class Rig:
    """One rollout device and two train devices, all ready; the first trainer made the weights."""

    def __init__(self, folder: Path) -> None:
        job = make_job()
        self.folder = folder
        self.roll, self.first, self.second = (Worker(device, folder, job) for device in range(3))
        self.workers = (self.roll, self.first, self.second)
        ready = [worker.next(msg.Ready) for worker in self.workers]
        self.ready = ready[1]
        assert self.ready.snapshot is not None
        self.snapshot = self.ready.snapshot
        self.weights = msg.Weights(version=0, handle=self.ready.handle)
        assert all(entry.rehearsal is not None for entry in ready)

    def reset(self) -> None:
        """As after the start: all primaries at version 0, the rollouter with its weights."""
        for worker in self.workers:
            worker.events.clear()
        for worker in (self.first, self.second):
            worker.send(msg.DiscardStep(), msg.Restore(snapshot=self.snapshot))
            assert worker.next(msg.Restored).version == 0
        self.roll.send(msg.LoadWeights(version=0, handle=self.weights.handle))
        self.roll.next(msg.WeightsLoaded)

    def groups(self, count: int) -> list[msg.SealedGroup]:
        """Answers of the first weights, with a signal."""
        return [with_signal(renumbered(group, place)) for place, group in enumerate(self._answers(count))]

    def _answers(self, count: int) -> list[FinishedGroup]:
        groups = self.roll.generate(*(make_request(place) for place in range(min(count, B))))
        return [groups[place % len(groups)] for place in range(count)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    torch.set_num_threads(1)
    rig = Rig(tmp_path_factory.mktemp("rig"))
    # before anything was loaded: see the test of that name
    rig.roll.begin_lease(100, rig.weights)
    rig.roll.end_lease(100, 1, weights=rig.weights)
    assert rig.roll.next(msg.LeaseReleased).version == 0
    yield rig
    for worker in rig.workers:
        worker.close()


@pytest.fixture
def rig(made: Rig) -> Rig:
    made.reset()
    return made


LEASE = iter(range(1000))


def same(left: FinishedGroup, right: FinishedGroup) -> bool:
    """The same answers, bit by bit."""
    return all(
        np.array_equal(a.tokens, b.tokens) and np.array_equal(a.logprobs, b.logprobs)
        for a, b in zip(left.responses, right.responses, strict=True)
    )


def test_a_rollouter_that_was_lent_before_its_first_weights_comes_home_with_them(made: Rig) -> None:
    # `made` lent it and called it home before anything else: its model was built with weights that are nobody's
    group = made.roll.generate(make_request(0))[0]
    lease = next(LEASE)
    made.first.begin_lease(lease, made.weights)
    assert same(group, made.first.generate(make_request(0))[0])
    made.first.end_lease(lease, 1)
    made.first.next(msg.LeaseReleased)


def test_a_group_that_a_lease_aborts_goes_on_from_its_prefix_on_an_auxiliary(rig: Rig) -> None:
    whole = rig.roll.generate(make_request(3))[0]
    aborted, lease = None, next(LEASE)
    for tokens in range(1, 200):
        # the lease begins while it generates; how far it has come by then is the machine's matter
        rig.roll.send(msg.Generate(requests=(make_request(3),)))
        threading.Event().wait(0.002 * tokens)
        rig.roll.send(msg.BeginLease(lease=lease, step=1, weights=rig.weights))
        aborted = rig.roll.next(msg.GroupsAborted)
        rig.roll.next(msg.LeaseReady)
        rig.roll.end_lease(lease, 1, weights=rig.weights)
        rig.roll.next(msg.LeaseReleased)
        lease = next(LEASE)
        if aborted.groups and aborted.groups[0].tokens:
            break
    assert aborted is not None
    prefix = aborted.groups[0]
    assert 0 < prefix.tokens < whole.response_tokens
    ready = rig.second.begin_lease(lease, rig.weights)
    assert ready.at >= ready.began_at
    assert ready.phases.keys() == {"ship", "fetch", "load"}
    rig.second.decoded.clear()
    resumed = rig.second.generate(prefix.request())[0]
    assert rig.second.next(msg.LeaseWorking).lease == lease
    assert same(resumed, whole)
    assert resumed.started_at == prefix.started_at
    rig.second.end_lease(lease, 1)
    released = rig.second.next(msg.LeaseReleased)
    assert (released.lease, released.version) == (lease, 0)
    assert sum(unit.resumes for unit in rig.second.decoded if unit.lease == lease) > 0
    roles = {span.role for span in rig.second.spans if span.kind == "rollout"}
    assert roles == {"auxiliary"}


class Gate:
    """Stops the trainer of a worker after the first bundle of each chunk."""

    def __init__(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        trainer = worker.roles.train._trainer
        self.started, self.release = threading.Event(), threading.Event()
        train = trainer._train

        def held(groups: Sequence[FinishedGroup], samples: Any) -> Any:
            stats = train(groups, samples)
            self.started.set()
            assert self.release.wait(PATIENCE_S)
            return stats

        monkeypatch.setattr(trainer, "_train", held)
        monkeypatch.setattr("engine.learning.torch_trainer.bundles", lambda samples, **_: one_by_one(len(samples)))


def one_by_one(count: int) -> list[range]:
    """Every group is a forward pass of its own."""
    return [range(place, place + 1) for place in range(count)]


@pytest.mark.parametrize("revoke", [True, False], ids=["revoked", "ended"])
def test_the_running_chunk_of_a_lease_ends_early_only_when_it_is_revoked_and_the_next_one_never_begins(
    revoke: bool, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, lease = rig.groups(B + 2), next(LEASE)
    rig.roll.begin_lease(lease, rig.weights)
    gate = Gate(rig.roll, monkeypatch)
    rig.roll.send(
        msg.TrainChunk(chunk_id=1, step=1, groups=tuple(groups[:B])),
        msg.TrainChunk(chunk_id=2, step=1, groups=tuple(groups[B:])),
    )
    assert gate.started.wait(PATIENCE_S)
    rig.roll.end_lease(lease, 1, revoke=revoke, weights=rig.weights)
    gate.release.set()
    running, waiting = rig.roll.next(msg.ChunkDone), rig.roll.next(msg.ChunkDone)
    done = 1 if revoke else B
    assert (running.trained, running.given_back) == (tuple(range(done)), tuple(range(done, B)))
    assert running.stats.groups == done
    assert (waiting.trained, waiting.given_back, waiting.stats.groups) == ((), (B, B + 1), 0)
    assert rig.roll.next(msg.GradientShipped).gradient.tokens > 0
    rig.roll.next(msg.LeaseReleased)
    assert not any(isinstance(event, msg.GradientShipped) for event in rig.roll.events)


def test_what_an_auxiliary_trained_before_it_was_revoked_and_what_it_gave_back_make_the_step_that_one_trainer_makes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    groups, lease = rig.groups(B), next(LEASE)
    rig.roll.begin_lease(lease, rig.weights)
    with monkeypatch.context() as patch:
        gate = Gate(rig.roll, patch)
        rig.roll.send(msg.TrainChunk(chunk_id=1, step=1, groups=tuple(groups)))
        assert gate.started.wait(PATIENCE_S)
        rig.roll.end_lease(lease, 1, revoke=True, weights=rig.weights)
        gate.release.set()
        done = rig.roll.next(msg.ChunkDone)
        shipped = rig.roll.next(msg.GradientShipped).gradient
        rig.roll.next(msg.LeaseReleased)
    back = [group for group in groups if group.group_id in done.given_back]
    rig.first.train(1, back)
    made = rig.first.finish_step(1, [shipped], own=True)
    assert made.merge_s > 0
    rig.second.train(1, groups)
    alone = rig.second.finish_step(1, [], own=True)
    assert alone.merge_s < made.merge_s
    assert made.stats == alone.stats
    hashes = [w.parameters_sha256(tmp_path / str(w.spec.device), 1) for w in (rig.first, rig.second)]
    assert hashes[0] == hashes[1]


def test_a_primary_ships_what_it_has_accumulated_when_it_is_lent_and_once_only(rig: Rig, tmp_path: Path) -> None:
    groups, lease = rig.groups(B), next(LEASE)
    rig.second.train(1, groups[:2])
    rig.second.begin_lease(lease, rig.weights)
    shipped = rig.second.next(msg.GradientShipped)
    assert shipped.step == 1
    rig.second.end_lease(lease, 1)
    rig.second.next(msg.LeaseReleased)
    rig.second.train(1, groups[2:])
    rig.second.send(msg.ShipGradient(step=1))
    rest = rig.second.next(msg.GradientShipped)
    rig.first.send(msg.ShipGradient(step=1))
    empty = rig.first.next(msg.GradientShipped)
    assert empty.gradient.tokens == 0
    gradients = [empty.gradient, shipped.gradient, rest.gradient]
    for worker, publish in ((rig.first, True), (rig.second, False)):
        made = worker.finish_step(1, gradients, own=False, publish=publish)
        assert (made.handle is not None) == (made.snapshot is not None) == publish
    hashes = [w.parameters_sha256(tmp_path / str(w.spec.device), 1) for w in (rig.first, rig.second)]
    assert hashes[0] == hashes[1]


def test_a_primary_that_comes_home_behind_goes_on_from_the_snapshot_bit_by_bit(rig: Rig, tmp_path: Path) -> None:
    groups, lease = rig.groups(B), next(LEASE)
    rig.second.begin_lease(lease, rig.weights)
    rig.first.train(1, groups)
    made = rig.first.finish_step(1, [], own=True)
    assert made.snapshot is not None
    rig.second.end_lease(lease, 2, snapshot=made.snapshot)
    released = rig.second.next(msg.LeaseReleased)
    assert released.version == 1
    assert released.phases.keys() == {"drain", "restore"}
    for worker in (rig.first, rig.second):
        worker.train(2, groups)
        worker.finish_step(2, [], own=True)
    hashes = [w.parameters_sha256(tmp_path / str(w.spec.device), 2) for w in (rig.first, rig.second)]
    assert hashes[0] == hashes[1], "parameters or moments differ"


def test_a_primary_that_comes_home_and_is_not_behind_keeps_what_it_has(rig: Rig) -> None:
    lease = next(LEASE)
    rig.second.begin_lease(lease, rig.weights)
    rig.second.end_lease(lease, 1, snapshot=rig.snapshot)
    assert rig.second.next(msg.LeaseReleased).phases.keys() == {"drain"}


def test_a_primary_is_rolled_back_to_the_start_with_its_optimizer(rig: Rig, tmp_path: Path) -> None:
    groups = rig.groups(B)
    rig.second.train(1, groups)
    rig.second.finish_step(1, [], own=True)
    # whoever was to publish the first step has died: the step is made again from the start
    rig.second.send(msg.Restore(snapshot=rig.snapshot))
    assert rig.second.next(msg.Restored).version == 0
    for worker in (rig.first, rig.second):
        for step in (1, 2):
            worker.train(step, groups)
            worker.finish_step(step, [], own=True)
    hashes = [w.parameters_sha256(tmp_path / str(w.spec.device), 2) for w in (rig.first, rig.second)]
    assert hashes[0] == hashes[1], "the optimizer kept what the step that was rolled back left in it"


def test_an_auxiliary_takes_a_newer_version_and_trains_at_it(rig: Rig) -> None:
    groups, lease = rig.groups(B), next(LEASE)
    rig.first.train(1, groups)
    made = rig.first.finish_step(1, [], own=True)
    rig.roll.begin_lease(lease, rig.weights)
    rig.roll.send(msg.LoadWeights(version=1, handle=made.handle))
    assert rig.roll.next(msg.WeightsLoaded).version == 1
    assert set(rig.roll.train(2, groups).stats.by_lag) == {1}
    newest = msg.Weights(version=1, handle=made.handle)
    rig.roll.end_lease(lease, 2, weights=newest)
    rig.roll.next(msg.GradientShipped)
    assert rig.roll.next(msg.LeaseReleased).version == 1


def test_being_called_home_twice_is_being_called_home_once(rig: Rig) -> None:
    lease = next(LEASE)
    rig.roll.begin_lease(lease, rig.weights)
    rig.roll.end_lease(lease, 1, weights=rig.weights)
    rig.roll.end_lease(lease, 1, revoke=True, weights=rig.weights)
    rig.roll.next(msg.LeaseReleased)
    assert len(rig.roll.generate(make_request(1))) == 1
    assert not any(isinstance(event, msg.LeaseReleased) for event in rig.roll.events)
