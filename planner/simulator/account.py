"""Device-seconds of a simulated run by what the devices did: every second of every device is in exactly one place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping


class Account:
    """Sums device-seconds by kind of span, and by cause where nothing was done."""

    def __init__(self) -> None:
        self.busy: defaultdict[tuple[str, bool], float] = defaultdict(float)
        """(kind, auxiliary) -> device-seconds"""
        self.idle: defaultdict[str, float] = defaultdict(float)
        """cause -> device-seconds"""
        self._cause: dict[int, tuple[str, float, int]] = {}

    def add(self, kind: str, device_s: float, *, auxiliary: bool = False) -> None:
        """Devices did something for so many device-seconds."""
        self.busy[kind, auxiliary] += device_s

    def idle_causes(self, idle: Mapping[int, tuple[str, int, float]], now: float) -> None:
        """What is idle now: first device of a replica -> (cause, its devices, idle since).

        The cause holds from when it was first seen, at a decision; for a device that fell idle since the last one, from
        when it did.
        """
        for device in [device for device in self._cause if device not in idle]:
            self.ends(device, now)
        for device, (cause, devices, since) in idle.items():
            known = self._cause.get(device)
            if known is None:
                self._cause[device] = (cause, since, devices)
            elif known[0] != cause:
                self.ends(device, now)
                self._cause[device] = (cause, now, devices)

    def woken(self, device: int, devices: int, since: float, now: float) -> None:
        """A device is idle no more. One that fell idle after the last decision was waiting for this one: nobody saw a
        cause, there was simply nothing handed to it."""
        if device in self._cause:
            self.ends(device, now)
        else:
            self.idle["no_work"] += (now - since) * devices

    def ends(self, device: int, now: float) -> None:
        """The device is not idle any more."""
        known = self._cause.pop(device, None)
        if known is not None:
            cause, since, devices = known
            self.idle[cause] += (now - since) * devices

    @property
    def idle_s(self) -> float:
        """Idle device-seconds."""
        return sum(self.idle.values())

    @property
    def total_s(self) -> float:
        """All device-seconds."""
        return sum(self.busy.values()) + self.idle_s
