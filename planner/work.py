"""The useful work behind a run's tokens, and how near a run came to doing nothing but that (design section 8).

Work is what devices do for the steps themselves: generating, scoring, training. Evaluations, optimizer steps, weight
syncs, switches and idle time are not. Pure arithmetic; a figure that cannot be known is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.comparison import work_ratio

ROLLOUT_COLUMNS = ("rollout", "rollout_aux", "scoring")
TRAIN_COLUMNS = ("train", "train_aux")
"""Columns of device time (the words of storage) that are a stage's work, whichever pool the device is of."""

PER_TOKENS = 1000
"""Tokens that a stage's device-seconds are told for: of one token they are too small to read."""

UNKNOWN: dict[str, Any] = {
    "rollout_s_per_1000_tokens": None,
    "train_s_per_1000_tokens": None,
    "ratio": None,
    "larger": None,
}


def work(rollout_s: float, train_s: float, tokens: float | None) -> dict[str, Any]:
    """The field `work` of a result: each stage's busy device-seconds per 1000 consumed tokens, the larger over the
    smaller (x of the design), and which stage is the larger. All None before anything was consumed."""
    if not tokens or rollout_s + train_s <= 0:
        return dict(UNKNOWN)
    return {
        "rollout_s_per_1000_tokens": rollout_s * PER_TOKENS / tokens,
        "train_s_per_1000_tokens": train_s * PER_TOKENS / tokens,
        "ratio": work_ratio(rollout_s, train_s),
        "larger": "rollout" if rollout_s >= train_s else "train",
    }


def scaled(found: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The same where every second is `factor` seconds."""
    names = ("rollout_s_per_1000_tokens", "train_s_per_1000_tokens")
    return {**found, **{name: None if found[name] is None else found[name] * factor for name in names}}


def work_of(seconds: Mapping[int, Mapping[str, float]], tokens: float | None) -> dict[str, Any]:
    """The same from device -> column -> seconds of a live run."""
    rollout_s, train_s = (
        sum(columns.get(name, 0.0) for columns in seconds.values() for name in names)
        for names in (ROLLOUT_COLUMNS, TRAIN_COLUMNS)
    )
    return work(rollout_s, train_s, tokens)


def device_s_per_token(found: Mapping[str, Any]) -> float | None:
    """Busy device-seconds of both stages per consumed token; None where they are not known."""
    rollout, train = found["rollout_s_per_1000_tokens"], found["train_s_per_1000_tokens"]
    return None if rollout is None or train is None else (rollout + train) / PER_TOKENS


def bound_ratio(throughput: float | None, devices: int, bound_s_per_token: float | None) -> float | None:
    """Achieved throughput over that of all devices at nothing but the least known work, device-seconds per token."""
    if throughput is None or not bound_s_per_token or devices < 1:
        return None
    return throughput * bound_s_per_token / devices
