"""What becomes of an auxiliary's chunk: every cell of the design's table, and the ordinary end of a lease."""

from __future__ import annotations

import pytest

from planner.policy.chunks import TABLE, ChunkEvent, ChunkState, Outcome, after

Q, STOP, FETCH, KEPT, OVER = (
    Outcome.BACK_TO_QUEUE,
    Outcome.STOP_AT_GROUP_BOUNDARY,
    Outcome.FETCH_FIRST,
    Outcome.KEPT,
    Outcome.TERMINAL,
)

# state: (revoked, auxiliary died, primary died, primary died but the engine holds the gradient, released)
CELLS = {
    ChunkState.QUEUED: (Q, Q, Q, Q, Outcome.CANCEL),
    ChunkState.RUNNING: (STOP, Q, Q, Q, Outcome.FINISH_FIRST),
    ChunkState.FINISHED: (FETCH, Q, Q, Q, FETCH),
    ChunkState.FETCHED: (KEPT, KEPT, Q, KEPT, KEPT),
    ChunkState.CANCELLED: (OVER, OVER, OVER, OVER, OVER),
}
COLUMNS = (
    (ChunkEvent.REVOKED, False),
    (ChunkEvent.AUXILIARY_DIED, False),
    (ChunkEvent.PRIMARY_DIED, False),
    (ChunkEvent.PRIMARY_DIED, True),
    (ChunkEvent.RELEASED, False),
)


@pytest.mark.parametrize(
    ("state", "event", "held", "outcome"),
    [
        pytest.param(state, event, held, outcome, id=f"{state}-{event}{'-held' if held else ''}")
        for state, outcomes in CELLS.items()
        for (event, held), outcome in zip(COLUMNS, outcomes, strict=True)
    ],
)
def test_a_chunk_meets_the_outcome_of_its_cell(
    state: ChunkState, event: ChunkEvent, held: bool, outcome: Outcome
) -> None:
    assert after(state, event, held=held) is outcome


def test_every_state_and_every_event_has_a_cell() -> None:
    assert set(TABLE) == set(ChunkState) == set(CELLS)
    assert all(set(row) == set(ChunkEvent) for row in TABLE.values())
    assert {event for event, _ in COLUMNS} == set(ChunkEvent)


def test_the_engines_copy_changes_nothing_but_the_primarys_death() -> None:
    for state in ChunkState:
        for event in set(ChunkEvent) - {ChunkEvent.PRIMARY_DIED}:
            assert after(state, event, held=True) is after(state, event, held=False)


def test_only_a_gradient_that_somebody_alive_has_is_kept() -> None:
    """The auxiliary has it while running and finished, the primary once it is fetched, the engine when it holds it."""
    lost = {ChunkEvent.AUXILIARY_DIED: "auxiliary", ChunkEvent.PRIMARY_DIED: "primary"}
    for event, gone in lost.items():
        for held in (False, True):
            owners = {"primary"} | ({"engine"} if held else set())
            kept = after(ChunkState.FETCHED, event, held=held) is Outcome.KEPT
            assert kept == bool(owners - {gone})
    for state in (ChunkState.RUNNING, ChunkState.FINISHED):
        assert after(state, ChunkEvent.AUXILIARY_DIED, held=True) is Outcome.BACK_TO_QUEUE
