"""The check of the ledger of device time that closes every run (design.md section 8).

The account is kept while the run goes on, so it does not matter how long that was. A device's spans must add up to its
life without gap or overlap, telemetry must hold as much, and on cpu devices the CPU seconds must agree with what the
spans claim. Those are of the work thread; the other threads of a worker carry commands and reports, and no work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from storage.records import Span

MAX_GAP_FRACTION = 0.005
"""Of a device's wall time (design.md section 8)."""

CPU_OVER_BUSY = (0.85, 1.02)
"""CPU seconds over busy-span seconds on a pinned core: below, busy spans claim work that was not done, or the core was
taken away; above, a span holds more than its own time."""

MAX_IDLE_CPU = 0.05
"""CPU seconds over idle-span seconds: above, an idle span hides work."""

MAX_OTHER_CPU = 0.10
"""CPU seconds outside the work thread over wall seconds: above, more than transport runs there."""

CORE_TAKEN = "most likely other processes ran on its core"
"""Why busy spans have too little CPU time: workers have a core each and run at a low priority, so that whatever else
wants the core gets it."""

MIN_WITNESS_S = 1.0
"""Seconds of busy or idle time below which the CPU witness is too coarse to be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A worker's ledger, as the worker itself bounds it."""

    began: float
    """Unix seconds."""
    ended: float
    """Unix seconds."""
    other_cpu_s: float
    """CPU seconds of the process outside its work thread."""


@dataclass(slots=True)
class DeviceAccount:
    """Running sums over the spans of one device, in the order they were closed; seconds."""

    began: float
    """Unix seconds at which the first span began."""
    until: float
    """Unix seconds at which the newest one ended."""
    gap_s: float = 0.0
    """Time between spans that is missing or counted twice."""
    busy_s: float = 0.0
    idle_s: float = 0.0
    startup_s: float = 0.0
    """Of no share and without a CPU witness: a worker that starts reads files, and waits where another one makes what
    all of them need."""
    busy_cpu_s: float = 0.0
    idle_cpu_s: float = 0.0

    def add(self, span: Span) -> None:
        self.gap_s += abs(span.t0 - self.until)
        self.until = span.t1
        if span.kind == "startup":
            self.startup_s += span.seconds
        elif span.kind == "idle":
            self.idle_s += span.seconds
            self.idle_cpu_s += span.cpu_s or 0.0
        else:
            self.busy_s += span.seconds
            self.busy_cpu_s += span.cpu_s or 0.0


class Account:
    """The running account of a run: as long as the run may be, it keeps a few sums a device."""

    def __init__(self) -> None:
        self.devices: dict[int, DeviceAccount] = {}

    def add(self, spans: Iterable[Span]) -> None:
        """The next spans of some devices, oldest first for each."""
        for span in spans:
            device = self.devices.get(span.device)
            if device is None:
                device = self.devices[span.device] = DeviceAccount(began=span.t0, until=span.t0)
            device.add(span)


def check(
    account: Account, life: Mapping[int, Life], *, cpu_witness: bool, stored_s: Mapping[int, float] | None = None
) -> dict[str, Any]:
    """The check as stored with the run.

    `life`: device -> its worker's own account of it. `cpu_witness`: whether CPU seconds mean anything (false where
    cores are shared by several workers). `stored_s`: device -> seconds that telemetry holds of it. Returns `ok`,
    `problems`, the worst figures and one entry a device.
    """
    devices = {
        device: _figures(account.devices.get(device), life.get(device), (stored_s or {}).get(device))
        for device in sorted({*account.devices, *life})
    }
    wall_s = sum(d["wall_s"] for d in devices.values())
    busy_s = sum(d["busy_s"] for d in devices.values())
    idle_s = sum(d["idle_s"] for d in devices.values())
    problems = [p for device, figures in devices.items() for p in _problems(device, figures, cpu_witness)]
    return {
        "ok": not problems,
        "problems": problems,
        "max_gap_fraction": max((d["gap_fraction"] for d in devices.values()), default=None),
        "cpu_over_busy": sum(d["busy_cpu_s"] for d in devices.values()) / busy_s if busy_s else None,
        "cpu_over_idle": sum(d["idle_cpu_s"] for d in devices.values()) / idle_s if idle_s else None,
        "other_cpu_over_wall": sum(d["other_cpu_s"] for d in devices.values()) / wall_s if wall_s else None,
        "cpu_witness": cpu_witness,
        "devices": {str(device): figures for device, figures in devices.items()},
    }


def _figures(account: DeviceAccount | None, life: Life | None, stored_s: float | None) -> dict[str, float]:
    if account is None:
        begin = life.began if life else 0.0
        account = DeviceAccount(began=begin, until=begin)
    if life is None:  # the worker died: its spans are all there is
        life = Life(began=account.began, ended=account.until, other_cpu_s=0.0)
    wall = life.ended - life.began
    gap = account.gap_s + abs(account.began - life.began) + abs(life.ended - account.until)
    figures = {
        "wall_s": wall,
        "gap_fraction": gap / wall if wall > 0 else 1.0,
        "busy_s": account.busy_s,
        "idle_s": account.idle_s,
        "startup_s": account.startup_s,
        "busy_cpu_s": account.busy_cpu_s,
        "idle_cpu_s": account.idle_cpu_s,
        "other_cpu_s": life.other_cpu_s,
    }
    if stored_s is not None:
        known = account.busy_s + account.idle_s + account.startup_s
        figures["unstored_fraction"] = abs(known - stored_s) / known if known > 0 else 0.0
    return figures


def _problems(device: int, figures: dict[str, float], cpu_witness: bool) -> list[str]:
    found = []
    if figures["gap_fraction"] > MAX_GAP_FRACTION:
        found.append(
            f"device {device}: spans miss or double {figures['gap_fraction']:.2%} of its wall time, allowed are "
            f"{MAX_GAP_FRACTION:.1%}"
        )
    if figures.get("unstored_fraction", 0.0) > MAX_GAP_FRACTION:
        found.append(
            f"device {device}: telemetry differs from its spans by {figures['unstored_fraction']:.2%} of their time, "
            f"allowed are {MAX_GAP_FRACTION:.1%}"
        )
    if not cpu_witness:
        return found
    low, high = CPU_OVER_BUSY
    if figures["busy_s"] >= MIN_WITNESS_S and not low <= figures["busy_cpu_s"] / figures["busy_s"] <= high:
        ratio = figures["busy_cpu_s"] / figures["busy_s"]
        cause = CORE_TAKEN if ratio < low else "a span holds work of more than its own time"
        found.append(f"device {device}: CPU over busy seconds is {ratio:.2f}, expected {low} to {high}; {cause}")
    if figures["idle_s"] >= MIN_WITNESS_S and figures["idle_cpu_s"] / figures["idle_s"] > MAX_IDLE_CPU:
        ratio = figures["idle_cpu_s"] / figures["idle_s"]
        found.append(f"device {device}: CPU over idle seconds is {ratio:.3f}, expected at most {MAX_IDLE_CPU}")
    if figures["wall_s"] >= MIN_WITNESS_S and figures["other_cpu_s"] / figures["wall_s"] > MAX_OTHER_CPU:
        share = figures["other_cpu_s"] / figures["wall_s"]
        found.append(
            f"device {device}: other threads took {share:.1%} of its wall time, expected at most {MAX_OTHER_CPU:.0%}"
        )
    return found
