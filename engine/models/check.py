"""Whether a job's model can be had, belongs together and fits into memory: asked before any device is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from engine.config import Job, JobError
from engine.config.model import BUILTIN, SMOLLM2
from engine.models import memory, source
from engine.models.files import ModelFiles, read
from engine.models.trials import Question, question_of

LAYERS, HIDDEN, FEED_FORWARD, KEYS, POSITIONS = 30, 576, 1536, 192, 8192
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
    job: Job,
    *,
    roots: Sequence[Path],
    available: Callable[[], int] = memory.available_bytes,
    verdict: Callable[[Question], str] = lambda question: "",
    where: str = "job",
) -> None:
    """Raise JobError with the one thing that is wrong. `roots`: the folders that the job may read; `verdict`: what a
    trial of the model folder told ('' where nothing is wrong), for a launch; a start leaves that to the workers."""
    if job.emulated:
        return
    try:
        _check(job, roots, available, verdict)
    except ValueError as error:
        place, _, sentence = str(error).partition(" ")  # all of them begin with the place
        raise JobError({place.rstrip(":"): sentence}, source=where) from None


def _check(job: Job, roots: Sequence[Path], available: Callable[[], int], verdict: Callable[[Question], str]) -> None:
    name = job.model.source
    if name == BUILTIN:
        return
    if job.model.lora is not None:
        source.needs_package("peft", "model.lora: it", source.LORA_INSTALL)
    files = _files(name, roots)
    if files is None:
        return
    if name == SMOLLM2:
        _check_smollm2(job)
    elif told := verdict(question_of(job, files.folder)):
        raise ValueError(told)
    memory.check(job, files, available)


def _check_smollm2(job: Job) -> None:
    """What a trial would tell of the model of the package, of which everything is known."""
    if job.sampling.max_response_tokens >= POSITIONS:
        raise ValueError(
            f"sampling.max_response_tokens: {job.sampling.max_response_tokens} leaves no room for a prompt in a model "
            f"of {POSITIONS} positions; allowed: up to {POSITIONS - 1}"
        )
    lora, names = job.model.lora, sorted({name.rpartition(".")[2] for name in MATRICES})
    targets = lora.targets if lora is not None and not isinstance(lora.targets, str) else []
    layers = [f"layers.{layer}.{name}" for layer in range(LAYERS) for name in MATRICES]
    for target in targets:
        if not any(f".{layer}".endswith(f".{target}") for layer in layers):
            raise ValueError(
                f"model.lora.targets: {target!r} names no linear layer of the model; allowed: all-linear, or of "
                f"{', '.join(names)}"
            )


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
