"""Why a device does nothing: one cause, the first that holds in the order of design.md section 8; and when the idle
window of a pool is over, in which the published rules ask a gate once.
"""

from __future__ import annotations

from planner.policy import actions as act
from planner.policy.leases import Direction
from planner.policy.staleness import may_start
from planner.policy.state import ColocatedDevice, RolloutReplica, State, TrainReplica
from planner.policy.weights import must_drain

CAUSES = (
    "failure",
    "paused",
    "draining",
    "weights_pending",
    "waiting_for_rewards",
    "staleness_cap",
    "waiting_for_groups",
    "step_barrier",
    "no_work",
)


def window_over(action: act.Action) -> Direction | None:
    """Direction whose gate may be asked anew once this action is applied; None: no idle window ends with it.

    The TrainPool's ends with a chunk. The RollPool's ends with groups, and with a new version, though no prompt may be
    left to start: that is another step for the trainers, with all of its work still to do.
    """
    match action:
        case act.TrainChunk():
            return "rollout_on_train"
        case act.StartGroups() | act.ResumeGroups() | act.LoadWeights():
            return "train_on_rollout"
        case _:
            return None


def idle_causes(state: State, *, failing: bool = False) -> dict[int, str]:
    """The cause of every device that has nothing to do in this state; busy devices are left out."""
    causes: dict[int, str] = {}
    roles = {device.device: device for device in state.colocated}
    for replica in state.rollout:
        if replica.in_flight == 0 and not replica.loading and _has(roles, replica.device, "rollout"):
            causes[replica.device] = _common(state, failing) or _rollout(state, replica)
    for trainer in state.train:
        if trainer.busy is None and _has(roles, trainer.device, "train"):
            causes[trainer.device] = _common(state, failing) or _train(state, trainer)
    return causes


def _has(roles: dict[int, ColocatedDevice], device: int, role: str) -> bool:
    return device not in roles or roles[device].role == role


def _common(state: State, failing: bool) -> str | None:
    if failing:
        return "failure"
    if state.paused:
        return "paused"
    return "draining" if state.stopping else None


def _rollout(state: State, replica: RolloutReplica) -> str:
    if must_drain(replica, state.published):
        return "draining"
    if replica.version is None:
        return "weights_pending"
    if state.prompts_left == 0 or state.steps_left == 0:
        return "no_work"
    if not may_start(loaded_version=replica.version, started=state.started, excluded=state.excluded, bound=state.bound):
        return "staleness_cap"
    return "no_work"


def _train(state: State, trainer: TrainReplica) -> str:
    if not trainer.ready:
        return "weights_pending" if trainer.lease is None else "draining"
    if state.steps_left == 0:
        return "no_work"
    if len(state.step.taken) < state.bound.prompts_per_step:
        return "waiting_for_groups"
    return "step_barrier"
