"""A trainer over any causal language model of transformers: plain torch, AdamW, on the CPU in float32.

The model runs without dropout: then pi_theta is the policy that the rollouter samples from, and the same groups give
the same gradient wherever they are trained. Below top_p = 1 the recorded log-probabilities are those of the nucleus
while the policy's are not truncated, so w is the true importance weight of the token.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.config import AlgorithmConfig
from engine.learning import checkpoint
from engine.learning.grpo.advantages import advantages, has_signal
from engine.learning.grpo.loss import TokenLoss, token_loss
from engine.learning.grpo.reference_kl import reference_kl
from engine.learning.grpo.schedule import learning_rate
from engine.learning.micro_batches import MicroBatch, Sample, micro_batches
from engine.learning.sequences import FinishedGroup
from engine.learning.stats import ChunkStats, LagStats, merge
from engine.learning.trainer import Gradient, StepStats
from engine.learning.weights import Vector, flatten, flatten_gradients, load_flat_gradients


class TorchTrainer:
    """See `engine.learning.trainer.Trainer` for the methods."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        algorithm: AlgorithmConfig,
        *,
        temperature: float,
        version: int = 0,
    ) -> None:
        """The model becomes ours; as it is now it is the reference where `kl_coef` asks for one.

        `temperature` is the sampling one, at which log-probabilities are taken; `tokenizer` is saved with the model.
        """
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._algorithm = algorithm
        self._temperature = temperature
        self._version = version
        self._tokens = 0
        self._reference = copy.deepcopy(model).requires_grad_(False) if algorithm.kl_coef > 0 else None
        self._optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=algorithm.learning_rate,
            betas=algorithm.betas,
            weight_decay=algorithm.weight_decay,
            fused=True,
        )

    @property
    def version(self) -> int:
        return self._version

    def accumulate(self, groups: Sequence[FinishedGroup]) -> ChunkStats:
        samples = [sample for group in groups for sample in self._samples(group)]
        counted = merge(self._count(group) for group in groups)
        vocabulary = self._model.get_output_embeddings().weight.shape[0]
        trained = merge(self._backward(batch) for batch in micro_batches(samples, vocabulary=vocabulary))
        self._tokens += trained.tokens
        return counted + trained

    def gradient(self) -> Gradient:
        return Gradient(vector=flatten_gradients(self._model), tokens=self._tokens)

    def finish_step(self, parts: Sequence[Gradient] | None = None) -> StepStats:
        parts = [self.gradient()] if parts is None else parts
        tokens = sum(part.tokens for part in parts)
        rate = learning_rate(self._algorithm, self._version)
        norm = self._update(parts, tokens, rate) if tokens else None
        self._version += 1
        self.discard()
        return StepStats(version=self._version, learning_rate=rate, grad_norm=norm, tokens=tokens)

    def discard(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._tokens = 0

    def vector(self) -> Vector:
        return flatten(self._model)

    def save(self, folder: Path) -> None:
        checkpoint.save(folder, self._model, self._tokenizer, self._optimizer, version=self._version)

    def load(self, folder: Path) -> None:
        self._version = checkpoint.load(folder, self._model, self._optimizer)
        self.discard()

    def _samples(self, group: FinishedGroup) -> list[Sample]:
        """Responses that go through the loss: none without signal, unless the KL term pulls on them."""
        rewards_G, lag = _rewards(group), self._version - group.version
        if lag < 0:
            raise ValueError(f"group {group.group_id} has version {group.version}, the trainer only {self._version}")
        if not has_signal(rewards_G) and self._reference is None:
            return []
        advantages_G = advantages(rewards_G, scale_rewards=self._algorithm.scale_rewards)
        return [
            Sample(
                prompt=group.prompt_tokens,
                response=response.tokens,
                behaviour=response.logprobs,
                advantage=float(advantage),
                lag=lag,
            )
            for response, advantage in zip(group.responses, advantages_G, strict=True)
        ]

    def _count(self, group: FinishedGroup) -> ChunkStats:
        rewards_G = _rewards(group)
        return ChunkStats(
            groups=1,
            responses=len(rewards_G),
            no_signal=int(not has_signal(rewards_G)),
            prompt_tokens=len(group.prompt_tokens) * len(rewards_G),
            response_tokens=group.response_tokens,
            reward_sum=float(rewards_G.sum()),
            reward_square_sum=float((rewards_G**2).sum()),
            by_lag={self._version - group.version: LagStats(groups=1)},
        )

    def _backward(self, batch: MicroBatch) -> ChunkStats:
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

    def _update(self, parts: Sequence[Gradient], tokens: int, rate: float) -> float:
        total = np.zeros_like(parts[0].vector)
        for part in parts:
            total += part.vector
        total /= np.float32(tokens)
        load_flat_gradients(self._model, total)
        norm = torch.nn.utils.clip_grad_norm_(
            self._model.parameters(), self._algorithm.max_grad_norm, error_if_nonfinite=True
        )
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        return float(norm)


def _rewards(group: FinishedGroup) -> np.ndarray:
    rewards = [response.reward for response in group.responses]
    if any(reward is None or not np.isfinite(reward) for reward in rewards):
        raise ValueError(f"group {group.group_id} has rewards {rewards}; every response needs a finite one")
    return np.array(rewards, dtype=np.float64)


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
