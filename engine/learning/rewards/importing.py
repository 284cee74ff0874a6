"""Tells of modules that are loaded while an answer is scored: a function that imports a library where it needs it takes
seconds at its first call in a process, which say nothing of how long scoring takes.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

Tell = Callable[[dict[str, Any]], None]
"""Sends a message to whoever keeps the deadline."""


def tell_of_imports(tell: Tell, *, clock: Callable[[], float] = time.monotonic) -> None:
    """From now on `tell` hears `{"importing": name}` before this thread loads a module, and `{"imported": seconds}`
    after it; of those that this loads in turn it hears nothing."""
    teller = _Teller(tell, clock)
    builtins.__import__ = teller.telling(builtins.__import__, _is_loaded)
    importlib.import_module = teller.telling(importlib.import_module, lambda name, *_: name in sys.modules)


class _Teller:
    def __init__(self, tell: Tell, clock: Callable[[], float]) -> None:
        self._tell = tell
        self._clock = clock
        self._mine = self._place()
        self._loading = False

    @staticmethod
    def _place() -> tuple[int, int]:
        """Process and thread: what a function forks or starts beside this has no deadline of its own."""
        return os.getpid(), threading.get_ident()

    def telling(self, load: Callable[..., Any], is_loaded: Callable[..., bool]) -> Callable[..., Any]:
        """What loads modules, telling of it. Where a module is loaded already it is as good as untouched."""

        @wraps(load)
        def told(*args: Any, **kwargs: Any) -> Any:
            if self._loading or is_loaded(*args, **kwargs) or self._place() != self._mine:
                return load(*args, **kwargs)
            self._loading, began = True, self._clock()
            self._tell({"importing": str(args[0] if args else kwargs.get("name"))})
            try:
                return load(*args, **kwargs)
            finally:
                self._loading = False
                self._tell({"imported": self._clock() - began})

        return told


def _is_loaded(
    name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
) -> bool:  # as `__import__` has them
    """Nothing is left to load of an import statement, as far as one can tell without loading."""
    module = sys.modules.get(name)
    there = getattr(module, "__dict__", {})  # not what it would load when asked for it
    return level == 0 and module is not None and all(part in there for part in fromlist or () if part != "*")
