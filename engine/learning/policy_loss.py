"""The GRPO loss of one micro batch under a model, and its gradient.

The loss is summed, not averaged: who trains several micro batches, chunks or replicas adds the gradients up and divides
once, when the step ends.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from engine.config import AlgorithmConfig
from engine.learning.grpo.loss import TokenLoss, token_loss
from engine.learning.grpo.reference_kl import reference_kl
from engine.learning.micro_batches import MicroBatch
from engine.learning.stats import ChunkStats, LagStats


class PolicyLoss:
    """`backward` adds to the gradients of the model it was made with; the reference is None when kl_coef is 0."""

    def __init__(
        self,
        model: PreTrainedModel,
        reference: PreTrainedModel | None,
        algorithm: AlgorithmConfig,
        *,
        temperature: float,
    ) -> None:
        """`temperature` is the sampling one, at which log-probabilities are taken."""
        self._model = model
        self._reference = reference
        self._algorithm = algorithm
        self._temperature = temperature

    def backward(self, batch: MicroBatch) -> ChunkStats:
        """Add the batch's summed gradient; one update per step makes pi_prox the policy as it is (r = 1)."""
        algorithm = self._algorithm
        logits_N_V = self._logits(self._model, batch)
        logprobs_N = -cross_entropy(logits_N_V, batch.targets_N, reduction="none")
        loss = token_loss(
            logprobs_N,
            logprobs_N.detach(),
            batch.behaviour_N,
            batch.advantages_N,
            clip_low=algorithm.clip_low,
            clip_high=algorithm.clip_high,
            is_cap=algorithm.is_cap if algorithm.correction == "tis" else None,
        )
        losses_N, kl_sum = loss.losses, 0.0
        if self._reference is not None:
            with torch.no_grad():
                reference_N = -cross_entropy(self._logits(self._reference, batch), batch.targets_N, reduction="none")
            kl_N = reference_kl(logprobs_N, reference_N)
            losses_N, kl_sum = losses_N + algorithm.kl_coef * kl_N, float(kl_N.detach().sum())
        summed = losses_N.sum()
        summed.backward()
        return ChunkStats(
            tokens=len(batch.targets_N),
            loss_sum=float(summed.detach()),
            entropy_sum=_entropy_sum(logits_N_V.detach()),
            reference_kl_sum=kl_sum,
            by_lag=_by_lag(loss, batch.lags_N),
        )

    def _logits(self, model: PreTrainedModel, batch: MicroBatch) -> Tensor:
        """At the sampling temperature, float32 [N, vocabulary], one row per response token."""
        keep = batch.ids.shape[1] - batch.first
        output = model(input_ids=batch.ids, use_cache=False, logits_to_keep=keep)
        logits_N_V = output.logits[batch.rows_N, batch.places_N].float()
        return logits_N_V if self._temperature == 1.0 else logits_N_V / self._temperature


def _entropy_sum(logits_N_V: Tensor) -> float:
    logprobs_N_V = torch.log_softmax(logits_N_V, dim=-1)
    return -float((logprobs_N_V.exp() * logprobs_N_V).sum())


def _by_lag(loss: TokenLoss, lags_N: np.ndarray) -> dict[int, LagStats]:
    parts = {}
    for lag in np.unique(lags_N).tolist():
        chosen = torch.from_numpy(lags_N == lag)
        weights = loss.weights[chosen].double()
        parts[lag] = LagStats(
            tokens=len(weights),
            mismatch_kl_sum=float(loss.mismatch_kl[chosen].sum()),
            clipped=int(loss.clipped[chosen].sum()),
            capped=int(loss.capped[chosen].sum()),
            weight_sum=float(weights.sum()),
            weight_square_sum=float((weights**2).sum()),
        )
    return parts
