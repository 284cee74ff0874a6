"""What a command points to is kept until its worker has answered."""

from __future__ import annotations

from typing import Any

import pytest

from engine.run.held import ANSWERS, Held
from engine.worker import messages as msg

WEIGHTS = msg.Weights(version=3, handle="w3")
SNAPSHOT = msg.SnapshotHandle(version=3, weights="w3", moments="m3", optimizer_steps=3, folder=None)
STEP_DONE: dict[str, Any] = {
    "stats": None,
    "handle": None,
    "snapshot": None,
    "merge_s": 0.0,
    "optimizer_s": 0.0,
    "publish_s": 0.0,
    "snapshot_s": 0.0,
    "published_at": 0.0,
}

PAIRS: list[tuple[Any, Any, Any]] = [
    (
        msg.LoadWeights(version=3, handle="w3"),
        msg.WeightsLoaded(version=2, seconds=0.0, at=0.0),
        msg.WeightsLoaded(version=3, seconds=0.0, at=0.0),
    ),
    (
        msg.Restore(snapshot=SNAPSHOT),
        msg.Restored(version=2, seconds=0.0, at=0.0),
        msg.Restored(version=3, seconds=0.0, at=0.0),
    ),
    (
        msg.FinishStep(step=3, gradients=(), own=True, publish=True),
        msg.StepDone(step=2, **STEP_DONE),
        msg.StepDone(step=3, **STEP_DONE),
    ),
    (
        msg.BeginLease(lease=3, step=1, weights=WEIGHTS),
        msg.LeaseReady(lease=2, version=3, began_at=0.0, at=0.0, phases={}),
        msg.LeaseReady(lease=3, version=3, began_at=0.0, at=0.0, phases={}),
    ),
    (
        msg.EndLease(lease=3, step=1, revoke=False, weights=WEIGHTS, snapshot=None),
        msg.LeaseReleased(lease=2, version=3, began_at=0.0, at=0.0, phases={}),
        msg.LeaseReleased(lease=3, version=3, began_at=0.0, at=0.0, phases={}),
    ),
    (
        msg.Move(home="train", step=1, weights=WEIGHTS, snapshot=SNAPSHOT, reference=None),
        msg.Log(level="info", text="", at=0.0),
        msg.Moved(home="train", version=3, at=0.0, phases={}),
    ),
    (
        msg.Prepare(reference="r"),
        msg.Log(level="info", text="", at=0.0),
        msg.Prepared(memory={}, rehearsal=None),
    ),
]


def test_every_command_that_points_to_arrays_is_kept() -> None:
    assert {type(command) for command, _, _ in PAIRS} == set(ANSWERS)


@pytest.mark.parametrize(("command", "other", "answer"), PAIRS, ids=lambda value: type(value).__name__)
def test_a_command_is_kept_until_its_own_answer(command: Any, other: Any, answer: Any) -> None:
    held = Held()
    held.send(1, command)
    held.hear(1, other)
    held.hear(2, answer)
    assert held.of(1) == (command,)
    held.hear(1, answer)
    assert held.of(1) == ()


def test_what_a_dead_worker_was_sent_is_let_go() -> None:
    held = Held()
    held.send(1, PAIRS[0][0])
    held.send(2, PAIRS[0][0])
    held.lose(1)
    assert (held.of(1), len(held.of(2))) == ((), 1)


def test_what_points_to_nothing_is_not_kept() -> None:
    held = Held()
    held.send(1, msg.AbortGroups())
    assert held.of(1) == ()


def test_a_lease_that_ends_before_it_was_ready_lets_its_weights_go() -> None:
    held = Held()
    held.send(1, PAIRS[3][0])
    held.send(1, PAIRS[4][0])
    held.hear(1, PAIRS[4][2])
    assert held.of(1) == ()
