"""Emulated trainers: chunks and their boundaries, the step's end, and what the engine is told of them."""

from __future__ import annotations

import pytest

from engine.learning.stats import LagStats
from engine.worker import messages as msg
from tests.emulated.builders import DrivenNode, chunk, finish, load, make_job, sealed, whole_step

TWO_TRAINERS = {"partition": "4:8", "train_replica_size": 4}


def test_a_chunk_takes_what_its_tokens_take_and_the_next_one_follows_it() -> None:
    driven = DrivenNode()
    # 0.5 s + (2 * 10 + 30) / 100 s + (20 + 80) / 100 s; then 0.5 s + 0.5 s
    driven.send(1.0, (4, chunk(7, sealed(0, 10, 20), sealed(1, 30, 50))))
    driven.send(1.5, (4, chunk(8, sealed(2, 10, 20))))
    driven.until(10.0)
    first, second = driven.of(4, msg.ChunkDone)
    assert (first.chunk_id, first.step, first.trained, first.given_back) == (7, 1, (0, 1), ())
    assert first.seconds == pytest.approx(2.0 * driven.scale)
    assert [driven.model(event.at) for event in (first, second)] == pytest.approx([3.0, 4.0], abs=1e-5)
    assert second.trained == (2,)
    life = [("idle", 0.0, 1.0), ("train", 1.0, 3.0), ("train", 3.0, 4.0)]
    assert [driven.kinds(device) for device in (4, 5, 6, 7)] == [life] * 4
    assert [span.ref for span in driven.spans[7] if span.kind == "train"] == ["chunk 7", "chunk 8"]


def test_a_chunks_sums_are_those_of_its_groups_by_lag() -> None:
    driven = DrivenNode()
    driven.send(0.0, (4, load(2)), (4, chunk(0, sealed(0, 10, 20, version=1), sealed(1, 5, 5, version=2), step=3)))
    driven.until(10.0)
    (done,) = driven.of(4, msg.ChunkDone)
    stats = done.stats
    assert (stats.groups, stats.responses, stats.prompt_tokens) == (2, 4, 40)
    assert (stats.response_tokens, stats.tokens, stats.reward_mean) == (40, 40, 0.0)
    assert stats.by_lag == {1: LagStats(groups=1, tokens=30), 0: LagStats(groups=1, tokens=10)}


def test_a_step_is_the_optimizer_and_the_weight_sync() -> None:
    driven = DrivenNode()
    driven.send(0.0, (4, whole_step()))
    driven.send(3.0, (4, finish(own=True)))
    driven.until(20.0)
    (done,) = driven.of(4, msg.StepDone)
    assert (done.step, done.stats.version, done.stats.tokens, done.handle) == (1, 1, 120, ("weights", 1))
    assert done.snapshot is not None
    assert (done.snapshot.version, done.snapshot.moments) == (1, ("moments", 1))
    assert driven.model(done.published_at) == pytest.approx(5.0, abs=1e-5)
    times = (done.merge_s, done.optimizer_s, done.publish_s, done.snapshot_s)
    assert times == pytest.approx((0.0, 0.2, 0.1, 0.0))
    life = [("train", 0.0, 2.5), ("idle", 2.5, 3.0), ("optimizer", 3.0, 5.0)]
    assert driven.kinds(6) == [*life, ("weight_sync", 5.0, 6.0)]


def test_primaries_that_are_all_at_home_make_the_step_together_and_merge_in_no_time() -> None:
    driven = DrivenNode(make_job(devices=TWO_TRAINERS))
    driven.send(0.0, (4, chunk(0, sealed(0, 10, 20), sealed(1, 10, 20))))
    driven.send(0.0, (8, chunk(1, sealed(2, 10, 20), sealed(3, 10, 20))))
    driven.send(2.0, (4, msg.ShipGradient(step=1)), (8, msg.ShipGradient(step=1)))
    shipped = [driven.of(device, msg.GradientShipped)[0].gradient for device in (4, 8)]
    assert [gradient.tokens for gradient in shipped] == [60, 60]
    driven.send(2.0, (4, finish(*shipped)), (8, finish(*shipped, publish=False)))
    driven.until(20.0)
    (first,), (other,) = driven.of(4, msg.StepDone), driven.of(8, msg.StepDone)
    assert (first.handle, first.merge_s, first.stats.tokens) == (("weights", 1), 0.0, 120)
    assert (other.handle, other.snapshot, other.publish_s) == (None, None, 0.0)
    assert driven.kinds(4)[-1] == driven.kinds(11)[-1] == ("weight_sync", 4.0, 5.0)


def test_a_step_that_misses_a_group_fails_the_node() -> None:
    driven = DrivenNode()
    driven.send(0.0, (4, chunk(0, sealed(0, 10, 20))))
    driven.send(2.0, (4, finish(own=True)))
    (failed,) = driven.of(4, msg.Failed)
    assert "step 1 is made of groups [0]" in failed.error


def test_what_was_accumulated_is_forgotten_by_discarding_and_by_restoring() -> None:
    driven = DrivenNode()
    driven.send(0.0, (4, whole_step()))
    driven.send(3.0, (4, msg.DiscardStep()), (4, whole_step()))
    snapshot = driven.started[4][1].snapshot
    driven.send(6.0, (4, msg.Restore(snapshot=snapshot)), (4, whole_step()))
    driven.send(9.0, (4, finish(own=True)))
    driven.until(20.0)
    assert [event.version for event in driven.of(4, msg.Restored)] == [0]
    assert [event.stats.version for event in driven.of(4, msg.StepDone)] == [1]


def test_what_is_sent_while_a_step_is_made_waits_for_it() -> None:
    driven = DrivenNode()
    driven.send(0.0, (4, whole_step()))
    driven.send(3.0, (4, finish(own=True)))
    snapshot = driven.started[4][1].snapshot
    driven.send(4.0, (4, msg.Restore(snapshot=snapshot)))
    driven.until(20.0)
    told = [type(event).__name__ for event in driven.events[4]]
    assert told == ["ChunkDone", "StepDone", "Restored"]
    driven.send(21.0, (4, whole_step()))
    driven.until(30.0)
    assert not driven.of(4, msg.Failed)
