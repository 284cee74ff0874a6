"""What the emulated devices of a run obey: the simulator's physics and work, in modelled seconds.

It knows of no device's state. A job without a profile has no physics and is refused.
"""

from __future__ import annotations

from engine.config import Job, to_profile
from engine.layout import Layout
from planner.profile import SwitchCosts
from planner.simulator.speeds import Speeds
from planner.simulator.workload import Workload


class Physics:
    """Speeds, costs and response lengths of one run."""

    def __init__(self, job: Job) -> None:
        if job.profile is None:
            raise ValueError("an emulated run goes by its profile, and the job has none")
        algorithm = job.algorithm
        self.profile = to_profile(job.profile)
        self.layout = Layout.of(job)
        self.group_size = algorithm.group_size
        self.prompts_per_step = algorithm.prompts_per_step
        self.in_flight_updates = job.schedule.in_flight_updates is not False
        self.speeds = Speeds(self.profile, seed=job.seed, group_size=algorithm.group_size)
        self._items = job.task.size
        self._workload = Workload(
            self.profile.response_tokens,
            seed=job.seed,
            group_size=algorithm.group_size,
            prompts_per_step=algorithm.prompts_per_step,
            steps=algorithm.steps,
        )

    def lengths(self, epoch: int, position: int) -> list[int]:
        """Response tokens of the group at this place of the data order."""
        return self._workload.group(epoch * self._items + position)

    def switch(self, pool: str) -> SwitchCosts:
        """What lending a block of this home pool costs."""
        return self.profile.rollout_on_train if pool == "train" else self.profile.train_on_rollout

    def change_s(self, role: str) -> float:
        """Without pools: until a device works in its new role."""
        profile = self.profile
        return profile.train_on_rollout.in_s if role == "train" else profile.rollout_on_train.in_s

    def closing_s(self, *, lent: bool, shipped: bool) -> tuple[float, float, float]:
        """Merge, optimizer and weight sync of a step, as `Simulator._closing_s` has them.

        `lent`: one of its gradients came from a lease, or from a primary that left for one. `shipped`: there are any.
        Without pools a change of role brings the weights along, so that the step has no weight sync.
        """
        profile, pools = self.profile, self.layout.pools
        merges = lent if pools else shipped
        grad_s = profile.train_on_rollout.grad_s if merges else 0.0
        return grad_s, profile.optimizer_s, profile.weight_sync_s if pools else 0.0
