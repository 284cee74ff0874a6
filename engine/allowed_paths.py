"""Which folders a job may read from: the data folder, the job file's folder, and BIDIRL_ALLOWED_ROOTS."""

from __future__ import annotations

import os
from pathlib import Path

ROOTS_VARIABLE = "BIDIRL_ALLOWED_ROOTS"
"""Folders separated as in PATH."""


def resolve(path: str, *, base_dir: Path, data_root: Path) -> Path:
    """The real path behind `path`, relative ones from `base_dir`. Raises ValueError when it lies elsewhere."""
    real = (base_dir / Path(path).expanduser()).resolve()
    extra = [Path(root) for root in os.environ.get(ROOTS_VARIABLE, "").split(os.pathsep) if root]
    roots = [root.resolve() for root in (data_root, base_dir, *extra)]
    if not any(real.is_relative_to(root) for root in roots):
        raise ValueError(
            f"{path!r} is outside the folders a job may read ({', '.join(map(str, roots))}); "
            f"name its folder in {ROOTS_VARIABLE}"
        )
    if not real.exists():
        raise ValueError(f"{path!r} does not exist (looked for {real})")
    return real
