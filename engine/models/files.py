"""What a model folder says of itself: read from config.json, the tokenizer's file and the headers of its weights.

Refuses a folder in which something is missing, cut off, or does not belong together; what only loading can tell is left
to the workers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from engine.config.model import BUILTINS

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit for a header."""

NOT_ADAPTED = ("embed_tokens", "lm_head", "wte", "wpe", "embed_in", "embed_out")
"""Layers with a matrix that get no adapter when all linear ones do: embeddings and output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model by its files."""

    folder: Path
    parameters: int
    """Weights in the files, tied ones once."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of each weight by its name; empty where the files have no header that could be read without loading them."""
    vocabulary: int | None
    """Rows of the embedding; None where the configuration does not say."""
    layers: int | None
    hidden: int | None
    feed_forward: int | None
    kv_numbers: int | None
    """Numbers that one token leaves in the key-value cache."""

    def adapter_parameters(self, r: int, targets: list[str] | str) -> int:
        """Weights of low-rank adapters of rank r: r * (rows + columns) of each matrix that gets one."""
        total = 0
        for name, shape in self.shapes.items():
            layer = name.split(".")[-2] if "." in name else name
            named = layer not in NOT_ADAPTED if targets == "all-linear" else layer in targets
            if len(shape) == 2 and named:
                total += r * sum(shape)
        return total


def read(folder: Path) -> ModelFiles:
    """Raises ValueError that names the folder and what is wrong with it."""
    where = f"model.source {folder}"
    config = read_config(folder, where)
    text = config.get("text_config", config)
    text = text if isinstance(text, dict) else config
    shapes, parameters = _weights(folder, str(text.get("dtype") or text.get("torch_dtype")), where)
    layers, hidden = _number(text, "num_hidden_layers", "n_layer"), _number(text, "hidden_size", "n_embd")
    found = ModelFiles(
        folder=folder,
        parameters=parameters,
        shapes=shapes,
        vocabulary=_number(text, "vocab_size"),
        layers=layers,
        hidden=hidden,
        feed_forward=_number(text, "intermediate_size", "n_inner") or (4 * hidden if hidden else None),
        kv_numbers=_kv_numbers(text, layers, hidden),
    )
    _check_tokenizer(found, where)
    return found


def read_config(folder: Path, where: str) -> dict[str, Any]:
    """config.json, with a `model_type`. Raises ValueError where it is missing, broken, or says what cannot be used."""
    if not (folder / "config.json").is_file():
        adapter = (folder / "adapter_config.json").is_file()
        here = "it holds an adapter without the model that it belongs to" if adapter else "no config.json there"
        raise ValueError(f"{where}: {here}; allowed: {', '.join(BUILTINS)} or a folder that save_pretrained wrote")
    config = _json(folder / "config.json", where)
    if not isinstance(config.get("model_type"), str):
        raise ValueError(f"{where}: config.json names no model_type, so it is no model of transformers")
    if "quantization_config" in config:
        raise ValueError(f"{where}: its weights are quantised, which cannot be trained; allowed: the unquantised model")
    return config


def _json(path: Path, where: str) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{where}: {path.name} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{where}: {path.name} holds {type(document).__name__}, not a mapping")
    return document


def _number(config: Mapping[str, Any], *names: str) -> int | None:
    found = next((config[name] for name in names if config.get(name)), None)
    return found if isinstance(found, int) else None


def _kv_numbers(config: Mapping[str, Any], layers: int | None, hidden: int | None) -> int | None:
    heads = _number(config, "num_attention_heads", "n_head")
    if layers is None or hidden is None or heads is None:
        return None
    size = _number(config, "head_dim") or hidden // heads
    return 2 * layers * (_number(config, "num_key_value_heads") or heads) * size


def _weights(folder: Path, dtype: str, where: str) -> tuple[dict[str, tuple[int, ...]], int]:
    """Shapes by name, and how many weights there are."""
    files = weight_files(folder, where)
    if files[0].suffix == ".bin":  # no header: the size tells how many
        return {}, sum(file.stat().st_size for file in files) // (2 if dtype.endswith("16") else 4)
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        shapes |= _header(file, where)
    return shapes, sum(prod(shape) for shape in shapes.values())


def check_weights(folder: Path, where: str) -> None:
    """Raise ValueError, `where` before it, for weight files of a folder that are missing or cut off; of adapters where
    it holds those. Reads their headers only."""
    adapter = (folder / "adapter_config.json").is_file()
    for file in [folder / "adapter_model.safetensors"] if adapter else weight_files(folder, where):
        if not file.is_file():
            raise ValueError(f"{where}: no {file.name} there")
        if file.suffix != ".bin":
            _header(file, where)


def weight_files(folder: Path, where: str) -> list[Path]:
    """One, or all that an index names. Raises ValueError where one is missing."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
        if (folder / f"{name}.index.json").is_file():
            placed = _json(folder / f"{name}.index.json", where).get("weight_map")
            if not isinstance(placed, dict) or not placed:
                raise ValueError(f"{where}: {name}.index.json has no weight_map")
            files = [folder / str(part) for part in sorted(set(placed.values()))]
            if missing := [file.name for file in files if not file.is_file()]:
                raise ValueError(
                    f"{where}: {len(missing)} of {len(files)} weight files are missing, such as {missing[0]}"
                )
            return files
    raise ValueError(f"{where}: no weights there; looked for model.safetensors and pytorch_model.bin")


def _header(file: Path, where: str) -> dict[str, tuple[int, ...]]:
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else MAX_HEADER_BYTES + 1
        if length > min(MAX_HEADER_BYTES, size - 8):
            raise ValueError(f"{where}: {file.name} is cut off or no safetensors file ({size} bytes)")
        try:
            header: dict[str, Any] = json.loads(stream.read(length))
            entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
            end = 8 + length + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
            shapes = {name: tuple(entry["shape"]) for name, entry in entries.items()}
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise ValueError(f"{where}: {file.name} has no readable safetensors header") from None
    if size != end:
        raise ValueError(f"{where}: {file.name} has {size} bytes where its header promises {end}: it was cut off")
    return shapes


def _check_tokenizer(found: ModelFiles, where: str) -> None:
    """Its ids must have a row in the embedding; a model has often more rows than ids, which does no harm."""
    path = found.folder / "tokenizer.json"
    if not path.is_file():
        if not (found.folder / "tokenizer_config.json").is_file():
            raise ValueError(f"{where}: no tokenizer there (tokenizer.json or tokenizer_config.json)")
        return  # an older form, which the workers load
    document = _json(path, where)
    if found.vocabulary is not None and (largest := _largest_id(document)) >= found.vocabulary:
        raise ValueError(vocabulary_mismatch(where, largest, found.vocabulary))


def vocabulary_mismatch(where: str, largest: int, rows: int) -> str:
    """The sentence for a tokenizer that does not belong to the model."""
    return (
        f"{where}: its tokenizer makes ids up to {largest}, its embedding has rows 0 to {rows - 1}: they do not belong "
        "together; allowed: the tokenizer that the model was trained with, or an embedding that was resized to it"
    )


def _largest_id(tokenizer: Mapping[str, Any]) -> int:
    vocabulary = (tokenizer.get("model") or {}).get("vocab")
    ids: Iterable[Any] = ()
    if isinstance(vocabulary, dict):
        ids = vocabulary.values()
    elif isinstance(vocabulary, list):  # unigram models: the place is the id
        ids = (len(vocabulary) - 1,)
    added = (entry.get("id") for entry in tokenizer.get("added_tokens") or () if isinstance(entry, dict))
    return max((number for number in (*ids, *added) if isinstance(number, int)), default=-1)
