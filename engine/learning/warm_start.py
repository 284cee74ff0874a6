"""The supervised steps that teach the built-in model to answer at all, once per set of inputs.

First only worked answers, then mostly bare ones: both are always right, but a model this small cannot get the bare one
right by itself. The result is kept in the cache folder under a hash of everything that decides it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import reasoning_gym
import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.config import SizeConfig, TaskConfig, WarmStartConfig
from engine.learning.builtin_model import bare_answer, worked_answer
from engine.learning.prompts import encode_continuation, encode_prompt
from engine.learning.tasks import Task
from engine.learning.weights import Vector, flatten, load_flat

RECIPE = 2
"""Raised whenever this file or the built-in model changes what comes out, so that old cache entries are not used."""

BETAS, WEIGHT_DECAY, MAX_GRAD_NORM = (0.9, 0.98), 0.01, 1.0
"""AdamW and clipping as measured for this model; the second moment forgets fast because the run is short."""

LR_WARMUP_STEPS, LR_FINAL_FRACTION = 20, 0.1
"""Linear warm-up, then a cosine down to this fraction."""

HALVES = 2
"""A batch goes through the model in this many pieces of similar length, which saves padding."""

Progress = Callable[[str, float], None]
"""(one sentence, fraction done 0 to 1)"""


class WarmStartStopped(RuntimeError):
    """The caller asked to stop; nothing was stored."""


def cache_file(
    cache_dir: Path,
    config: WarmStartConfig,
    task_config: TaskConfig,
    *,
    size: SizeConfig,
    seed: int,
    held_out_items: int,
    data_sha256: str | None = None,
) -> Path:
    """Where the weights of these inputs are kept; `data_sha256` is of items that were read from a file."""
    inputs = {
        "recipe": RECIPE,
        "warm_start": config.model_dump(mode="json"),
        "task": {"source": task_config.source, "params": dict(task_config.params), "items": task_config.size},
        "size": size.model_dump(mode="json"),
        "seed": seed,
        "held_out_items": held_out_items,
        "versions": [torch.__version__, transformers.__version__, reasoning_gym.__version__],
    }
    if data_sha256 is not None:
        inputs["data_sha256"] = data_sha256
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    return cache_dir / "warm_start" / f"{digest[:32]}.npy"


def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    config: WarmStartConfig,
    *,
    seed: int,
    file: Path,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> str:
    """Bring the model to the end of the warm start, from `file` if it is there; returns a sentence on how.

    Raises WarmStartStopped soon after `should_stop` says so.
    """
    note = f"warm start of {config.steps} steps"
    if file.exists():
        try:
            load_flat(model, np.load(file, allow_pickle=False))
            return f"{note} taken from {file}"
        except (ValueError, EOFError, OSError) as error:
            note += f", since {file} could not be read ({error})"
    train(model, tokenizer, task, config, seed=seed, progress=progress, should_stop=should_stop)
    _store(file, flatten(model))
    return f"{note} made and kept in {file}"


def train(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    config: WarmStartConfig,
    *,
    seed: int,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> None:
    """The supervised steps themselves, in place. Deterministic for a given seed and thread count."""
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
    )
    model.train()
    for step in range(config.steps):
        if should_stop():
            raise WarmStartStopped(f"the warm start was stopped at step {step} of {config.steps}")
        sequences = [_example(tokenizer, task, config, step, rng) for _ in range(config.batch)]
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * rate_factor(step, config.steps)
        optimizer.zero_grad()
        _backward(model, sequences)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        if not torch.isfinite(norm):
            raise FloatingPointError(
                f"the gradient of step {step + 1} of the warm start has the norm {norm:g}: "
                f"model.warm_start.learning_rate {config.learning_rate:g} is too large"
            )
        optimizer.step()
        progress(f"warm start {step + 1}/{config.steps}", (step + 1) / config.steps)
    optimizer.zero_grad()
    model.eval()


def rate_factor(step: int, steps: int) -> float:
    """Fraction of the learning rate at a step, from 0."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return min(1.0, (step + 1) / LR_WARMUP_STEPS) * (LR_FINAL_FRACTION + (1 - LR_FINAL_FRACTION) * cosine)


def _example(
    tokenizer: PreTrainedTokenizerBase, task: Task, config: WarmStartConfig, step: int, rng: random.Random
) -> tuple[list[int], int]:
    """A random training item with its answer and end: token ids, and how many of them are prompt."""
    item = rng.randrange(task.size)
    entry = task.entry(item)
    worked = step < config.worked_only_steps or rng.random() < config.worked_share
    text = worked_answer(entry) if worked else bare_answer(entry)
    prompt = encode_prompt(tokenizer, task.prompt(item)).tolist()
    return [*prompt, *encode_continuation(tokenizer, text).tolist(), tokenizer.eos_token_id], len(prompt)


def _backward(model: PreTrainedModel, sequences: Sequence[tuple[list[int], int]]) -> None:
    """Mean cross-entropy per answer token; right-padded, which causal attention does not see."""
    ordered = sorted(sequences, key=lambda sequence: len(sequence[0]))
    total = sum(len(ids) - prompt for ids, prompt in ordered)
    size = -(-len(ordered) // HALVES)
    for begin in range(0, len(ordered), size):
        piece = ordered[begin : begin + size]
        ids = np.zeros((len(piece), len(piece[-1][0])), dtype=np.int64)
        targets = np.full_like(ids, -100)
        for row, (tokens, prompt) in enumerate(piece):
            ids[row, : len(tokens)] = tokens
            targets[row, prompt - 1 : len(tokens) - 1] = tokens[prompt:]
        logits = model(input_ids=torch.from_numpy(ids), use_cache=False).logits.float()
        loss = cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten(), reduction="sum")
        (loss / total).backward()


def _store(file: Path, vector: Vector) -> None:
    """Written beside the target and renamed, so that two runs may do it at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.stem}-", suffix=".npy", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            np.save(stream, vector)
        os.replace(name, file)
    finally:
        Path(name).unlink(missing_ok=True)
