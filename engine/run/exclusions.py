"""When groups that are excluded are too many for the run to go on. Counts, and says so in a sentence; ends nothing.

Two rules. A reward that fails now and then costs its groups; one that fails for more than three quarters of the newest
groups is a fault of the reward or the data, and what is left over would be a biased sample. And where groups without
signal are replaced, a step for which so many have been replaced is one that this model cannot learn from this task.
"""

from __future__ import annotations

from collections import deque

from engine.worker.messages import NO_SIGNAL

LEAST_WINDOW = 64
"""Newest groups that are looked at, or those of two steps where that is more."""

MOST_FAILED = 0.75
"""Share of them that may lack a reward. The window slides over the whole run, so chance gets many tries: where half of
all groups fail, more than 48 of 64 do once in 100,000 windows; at 30%,
never."""

MOST_REPLACED = 16
"""Groups without signal for each one that a step consumes: at 6% with signal a step still comes about."""


class Exclusions:
    """Of one run."""

    def __init__(self, prompts_per_step: int) -> None:
        self.counts: dict[str, int] = {}
        """Reason -> groups excluded."""
        self._B = prompts_per_step
        self._newest: deque[bool] = deque(maxlen=max(LEAST_WINDOW, 2 * prompts_per_step))
        """Of the newest groups: has it failed to get a reward?"""
        self._since_step = 0
        self._last = ""

    def scored(self) -> None:
        """A group has its rewards."""
        self._newest.append(False)

    def excluded(self, reason: str, detail: str) -> None:
        """A group has none, or none that tell its answers apart."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        failed = reason != NO_SIGNAL
        self._newest.append(failed)
        if failed:
            self._last = detail
        else:
            self._since_step += 1

    def step_made(self) -> None:
        self._since_step = 0

    @property
    def complaint(self) -> str | None:
        """Why the run cannot go on, in a sentence; None: it can."""
        window, failed = self._newest.maxlen or 0, sum(self._newest)
        if len(self._newest) == window and failed > MOST_FAILED * window:
            return (
                f"{failed} of the last {window} groups have no reward, which is more than three quarters of them: "
                f"{self._last}"
            )
        if self._since_step > MOST_REPLACED * self._B:
            return (
                f"{self._since_step} groups without signal were replaced and no step could be made of {self._B} groups "
                f"(at most {MOST_REPLACED} x prompts_per_step are replaced): all answers to a prompt earn the same, so "
                "the task is too hard or too easy for this model"
            )
        return None
