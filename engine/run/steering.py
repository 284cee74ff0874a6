"""The one place of the live engine that asks the policy: picture -> decide -> decision ledger -> apply, idle causes."""

from __future__ import annotations

import logging
import math
from collections.abc import Container

from engine.run.applier import Applier
from engine.run.decisions import Decisions
from engine.run.homes import Homes
from engine.run.lending import Lending
from engine.run.picture import Picture
from engine.run.profiling import Profiling
from engine.run.recorder import Recorder
from planner.policy.decide import decide
from planner.policy.idle import idle_causes

logger = logging.getLogger(__name__)

MAX_ROUNDS = 16
"""Decisions in one tick: each round of actions may allow a few more; a rule that never settles is a fault."""

SWITCHED_S = 0.25
"""And how soon after the last time when a switch was measured: it takes some milliseconds."""

ESTIMATE_S = 0.5
"""How often it is asked whether enough was measured, until it was; afterwards once a step."""


class Steering:
    """Decides for one run."""

    def __init__(
        self,
        *,
        homes: Homes,
        picture: Picture,
        profiling: Profiling,
        decisions: Decisions,
        lending: Lending,
        applier: Applier,
        recorder: Recorder,
    ) -> None:
        self._homes = homes
        self._picture = picture
        self._profiling = profiling
        self._decisions = decisions
        self._lending = lending
        self._applier = applier
        self._recorder = recorder
        self._estimates_due = self._estimated_at = -math.inf

    def measured(self) -> None:
        """A step was made: what the policy knows of speeds is looked at anew."""
        self._estimates_due = -math.inf

    def next_due(self, now: float) -> float:
        """When to decide again though nothing has happened, unix seconds; infinite: not at all."""
        return self._picture.next_due(now)

    def settle(self, now: float, *, dead: Container[int]) -> None:
        """Decide and apply until nothing more can be done now. `dead`: devices that idle because they failed."""
        self._estimate(now)
        for _ in range(MAX_ROUNDS):
            state = self._picture.state(now)
            actions = decide(state, now)
            if not actions:
                break
            self._decisions.record(state, now, actions, self._lending.count)
            for action in actions:
                self._applier.apply(action, now)
        else:
            logger.warning("Run %s decided %d rounds in one tick without settling.", self._recorder.run_id, MAX_ROUNDS)
            state = self._picture.state(now)
        book = self._picture.book
        resting = "paused" if book.paused else "draining" if book.stopping else "weights_pending"
        # a primary that comes to the present version is in no picture
        causes = dict.fromkeys(book.joining, resting) | idle_causes(state)
        everywhere = self._of_devices(causes)
        for device in range(self._homes.layout.devices):
            self._recorder.idle_cause(device, now, "failure" if device in dead else everywhere.get(device))

    def _of_devices(self, causes: dict[int, str]) -> dict[int, str]:
        """The causes of replicas, each for all of its devices."""
        book = self._picture.book
        return {
            device: cause
            for first, cause in causes.items()
            for device in self._homes.layout.replica(
                book.role.get(first) or ("rollout" if first in book.rollout else "train"), first
            )
        }

    def _estimate(self, now: float) -> None:
        """Tell the policy what has been measured: after each step, as soon as it is enough, and when a lease has shown
        what switching costs."""
        if self._profiling.switched and now >= self._estimated_at + SWITCHED_S:
            self._profiling.switched, self._estimates_due = False, now
        if self._lending.lends and now >= self._estimates_due:
            self._estimated_at = now
            self._picture.estimates = self._profiling.estimates() or self._picture.estimates
            self._estimates_due = math.inf if self._picture.estimates is not None else now + ESTIMATE_S
