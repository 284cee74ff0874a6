"""Which folders a job may read from: the data folder, the job file's folder, and BIDIRL_ALLOWED_ROOTS."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

ROOTS_VARIABLE = "BIDIRL_ALLOWED_ROOTS"
"""Folders separated as in PATH."""


def roots(*, base_dir: Path, data_root: Path) -> tuple[Path, ...]:
    """The folders a job may read: its own first, from which relative paths start, then the data folder, then others."""
    extra = [Path(root) for root in os.environ.get(ROOTS_VARIABLE, "").split(os.pathsep) if root]
    return tuple(root.resolve() for root in (base_dir, data_root, *extra))


def resolve(path: str, *, base_dir: Path, data_root: Path) -> Path:
    """The real path behind `path`, relative ones from `base_dir`. Raises ValueError when it lies elsewhere."""
    return resolve_in(path, roots(base_dir=base_dir, data_root=data_root))


def resolve_in(path: str, allowed: Sequence[Path]) -> Path:
    """The same for folders that `roots` gave, where the variable of this process no longer counts (in a worker)."""
    real = (allowed[0] / Path(path).expanduser()).resolve()
    if not any(real.is_relative_to(root) for root in allowed):
        raise ValueError(
            f"{path!r} is outside the folders a job may read ({', '.join(map(str, allowed))}); "
            f"name its folder in {ROOTS_VARIABLE}"
        )
    if not real.exists():
        raise ValueError(f"{path!r} does not exist (looked for {real})")
    return real
