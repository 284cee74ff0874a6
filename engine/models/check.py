"""Whether a job's model can be had, belongs together and fits into memory: asked before any device is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from engine.config import Job, JobError
from engine.config.model import BUILTIN, SMOLLM2
from engine.models import memory, source
from engine.models.files import ModelFiles, read

LAYERS, HIDDEN, FEED_FORWARD, KEYS = 30, 576, 1536, 192
"""Of SmolLM2-135M, whose file in the package tells less than a folder does; keys are 3 heads of 64."""

MATRICES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KEYS, HIDDEN),
    "self_attn.v_proj": (KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (FEED_FORWARD, HIDDEN),
    "mlp.up_proj": (FEED_FORWARD, HIDDEN),
    "mlp.down_proj": (HIDDEN, FEED_FORWARD),
}
"""Of each of its layers."""


def check_model(
    job: Job, *, roots: Sequence[Path], available: Callable[[], int] = memory.available_bytes, where: str = "job"
) -> None:
    """Raise JobError with the one thing that is wrong. `roots`: the folders that the job may read."""
    if job.emulated:
        return
    try:
        _check(job, roots, available)
    except ValueError as error:
        place, _, sentence = str(error).partition(" ")  # all of them begin with the place
        raise JobError({place.rstrip(":"): sentence}, source=where) from None


def _check(job: Job, roots: Sequence[Path], available: Callable[[], int]) -> None:
    name = job.model.source
    if name == BUILTIN:
        return
    if job.model.lora is not None:
        source.needs_package("peft", "model.lora: it", source.LORA_INSTALL)
    files = _files(name, roots)
    if files is not None:
        memory.check(job, files, available)


def _files(name: str, roots: Sequence[Path]) -> ModelFiles | None:
    """None for a model that is still to be downloaded, by the workers: nothing is known of it."""
    if name == SMOLLM2:
        source.needs_package("gguf", "model.source builtin:smollm2: it", source.SMOLLM2_INSTALL)
        return smollm2_files(source.smollm2_file().parent)
    if source.is_hub_id(name, roots):
        folder = source.cached_hub_folder(name)
        return None if folder is None else read(folder)
    return read(source.local_folder(name, roots))


def smollm2_files(folder: Path) -> ModelFiles:
    """The model of the package, as a folder of its own would tell."""
    return ModelFiles(
        folder=folder,
        parameters=134_515_008,
        shapes={f"layers.{layer}.{name}.weight": shape for layer in range(LAYERS) for name, shape in MATRICES.items()},
        vocabulary=49_152,
        layers=LAYERS,
        hidden=HIDDEN,
        feed_forward=FEED_FORWARD,
        kv_numbers=2 * LAYERS * KEYS,
    )
