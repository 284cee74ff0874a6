"""When a rollouter takes newer weights, and when its groups keep it from doing so."""

from __future__ import annotations

from planner.policy.actions import LoadWeights
from planner.policy.state import RolloutReplica, State


def must_drain(replica: RolloutReplica, published: int | None) -> bool:
    """Newer weights exist, and its groups may not continue under them: it finishes them and starts nothing."""
    behind = published is not None and replica.version is not None and replica.version < published
    return behind and replica.in_flight > 0 and not replica.may_update_in_flight


def weight_loads(state: State) -> list[LoadWeights]:
    """Every replica that is behind takes the newest version, between two tokens when its groups allow it."""
    loads: list[LoadWeights] = []
    for replica in state.rollout:
        if state.published is None or replica.version == state.published or must_drain(replica, state.published):
            continue
        how = f"its {replica.in_flight} groups go on under it" if replica.in_flight else "it holds no group"
        loads.append(
            LoadWeights(
                device=replica.device,
                version=state.published,
                reason=f"version {state.published} is published, the replica has {replica.version}: {how}",
            )
        )
    return loads
