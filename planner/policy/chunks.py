"""What becomes of a chunk that an auxiliary was given when its lease ends or a process dies (design section 7, table).

"Exactly once" hangs on this table: every cell says what happens, none is left to a default. It only decides; aborting,
fetching and queueing again is the caller's.
"""

from __future__ import annotations

from enum import StrEnum


# queued -> running -> finished -> fetched; queued -> cancelled; running, finished, fetched -> queued (put back)
class ChunkState(StrEnum):
    """Owned by whoever hands out chunks."""

    QUEUED = "queued"
    """handed to a trainer that has not begun it"""
    RUNNING = "running"
    """its gradient is being accumulated"""
    FINISHED = "finished"
    """its gradient is complete and only the auxiliary has it"""
    FETCHED = "fetched"
    """its gradient is merged into that of the primary"""
    CANCELLED = "cancelled"
    """released before it ran"""


class ChunkEvent(StrEnum):
    """What can happen to the lease or the process that a chunk depends on."""

    REVOKED = "revoked"
    """an operator or the home role takes the device back at once"""
    AUXILIARY_DIED = "auxiliary_died"
    """the process or the device that has the chunk is gone"""
    PRIMARY_DIED = "primary_died"
    """the primary trainer is gone, and the gradient that it accumulated"""
    RELEASED = "released"
    """the lease ends in the ordinary way: nothing new is begun"""


class Outcome(StrEnum):
    """What the caller does with the chunk."""

    BACK_TO_QUEUE = "back_to_queue"
    """all its groups are queued again, and what was computed is dropped"""
    STOP_AT_GROUP_BOUNDARY = "stop_at_group_boundary"
    """it ends with the group that it works on: finished groups are kept, the others are queued again"""
    FINISH_FIRST = "finish_first"
    """it runs to its end and is fetched before the device leaves"""
    FETCH_FIRST = "fetch_first"
    """its gradient is fetched before the device leaves"""
    KEPT = "kept"
    """nothing changes: it is trained"""
    CANCEL = "cancel"
    """it becomes cancelled; its groups are queued again in new chunks"""
    TERMINAL = "terminal"
    """it was over before"""


TABLE: dict[ChunkState, dict[ChunkEvent, Outcome]] = {
    ChunkState.QUEUED: {
        ChunkEvent.REVOKED: Outcome.BACK_TO_QUEUE,
        ChunkEvent.AUXILIARY_DIED: Outcome.BACK_TO_QUEUE,
        ChunkEvent.PRIMARY_DIED: Outcome.BACK_TO_QUEUE,
        ChunkEvent.RELEASED: Outcome.CANCEL,
    },
    ChunkState.RUNNING: {
        ChunkEvent.REVOKED: Outcome.STOP_AT_GROUP_BOUNDARY,
        ChunkEvent.AUXILIARY_DIED: Outcome.BACK_TO_QUEUE,
        ChunkEvent.PRIMARY_DIED: Outcome.BACK_TO_QUEUE,
        ChunkEvent.RELEASED: Outcome.FINISH_FIRST,
    },
    ChunkState.FINISHED: {
        ChunkEvent.REVOKED: Outcome.FETCH_FIRST,
        ChunkEvent.AUXILIARY_DIED: Outcome.BACK_TO_QUEUE,
        ChunkEvent.PRIMARY_DIED: Outcome.BACK_TO_QUEUE,
        ChunkEvent.RELEASED: Outcome.FETCH_FIRST,
    },
    ChunkState.FETCHED: {
        ChunkEvent.REVOKED: Outcome.KEPT,
        ChunkEvent.AUXILIARY_DIED: Outcome.KEPT,
        ChunkEvent.PRIMARY_DIED: Outcome.BACK_TO_QUEUE,  # unless the engine holds it: see `after`
        ChunkEvent.RELEASED: Outcome.KEPT,
    },
    ChunkState.CANCELLED: dict.fromkeys(ChunkEvent, Outcome.TERMINAL),
}


def after(state: ChunkState, event: ChunkEvent, *, held: bool) -> Outcome:
    """The table's cell. `held`: the engine has its own copy of the merged gradient, so the primary's death loses none.

    A copy matters only to a fetched chunk: before that there is nothing that the engine could hold.
    """
    if state is ChunkState.FETCHED and event is ChunkEvent.PRIMARY_DIED and held:
        return Outcome.KEPT
    return TABLE[state][event]
