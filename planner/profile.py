"""What emulated and simulated devices obey: speeds, stage costs, switch costs and response lengths of one job.

The same numbers as `profile` in a job file. Seconds and tokens throughout; nothing is measured here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.stage_model import StageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpeed:
    """Continuous batching on one rollout replica: R / (b + h) tokens per second for each of b active sequences."""

    slots: int
    """sequences that are generated at once"""
    tokens_per_s: float
    """R: tokens per second of the replica, in the limit of a large batch"""
    half_batch: float
    """h: batch size at which the replica reaches half of R"""
    resume_tokens: float
    """tokens' worth of work that continuing an unfinished sequence on another replica costs"""
    start_tokens: float = 0.0
    """tokens' worth of work that starting a sequence (computing its prompt) costs"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSpeed:
    """One trainer replica: seconds of a chunk = chunk_s + tokens / tokens_per_s."""

    tokens_per_s: float
    """prompt plus response tokens per second of one replica"""
    chunk_s: float
    """seconds of a chunk, whatever its size"""
    max_chunk_groups: int
    """groups of the largest chunk"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchCosts:
    """What one lease costs (design section 7), in seconds."""

    in_s: float
    """C_in: from the decision to the auxiliary's first useful token or gradient"""
    out_s: float
    """C_out: until the home role works again"""
    grad_s: float = 0.0
    """C_grad: merging auxiliary gradients; 0 for a rollouter"""

    def scaled(self, factor: float) -> SwitchCosts:
        """The same costs where every second takes `factor` seconds."""
        return SwitchCosts(in_s=self.in_s * factor, out_s=self.out_s * factor, grad_s=self.grad_s * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Response lengths: lognormal per group and per response, cut at `max`, drifting over the run."""

    median: float
    """tokens"""
    max: int
    """tokens"""
    sigma_group: float = 0.45
    """standard deviation of the log over groups"""
    sigma_response: float = 0.45
    """standard deviation of the log over the responses of a group"""
    drift: float = 0.1
    """standard deviation of the log over steps, as an AR(1) process"""
    linear_drift: float = 0.0
    """growth of the log from the first step to the last"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Stage-time models of both stages, workload in groups."""

    rollout: StageModel
    train: StageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Everything that the simulator and emulated devices need to know of a job's speed."""

    rollout: RolloutSpeed
    train: TrainSpeed
    optimizer_s: float
    """seconds of an optimizer step"""
    weight_sync_s: float
    """seconds from the optimizer's end until rollouters hold the new version"""
    rollout_on_train: SwitchCosts
    train_on_rollout: SwitchCosts
    response_tokens: Lengths
    prompt_tokens: float
    """tokens of a prompt, counted once per response"""
    noise: float = 0.03
    """standard deviation of the log of a chunk's and of a replica's seconds"""
    models: Models | None = None
    """where the planner shall use given stage-time models instead of fitted ones"""

    def scaled(self, factor: float) -> Profile:
        """The same devices where every second takes `factor` seconds."""
        models = self.models
        return replace(
            self,
            rollout=replace(self.rollout, tokens_per_s=self.rollout.tokens_per_s / factor),
            train=replace(
                self.train, tokens_per_s=self.train.tokens_per_s / factor, chunk_s=self.train.chunk_s * factor
            ),
            optimizer_s=self.optimizer_s * factor,
            weight_sync_s=self.weight_sync_s * factor,
            rollout_on_train=self.rollout_on_train.scaled(factor),
            train_on_rollout=self.train_on_rollout.scaled(factor),
            models=None
            if models is None
            else Models(rollout=_scaled(models.rollout, factor), train=_scaled(models.train, factor)),
        )


def _scaled(model: StageModel, factor: float) -> StageModel:
    return replace(model, a=model.a * factor, b=model.b * factor)
