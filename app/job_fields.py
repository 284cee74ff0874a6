"""What the Launch form asks for, in order. Which values are allowed is said by `engine.config` alone."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import ARMS
from engine.config.job import KINDS_AVAILABLE
from engine.config.learning import LOSSES
from engine.config.rollouter import ROLLOUTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of the form."""

    path: str
    """Dotted path of its key."""
    label: str
    """With its unit where it has one."""
    choices: tuple[str, ...] = ()
    """Values to choose from; free text when there are none."""
    wide: bool = False
    """Takes the room of two."""
    kinds: tuple[str, ...] = ()
    """Kinds of device to which it means anything; all of them when there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Fields under one heading."""

    title: str
    """Heading."""
    fields: tuple[Field, ...]
    """In order."""


REAL_KINDS = tuple(kind for kind in KINDS_AVAILABLE if kind != "emulated")
"""Kinds that have a model, a task, and something to learn."""

SECTIONS = (
    Section(
        title="Job",
        fields=(
            Field(path="name", label="Name"),
            Field(path="seed", label="Seed"),
            Field(
                path="model.source",
                label="Model: builtin:tiny, builtin:smollm2, a folder or a hub id",
                wide=True,
                kinds=REAL_KINDS,
            ),
            Field(path="model.prompt_template", label="Prompt: {prompt} in text, chat or plain", kinds=REAL_KINDS),
            Field(path="model.lora", label="Adapters: {r: 16, alpha: 32}", kinds=REAL_KINDS),
            Field(
                path="model.gradient_checkpointing",
                label="Compute layers again",
                choices=("false", "true"),
                kinds=REAL_KINDS,
            ),
        ),
    ),
    Section(
        title="Task",
        fields=(
            Field(
                path="task.source",
                label="Source: reasoning_gym:DATASET, jsonl:PATH, parquet:PATH or hf:NAME",
                wide=True,
                kinds=REAL_KINDS,
            ),
            Field(path="task.params", label="Parameters of the data set", wide=True, kinds=REAL_KINDS),
            Field(
                path="task.reward",
                label="Reward: scorer, exact, math_verify or python:MODULE:FUNCTION",
                wide=True,
                kinds=REAL_KINDS,
            ),
            Field(
                path="task.rewards",
                label="Several instead: [{name: exact, weight: 1}, ...]",
                wide=True,
                kinds=REAL_KINDS,
            ),
            Field(path="task.answer_after", label="Score what follows", kinds=REAL_KINDS),
            Field(path="task.items", label="Training items", kinds=REAL_KINDS),
            Field(path="task.prompt_field", label="Field of the prompt", kinds=REAL_KINDS),
            Field(path="task.answer_field", label="Field of the answer", kinds=REAL_KINDS),
            Field(path="task.held_out", label="Held-out file, jsonl:PATH", wide=True, kinds=REAL_KINDS),
            Field(path="task.prompt_template", label="Template with {prompt}", wide=True, kinds=REAL_KINDS),
        ),
    ),
    Section(
        title="Algorithm",
        fields=(
            Field(path="algorithm.prompts_per_step", label="Prompts per step (B)"),
            Field(path="algorithm.group_size", label="Responses per prompt"),
            Field(path="algorithm.steps", label="Steps"),
            Field(path="algorithm.learning_rate", label="Learning rate", kinds=REAL_KINDS),
            Field(path="algorithm.lr_schedule", label="Its schedule", choices=("constant", "linear"), kinds=REAL_KINDS),
            Field(path="algorithm.loss", label="Loss", choices=LOSSES, kinds=REAL_KINDS),
            Field(
                path="algorithm.dynamic_sampling",
                label="Replace groups without signal",
                choices=("false", "true"),
                kinds=REAL_KINDS,
            ),
            Field(path="sampling.max_response_tokens", label="New tokens at most", kinds=REAL_KINDS),
            Field(path="sampling.temperature", label="Temperature", kinds=REAL_KINDS),
        ),
    ),
    Section(
        title="Schedule and devices",
        fields=(
            Field(path="schedule.arm", label="Arm", choices=ARMS),
            Field(path="schedule.staleness", label="Staleness, versions"),
            Field(path="schedule.consume", label="Consume", choices=("null", "stream", "whole_batch")),
            Field(path="devices.kind", label="Kind of device", choices=KINDS_AVAILABLE),
            Field(path="devices.count", label="Devices"),
            Field(path="devices.partition", label="Partition, rollout:train"),
            Field(path="devices.rollout_replica_size", label="Devices per rollout replica", kinds=("emulated",)),
            Field(path="devices.train_replica_size", label="Devices per train replica", kinds=("emulated",)),
            Field(path="devices.time_scale", label="Seconds here for one modelled", kinds=("emulated",)),
            Field(path="devices.rollouter", label="Rollouts by", choices=ROLLOUTERS, kinds=REAL_KINDS),
            Field(path="devices.rollout_slots", label="Sequences per replica", kinds=REAL_KINDS),
            Field(
                path="devices.oversubscribe", label="Oversubscribe cores", choices=("false", "true"), kinds=REAL_KINDS
            ),
        ),
    ),
    Section(
        title="Evaluation and checkpoints",
        fields=(
            Field(path="eval.every_steps", label="Evaluate every, steps", kinds=REAL_KINDS),
            Field(path="eval.items", label="Held-out items", kinds=REAL_KINDS),
            Field(path="checkpoint.every_steps", label="Checkpoint every, steps", kinds=REAL_KINDS),
            Field(path="checkpoint.keep", label="Checkpoints kept", kinds=REAL_KINDS),
        ),
    ),
)
FIELDS = {field.path: field for section in SECTIONS for field in section.fields}
