"""The token loss: -w * min(r * A, clip(r, 1 - clip_low, 1 + clip_high) * A).

r = pi_theta / pi_prox carries the gradient; w = min(pi_prox / pi_behaviour, cap) is a constant that corrects for the
rollouter having sampled from older or slightly different weights (truncated importance sampling).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoss:
    """Per token, all [N]; only `losses` carries a gradient."""

    losses: Tensor
    """float32, what is summed and divided by the step's tokens."""
    weights: Tensor
    """float32, w after capping; 1 without correction."""
    clipped: Tensor
    """bool, r outside of the clip range."""
    capped: Tensor
    """bool, w above the cap before capping."""
    mismatch_kl: Tensor
    """float64, w - 1 - log w before capping: averaged, an estimate of KL(pi_behaviour, pi_prox) in nats."""


def token_loss(
    logprobs_N: Tensor,
    prox_N: Tensor,
    behaviour_N: Tensor,
    advantages_N: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    is_cap: float | None,
) -> TokenLoss:
    """Log-probabilities of the tokens under pi_theta, pi_prox and pi_behaviour, and their advantages, float32 [N].

    `is_cap` None leaves the correction out (w = 1); the mismatch is measured all the same.
    """
    ratio = (logprobs_N - prox_N.detach()).exp()
    clipped_ratio = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    with torch.no_grad():
        log_w = prox_N - behaviour_N
        uncapped = log_w.exp()
        weights = torch.ones_like(uncapped) if is_cap is None else uncapped.clamp(max=is_cap)
        capped = torch.zeros_like(uncapped, dtype=torch.bool) if is_cap is None else uncapped > is_cap
        clipped = (ratio < 1.0 - clip_low) | (ratio > 1.0 + clip_high)
    return TokenLoss(
        losses=-weights * torch.minimum(ratio * advantages_N, clipped_ratio * advantages_N),
        weights=weights,
        clipped=clipped,
        capped=capped,
        # in float32 the difference would drown: for nearly equal policies it is the square of a rounding error
        mismatch_kl=log_w.double().expm1() - log_w.double(),
    )
