"""When groups that are excluded are too many for the run to go on. Counts, and says so in a sentence; ends nothing.

Three rules. A reward that fails now and then, or a prompt that is too long, costs its group; where that happens to more
than three quarters of the newest groups it is a fault of the reward or the data, and what is left over would be a
biased sample. A reward that has never come in time is given up sooner, since each try costs a deadline. And where
groups without signal are replaced, a step for which so many have been replaced is one that this model cannot learn from
this task.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from engine.learning.rewards.reward import TIMED_OUT
from engine.worker.messages import NO_SIGNAL

LEAST_WINDOW = 64
"""Newest groups that are looked at, or those of two steps where that is more."""

MOST_FAILED = 0.75
"""Share of them that may fail. The window slides over the whole run, so chance gets many tries: where half of all
groups fail, more than 48 of 64 do once in 100,000 windows; at 30%, never."""

MOST_TIMEOUTS = 16
"""Groups that may take too long to score before one has come in time: where half of them do, this happens once in
65,000 runs."""

MOST_REPLACED = 16
"""Groups without signal for each one that a step consumes: at 6% with signal a step still comes about."""


class Exclusions:
    """Of one run."""

    def __init__(self, prompts_per_step: int) -> None:
        self.counts: dict[str, int] = {}
        """Reason -> groups excluded."""
        self._B = prompts_per_step
        self._newest: deque[str | None] = deque(maxlen=max(LEAST_WINDOW, 2 * prompts_per_step))
        """Of the newest groups: why it failed; None where it did not."""
        self._scored = False
        self._since_step = 0
        self._last = ""

    def scored(self) -> None:
        """A group has its rewards."""
        self._newest.append(None)
        self._scored = True

    def excluded(self, reason: str, detail: str) -> None:
        """A group has none, or none that tell its answers apart."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        if reason == NO_SIGNAL:
            self._newest.append(None)
            self._scored = True
            self._since_step += 1
        else:
            self._newest.append(reason)
            self._last = detail

    def step_made(self) -> None:
        self._since_step = 0

    @property
    def left_nothing(self) -> str | None:
        """Why there is no step where the items have ended before the first one, in a sentence; None: nothing was
        excluded."""
        if not self.counts:
            return None
        last = f". The last one that failed: {self._last}" if self._last else ""
        return f"the items ended before a step could be made: {told(self.counts)} groups were excluded{last}"

    @property
    def complaint(self) -> str | None:
        """Why the run cannot go on, in a sentence; None: it can."""
        window, reasons = self._newest.maxlen or 0, Counter(reason for reason in self._newest if reason is not None)
        failed = reasons.total()
        if len(self._newest) == window and failed > MOST_FAILED * window:
            return (
                f"{failed} of the last {window} groups were excluded ({told(reasons)}), which is more than three "
                f"quarters of them. The last one: {self._last}"
            )
        late = self.counts.get(TIMED_OUT, 0)
        if late >= MOST_TIMEOUTS and not self._scored:
            return f"scoring took too long for {late} groups, and none was ever scored. The last one: {self._last}"
        if self._since_step > MOST_REPLACED * self._B:
            return (
                f"more than {MOST_REPLACED * self._B} groups without signal were replaced ({MOST_REPLACED} x "
                f"prompts_per_step) and no step could be made of {self._B} groups: all answers to a prompt earn the "
                "same, so the task is too hard or too easy for this model"
            )
        return None


def told(counts: Mapping[str, int]) -> str:
    """Reasons with their counts, the most frequent one first."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items(), key=lambda item: -item[1]))
