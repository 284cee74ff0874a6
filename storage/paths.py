"""Where everything lies inside the data folder. It names paths; whoever writes a file creates its folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DATA_DIR_VARIABLE = "BIDIRL_DATA_DIR"
DEFAULT_DATA_DIR = "var"


@dataclass(frozen=True, slots=True)
class DataDir:
    """The one folder that engine and app share; one engine per folder (`lock`)."""

    root: Path

    @classmethod
    def from_env(cls, arg: str | Path | None = None) -> DataDir:
        """`arg` if given, else the environment's BIDIRL_DATA_DIR, else `var` in the current folder; made absolute."""
        return cls(Path(arg or os.environ.get(DATA_DIR_VARIABLE) or DEFAULT_DATA_DIR).expanduser().absolute())

    @property
    def telemetry_db(self) -> Path:
        """Written by the engine only."""
        return self.root / "telemetry.db"

    @property
    def control_db(self) -> Path:
        """Commands and settings, written by engine, app and command line."""
        return self.root / "control.db"

    @property
    def lock(self) -> Path:
        """Held by the engine for as long as it lives."""
        return self.root / "engine.lock"

    @property
    def engine_log(self) -> Path:
        return self.root / "logs" / "engine.log"

    @property
    def cache(self) -> Path:
        """What can be made again, such as warm-started models."""
        return self.root / "cache"

    @property
    def imports(self) -> Path:
        """Bundles that wait for the engine to take them in."""
        return self.root / "imports"

    def checkpoints(self, run_id: str) -> Path:
        """The folder of one run's checkpoints. Raises ValueError for an id that would leave the data folder."""
        if not run_id or run_id in (".", "..") or "/" in run_id or "\\" in run_id or "\0" in run_id:
            raise ValueError(f"run_id must be a plain name without path separators, got {run_id!r}")
        return self.root / "checkpoints" / run_id
