"""How arrays travel between workers: attached to a report, turned into a handle on its way, fetched elsewhere.

An array that has reached the engine outlives the worker that made it: the engine owns it, and whoever still has its
handle keeps it in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine.worker import messages as msg


class Transport(Protocol):
    def put(self, array: npt.NDArray[np.float32]) -> Any:
        """Send the array along with the next event; it must not change any more. Returns what stands for it there."""

    def get(self, handle: Any) -> npt.NDArray[np.float32]:
        """The array behind the handle, read-only. Raises TimeoutError when it cannot be had in time."""


def with_handles(delivery: msg.Delivery, handle_of: Callable[[msg.Parcel], Any]) -> msg.Delivery:
    """The delivery with a handle in place of each parcel."""
    if not delivery.parcels:
        return delivery
    return replace(delivery, events=tuple(_with_handles(event, handle_of) for event in delivery.events))


def _with_handles(event: msg.Event, handle_of: Callable[[msg.Parcel], Any]) -> msg.Event:
    def swap(value: Any) -> Any:
        return handle_of(value) if isinstance(value, msg.Parcel) else value

    match event:
        case msg.Ready(snapshot=snapshot):
            handle, reference = swap(event.handle), swap(event.reference)
            return replace(event, handle=handle, reference=reference, snapshot=_snapshot_with(snapshot, swap))
        case msg.GradientShipped(gradient=gradient):
            return replace(event, gradient=replace(gradient, handle=swap(gradient.handle)))
        case msg.StepDone(snapshot=snapshot):
            return replace(event, handle=swap(event.handle), snapshot=_snapshot_with(snapshot, swap))
        case _:
            return event


def _snapshot_with(snapshot: msg.SnapshotHandle | None, swap: Callable[[Any], Any]) -> msg.SnapshotHandle | None:
    if snapshot is None:
        return None
    return replace(snapshot, weights=swap(snapshot.weights), moments=swap(snapshot.moments))
