"""Rows of the Timeline: a device, a node or a role each, as the reader asks and as many as can be told apart. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from app.detail import MAX_DEVICE_ROWS, MAX_GROUP_ROWS, Row, chart_rows
from app.figures.rows import AXIS_CHARACTERS, cut
from storage.records import DeviceRow

ROLE_NAMES = {"rollout": "RollPool", "train": "TrainPool"}
"""Home pool -> what a row of all its devices is called."""

NO_POOL = "no pool"


def timeline_rows(
    devices: Sequence[DeviceRow], by: str, *, opened: str | None = None, emulated: bool = False
) -> list[Row]:
    """by: device, node or role. Devices that are too many to have a row each are grouped whatever was asked. opened:
    key of a group whose devices are shown instead; one that is not there opens nothing."""
    inside = opened and members(devices, opened)
    if inside or by == "device":
        return chart_rows(inside or devices, emulated=emulated)
    ordered = sorted(devices, key=lambda d: ({"rollout": 0, "train": 1}.get(d.pool or "", 2), d.device))
    if by == "node":
        rows = _groups(ordered, "node", [(d.node, d.node) for d in ordered])
        if len(rows) <= MAX_GROUP_ROWS:
            return rows
    return _groups(ordered, "pool", [(d.pool or NO_POOL, ROLE_NAMES.get(d.pool or "", NO_POOL)) for d in ordered])


def members(devices: Sequence[DeviceRow], key: str) -> list[DeviceRow]:
    """The devices of a row by its key, such as device:3, node:n1 or pool:train; none for a key that names no row."""
    kind, _, name = key.partition(":")
    if kind == "device":
        return [d for d in devices if str(d.device) == name]
    if kind == "node":
        return [d for d in devices if d.node == name]
    return [d for d in devices if kind == "pool" and (d.pool or NO_POOL) == name]


def coarser(devices: Sequence[DeviceRow], by: str, rows: Sequence[Row]) -> str:
    """Why there are fewer rows than were asked for; empty when there are not."""
    if by == "device" and len(devices) > MAX_DEVICE_ROWS and rows and not rows[0].key.startswith("device:"):
        return f"{len(devices)} devices are more than {MAX_DEVICE_ROWS} rows: click a row to open it"
    if by == "node" and rows and rows[0].key.startswith("pool:"):
        return f"more than {MAX_GROUP_ROWS} nodes: grouped by role"
    return ""


def _groups(devices: Sequence[DeviceRow], kind: str, names: Sequence[tuple[str, str]]) -> list[Row]:
    """names: of each device the name in the key and the one that is shown."""
    found: dict[str, tuple[str, list[int]]] = {}
    for device, (name, shown) in zip(devices, names, strict=True):
        found.setdefault(name, (shown, []))[1].append(device.device)
    return [
        Row(
            label=f"{shown} ({len(indices)} device{'' if len(indices) == 1 else 's'})",
            devices=tuple(indices),
            key=f"{kind}:{name}",
            tick=f"{cut(shown, AXIS_CHARACTERS - len(str(len(indices))) - 3)} ({len(indices)})",
        )
        for name, (shown, indices) in found.items()
    ]
