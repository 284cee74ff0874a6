"""Taking the other role and coming back, tried before a run begins: it warms the passive role up and measures the cost.

What it measures lacks the way of the messages and the token or chunk under way; the first real leases replace it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from engine.config import Job
from engine.learning.sequences import FinishedGroup, Response
from engine.worker.messages import Rehearsal

if TYPE_CHECKING:
    from engine.learning.weights import Vector
    from engine.worker.rollout_role import RolloutRole
    from engine.worker.train_role import TrainRole

TOKENS = 4
"""Of each made-up response: enough for one forward and backward pass."""


def rehearse(home: str, rollout: RolloutRole, train: TrainRole, job: Job) -> Rehearsal:
    """Seconds of each part, the second time round."""
    vector = train.vector()
    if home == "train":
        rollout.rehearse(vector)
        in_s = _timed(lambda: rollout.load(vector, 0))
        rollout.rest()
        return Rehearsal(in_s=in_s, out_s=in_s, grad_s=0.0)
    return _rehearse_training(train, vector, job)


def _rehearse_training(train: TrainRole, vector: Vector, job: Job) -> Rehearsal:
    train.rehearse([_made_up(job)])
    in_s = _timed(lambda: train.take(vector, 0))
    grad_s = _timed(train.copy_gradient)
    train.discard()
    return Rehearsal(in_s=in_s, out_s=in_s, grad_s=2 * grad_s)


def _made_up(job: Job) -> FinishedGroup:
    """A group whose responses differ in reward, so that it carries a gradient."""
    tokens = np.ones(TOKENS, dtype=np.int32)
    size = job.algorithm.group_size
    return FinishedGroup(
        group_id=-1,
        epoch=0,
        position=0,
        item=0,
        bound=0.0,
        version=0,
        prompt="",
        prompt_tokens=tokens,
        responses=tuple(
            Response(
                tokens=tokens,
                logprobs=np.zeros(TOKENS, dtype=np.float32),
                versions=((0, TOKENS),),
                text="",
                finished_by="length",
                reward=float(place == 0),
            )
            for place in range(size)
        ),
        started_at=0.0,
        finished_at=0.0,
    )


def _timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin
