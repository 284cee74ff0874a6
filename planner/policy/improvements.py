"""The named changes of `bidirectional` over the published rules, each a switch of its own (design section 7)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvements:
    """Which changes are on."""

    outlook_gate: bool = False
    """gates ask how much a block would be used at home (s >= 1) or when the step ends (s < 1), at every decision,
    instead of comparing one idle window's times once"""
    block_leases: bool = False
    """idle blocks are lent one by one, and stragglers moved together so that blocks become free"""
    fill_auxiliary: bool = False
    """an auxiliary rollouter is filled with all groups that the starting rule allows, the next step's too"""
    just_in_time_end: bool = False
    """a lease ends so that the home role is ready when its work is, and the gate knows it"""
    full_load_rate: bool = False
    """at s >= 1 the rollout gate uses full-load seconds per group instead of the slope of M_r"""
    keep_lease: bool = False
    """a lease goes on, into the next step too, while it is worth more than the block would be at home"""
    cheap_return: bool = False
    """the trainer gate charges max(0, C_out - (C_grad + optimizer + weight sync))"""
    prepare_early: bool = False
    """C_in overlaps the optimizer step and the weight sync"""
    gate_before_pull: bool = False
    """gates run before primaries pull at a version change"""
    longest_first: bool = False
    """the longest expected groups start first, where lengths can be predicted"""
    lazy_rollout_pull: bool = False
    """auxiliary rollouters pull groups instead of owning a reservation while they prepare"""

    def without(self, name: str) -> Improvements:
        """All of these but one. Raises ValueError for a name that does not exist."""
        return self._changed(name, False)

    def with_(self, name: str) -> Improvements:
        """These and one more. Raises ValueError for a name that does not exist."""
        return self._changed(name, True)

    def _changed(self, name: str, on: bool) -> Improvements:
        if name not in IMPROVEMENTS:
            raise ValueError(f"no improvement {name!r}; there are {', '.join(IMPROVEMENTS)}")
        return replace(self, **{name: on})


IMPROVEMENTS = tuple(field.name for field in fields(Improvements))
"""Names of all of them."""

PAPER = Improvements()
"""The published rules."""

ALL = Improvements(**dict.fromkeys(IMPROVEMENTS, True))
"""Every change."""

DEFAULT = ALL.without("longest_first")
"""What `bidirectional` does unless told otherwise: every change that pays. Starting the longest groups first does not:
the first groups of a step then come late, and the trainers wait for them (docs/scheduling_study.md)."""
