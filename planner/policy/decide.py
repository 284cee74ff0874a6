"""The one place where a run's next moves are decided: `decide(state, now) -> actions`, pure, with reasons.

    observe -> State -> decide -> actions -> whoever runs the devices applies and records them

Arms differ in one file each; what operators asked for (`steered.py`) goes before them. Time is handed in and nothing
here reads a clock, a random source or a device.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.policy import borrow, colocated, pools
from planner.policy.actions import Action
from planner.policy.pulls import OURS
from planner.policy.state import State
from planner.policy.steered import steering

_ARMS: dict[str, Callable[[State, float], list[Action]]] = {
    "no_borrow": pools.decide,
    "colocated": colocated.decide,
    **dict.fromkeys(("opportunistic", "bidirectional_paper", *OURS), borrow.decide),
}


def decide(state: State, now: float) -> list[Action]:
    """The actions that the arm takes in this state at time `now` (s).

    Raises ValueError for an arm that does not exist.
    """
    if state.arm not in _ARMS:
        raise ValueError(f"arm must be one of {', '.join(_ARMS)}, got {state.arm!r}")
    return steering(state) or _ARMS[state.arm](state, now)
