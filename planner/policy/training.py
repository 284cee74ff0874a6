"""The trainer's side of a step, shared by all arms: chunks, evaluation, checkpoint, merge, optimizer.

Order within one version: chunks while there are any; evaluations of the version in the gaps; both evaluations and the
checkpoint must have run before the optimizer changes the parameters; then gradients are shipped and the step is made.
"""

from __future__ import annotations

from planner.policy.actions import Action, Checkpoint, Evaluate, FinishStep, ShipGradient, TrainChunk
from planner.policy.lazy_pull import TAIL_CHUNKS, joint_tail_split
from planner.policy.state import State, TrainReplica
from planner.stage_model import StageModel, slope

HALVES = 2
"""Chunks that a trainer's even share of a step is cut into at least: with whole shares the longest one holds up all."""


def train_actions(state: State, chunks: list[TrainChunk]) -> list[Action]:
    """Hand out the chunks that the arm chose, fill the gaps of the other trainers, close the step.

    `chunks`: at most one for each trainer that takes one.
    """
    if state.stopping:
        return _closing(state)
    actions: list[Action] = list(chunks)
    given = {chunk.device for chunk in chunks}
    idle = [replica for replica in idle_trainers(state) if replica.device not in given]
    idle, more = _evaluations(state, idle)
    actions += more
    first = _first_primary(state)
    if state.step.checkpoint_due and first is not None and first in idle:
        actions.append(Checkpoint(device=first.device, reason=f"checkpoint of version {state.step.version} is due"))
    if not actions and not state.paused:
        actions += _close_step(state)
    return actions


def _first_primary(state: State) -> TrainReplica | None:
    """Primaries alone own the optimizer, which belongs to a checkpoint; None while all of them are lent."""
    return next((replica for replica in state.train if replica.lease is None), None)


def idle_trainers(state: State) -> list[TrainReplica]:
    """Trainers that could be handed something now."""
    return [replica for replica in state.train if replica.ready and replica.busy is None]


def takes_chunk(replica: TrainReplica, chunks_ahead: int, now: float) -> bool:
    """It is idle, or about to end a chunk and holds fewer than it may."""
    if not replica.ready or replica.leaving or replica.busy is None:
        return replica.ready and not replica.leaving
    return replica.busy == "chunk" and replica.chunks < chunks_ahead and now >= replica.ahead_at


def about_to_rest(state: State, replica: TrainReplica, now: float) -> bool:
    """It has nothing to do, or will have nothing in a moment unless it is handed another chunk now."""
    return replica.busy is None or takes_chunk(replica, state.chunks_ahead, now)


def shared_chunks(state: State, queue: tuple[int, ...], now: float, *, batch_complete: bool) -> list[TrainChunk]:
    """Chunks from one queue that all trainers share, for those that are idle and then for those with one chunk.

    `batch_complete`: no more groups will join this step. A chunk is never more than half of a trainer's even share of
    what the step still has to hand out, so that chunks shrink toward the end of a step and no trainer ends long after
    the others ("factoring" of a loop whose iterations differ in length); nor, while a batch is filling, more than an
    idle trainer's share of what is ready. Before the batch is complete a working trainer is handed full chunks only:
    what is short now may be full by the time it is needed.
    """
    chunks: list[TrainChunk] = []
    if state.paused or state.stopping or not queue:
        return chunks
    takers = [replica for replica in state.train if takes_chunk(replica, state.chunks_ahead, now)]
    takers.sort(key=lambda replica: replica.chunks)
    trainers = sum(replica.ready and not replica.leaving for replica in state.train)
    shares = HALVES * trainers if trainers > 1 else 1
    open_groups = len(queue) if batch_complete else len(queue) + state.bound.prompts_per_step - _taken(state, queue)
    # the published rules take full chunks and split the tail between both sides; an even share from the start is better
    lent = any(replica.lease is not None for replica in state.train)
    published = state.arm == "bidirectional_paper" and lent and state.estimates is not None and len(takers) == 1
    coming = _coming(state)
    for place, replica in enumerate(takers):
        size = min(state.max_chunk_groups, len(queue), -(-open_groups // shares))
        if batch_complete or not replica.chunks:
            size = min(size, -(-len(queue) // (len(takers) - place)))
        elif size < state.max_chunk_groups:
            size = 0
        if published and trainers > 1:
            tail = len(queue) <= TAIL_CHUNKS * state.max_chunk_groups
            wanted = _tail_split(state, replica, len(queue), now) if tail else len(queue)
            size = min(state.max_chunk_groups, wanted)
        if coming and replica.chunks:
            # who works already leaves an even share to those that are about to begin
            size = min(size, len(queue) - coming * (len(queue) // (trainers + coming)))
        if size == 0:
            break
        chunk, queue = queue[:size], queue[size:]
        chunks.append(chunk_of(state, replica.device, chunk))
    return chunks


def _coming(state: State) -> int:
    """Auxiliary trainers that are preparing."""
    return sum(
        block.auxiliaries
        for block in state.blocks
        if block.pool == "rollout" and block.lease_state in ("granted", "preparing")
    )


def _tail_split(state: State, puller: TrainReplica, left: int, now: float) -> int:
    """Groups of the last ones that the puller takes so that it and the others end together."""
    assert state.estimates is not None
    group_s = slope(state.estimates.train)

    def ready_at(replica: TrainReplica) -> float:
        return max(now, replica.busy_since + replica.groups * group_s)

    others = [replica for replica in state.train if replica.ready and replica.device != puller.device]
    ready = sum(map(ready_at, others)) / len(others)
    return joint_tail_split(
        units=(1.0,) * left,
        now=ready_at(puller),  # one that is handed its next chunk ahead is still at work
        other_ready=ready,
        replicas=1,
        other_replicas=len(others),
        model=StageModel(a=0.0, b=group_s),
        primary=puller.lease is None,
    )


def _taken(state: State, queue: tuple[int, ...]) -> int:
    """Groups that the step has, those taken at this very moment included."""
    return len(state.step.taken) + len(queue) - len(state.step.queue)


def chunk_of(state: State, device: int, group_ids: tuple[int, ...]) -> TrainChunk:
    """A chunk with its reason."""
    reason = f"{len(group_ids)} groups of step {state.step.version} are ready and the trainer is idle"
    return TrainChunk(device=device, group_ids=group_ids, reason=reason)


def _closing(state: State) -> list[Action]:
    first = _first_primary(state)
    if state.step.checkpoint_due and first is not None and first.ready and first.busy is None:
        return [Checkpoint(device=first.device, reason="the run is stopping: keep what it has learnt")]
    return []


def _evaluations(state: State, idle: list[TrainReplica]) -> tuple[list[TrainReplica], list[Action]]:
    actions: list[Action] = []
    rest: list[TrainReplica] = []
    for replica in idle:
        part = next((name for name, device in state.step.evals_waiting if device == replica.device), None)
        if part is None or state.paused:
            rest.append(replica)
            continue
        actions.append(
            Evaluate(
                device=replica.device,
                name=part,
                reason=f"{part} evaluation of version {state.step.version} while no chunk is ready",
            )
        )
    return rest, actions


def _close_step(state: State) -> list[Action]:
    step = state.step
    waiting = step.evals_waiting or step.evals_running or step.checkpoint_due or step.checkpoint_running
    if step.trained < state.bound.prompts_per_step or waiting or state.steps_left == 0:
        return []
    primaries = [replica for replica in state.train if replica.lease is None]
    if state.closing_since is not None or not primaries:
        return []
    if any(replica.busy is not None for replica in state.train):
        return []
    if len(state.train) > 1:
        missing = [replica for replica in state.train if not replica.shipped]
        if missing:
            return [
                ShipGradient(device=replica.device, reason=f"all {step.trained} groups of the step are trained")
                for replica in missing
            ]
    return [
        FinishStep(
            devices=tuple(replica.device for replica in primaries),
            reason=f"all {step.trained} groups of step {step.version} are trained",
        )
    ]
