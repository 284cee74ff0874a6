"""Job files that a launch can start from: those in the checkout's `jobs` folder, and the jobs of stored runs.

A job that is only there to be planned and simulated is not offered; one with a mistake is, so that the page can say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from engine.config import JobError, check_runnable, parse_job

JOBS_DIR = Path(__file__).resolve().parent.parent / "jobs"
EMPTY = "name: job\n"
"""Every other key has a default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a launch starts from."""

    key: str
    """preset:NAME, clone:RUN, resume:RUN, plan:NAME or empty; of the Plan page also run:RUN."""
    text: str
    """Job file."""
    base_dir: str | None
    """Folder of its relative paths; None for the data folder."""
    resume: str | None = None
    """Run to continue."""


def preset_names(folder: Path = JOBS_DIR) -> list[str]:
    """The demo first, then by name."""
    paths = folder.glob("*.yaml") if folder.is_dir() else []
    names = sorted(path.stem for path in paths if _may_be_launched(path.read_text(encoding="utf-8", errors="replace")))
    return sorted(names, key=lambda name: (name != "demo", name))


@lru_cache(maxsize=64)
def _may_be_launched(text: str) -> bool:
    """False for a valid job that this version cannot run live."""
    try:
        job = parse_job(text)
    except JobError:
        return True
    try:
        check_runnable(job)
    except JobError:
        return False
    return True


def first_sentence(text: str) -> str:
    """What a job file says of itself: the first line of its comment; "" without one."""
    line = text.split("\n", 1)[0]
    return line.removeprefix("#").strip() if line.startswith("#") else ""


@lru_cache(maxsize=64)
def described(name: str, folder: Path = JOBS_DIR) -> str:
    """A preset in one line."""
    found = preset(name, folder)
    return first_sentence(found.text) if found else ""


def preset(name: str, folder: Path = JOBS_DIR) -> Source | None:
    """A preset by its name, None if there is none."""
    if name not in preset_names(folder):
        return None
    text = (folder / f"{name}.yaml").read_text(encoding="utf-8")
    return Source(key=f"preset:{name}", text=text, base_dir=str(folder))
