"""Checkpoints of a run on disk: one folder a version, whole or not there.

    checkpoints/RUN/step-000050/   config.json, model.safetensors, tokenizer ...   loads with from_pretrained
                                   optimizer and trainer state                      what the trainer resumes from
                                   resume.json                                      what the run resumes from

The worker writes the folder, the engine adds `resume.json` last: without it a folder is no checkpoint.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from dataclasses import asdict
from pathlib import Path

from engine.models.files import check_weights
from engine.run.book import StartPoint

RESUME_FILE = "resume.json"
_NAME = re.compile(r"step-(\d{6,})")


def folder_of(root: Path, version: int) -> Path:
    return root / f"step-{version:06d}"


def complete(folder: Path, point: StartPoint) -> None:
    """Make a written folder a checkpoint."""
    temporary = folder / f"{RESUME_FILE}.part"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(asdict(point), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / RESUME_FILE)


def checkpoints(root: Path) -> list[tuple[int, Path]]:
    """Complete checkpoints as (version, folder), oldest first."""
    found = []
    for folder in root.iterdir() if root.is_dir() else []:
        match = _NAME.fullmatch(folder.name)
        if match and (folder / RESUME_FILE).is_file():
            found.append((int(match[1]), folder))
    return sorted(found)


def prune(root: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints."""
    for _, folder in checkpoints(root)[:-keep]:
        shutil.rmtree(folder)


def newest(root: Path) -> tuple[Path, StartPoint] | None:
    """The newest checkpoint and where a run continues from it. Raises ValueError when its record is damaged."""
    found = checkpoints(root)
    if not found:
        return None
    folder = found[-1][1]
    return folder, _start_point(folder)


def resumable(root: Path) -> tuple[Path, StartPoint] | None:
    """The same with its files looked at: sizes and headers tell what was cut off before a worker is spent on it.

    Raises ValueError that names the file, and the newest older checkpoint that is whole.
    """
    found = [folder for _, folder in checkpoints(root)]
    if not found:
        return None
    try:
        return found[-1], _whole(found[-1])
    except ValueError as error:
        older = next((folder.name for folder in reversed(found[:-1]) if _is_whole(folder)), None)
        offer = "no older one is whole"
        if older is not None:
            offer = f"{older} is whole: to continue from it, move {found[-1].name} out of {root}"
        raise ValueError(f"{error}; {offer}") from None


def _is_whole(folder: Path) -> bool:
    try:
        _whole(folder)
    except ValueError:
        return False
    return True


def _whole(folder: Path) -> StartPoint:
    """Where a run continues from a checkpoint that lacks nothing. Raises ValueError that names the file."""
    point, where = _start_point(folder), f"{folder} is damaged"
    try:
        json.loads((folder / "trainer.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{where}: trainer.json cannot be read: {error}") from None
    check_weights(folder, where)
    optimizer = folder / "optimizer.pt"
    if not optimizer.is_file():
        raise ValueError(f"{where}: no optimizer.pt there")
    if not zipfile.is_zipfile(optimizer):  # the list of what is in it comes last
        raise ValueError(f"{where}: optimizer.pt ({optimizer.stat().st_size} bytes) was cut off, its end is missing")
    _check_reference(folder / "reference.npy", where)
    return point


def _check_reference(path: Path, where: str) -> None:
    if path.is_file():
        import numpy as np  # only runs with a KL term have the file

        try:
            np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"{where}: reference.npy ({path.stat().st_size} bytes) cannot be read: {error}") from None


def _start_point(folder: Path) -> StartPoint:
    path = folder / RESUME_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        document["pending"] = tuple(document["pending"])
        return StartPoint(**document)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no record to resume from: {error}") from None
