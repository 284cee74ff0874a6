"""The check of the ledger of device time that closes every run (design.md section 8).

Reads the spans that were stored, so it also finds what was lost on the way: a device's spans must add up to its life
without gap or overlap, and on cpu devices the CPU seconds must agree with what the spans claim. Those are of the work
thread; the other threads of a worker carry commands and reports, and must not carry work.
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


def check(spans: Iterable[Span], life: Mapping[int, Life], *, cpu_witness: bool) -> dict[str, Any]:
    """The check as stored with the run.

    `life`: device -> its worker's own account. `cpu_witness`: whether CPU seconds mean anything
    (false where cores are shared by several workers). Returns `ok`, the worst figures and one entry a device.
    """
    by_device: dict[int, list[Span]] = {device: [] for device in life}
    for span in spans:
        by_device.setdefault(span.device, []).append(span)
    devices = {device: _device(by_device[device], life.get(device)) for device in sorted(by_device)}
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


def _device(spans: list[Span], life: Life | None) -> dict[str, float]:
    spans = sorted(spans, key=lambda span: span.t0)
    if life is None:  # the worker died: its spans are all there is
        ends = (spans[0].t0, spans[-1].t1) if spans else (0.0, 0.0)
        life = Life(began=ends[0], ended=ends[1], other_cpu_s=0.0)
    begin, end = life.began, life.ended
    edges = [begin, *(t for span in spans for t in (span.t0, span.t1)), end]
    gap = sum(abs(edges[i + 1] - edges[i]) for i in range(0, len(edges), 2))
    wall = end - begin
    busy = [span for span in spans if span.kind != "idle"]
    idle = [span for span in spans if span.kind == "idle"]
    return {
        "wall_s": wall,
        "gap_fraction": gap / wall if wall > 0 else 1.0,
        "busy_s": sum(span.seconds for span in busy),
        "idle_s": sum(span.seconds for span in idle),
        "busy_cpu_s": sum(span.cpu_s or 0.0 for span in busy),
        "idle_cpu_s": sum(span.cpu_s or 0.0 for span in idle),
        "other_cpu_s": life.other_cpu_s,
    }


def _problems(device: int, figures: dict[str, float], cpu_witness: bool) -> list[str]:
    found = []
    if figures["gap_fraction"] > MAX_GAP_FRACTION:
        found.append(
            f"device {device}: spans miss or double {figures['gap_fraction']:.2%} of its wall time, allowed are "
            f"{MAX_GAP_FRACTION:.1%}"
        )
    if not cpu_witness:
        return found
    low, high = CPU_OVER_BUSY
    if figures["busy_s"] >= MIN_WITNESS_S and not low <= figures["busy_cpu_s"] / figures["busy_s"] <= high:
        ratio = figures["busy_cpu_s"] / figures["busy_s"]
        found.append(f"device {device}: CPU over busy seconds is {ratio:.2f}, expected {low} to {high}")
    if figures["idle_s"] >= MIN_WITNESS_S and figures["idle_cpu_s"] / figures["idle_s"] > MAX_IDLE_CPU:
        ratio = figures["idle_cpu_s"] / figures["idle_s"]
        found.append(f"device {device}: CPU over idle seconds is {ratio:.3f}, expected at most {MAX_IDLE_CPU}")
    if figures["wall_s"] >= MIN_WITNESS_S and figures["other_cpu_s"] / figures["wall_s"] > MAX_OTHER_CPU:
        share = figures["other_cpu_s"] / figures["wall_s"]
        found.append(
            f"device {device}: other threads took {share:.1%} of its wall time, expected at most {MAX_OTHER_CPU:.0%}"
        )
    return found
