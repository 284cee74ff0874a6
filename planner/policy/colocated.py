"""Arm `colocated`: no pools, strictly on-policy. Each device generates its share of the step, then trains it.

    rollout (own share) -> switch -> train (own share) -> merge, optimizer -> evaluate, checkpoint -> switch -> rollout

A device changes to training when its own share is finished, whatever the others do; they meet at the merge.
"""

from __future__ import annotations

from planner.policy.actions import Action, StartGroups, SwitchRole, TakeGroups
from planner.policy.state import ColocatedDevice, State, TrainReplica
from planner.policy.training import chunk_of, takes_chunk, train_actions


def share_of(index: int, devices: int, prompts_per_step: int) -> int:
    """Groups of a step that belong to the device: shares differ by at most one and add up to the step."""
    return prompts_per_step * (index + 1) // devices - prompts_per_step * index // devices


def decide(state: State, now: float) -> list[Action]:
    """Move every device one phase on as soon as its own share allows."""
    actions: list[Action] = []
    chunks = []
    for device in state.colocated:
        if device.role == "rollout":
            actions += _rollout(state, device)
        elif _may_return(state, device):
            reason = f"step {state.step.version} begins: its share is {device.share} groups"
            actions.append(SwitchRole(device=device.device, role="rollout", reason=reason))
        elif device.queue and not state.paused and takes_chunk(_trainer(state, device), state.chunks_ahead, now):
            chunks.append(chunk_of(state, device.device, device.queue[: state.max_chunk_groups]))
    return actions + train_actions(state, chunks)


def _rollout(state: State, device: ColocatedDevice) -> list[Action]:
    replica = next(r for r in state.rollout if r.device == device.device)
    if state.stopping or state.steps_left == 0:
        if replica.in_flight:
            return []
        return [SwitchRole(device=device.device, role="train", reason="the run is ending")]
    if state.paused:
        return []
    if len(device.finished) == device.share:
        reason = f"its share of {device.share} groups is finished"
        return [
            TakeGroups(group_ids=device.finished, reason=reason),
            SwitchRole(device=device.device, role="train", reason=reason),
        ]
    count = min(replica.free_groups, device.share - device.started, state.prompts_left)
    if count <= 0:
        return []
    reason = f"{device.started} of its {device.share} groups are started and there is room for {replica.free_groups}"
    return [StartGroups(device=device.device, count=count, reason=reason)]


def _may_return(state: State, device: ColocatedDevice) -> bool:
    """Nothing of the new version is left to do in the trainer role, and its share of the next step is untouched."""
    if state.stopping or state.paused or state.steps_left == 0 or device.share == 0:
        return False
    replica = _trainer(state, device)
    first = device.device == state.train[0].device
    checkpoint = first and (state.step.checkpoint_due or state.step.checkpoint_running)
    evaluation = any(where == device.device for _, where in state.step.evals_waiting)
    untouched = device.started == 0 and not device.queue and device.trained == 0
    return untouched and replica.ready and replica.busy is None and not checkpoint and not evaluation


def _trainer(state: State, device: ColocatedDevice) -> TrainReplica:
    return next(replica for replica in state.train if replica.device == device.device)
