"""What a lease was worth by the use that was made of it: what the never-slower guards and the pages are told."""

from __future__ import annotations

from planner.policy.leases import Direction
from planner.policy.state import Estimates
from planner.profile import SwitchCosts
from planner.stage_model import slope


def gain_by_use(
    direction: Direction, *, groups: float, share: float, estimates: Estimates, costs: SwitchCosts
) -> float:
    """Seconds won: the useful ones of each auxiliary at the speed of a primary, less those of the switch.

    `groups`: delivered by the lease's auxiliaries together. `share`: of a lease's work that one of them does.
    `costs`: of this lease; a trainer's way home is free as far as the merge, the optimizer and the weight sync hide it.
    """
    if direction == "rollout_on_train":
        return groups * estimates.full_load_group_s * share - costs.in_s - costs.out_s
    useful_s = groups * slope(estimates.train) * share
    hidden_s = costs.grad_s + estimates.optimizer_s + estimates.sync_s
    return useful_s - costs.in_s - costs.grad_s - max(0.0, costs.out_s - hidden_s)
