"""From a job's `model` section to a model in memory: a built-in one, a local folder, or a model of the hub.

Downloads nothing unless the job names a hub id, and runs no code that comes with a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.config import ModelConfig, TaskConfig
from engine.config.model import BUILTIN, SMOLLM2
from engine.learning.builtin_model import build_model, build_tokenizer, check_task
from engine.learning.lora import add_adapter
from engine.learning.model_folder import load_folder
from engine.learning.prompts import set_template
from engine.learning.smollm2 import smollm2_folder
from engine.learning.tasks import Task
from engine.learning.trained_pass import check_checkpointing
from engine.learning.warm_start import Progress, cache_file, warm_start
from engine.models.source import hub_folder, is_hub_id, local_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to generate or to train; make a second one, or a deep copy, for a second role."""

    model: PreTrainedModel
    """On its device. What is trained is float32; what is frozen, or only generates, is in the type it computes in."""
    tokenizer: PreTrainedTokenizerBase
    """With an end token; padding falls back to it."""
    notes: tuple[str, ...]
    """What the log should say, one sentence each."""
    compute: torch.dtype = torch.float32
    """What it computes in."""


def load_model(
    config: ModelConfig,
    *,
    task: Task,
    task_config: TaskConfig,
    seed: int,
    cache_dir: Path,
    roots: Sequence[Path] = (),
    trained: bool = True,
    kind: str = "cpu",
    progress: Progress = lambda sentence, fraction: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> LoadedModel:
    """`roots`: the folders that the job may read (none: any); without `trained` the model will only generate; `kind` of
    device that it goes to.

    Raises ValueError for a source that cannot be used and WarmStartStopped when told to stop.
    """
    if config.source == BUILTIN:
        return _builtin(config, task, task_config, seed, cache_dir, progress, should_stop)
    compute = getattr(torch, config.dtype_on(kind))
    folder = _folder(config.source, cache_dir, roots, progress)
    kept_in = torch.float32 if trained and config.lora is None else compute
    model, tokenizer, notes = load_folder(folder, dtype=kept_in)
    if config.lora is not None:
        add_adapter(model, config.lora, seed=seed)
        notes.append(f"adapters: {sum(p.numel() for p in model.parameters() if p.requires_grad):,} parameters")
    if config.gradient_checkpointing and trained:
        check_checkpointing(model)
    notes.append(set_template(tokenizer, config.prompt_template, task.prompt(0)))
    return LoadedModel(model=on_device(model, kind), tokenizer=tokenizer, notes=tuple(notes), compute=compute)


def on_device(model: PreTrainedModel, kind: str) -> PreTrainedModel:
    """The model on the device that this process sees."""
    return model.to(torch.device("cuda")) if kind == "cuda" else model  # type: ignore[arg-type]


def _folder(source: str, cache_dir: Path, roots: Sequence[Path], progress: Progress) -> Path:
    if source == SMOLLM2:
        return smollm2_folder(cache_dir, progress=progress)
    if is_hub_id(source, roots):
        progress(f"{source} is taken from the hub", 0.0)
        return hub_folder(source)
    return local_folder(source, roots)


def _builtin(
    config: ModelConfig,
    task: Task,
    task_config: TaskConfig,
    seed: int,
    cache_dir: Path,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> LoadedModel:
    tokenizer = build_tokenizer()
    check_task(task, tokenizer, needs_worked=config.warm_start.steps > 0)
    model = build_model(tokenizer, seed=seed, size=config.size).eval()
    if not config.warm_start.steps:
        return LoadedModel(model=model, tokenizer=tokenizer, notes=("no warm start: the weights are random",))
    file = cache_file(
        cache_dir,
        config.warm_start,
        task_config,
        size=config.size,
        seed=seed,
        held_out_items=task.held_out,
        data_sha256=task.sha256,
    )
    note = warm_start(
        model,
        tokenizer,
        task,
        config.warm_start,
        seed=seed,
        file=file,
        progress=progress,
        should_stop=should_stop,
    )
    return LoadedModel(model=model, tokenizer=tokenizer, notes=(note,))
