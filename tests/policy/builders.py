"""Pictures of a run with everything filled in, so that a test names only what it is about: B = 4, s = 1, one chunk of
at most 2 groups; device 0 a rollouter with room for 8 groups, device 1 a trainer."""

from __future__ import annotations

from typing import Any

from planner.policy.staleness import Bound, Unconsumed
from planner.policy.state import Block, ColocatedDevice, Estimates, RolloutReplica, State, Step, TrainReplica
from planner.profile import SwitchCosts
from planner.stage_model import StageModel

B = 4


def bound(staleness: float) -> Bound:
    return Bound(staleness=staleness, prompts_per_step=B)


def make_rollout(device: int = 0, **overrides: Any) -> RolloutReplica:
    fields: dict[str, Any] = {
        "version": 0,
        "loading": False,
        "in_flight": 0,
        "may_update_in_flight": True,
        "free_groups": 8,
    }
    return RolloutReplica(device=device, **(fields | overrides))


def make_train(device: int = 1, **overrides: Any) -> TrainReplica:
    fields: dict[str, Any] = {"ready": True, "busy": None, "chunks": 0, "shipped": False}
    return TrainReplica(device=device, **(fields | overrides))


def make_step(**overrides: Any) -> Step:
    fields: dict[str, Any] = {
        "version": 0,
        "taken": (),
        "queue": (),
        "trained": 0,
        "evals_waiting": (),
        "evals_running": 0,
        "checkpoint_due": False,
        "checkpoint_running": False,
    }
    return Step(**(fields | overrides))


def make_colocated(device: int = 0, **overrides: Any) -> ColocatedDevice:
    fields: dict[str, Any] = {"role": "rollout", "share": 2, "started": 0, "finished": (), "queue": (), "trained": 0}
    return ColocatedDevice(device=device, **(fields | overrides))


def make_block(block: int, pool: str, **overrides: Any) -> Block:
    """A block of one device at home; with a lease number it is lent and works, unless told otherwise."""
    fields: dict[str, Any] = {"primaries": 1, "auxiliaries": 1}
    if overrides.get("lease") is not None:
        fields["lease_state"] = "working"
    return Block(block=block, pool=pool, **(fields | overrides))


def make_estimates(**overrides: Any) -> Estimates:
    """A group takes a full rollout replica 4 s and a trainer 2 s; a switch takes 1 s each way."""
    fields: dict[str, Any] = {
        "rollout": StageModel(a=0.0, b=4.0),
        "train": StageModel(a=0.0, b=2.0),
        "rollout_on_train": SwitchCosts(in_s=1.0, out_s=1.0),
        "train_on_rollout": SwitchCosts(in_s=1.0, out_s=1.0, grad_s=0.5),
        "full_load_group_s": 4.0,
        "group_latency_s": 8.0,
        "slot_groups": 2,
        "half_groups": 1.0,
        "optimizer_s": 1.0,
        "sync_s": 1.0,
    }
    return Estimates(**(fields | overrides))


def make_state(**overrides: Any) -> State:
    fields: dict[str, Any] = {
        "arm": "no_borrow",
        "streaming": False,
        "bound": bound(1),
        "max_chunk_groups": 2,
        "published": 0,
        "started": 0,
        "excluded": 0,
        "prompts_left": 40,
        "steps_left": 10,
        "paused": False,
        "stopping": False,
        "rollout": (make_rollout(),),
        "train": (make_train(),),
        "step": make_step(),
        "unconsumed": (),
        "colocated": (),
    }
    return State(**(fields | overrides))


def finished(*group_ids: int, version: int = 0, staleness: float = 1) -> tuple[Unconsumed, ...]:
    return tuple(
        Unconsumed(group_id=i, version=version, bound=bound(staleness), finished=True, order=i) for i in group_ids
    )


def full_step(*, staleness: float = 1, **overrides: Any) -> Step:
    """A step that has taken all its groups."""
    return make_step(taken=((0, bound(staleness)),) * B, **overrides)
