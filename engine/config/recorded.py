"""A past run as the simulator plays it again: its job, the speeds that it measured, and the work that it was given.

Pure, and shared by `bidirl simulate --like` and the Plan page, which hand in the reader of its rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from engine.config import calibrations
from engine.config.files import parse_job, parse_setting
from engine.config.job import Job
from engine.config.planning import Known
from engine.config.profile import to_profile
from engine.config.steering import PLACES

PAGE = 1000
"""Groups read at once: their texts are some kilobytes each, and only the counts of tokens are kept."""


class RunLike(Protocol):
    """A stored run."""

    @property
    def run_id(self) -> str: ...
    @property
    def job(self) -> str: ...
    @property
    def partition(self) -> str | None: ...
    @property
    def settings(self) -> Mapping[str, Any] | None: ...
    @property
    def profile(self) -> Mapping[str, Any] | None: ...
    @property
    def model_error(self) -> dict[str, Any] | None: ...


class GroupLike(Protocol):
    """A stored group."""

    @property
    def group_id(self) -> int: ...
    @property
    def responses(self) -> Sequence[Mapping[str, Any]]: ...


class Reader(Protocol):
    """What reads the groups of a run, those started last first."""

    def groups(self, run_id: str, /, *, limit: int, offset: int) -> Sequence[GroupLike]: ...


def known_of_run(run: RunLike) -> Known | None:
    """The speeds that a run measured of itself; None before it has all of them. Raises ValueError with what of them no
    job file may say."""
    if run.profile is None:
        return None
    profile = to_profile(calibrations.measured(dict(run.profile)))
    return Known(profile=profile, source=f"run {run.run_id}", model_error=run.model_error)


def job_of_run(run: RunLike, settings: Sequence[str] = ()) -> Job:
    """The run's job with what operators changed, as it is in force now or was at the run's end, on the devices that it
    had; a partition only where the arm that is asked for has pools.

    Raises JobError for settings that do not fit.
    """
    job = parse_job(run.job)
    governed = governing(run)
    arm, paths = (run.settings or {}).get("arm", job.schedule.arm), set()
    for path, value in map(parse_setting, settings):
        paths.add(path)
        if path == "schedule.arm":
            arm = value
    if paths & {"devices.count", "devices.partition"}:
        # what is asked for decides both: a partition says how many, a number asks for the best split
        own = ["devices.count=auto", "devices.partition=auto"]
    else:
        pools = arm != "colocated" and run.partition is not None
        own = [f"devices.count={job.device_count}", f"devices.partition={run.partition if pools else 'auto'}"]
    return parse_job(run.job, [*governed, *own, *settings], source=f"run {run.run_id}")


def governing(run: RunLike) -> list[str]:
    """What operators changed, as `--set` takes it; all but the partition, which the row of a run has itself. Empty for
    a run that nobody steered."""
    changed = {name: value for name, value in (run.settings or {}).items() if name != "partition"}
    return [f"{'.'.join(PLACES[name])}={json.dumps(value)}" for name, value in changed.items() if name in PLACES]


def lengths_of(reader: Reader, run_id: str, *, group_size: int) -> tuple[tuple[int, ...], ...]:
    """Response tokens of every whole group in the order of starting, which is that of the data."""
    found: dict[int, tuple[int, ...]] = {}
    read = 0
    while page := reader.groups(run_id, limit=PAGE, offset=read):
        read += len(page)
        # a run that still goes on adds groups at the front, so a page may repeat some of the one before
        found |= {group.group_id: _tokens(group) for group in page}
    return tuple(found[group_id] for group_id in sorted(found) if len(found[group_id]) == group_size)


def _tokens(group: GroupLike) -> tuple[int, ...]:
    """An empty answer took a token too: the one that ended it."""
    return tuple(max(1, int(response["tokens"])) for response in group.responses)
