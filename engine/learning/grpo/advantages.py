"""Advantages of a group: how much better each answer did than the others to the same question.

A = r - mean(r), divided by std(r) + 1e-4 when scaled (Shao et al. 2024, arXiv 2402.03300, with the sample std as TRL
and verl compute it).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

STD_FLOOR = 1e-4
"""Added to the std, so that nearly equal rewards are not blown up; the value that other implementations use."""


def has_signal(rewards_G: npt.NDArray[np.float64]) -> bool:
    """Whether any answer did better than another; without that all advantages are 0."""
    return bool(rewards_G.max() > rewards_G.min())


def advantages(rewards_G: npt.NDArray[np.float64], *, scale_rewards: str) -> npt.NDArray[np.float64]:
    """float64 [G]; `scale_rewards` is `group` or `none`. Zeros without signal."""
    if not has_signal(rewards_G):
        return np.zeros_like(rewards_G)
    centred = rewards_G - rewards_G.mean()
    if scale_rewards == "none":
        return centred
    assert scale_rewards == "group", scale_rewards
    return centred / (rewards_G.std(ddof=1) + STD_FLOOR)
