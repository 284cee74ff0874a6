"""What a trainer puts aside after a step, so that another one can go on from there bit by bit (design section 7).

Arrays and numbers only: a snapshot travels through shared memory, or through a folder where it is too large for that or
must outlive the engine. Nothing of torch here, as the engine reads it. No checkpoint: tokenizer, configuration and the
reference of a KL term are not part of it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.learning.whole_folder import whole_folder

FORMAT = 1
"""Of the folder; another number is refused rather than guessed at."""

PARAMETERS, MOMENTS, ABOUT = "parameters.npy", "moments.npy", "snapshot.json"
"""Files of the folder."""


class Arrays(Protocol):
    """Where large arrays come from."""

    def empty(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """float32 of this shape, its content arbitrary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A trainer between two steps."""

    version: int
    """Optimizer updates in the weights."""
    parameters: npt.NDArray[np.float32]
    """[P], in the order of `weights.flatten`."""
    moments: npt.NDArray[np.float32]
    """[2, P] AdamW's exp_avg and exp_avg_sq in the same order; [0, 0] when the optimizer has made no step."""
    optimizer_steps: int
    """Updates the optimizer has made: fewer than `version` where a step had no token to learn from."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.parameters.nbytes + self.moments.nbytes


@dataclass(frozen=True, slots=True)
class _InFile:
    """One array, which is a file."""

    path: Path

    def empty(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Raises OSError where the disk has no room for it: found out later, that would end the process."""
        array = np.lib.format.open_memmap(self.path, mode="w+", dtype=np.float32, shape=shape)
        with self.path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, self.path.stat().st_size)
        return array


def check_same(held: Snapshot, wanted: Snapshot) -> None:
    """Raise RuntimeError unless a trainer holds exactly the snapshot that it was sent, all of it finite."""
    wrong = [
        name
        for name, mine, sent in (
            ("version", held.version, wanted.version),
            ("optimizer steps", held.optimizer_steps, wanted.optimizer_steps),
        )
        if mine != sent
    ]
    for name, mine, sent in (
        ("parameters", held.parameters, wanted.parameters),
        ("optimizer state", held.moments, wanted.moments),
    ):
        if not np.array_equal(mine, sent):
            wrong.append(name)
        elif not np.isfinite(sent).all():
            wrong.append(f"{name} (not finite)")
    if wrong:
        raise RuntimeError(
            f"a trainer that joins does not hold the snapshot of version {wanted.version}: {', '.join(wrong)}"
        )


def write(folder: Path, take: Callable[[Arrays], Snapshot]) -> Snapshot:
    """Write what `take` gives while it is taken: with the arrays that it is handed moments go to their file and need no
    memory of their own. The folder appears whole or not at all; an existing one is replaced."""
    with whole_folder(folder) as fresh:
        taken = take(_InFile(fresh / MOMENTS))
        if not isinstance(taken.moments, np.memmap):
            np.save(fresh / MOMENTS, taken.moments)
        np.save(fresh / PARAMETERS, taken.parameters)
        about = {"format": FORMAT, "version": taken.version, "optimizer_steps": taken.optimizer_steps}
        (fresh / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    return taken


def read(folder: Path) -> Snapshot:
    """Arrays are read-only and read from the files as they are used. Raises ValueError for anything but such a folder.

    That the arrays fit a model is checked by the trainer that they are handed to.
    """
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError(f"snapshot.json has format {about['format']}, this version reads {FORMAT}")
        return Snapshot(
            version=int(about["version"]),
            parameters=np.load(folder / PARAMETERS, mmap_mode="r", allow_pickle=False),
            moments=np.load(folder / MOMENTS, mmap_mode="r", allow_pickle=False),
            optimizer_steps=int(about["optimizer_steps"]),
        )
    except Exception as error:  # damaged bytes make the readers raise nearly anything
        raise ValueError(f"{folder} cannot be restored from: {error}") from error


def folder_of(root: Path, version: int) -> Path:
    """Where the snapshot of a version lies among those of its run."""
    return root / f"version-{version:08d}"


def prune(root: Path, *, keep: int) -> None:
    """Remove all but the newest snapshots of a run; whoever has one open goes on reading it."""
    for old in sorted(root.glob("version-*"))[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
