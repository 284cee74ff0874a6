"""A trainer over any causal language model of transformers: plain torch, AdamW, weights in float32.

The model runs without dropout: then pi_theta is the policy that the rollouter samples from, and the same groups give
the same gradient wherever they are trained. Below top_p = 1 the recorded log-probabilities are those of the nucleus
while the policy's are not truncated, so w is the true importance weight of the token.

In deterministic mode each group is computed by itself and its gradient kept apart until the step ends. That costs a
vector of the model's size per group, and forward passes that are not as full as they could be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.config import AlgorithmConfig
from engine.learning import checkpoint, group_gradients
from engine.learning.group_gradients import key_of
from engine.learning.grpo.schedule import learning_rate
from engine.learning.lora import base_sha256, reference_copy
from engine.learning.losses import loss_of
from engine.learning.micro_batches import Sample, bundles, micro_batches
from engine.learning.optimizer_state import restore_snapshot, take_snapshot
from engine.learning.policy_loss import PolicyLoss
from engine.learning.reused_arrays import ReusedArrays
from engine.learning.samples import count, samples_of
from engine.learning.sequences import FinishedGroup
from engine.learning.snapshot import Arrays, Snapshot
from engine.learning.stats import ChunkStats, merge
from engine.learning.trainer import Gradient, GroupKey, StepStats
from engine.learning.weights import (
    Vector,
    divide_gradients,
    flatten,
    flatten_gradients,
    load_flat,
    load_flat_gradients,
    nbytes_of,
    parameter_count,
    trained,
)


class TorchTrainer:
    """See `engine.learning.trainer.Trainer` for the methods."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        algorithm: AlgorithmConfig,
        *,
        temperature: float,
        max_response_tokens: int,
        version: int = 0,
        optimizer: bool = True,
        deterministic: bool = False,
        compute: torch.dtype = torch.float32,
        recompute: bool = False,
        merged: bool = False,
    ) -> None:
        """The model becomes ours; as it is now it is the reference where `kl_coef` asks for one, until `set_reference`.

        `temperature` is the sampling one, at which log-probabilities are taken; `max_response_tokens` is the longest
        response allowed, which some losses divide by; `tokenizer` is saved with the model.
        Without `optimizer` this is an auxiliary, until `own_optimizer`. `compute` is the type that passes compute in;
        with `recompute` layers keep only their inputs; with `merged` checkpoints of adapters hold the whole model too.
        """
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._algorithm = algorithm
        self._version = version
        self._deterministic = deterministic
        self._tokens = 0
        self._rows: dict[GroupKey, Vector] = {}
        """In deterministic mode: the gradient of each group of the step that carried one."""
        self._arrays = ReusedArrays()
        self._merged = merged
        self._reference = reference_copy(model) if algorithm.kl_coef > 0 else None
        self._objective = loss_of(algorithm, max_response_tokens=max_response_tokens)
        self._loss = PolicyLoss(
            model, self._reference, algorithm, temperature=temperature, compute=compute, recompute=recompute
        )
        self._adamw = _adamw(model, algorithm) if optimizer else None
        self._base: str | None = None
        """Digest of the frozen base of adapters, once a checkpoint asked for it: it never changes."""

    @property
    def version(self) -> int:
        return self._version

    @property
    def nbytes(self) -> int:
        gradients = max(1, len(self._rows))  # a deterministic trainer grows by one with each group
        copies = gradients + (2 if self._adamw is not None else 0)
        fixed = nbytes_of(self._model) + (0 if self._reference is None else nbytes_of(self._reference))
        return fixed + copies * sum(parameter.nbytes for _, parameter in trained(self._model))

    def accumulate(self, groups: Sequence[FinishedGroup]) -> ChunkStats:
        return self._train(groups, self._samples(groups))

    def accumulate_until(self, groups: Sequence[FinishedGroup], stop: Callable[[], bool]) -> tuple[ChunkStats, int]:
        samples = self._samples(groups)
        stats, done = ChunkStats(), 0
        for bundle in bundles(samples, vocabulary=self._loss.vocabulary_at_once):
            if done and stop():
                break
            part = slice(bundle.start, bundle.stop)
            stats += self._train(groups[part], samples[part])
            done = bundle.stop
        return stats, done

    def gradient(self) -> Gradient:
        if self._deterministic:
            return group_gradients.stack(self._rows, tokens=self._tokens, parameters=parameter_count(self._model))
        return Gradient(vector=flatten_gradients(self._model, out=self._fresh()), tokens=self._tokens)

    def finish_step(self, parts: Sequence[Gradient] | None = None) -> StepStats:
        adamw = self._optimizer("finish a step")
        if parts is None and self._deterministic:
            parts = [self.gradient()]
        tokens = self._tokens if parts is None else sum(part.tokens for part in parts)
        rate = learning_rate(self._algorithm, self._version)
        norm = self._update(adamw, parts, tokens, rate) if tokens else None
        self._version += 1
        self.discard()
        return StepStats(
            version=self._version,
            learning_rate=rate,
            grad_norm=norm,
            tokens=tokens,
            divisor=self._objective.divisor(tokens) if tokens else None,
        )

    def discard(self) -> None:
        self._model.zero_grad(set_to_none=True)
        self._rows = {}
        self._tokens = 0

    def vector(self) -> Vector:
        return flatten(self._model, out=self._fresh())

    def take(self, vector: Vector, version: int) -> None:
        load_flat(self._model, vector)
        self._version = version
        self.discard()

    def reference_vector(self) -> Vector | None:
        return None if self._reference is None else flatten(self._reference)

    def set_reference(self, vector: Vector) -> None:
        if self._reference is None:
            raise ValueError("algorithm.kl_coef is 0: this trainer has no reference to set; allowed: kl_coef above 0")
        load_flat(self._reference, vector)

    def snapshot(self, parameters: Vector | None = None, arrays: Arrays | None = None) -> Snapshot:
        return take_snapshot(
            self._model,
            self._optimizer("take a snapshot"),
            version=self._version,
            parameters=parameters,
            arrays=arrays or self._arrays,
        )

    def restore(self, snapshot: Snapshot) -> None:
        restore_snapshot(self._model, self._optimizer("restore a snapshot"), snapshot)
        self._version = snapshot.version
        self.discard()

    def own_optimizer(self, own: bool) -> None:
        """Become a primary, whose state `restore` then brings, or stop being one and free what it holds."""
        if own and self._adamw is None:
            self._adamw = _adamw(self._model, self._algorithm)
        elif not own:
            self._adamw = None

    def save(self, folder: Path) -> None:
        adamw = self._optimizer("save a checkpoint")
        checkpoint.save(
            folder,
            self._model,
            self._tokenizer,
            adamw,
            version=self._version,
            reference=self._reference,
            merged=self._merged,
            base=self._base_digest(),
        )

    def load(self, folder: Path) -> tuple[str, ...]:
        adamw = self._optimizer("load a checkpoint")
        self._version, notes = checkpoint.load(
            folder, self._model, adamw, reference=self._reference, base=self._base_digest()
        )
        self.discard()
        return notes

    def _base_digest(self) -> str | None:
        self._base = self._base or base_sha256(self._model)
        return self._base

    def _fresh(self) -> Vector:
        """[parameters], arbitrary content."""
        return self._arrays.empty((parameter_count(self._model),))

    def _optimizer(self, purpose: str) -> torch.optim.AdamW:
        if self._adamw is None:
            raise RuntimeError(
                f"an auxiliary trainer cannot {purpose}: it has no optimizer, only primary trainers own one"
            )
        return self._adamw

    def _samples(self, groups: Sequence[FinishedGroup]) -> list[list[Sample]]:
        """What goes through the loss, group by group; refuses what cannot be trained on before anything is."""
        if self._deterministic:
            times = Counter([*self._rows, *(key_of(group) for group in groups)])
            twice = sorted(key for key, number in times.items() if number > 1)
            if twice:
                raise ValueError(f"groups (epoch, position) {twice} would be trained twice in this step")
        return [
            samples_of(
                group,
                version=self._version,
                loss=self._objective,
                without_signal=self._reference is not None,
            )
            for group in groups
        ]

    def _train(self, groups: Sequence[FinishedGroup], samples: Sequence[Sequence[Sample]]) -> ChunkStats:
        counted = merge(count(group, version=self._version, loss=self._objective) for group in groups)
        if self._deterministic:
            trained = merge(self._train_apart(key_of(group), own) for group, own in zip(groups, samples, strict=True))
        else:
            trained = self._backward([sample for own in samples for sample in own])
            self._tokens += trained.tokens
        return counted + trained

    def _train_apart(self, key: GroupKey, samples: Sequence[Sample]) -> ChunkStats:
        """Micro batches of this group alone, so that no shape and no sum depends on others."""
        if not samples:
            return ChunkStats()
        try:
            trained = self._backward(samples)
            self._rows[key] = flatten_gradients(self._model)
        finally:  # a group that failed half-way must not end in the next one's row
            self._model.zero_grad(set_to_none=True)
        self._tokens += trained.tokens
        return trained

    def _backward(self, samples: Sequence[Sample]) -> ChunkStats:
        return merge(
            self._loss.backward(batch) for batch in micro_batches(samples, vocabulary=self._loss.vocabulary_at_once)
        )

    def _update(self, adamw: torch.optim.AdamW, parts: Sequence[Gradient] | None, tokens: int, rate: float) -> float:
        divisor = self._objective.divisor(tokens)
        if parts is None:
            divide_gradients(self._model, divisor)
        else:
            if self._deterministic:
                total = group_gradients.sum_in_data_order(parts, parameters=parameter_count(self._model))
            else:
                total = group_gradients.sum_as_they_come(parts)
            total /= np.float32(divisor)
            load_flat_gradients(self._model, total)
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._algorithm.max_grad_norm)
        if not torch.isfinite(norm):
            raise FloatingPointError(
                f"the gradient of step {self._version + 1} has the norm {norm:g}, so that no step can be made of it. "
                "Look at algorithm.learning_rate, since one that is too large drives the weights away (it is "
                f"{rate:g}; gradient norm and KL of the steps before tell), and at the largest rewards; the "
                "checkpoints from before are sound"
            )
        for group in adamw.param_groups:
            group["lr"] = rate
        adamw.step()
        return float(norm)


def _adamw(model: PreTrainedModel, algorithm: AlgorithmConfig) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        [parameter for _, parameter in trained(model)],
        lr=algorithm.learning_rate,
        betas=algorithm.betas,
        weight_decay=algorithm.weight_decay,
        fused=True,
    )
