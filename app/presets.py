"""Job files that a launch can start from: those in the checkout's `jobs` folder, and the jobs of stored runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

JOBS_DIR = Path(__file__).resolve().parent.parent / "jobs"
EMPTY = "name: job\n"
"""Every other key has a default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a launch starts from."""

    key: str
    """preset:NAME, clone:RUN, resume:RUN or empty."""
    text: str
    """Job file."""
    base_dir: str | None
    """Folder of its relative paths; None for the data folder."""
    resume: str | None = None
    """Run to continue."""


def preset_names(folder: Path = JOBS_DIR) -> list[str]:
    """The demo first, then by name."""
    names = sorted(path.stem for path in folder.glob("*.yaml")) if folder.is_dir() else []
    return sorted(names, key=lambda name: (name != "demo", name))


def preset(name: str, folder: Path = JOBS_DIR) -> Source | None:
    """A preset by its name, None if there is none."""
    if name not in preset_names(folder):
        return None
    text = (folder / f"{name}.yaml").read_text(encoding="utf-8")
    return Source(key=f"preset:{name}", text=text, base_dir=str(folder))
