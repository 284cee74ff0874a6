"""The work of a simulated run: response lengths by place in the data order, the same for every arm and schedule.

Drawn from a profile, or those of a real run, so that another arm or partition is played on the very same work.
"""

from __future__ import annotations

import numpy as np

from planner.profile import Lengths
from planner.simulator.setup import Setup


class Workload:
    """Lengths of every group, drawn step by step of the data order from one seed.

    A group's lengths are exp(N(log median + drift of its step + group effect, sigma_response)), cut at `max`: heavy
    tails, alike within a group, wandering over the run (AR(1)) and growing by `linear_drift` from its first step to its
    last. They depend on (seed, place) alone.
    """

    PERSISTENCE = 0.8
    """Correlation of the drift from one step to the next: it wanders over about five steps."""

    def __init__(
        self,
        lengths: Lengths,
        *,
        seed: int,
        group_size: int,
        prompts_per_step: int,
        steps: int,
        hint: float | None = None,
        recorded: tuple[tuple[int, ...], ...] | None = None,
    ) -> None:
        """`hint`: correlation between the log of the expected length of a group and that of its real one.
        `recorded`: lengths to use as they are, over and over, instead of drawing any."""
        self._hint = hint
        self._recorded = recorded
        self._expected: dict[int, list[float]] = {}
        self._lengths = lengths
        self._seed = seed
        self._group_size = group_size
        self._per_step = prompts_per_step
        self._steps = steps
        self._drift: list[float] = []
        self._blocks: dict[int, list[list[int]]] = {}
        self._noise = np.random.default_rng([seed, 1])

    @classmethod
    def of(cls, setup: Setup) -> Workload:
        """The work of a run."""
        return cls(
            setup.profile.response_tokens,
            seed=setup.seed,
            group_size=setup.group_size,
            prompts_per_step=setup.prompts_per_step,
            steps=setup.steps,
            hint=setup.length_hint,
            recorded=setup.recorded,
        )

    def group(self, place: int) -> list[int]:
        """Response tokens of the group at this place of the data order."""
        if self._recorded is not None:
            return list(self._recorded[place % len(self._recorded)])
        block, within = divmod(place, self._per_step)
        if block not in self._blocks:
            self._blocks[block] = self._draw(block)
        return self._blocks[block][within]

    def expected(self, place: int) -> float:
        """Tokens that a predictor expects of the group at this place."""
        assert self._hint is not None, "this run has no length predictor"
        block, within = divmod(place, self._per_step)
        if block not in self._expected:
            real = np.log([sum(self.group(block * self._per_step + i)) for i in range(self._per_step)])
            rng = np.random.default_rng([self._seed, 5, block])
            spread = float(real.std()) * (1 / max(self._hint, 1e-6) ** 2 - 1) ** 0.5
            self._expected[block] = np.exp(real + rng.normal(0.0, spread, self._per_step)).tolist()
        return self._expected[block][within]

    def _draw(self, block: int) -> list[list[int]]:
        lengths = self._lengths
        rng = np.random.default_rng([self._seed, 2, block])
        group = rng.normal(0.0, lengths.sigma_group, size=(self._per_step, 1))
        response = rng.normal(0.0, lengths.sigma_response, size=(self._per_step, self._group_size))
        drawn = lengths.median * np.exp(self._drift_of(block) + group + response)
        whole: list[list[int]] = np.clip(np.rint(drawn), 1, lengths.max).astype(int).tolist()
        return whole

    def _drift_of(self, block: int) -> float:
        while len(self._drift) <= block:
            before = self._drift[-1] if self._drift else 0.0
            spread = self._lengths.drift * (1 - self.PERSISTENCE**2) ** 0.5
            scale = self._lengths.drift if not self._drift else spread
            self._drift.append(self.PERSISTENCE * before + float(self._noise.normal(0.0, scale)))
        return self._drift[block] + self._lengths.linear_drift * min(block / max(self._steps - 1, 1), 1.0)
