"""The GRPO loss of one micro batch under a model, and its gradient.

The loss is summed, not averaged: who trains several micro batches, chunks or replicas adds the gradients up and divides
once, when the step ends.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.config import AlgorithmConfig
from engine.learning.grpo.loss import TokenLoss, token_loss
from engine.learning.grpo.reference_kl import reference_kl
from engine.learning.micro_batches import MicroBatch, Targets
from engine.learning.output_head import OutputHead
from engine.learning.stats import ChunkStats, LagStats, merge
from engine.learning.trained_pass import trained_pass


class PolicyLoss:
    """`backward` adds to the gradients of the model it was made with; the reference is None when kl_coef is 0."""

    def __init__(
        self,
        model: PreTrainedModel,
        reference: PreTrainedModel | None,
        algorithm: AlgorithmConfig,
        *,
        temperature: float,
        compute: torch.dtype = torch.float32,
        recompute: bool = False,
    ) -> None:
        """`temperature` is the sampling one, at which log-probabilities are taken; `compute` is the type that the model
        computes in, whatever its weights are kept in; with `recompute` layers keep only their inputs."""
        self._model = model
        self._reference = reference
        self._algorithm = algorithm
        self._temperature = temperature
        self._compute = compute
        self._recompute = recompute
        self._head = OutputHead(model)

    @property
    def vocabulary_at_once(self) -> int:
        """Logits of a token that a whole pass holds; 1 where they are computed in parts."""
        return 1 if self._head.apart else self._head.vocabulary

    def backward(self, batch: MicroBatch) -> ChunkStats:
        """Add the batch's summed gradient; one update per step makes pi_prox the policy as it is (r = 1).

        The loss is a sum over tokens: they go through the head and back part by part, so that only the logits of one
        part live at a time, and then through the layers together.
        """
        batch = batch.on(self._model.device)
        with trained_pass(self._model, recompute=self._recompute):
            with self._computing():
                outputs_N_D = self._head.outputs(self._model, batch)
                reference_N = self._reference_logprobs(batch)
            apart_N_D = outputs_N_D.detach().requires_grad_()
            stats = merge(
                self._part(apart_N_D, batch.part(rows), rows, None if reference_N is None else reference_N[rows])
                for rows in self._head.parts(len(outputs_N_D))
            )
            outputs_N_D.backward(apart_N_D.grad)
        return stats

    def _part(self, outputs_N_D: Tensor, part: Targets, rows: slice, reference_n: Tensor | None) -> ChunkStats:
        """Add the gradient of these tokens to the head's and to that of `outputs_N_D`."""
        algorithm = self._algorithm
        logprobs_n_V = self._logprobs(self._model, outputs_N_D[rows])
        logprobs_n = logprobs_n_V.gather(1, part.targets_n[:, None])[:, 0]
        loss = token_loss(
            logprobs_n,
            logprobs_n.detach(),
            part.behaviour_n,
            part.advantages_n,
            clip_low=algorithm.clip_low,
            clip_high=algorithm.clip_high,
            is_cap=algorithm.is_cap if algorithm.correction == "tis" else None,
        )
        losses_n, kl_sum = loss.losses, 0.0
        if reference_n is not None:
            kl_n = reference_kl(logprobs_n, reference_n)
            losses_n, kl_sum = losses_n + algorithm.kl_coef * kl_n, float(kl_n.detach().sum())
        summed = losses_n.sum()
        summed.backward()
        kept_n_V = logprobs_n_V.detach()
        return ChunkStats(
            tokens=len(part.targets_n),
            loss_sum=float(summed.detach()),
            entropy_sum=-float((kept_n_V.exp() * kept_n_V).sum()),
            reference_kl_sum=kl_sum,
            by_lag=_by_lag(loss, part.lags_n),
        )

    @torch.no_grad()
    def _reference_logprobs(self, batch: MicroBatch) -> Tensor | None:
        """float32 [N] of the response tokens under the reference."""
        if self._reference is None:
            return None
        outputs_N_D = self._head.outputs(self._reference, batch)
        parts = [
            self._logprobs(self._reference, outputs_N_D[rows]).gather(1, batch.targets_N[rows, None])[:, 0]
            for rows in self._head.parts(len(outputs_N_D))
        ]
        return torch.cat(parts)

    def _logprobs(self, model: PreTrainedModel, outputs_n_D: Tensor) -> Tensor:
        """At the sampling temperature, float32 [n, vocabulary]."""
        with self._computing():
            logits_n_V = self._head.logits(model, outputs_n_D)
        return torch.log_softmax(logits_n_V if self._temperature == 1.0 else logits_n_V / self._temperature, dim=-1)

    def _computing(self) -> torch.autocast:
        lower = self._compute != torch.float32
        return torch.autocast(self._model.device.type, dtype=self._compute if lower else None, enabled=lower)


def _by_lag(loss: TokenLoss, lags_N: np.ndarray) -> dict[int, LagStats]:
    parts = {}
    for lag in np.unique(lags_N).tolist():
        chosen = torch.from_numpy(lags_N == lag).to(loss.weights.device)
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
