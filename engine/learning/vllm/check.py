"""Whether a job's rollouts can be left to vLLM here, asked before a worker is started; imports neither it nor torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from engine.config import Job, JobError
from engine.config.rollouter import chosen_rollouter, head_size_problem, vllm_problem
from engine.learning.vllm.installed import extra_for, problem

PLACE = "devices.rollouter"


def rollouter_for(job: Job) -> str:
    """`transformers` or `vllm`, on this machine."""
    return chosen_rollouter(job, vllm_installed=problem(job.devices.kind) is None)


def check_rollouter(job: Job, *, folder: Path | None = None, where: str = "job") -> None:
    """Raise JobError with what keeps a job that asks for vLLM from having it. `folder`: of its model, where it has one
    on this machine already."""
    if job.devices.rollouter != "vllm":
        return
    if found := vllm_problem(job):
        raise JobError(dict([found]), source=where)
    if sentence := problem(job.devices.kind):
        get = extra_for(job.devices.kind)
        raise JobError({PLACE: f"vllm: {sentence}; get it with: {get}; or use transformers"}, source=where)
    if folder is not None and (size := _head_size(folder)) and (sentence := head_size_problem(size)):
        raise JobError({PLACE: sentence}, source=where)


def model_folder(job: Job, roots: Sequence[Path]) -> Path | None:
    """The folder that a job's model source names, below the roots; None where it names none that is there."""
    named = Path(job.model.source)
    places = [named] if named.is_absolute() else [root / named for root in roots]
    return next((place for place in places if (place / "config.json").is_file()), None)


def _head_size(folder: Path) -> int | None:
    """None where config.json does not say; the worker then finds out."""
    try:
        document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        text = document.get("text_config", document)
        return int(text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return None
