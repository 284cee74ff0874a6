"""How a job learns: evaluation, algorithm, sampling (`model.py` and `task.py` say what). Every field says its unit."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator, model_validator

from engine.config.allowed import Words
from engine.config.strict import Strict


class EvalConfig(Strict):
    every_steps: int = Field(20, ge=0)
    """Steps between held-out evaluations, besides one before the first and one after the last step; 0: only those."""
    items: int = Field(256, ge=0)
    """Held-out items, disjoint from the training items by question; 0 turns evaluation off. An answer is right when its
    reward (the first one, where there are several) is 1 or more."""
    greedy: bool = True
    control_prefix: str | None = None
    """First and last evaluation are repeated with answers made to start with this text: a control, reported apart."""


LOSSES = ("grpo", "dapo", "dr_grpo")
"""What a step minimises; the formulas are in `engine/learning/losses/`."""

Beta = Annotated[float, Field(ge=0, lt=1)]
"""How much of a running average is kept at each step."""


class AlgorithmConfig(Strict):
    group_size: int = Field(8, ge=2)
    """Responses per prompt."""
    prompts_per_step: int = Field(16, ge=1)
    """Groups per optimizer step (B)."""
    steps: int = Field(100, ge=1)
    learning_rate: float = Field(3e-4, gt=0)
    lr_schedule: Annotated[str, Words(("constant", "linear"))] = "constant"
    lr_warmup_steps: int = Field(0, ge=0)
    lr_final_fraction: float = Field(0.0, ge=0, le=1)
    """Fraction of the learning rate that the linear schedule ends at."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    clip_low: float = Field(0.2, ge=0, lt=1)
    clip_high: float = Field(0.28, ge=0)
    kl_coef: float = Field(0.0, ge=0)
    loss: Annotated[str, Words(LOSSES)] = "grpo"
    """`grpo`; `dapo`: without KL term, with overlong shaping where asked for; `dr_grpo`: neither std nor lengths."""
    scale_rewards: Annotated[str | None, Words(("group", "none"))] = None
    """`group`: divide advantages by the group's standard deviation; `none`: do not; null: as the loss has it, which is
    `group` but for `dr_grpo`."""
    overlong_tokens: int = Field(0, ge=0)
    """Of `dapo`: in the last so many tokens of the longest response a reward falls by up to 1; 0: it does not."""
    dynamic_sampling: bool = False
    """A group whose answers all earn the same is excluded and another prompt takes its place."""
    correction: Annotated[str, Words(("tis", "none"))] = "tis"
    is_cap: float = Field(2.0, gt=0)
    accept_uncorrected: bool = False

    @field_validator("scale_rewards")
    @classmethod
    def _scale(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value == "group" and info.data.get("loss") == "dr_grpo":
            raise ValueError("must be none or null for loss dr_grpo, which has no standard deviation, got 'group'")
        return value

    @field_validator("overlong_tokens")
    @classmethod
    def _overlong(cls, value: int, info: ValidationInfo) -> int:
        if value and (loss := info.data.get("loss")) != "dapo":
            raise ValueError(f"belongs to loss dapo, the loss is {loss}; allowed: 0, got {value}")
        return value

    @model_validator(mode="after")
    def _no_kl(self) -> AlgorithmConfig:
        if self.loss == "dapo" and self.kl_coef:
            raise ValueError(f"kl_coef {self.kl_coef} has no meaning for loss dapo, which has no KL term; allowed: 0")
        return self

    @property
    def scale_rewards_resolved(self) -> str:
        """`group` or `none`."""
        return self.scale_rewards or ("none" if self.loss == "dr_grpo" else "group")


class SamplingConfig(Strict):
    max_response_tokens: int = Field(32, ge=1)
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
