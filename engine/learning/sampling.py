"""From logits and one uniform number per row to the next token and its log-probability.

Inverse-CDF sampling: one number decides one token, so a recorded stream gives the same answer again. Log-probabilities
are those of the distribution drawn from: at the sampling temperature and, below top_p = 1, of the nucleus renormalised.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sample(logits_R_V: Tensor, uniforms_R: Tensor, *, temperature: float, top_p: float) -> tuple[Tensor, Tensor]:
    """Tokens int64 [R] and their log-probabilities float32 [R].

    `logits_R_V` float32 [R, V]; `uniforms_R` float64 [R] in [0, 1). The token is the first whose cumulative
    probability exceeds its uniform number, in order of token id. Raises FloatingPointError for logits that make no
    distribution: NaN or +inf among them, or nothing but -inf.
    """
    scaled = logits_R_V if temperature == 1.0 else logits_R_V / temperature
    logprobs_R_V = torch.log_softmax(scaled, dim=-1)
    probs_R_V = logprobs_R_V.exp()
    if top_p < 1.0:
        probs_R_V = probs_R_V * nucleus(probs_R_V, top_p)
    # float64: over a large vocabulary a float32 sum is off by more than two batches' rounding, which would let the
    # batch's company decide a token; dividing makes the last entry exactly 1, which no uniform number reaches
    cdf_R_V = probs_R_V.cumsum(dim=-1, dtype=torch.float64)
    mass_R = cdf_R_V[:, -1:].clone()
    _check(mass_R)  # NaN wherever the logits make no distribution, and the search would find no token
    cdf_R_V /= mass_R
    tokens_R = torch.searchsorted(cdf_R_V, uniforms_R[:, None], right=True)
    chosen_R = logprobs_R_V.gather(1, tokens_R)
    if top_p < 1.0:
        chosen_R = chosen_R - mass_R.log().float()
    return tokens_R[:, 0], chosen_R[:, 0]


def nucleus(probs_R_V: Tensor, top_p: float) -> Tensor:
    """bool [R, V]: the fewest most likely tokens whose probabilities reach `top_p` (Holtzman et al. 2020)."""
    ordered, order = probs_R_V.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(probs_R_V, dtype=torch.bool).scatter(1, order, before < top_p)


def greedy(logits_R_V: Tensor) -> Tensor:
    """The most likely token of each row, int64 [R]. Raises FloatingPointError as `sample`."""
    tokens_R = logits_R_V.argmax(dim=-1)
    _check(logits_R_V.gather(1, tokens_R[:, None]))  # NaN counts as the largest
    return tokens_R


def _check(of_rows_R_1: Tensor) -> None:
    bad = (~of_rows_R_1.isfinite()).sum().item()
    if bad:
        raise FloatingPointError(
            f"the model's logits are not finite for {bad} of {len(of_rows_R_1)} sequences, so there is no token to "
            "draw: its weights hold NaN or have diverged, or model.dtype is too small for what it computes"
        )
