"""What a run was asked for against what is in effect, setting by setting. Pure.

Between the two lies the safe point of a change: groups that were started under another bound, devices that are on their
way to another pool, a direction that the guard holds closed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.command_words import NAMES, History, Made, said
from app.lending import device_list
from app.modelled import REAL, Pace
from app.status import OPEN_COMMANDS
from engine.config import BORROWING_ARMS
from storage.records import DeviceRow, LeaseRow, RunRow, StepRow
from storage.words import DIRECTIONS, TERMINAL

ONE_WAY = tuple(arm for arm in BORROWING_ARMS if arm in DIRECTIONS)
"""Arms that lend in the direction that they are named after, and in no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One setting."""

    name: str
    """What a reader calls it."""
    asked: str
    """What operators, or the job, ask for."""
    effect: str
    """What is in effect."""
    note: str = ""
    """Why the two differ, or since when they do not."""
    settled: bool = True
    """Whether what was asked for is in effect."""


def asked_of(run: RunRow, began: Mapping[str, Any]) -> dict[str, Any]:
    """What governs the run, by setting: changed by operators, else the job's."""
    return dict(run.settings) if run.settings is not None else dict(began)


def lines(
    run: RunRow,
    asked: Mapping[str, Any],
    *,
    found: History,
    devices: Sequence[DeviceRow],
    steps: Sequence[StepRow],
    leases: Sequence[LeaseRow],
    pace: Pace = REAL,
) -> list[Line]:
    """asked: of `asked_of`. steps: the newest is enough. leases: those that have not ended."""
    live = run.state not in TERMINAL
    waiting = {name: made for made in found.made if made.command.state in OPEN_COMMANDS and made.accepted
               for name in made.after}  # fmt: skip
    found_lines = [
        _staleness(run, asked, waiting.get("staleness"), steps),
        _partition(asked, waiting.get("partition"), devices),
        Line(name=NAMES["arm"], asked=asked["arm"], effect=asked["arm"]),
    ]
    if asked["partition"] is None:
        return found_lines
    found_lines += [_direction(name, run, asked, leases if live else ()) for name in DIRECTIONS]
    lends = asked["arm"] in BORROWING_ARMS
    lent = device_list([device for lease in leases for device in lease.devices]) if live else ""
    now = f"devices {lent} are lent" if lent else "no device is lent" if live and lends else ""
    idle = "" if lends else "for an arm that lends"
    return [
        *found_lines,
        Line(
            name=NAMES["lend_cap"],
            asked=said("lend_cap", asked["lend_cap"]),
            effect=said("lend_cap", asked["lend_cap"]),
            note=now or idle,
        ),
        Line(
            name=NAMES["min_lease_s"],
            asked=said("min_lease_s", asked["min_lease_s"]) + pace.unit,
            effect=said("min_lease_s", asked["min_lease_s"]) + pace.unit,
            note=idle,
        ),
    ]


def _staleness(run: RunRow, asked: Mapping[str, Any], waiting: Made | None, steps: Sequence[StepRow]) -> Line:
    name, value = NAMES["staleness"], asked["staleness"]
    if waiting is not None:
        before = waiting.before.get("staleness")
        effect = "–" if before is None else said("staleness", before)
        told = "groups that start now obey it; it is effective at the first step made only of such groups"
        return Line(name=name, asked=said("staleness", value), effect=effect, note=told, settled=False)
    since = run.staleness_effective_step
    note = f"since step {since}" if since is not None else "since the run began" if steps else ""
    return Line(name=name, asked=said("staleness", value), effect=said("staleness", value), note=note)


def _partition(asked: Mapping[str, Any], waiting: Made | None, devices: Sequence[DeviceRow]) -> Line:
    name, wanted = NAMES["partition"], asked["partition"]
    if wanted is None:
        return Line(
            name=name, asked="no pools", effect="no pools", note="every device generates, then trains its share"
        )
    counts = {pool: sum(device.pool == pool for device in devices) for pool in ("rollout", "train")}
    if not devices:
        return Line(name=name, asked=wanted, effect="–", note="no device has reported", settled=False)
    here = f"{counts['rollout']}:{counts['train']}"
    if here != wanted:
        off = abs(counts["rollout"] - int(wanted.partition(":")[0]))
        return Line(name=name, asked=wanted, effect=here, note=f"{off} devices have to move", settled=False)
    if waiting is not None:
        return Line(name=name, asked=wanted, effect=here, note="the last device is on its way", settled=False)
    return Line(name=name, asked=wanted, effect=here, note="rollout : train devices")


def _direction(name: str, run: RunRow, asked: Mapping[str, Any], leases: Sequence[LeaseRow]) -> Line:
    wanted, arm = bool(asked[name]), asked["arm"]
    label, text = NAMES[name], said(name, wanted)
    open_now = [lease for lease in leases if lease.direction == name]
    if arm not in BORROWING_ARMS or (arm in ONE_WAY and arm != name):
        # nothing is missing: the setting waits for an arm that lends
        return Line(name=label, asked=text, effect="off", note=f"arm {arm} does not lend this way")
    if wanted and (guard := run.guards.get(name)):
        return Line(name=label, asked=text, effect="off for now", note=f"the guard: {guard}", settled=False)
    if not wanted and open_now:
        note = f"devices {device_list([d for lease in open_now for d in lease.devices])} are on their way home"
        return Line(name=label, asked=text, effect="ending", note=note, settled=False)
    return Line(name=label, asked=text, effect=text)
