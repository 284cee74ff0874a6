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
from dataclasses import asdict
from pathlib import Path

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
    path = folder / RESUME_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        document["pending"] = tuple(document["pending"])
        return folder, StartPoint(**document)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no record to resume from: {error}") from None
