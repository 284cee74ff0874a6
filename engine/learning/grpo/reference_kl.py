"""The distance to the reference policy that `kl_coef` punishes."""

from __future__ import annotations

from torch import Tensor


def reference_kl(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """exp(d) - d - 1 with d = log pi_ref - log pi_theta, float32 [N]: never negative, unbiased for KL(pi_theta, pi_ref)

    in nats (Schulman, "Approximating KL divergence", the k3 estimator).
    """
    difference = reference_N.detach() - logprobs_N
    return difference.exp() - difference - 1.0
