"""One engine per data folder: a file lock that goes with the process."""

from __future__ import annotations

import fcntl
import os
from typing import IO

from storage.paths import DataDir


class EngineRunning(RuntimeError):
    """Another engine has this data folder."""


def lock(data: DataDir) -> IO[str]:
    """Take the folder for this process; the lock goes with the process. Raises EngineRunning."""
    data.root.mkdir(parents=True, exist_ok=True)
    file = data.lock.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise EngineRunning(f"{data.root}: an engine (process {owner}) has this data folder already") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def is_locked(data: DataDir) -> bool:
    """Whether an engine lives on this folder. Looking creates and changes nothing."""
    try:
        file = data.lock.open(encoding="utf-8")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
