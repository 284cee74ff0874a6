"""What belongs to a version besides training: evaluations and checkpoints. Pure; names as telemetry stores them."""

from __future__ import annotations

HELD_OUT, CONTROL, CHECKPOINT = "held_out", "control", "checkpoint"


def due_work(
    version: int, *, first: bool, last: bool, eval_every: int | None, control: bool, checkpoint_every: int
) -> frozenset[str]:
    """What is due once version `version` (optimizer updates) is reached.

    `first`, `last`: the run begins or ends with it. `eval_every`: steps between held-out evaluations besides those two,
    0 for none, None when evaluation is off. `control`: the first and the last evaluation are repeated as a control.
    `checkpoint_every`: steps between checkpoints besides the last one, 0 for none.
    """
    due = set()
    if eval_every is not None and (first or last or _every(eval_every, version)):
        due.add(HELD_OUT)
    if eval_every is not None and control and (first or last):
        due.add(CONTROL)
    if not first and (last or _every(checkpoint_every, version)):
        due.add(CHECKPOINT)
    return frozenset(due)


def _every(steps: int, version: int) -> bool:
    return steps > 0 and version % steps == 0
