"""How old a group may become: the bound it was started under, and the groups that such bounds still bind.

Only arithmetic of design section 4; what follows from it for starting and choosing is in `staleness`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

ROUNDING = 1e-9
"""Added before a floor: 2.3 * 10 is 22.999... in binary and means 23 groups, and no s is given to nine digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How old a group may become, fixed when the group is started. Raises ValueError on a bad s or B.

    Two bounds with equal `start_allowance` allow the same, whatever decimals they were written with.
    """

    staleness: float
    """s, in optimizer updates, >= 0"""
    prompts_per_step: int
    """B, groups per step, >= 1"""
    # Derived once: the selection reads them for hundreds of groups at every poll.
    start_allowance: int = field(init=False, repr=False, compare=False)
    """floor(s * B + 1e-9), groups that may be started beyond those that the loaded version will train"""
    k: int = field(init=False, repr=False, compare=False)
    """floor(s), updates: the lag that a whole step may have"""
    F: int = field(init=False, repr=False, compare=False)
    """floor(s * B + 1e-9) - k * B, groups of one step that may have lag k + 1"""

    def start_cap(self, version: int) -> int:
        """Groups, over the run and without excluded ones, up to which a replica with this version may start more."""
        return (version + 1) * self.prompts_per_step + self.start_allowance

    def __post_init__(self) -> None:
        if not (math.isfinite(self.staleness) and self.staleness >= 0):
            raise ValueError(f"staleness must be a number >= 0, got {self.staleness!r}")
        if self.prompts_per_step < 1:
            raise ValueError(f"prompts_per_step must be at least 1, got {self.prompts_per_step!r}")
        allowance = math.floor(self.staleness * self.prompts_per_step + ROUNDING)
        # divmod is floor(s) and the rest, except less than 1e-9 / B below a whole s, where it says the whole one
        # instead of the same bound as k = s - 1 with F = B
        k, rest = divmod(allowance, self.prompts_per_step)
        object.__setattr__(self, "start_allowance", allowance)
        object.__setattr__(self, "k", k)
        object.__setattr__(self, "F", rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconsumed:
    """A group that was started, is not excluded and was not trained: in flight or finished."""

    group_id: int
    """the group's number in the run"""
    version: int
    """version of the weights that its first token was sampled from (the oldest, when updated in flight)"""
    bound: Bound
    """the bound under which it was started"""
    finished: bool
    """all responses complete and scored"""
    order: int = 0
    """place in the order of completion; means nothing while in flight"""


def lag_limit(bound: Bound) -> int:
    """ceil(s), updates: no group started under this bound is ever trained with a larger lag."""
    return math.ceil(bound.staleness)
