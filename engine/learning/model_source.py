"""Where a job's model comes from: the built-in one or a local folder.

Downloads nothing, and runs no code that comes with a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from engine.config import ModelConfig, TaskConfig
from engine.learning.builtin_model import build_model, build_tokenizer, check_task
from engine.learning.kv_window import check_supported
from engine.learning.tasks import Task
from engine.learning.warm_start import Progress, cache_file, warm_start


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to generate or to train; make a second one, or a deep copy, for a second role."""

    model: PreTrainedModel
    """float32 on the CPU."""
    tokenizer: PreTrainedTokenizerBase
    """With an end token; padding falls back to it."""
    notes: tuple[str, ...]
    """What the log should say, one sentence each."""


def load_model(
    config: ModelConfig,
    *,
    task: Task,
    task_config: TaskConfig,
    seed: int,
    cache_dir: Path,
    progress: Progress = lambda sentence, fraction: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> LoadedModel:
    """Raises ValueError for a source that cannot be used and WarmStartStopped when told to stop."""
    if config.source == "builtin:tiny":
        return _builtin(config, task, task_config, seed, cache_dir, progress, should_stop)
    return _folder(Path(config.source))


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


def _folder(folder: Path) -> LoadedModel:
    where = f"model.source {folder}"
    if not (folder / "config.json").is_file():
        raise ValueError(f"{where}: no config.json there; allowed: builtin:tiny or a folder that save_pretrained wrote")
    logging.disable_progress_bar()  # a worker's log is no terminal
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
        model: PreTrainedModel = loaded[0]
        missing = sorted(loaded[1]["missing_keys"])
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError) as error:
        raise ValueError(f"{where} does not load: {' '.join(str(error).split())[:500]}") from error
    if missing:
        raise ValueError(f"{where} lacks {len(missing)} weights, among them {missing[0]}; they would be random")
    if tokenizer.eos_token_id is None:
        raise ValueError(f"{where}: its tokenizer has no end token (eos_token), so no answer could ever end")
    check_supported(model.config)
    notes = [f"{where}: {sum(p.numel() for p in model.parameters()):,} parameters"]
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
        notes.append(f"{where}: its tokenizer has no padding token, the end token stands in")
    return LoadedModel(model=model.eval(), tokenizer=tokenizer, notes=tuple(notes))
