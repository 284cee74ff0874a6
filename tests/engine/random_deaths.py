"""Workers of random runs die: at random times, and when a chosen thing happens on them."""

from __future__ import annotations

import random
from collections import Counter

from engine.run.recovery import MOST_DEATHS
from tests.engine.simulated_run import SimulatedRun


class Killer:
    """Workers die: at random times, and when a chosen thing happens on them."""

    MOMENTS = (
        "lease",
        "preparing",
        "releasing",
        "draining",
        "optimizer",
        "evaluate",
        "checkpoint",
        "chunk",
        "gradient",
    )

    def __init__(self, run: SimulatedRun, rng: random.Random, counts: Counter[str]) -> None:
        self._run = run
        self._rng = rng
        self._counts = counts
        self._left = {moment: rng.choice((0, 0, 1, 2)) for moment in self.MOMENTS}
        physics, algorithm = run.workers.physics, run.job.algorithm
        length_s = algorithm.steps * (algorithm.prompts_per_step * physics.group_s / 2 + physics.chunk_s)
        for _ in range(rng.choice((1, 2, 4))):
            run.at(rng.uniform(0, 2 * length_s), self._anyone)
        before = run.each_tick

        def each_tick() -> None:
            before()
            self._look()

        run.each_tick = each_tick

    def _anyone(self) -> None:
        self._kill(self._rng.randrange(len(self._run.run.specs)), "any time")

    def _look(self) -> None:
        run = self._run
        for entry in run.run.lending.entries.values():
            if entry.lease is not None:
                state = str(entry.lease.life.state)
                self._maybe(entry.device, "lease" if state == "working" else state)
        for device, trainer in run.book.train.items():
            self._maybe(device, trainer.busy)

    def _maybe(self, device: int, moment: str | None) -> None:
        if moment is not None and self._left.get(moment, 0) > 0 and self._rng.random() < 0.2:
            self._left[moment] -= 1
            # by then it is nearly over, or has just begun
            delay_s = self._rng.choice((0.0, self._rng.expovariate(10), self._rng.expovariate(1)))
            self._run.at(delay_s, lambda: self._kill(device, moment))

    def _kill(self, device: int, moment: str) -> None:
        before = self._run.workers.devices[device].lost
        self._run.lose(device)
        if not before and self._run.workers.devices[device].lost:
            self._counts[f"death: {moment}"] += 1
            self._counts["deaths"] += 1


def ended_by_deaths(run: SimulatedRun) -> str:
    """What kills a worker again and again within one step ends the run, and so does a death among the last spans."""
    error = run.run.error or ""
    if f"is gone for the {MOST_DEATHS + 1}th time within one step" in error:
        return "died too often"
    return "died while closing" if run.run.closing and error.endswith("is gone: its process died: killed") else ""
