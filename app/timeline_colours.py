"""What the colours of the timeline mean: phase, cause of idle time, role, or version of the weights. Pure.

A scheme puts every column of device time into one category; a bin shows the category that holds most of it. Versions
are no columns: they are told from raw spans alone, which is why they are missing where only sums are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app import palette
from app.detail import NO_DATA, Plan, Row
from storage.records import Span
from storage.words import BUSY_COLUMNS, COLUMNS, IDLE_CAUSES, IDLE_COLUMNS

QUIET = "rgba(128,132,142,0.26)"
"""What is not compared: work where causes are, idle time where roles or versions are. Seen on either page."""

PRIMARY, AUXILIARY, CHANGING, OTHER = "#2F4B9B", "#FDAF16", "#3D3A3A", "#968F87"
"""Colours of work by role."""

VERSION_COLOURS = ("#2F4B9B", "#75C0FC", "#0C6B72", "#6BA86E", "#FDAF16", "#E4742A", "#C04BE8", "#603305")
"""Colours of versions, used round robin: two that follow each other never look alike."""

MAX_VERSIONS = 250
"""Codes are bytes; a window of raw spans with more versions than this has steps below a pixel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """Categories of a raster, in the order of their codes from 1 on; code 0 is no data."""

    name: str
    """One of `timeline_url.COLOURS`."""
    labels: tuple[str, ...]
    """What a reader calls each category."""
    colours: tuple[str, ...]
    """Their colours."""
    category_of: tuple[int, ...] = ()
    """Category of each column of `COLUMNS`; empty for versions."""
    legend: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """Name, colour and the categories that it stands for, where the legend says less than the labels."""

    @property
    def entries(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """The legend: name, colour, categories."""
        own = enumerate(zip(self.labels, self.colours, strict=True))
        return self.legend or tuple((label, colour, (index,)) for index, (label, colour) in own)


def _columns(names: Sequence[str], groups: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(groups[name] for name in names)


PHASES = Scheme(
    name="phase",
    labels=palette.LABELS,
    colours=tuple(palette.COLOURS[column] for column in COLUMNS),
    category_of=tuple(range(len(COLUMNS))),
    legend=(
        *((palette.label(c), palette.COLOURS[c], (i,)) for i, c in enumerate(COLUMNS) if c not in IDLE_COLUMNS),
        ("idle", palette.IDLE_COLOUR, tuple(i for i, c in enumerate(COLUMNS) if c in IDLE_COLUMNS)),
    ),
)
"""Each kind of work has its colour, idle time has one."""

CAUSES = Scheme(
    name="cause",
    labels=("not idle", *(palette.label(column) for column in IDLE_COLUMNS)),
    colours=(QUIET, *(palette.CAUSE_COLOURS[cause] for cause in IDLE_CAUSES)),
    category_of=(*(0 for _ in BUSY_COLUMNS), *range(1, len(IDLE_COLUMNS) + 1)),
)
"""Each cause of idle time has its colour, work is grey."""

_ROLE_OF = {
    **dict.fromkeys(("rollout", "train"), 0),
    **dict.fromkeys(("rollout_aux", "train_aux"), 1),
    **dict.fromkeys(("switch_in", "switch_out", "grad_merge"), 2),
    **dict.fromkeys(("scoring", "evaluate", "optimizer", "weight_sync", "checkpoint", "startup"), 3),
    **dict.fromkeys(IDLE_COLUMNS, 4),
}

ROLES = Scheme(
    name="role",
    labels=("primary", "auxiliary", "changing its role", "work of either role", "idle"),
    colours=(PRIMARY, AUXILIARY, CHANGING, OTHER, QUIET),
    category_of=_columns(COLUMNS, _ROLE_OF),
)
"""Work on the role's home pool against work on the other one."""

SCHEMES = {scheme.name: scheme for scheme in (PHASES, CAUSES, ROLES)}


def majority_of(seconds: np.ndarray, scheme: Scheme) -> np.ndarray:
    """uint8 [rows, bins]: 1 + the category that holds most of each bin, `NO_DATA` where nothing is known.

    seconds: float64 [rows, bins, COLUMNS]. Ties go to the earlier category.
    """
    if scheme.category_of == tuple(range(len(COLUMNS))):
        held = seconds
    else:
        held = np.zeros((*seconds.shape[:2], len(scheme.labels)))
        for column, category in enumerate(scheme.category_of):
            held[:, :, category] += seconds[:, :, column]
    codes = (held.argmax(axis=2) + 1).astype(np.uint8)
    codes[seconds.sum(axis=2) <= 0] = NO_DATA
    return codes


def versions(spans: Sequence[Span], rows: Sequence[Row], plan: Plan) -> tuple[np.ndarray, Scheme] | None:
    """uint8 [rows, bins] and its scheme: the version of the weights behind most of each bin's work. None when the
    window holds more than `MAX_VERSIONS` of them. Idle time is a category of its own, and so is work without a version.
    """
    row_of = {device: index for index, row in enumerate(rows) for device in row.devices}
    kept = [s for s in spans if s.device in row_of and s.t1 > plan.t0 and s.t0 < plan.t1]
    found = sorted({s.version for s in kept if s.kind != "idle" and s.version is not None})
    if len(found) > MAX_VERSIONS:
        return None
    category = {version: index + 2 for index, version in enumerate(found)}
    held = np.zeros((len(rows), plan.bins, len(found) + 2))
    if kept:
        of = np.array([0 if s.kind == "idle" else 1 if s.version is None else category[s.version] for s in kept])
        row = np.array([row_of[s.device] for s in kept])
        start = (np.array([s.t0 for s in kept]) - plan.t0).clip(min=0.0) / plan.bin_s
        end = ((np.array([s.t1 for s in kept]) - plan.t0) / plan.bin_s).clip(max=plan.bins)
        first = np.minimum(np.floor(start).astype(np.int64), plan.bins - 1)
        pieces = np.clip(np.ceil(end).astype(np.int64), first + 1, plan.bins) - first
        owner = np.repeat(np.arange(len(kept)), pieces)
        bins = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces) + first[owner]
        overlap = np.minimum(end[owner], bins + 1) - np.maximum(start[owner], bins)
        np.add.at(held, (row[owner], bins, of[owner]), np.maximum(overlap, 0.0))
    codes = (held.argmax(axis=2) + 1).astype(np.uint8)
    codes[held.sum(axis=2) <= 0] = NO_DATA
    return codes, _version_scheme(found)


def _version_scheme(found: Sequence[int]) -> Scheme:
    colours = [VERSION_COLOURS[version % len(VERSION_COLOURS)] for version in found]
    sharing: dict[str, list[int]] = {}
    for index, colour in enumerate(colours):
        sharing.setdefault(colour, []).append(index)
    named = []
    for colour, indices in sharing.items():
        shown = ", ".join(str(found[i]) for i in indices[:2]) + (", …" if len(indices) > 2 else "")
        named.append((f"version {shown}", colour, tuple(i + 2 for i in indices)))
    return Scheme(
        name="version",
        labels=("idle", "work without a version", *(f"version {version}" for version in found)),
        colours=(QUIET, OTHER, *colours),
        legend=(("idle", QUIET, (0,)), ("work without a version", OTHER, (1,)), *named),
    )
