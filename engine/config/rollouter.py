"""Which engine generates: the values of `devices.rollouter`, what each needs of a job, and what `auto` stands for.

Whether vLLM is installed is asked where devices are (`engine.learning.vllm.installed`), not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config.model import BUILTIN

if TYPE_CHECKING:
    from engine.config.job import Job

ROLLOUTERS = ("auto", "transformers", "vllm")

FASTER = {"cpu": "transformers", "cuda": "vllm"}
"""Kind of device -> what `auto` prefers there. On one core and in float32 vLLM made 0.9 to 1.0 of the tokens of ours
(`tests/bench_vllm.py`: SmolLM2-135M at batches of 8, 16 and 32)."""

HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Dimensions of an attention head that vLLM computes on CPUs."""


def vllm_problem(job: Job) -> tuple[str, str] | None:
    """Place and sentence where something in the job excludes vLLM; None where nothing does."""
    place, model = "devices.rollouter", job.model
    if job.emulated:
        return place, "vllm generates on real devices, emulated ones wait out their profile; allowed: auto"
    if job.schedule.deterministic:
        return place, (
            "vllm computes a batch together, so answers differ by rounding with their company; allowed with "
            "schedule.deterministic true: auto or transformers"
        )
    size = model.size.hidden // model.size.heads
    if model.source == BUILTIN and (sentence := head_size_problem(size)):
        return place, f"{sentence}, or model.size {{hidden: {32 * model.size.heads}, heads: {model.size.heads}}}"
    return None


def head_size_problem(size: int) -> str | None:
    """A sentence for heads that vLLM does not compute, None for others."""
    if size in HEAD_SIZES:
        return None
    sizes = ", ".join(map(str, HEAD_SIZES))
    return f"vllm takes attention heads of {sizes} dimensions, this model's have {size}; allowed: auto or transformers"


def may_be_vllm(job: Job) -> bool:
    """Its rollouts are, or with vLLM installed would be, vLLM's."""
    return chosen_rollouter(job, vllm_installed=True) == "vllm"


def chosen_rollouter(job: Job, *, vllm_installed: bool) -> str:
    """`transformers` or `vllm`: what was asked for, or for `auto` the faster one of those that can be had."""
    asked = job.devices.rollouter
    if asked != "auto":
        return asked
    usable = vllm_installed and vllm_problem(job) is None
    return "vllm" if FASTER.get(job.devices.kind) == "vllm" and usable else "transformers"
