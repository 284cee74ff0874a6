"""How arrays travel between workers: put it somewhere, hand the handle on, fetch it elsewhere."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class Transport(Protocol):
    def put(self, array: npt.NDArray[np.float32]) -> Any:
        """Store a copy and return its handle, which can be pickled and sent to any worker."""

    def get(self, handle: Any) -> npt.NDArray[np.float32]:
        """The array behind the handle, read-only. Raises TimeoutError when it cannot be had in time."""
