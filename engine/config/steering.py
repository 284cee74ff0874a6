"""What an operator may change on a running job, and the one check of it that sender and engine share.

    change           kind        payload
    staleness=0.5    staleness   {"staleness": 0.5}
    partition=12:4   partition   {"partition": "12:4"}            rollout first
    arm=no_borrow    policy      {"arm": "no_borrow"}             any of the policy's settings, several at once

A change makes a job of a job, so what is refused here is what no job file may say either; beyond that a live run keeps
its pools, its devices and its improvements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.config.errors import JobError, unknown_key
from engine.config.files import check_job
from engine.config.job import ARMS, MAX_LEASE_S, MAX_STALENESS, Job
from engine.config.runnable import check_runnable
from planner.policy.arms import consume_of

CHANGES: dict[str, tuple[str, ...]] = {
    "staleness": ("staleness",),
    "partition": ("partition",),
    "policy": ("arm", "rollout_on_train", "train_on_rollout", "lend_cap", "min_lease_s"),
}
"""Kind of command -> the settings that it changes."""

PLACES = {
    "staleness": ("schedule", "staleness"),
    "partition": ("devices", "partition"),
    "arm": ("schedule", "arm"),
    "rollout_on_train": ("schedule", "borrow", "rollout_on_train"),
    "train_on_rollout": ("schedule", "borrow", "train_on_rollout"),
    "lend_cap": ("schedule", "borrow", "lend_cap"),
    "min_lease_s": ("schedule", "borrow", "min_lease_s"),
}
"""Setting -> where the job file has it."""

LIVE_ARMS = tuple(arm for arm in ARMS if arm != "colocated")
"""Arms that a run with pools can change between."""


class Refused(ValueError):
    """The change cannot be made; the text is the answer to whoever asked for it."""


def setting_names() -> tuple[str, ...]:
    """Everything that can be set on a running job."""
    return tuple(PLACES)


def consume_told(job: Job, arm: str) -> str:
    """That trainers take their groups otherwise under another arm, which nobody asked for; "" where they do not."""
    now, then = job.schedule.consume_resolved, consume_of(arm, job.schedule.consume)
    return "" if now == then else f"consume goes from {now} to {then} with the arm: schedule.consume is not set"


def change_of(name: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Kind and payload of the command that sets `name`. Raises Refused for a name or a value of no run."""
    if name not in PLACES:
        raise Refused(unknown_key(name, setting_names(), what="setting"))
    return next(kind for kind, names in CHANGES.items() if name in names), {name: _value(name, value)}


def settings_of(job: Job) -> dict[str, Any]:
    """The settings of a job, as commands name and write them."""
    borrow, partition = job.schedule.borrow, job.partition
    return {
        "staleness": job.schedule.staleness_resolved,
        "partition": None if partition is None else str(partition),
        "arm": job.schedule.arm,
        "rollout_on_train": borrow.rollout_on_train,
        "train_on_rollout": borrow.train_on_rollout,
        "lend_cap": borrow.lend_cap,
        "min_lease_s": borrow.min_lease_s,
    }


def changed(job: Job, kind: str, payload: Mapping[str, Any]) -> Job:
    """The job after the change. Raises Refused with the reason, for what changes nothing too."""
    names = CHANGES[kind]
    unknown = [name for name in payload if name not in names]
    if unknown or not payload:
        what = f"unknown: {', '.join(map(str, unknown))}" if unknown else "it is empty"
        raise Refused(f"a {kind} command sets {', '.join(names)}; {what}")
    wanted = {name: _value(name, value) for name, value in payload.items()}
    if job.schedule.arm == "colocated":
        raise Refused(
            "a colocated run has no pools: its staleness is 0 by construction, and there is nothing to split or to lend"
        )
    before = settings_of(job)
    if all(before[name] == value for name, value in wanted.items()):
        raise Refused("; ".join(f"{name} is {written(value)} already" for name, value in wanted.items()))
    return _made(job, before | wanted)


def with_settings(job: Job, settings: Mapping[str, Any]) -> Job:
    """The job with all of these settings, as `settings_of` gave them: what a run that goes on from it begins with."""
    return _made(job, settings)


def _made(job: Job, settings: Mapping[str, Any]) -> Job:
    document = job.model_dump(mode="json")
    for name, value in settings.items():
        *parents, last = PLACES[name]
        here = document
        for parent in parents:
            here = here[parent]
        here[last] = value
    if settings["partition"] is not None:
        document["devices"]["count"] = job.device_count
    document["schedule"]["improvements"] = {}  # an arm without them leaves them aside, and the next one may have them
    try:
        made = check_job(document)
        check_runnable(made)
    except JobError as error:
        raise Refused("; ".join(error.problems.values())) from None
    kept = made.schedule.model_copy(update={"improvements": job.schedule.improvements})
    return made.model_copy(update={"schedule": kept})


def _value(name: str, value: Any) -> Any:
    """The value in the form that `settings_of` has. Raises Refused for one of another kind."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    match name:
        case "staleness":
            if not number or not 0 <= value <= MAX_STALENESS:
                raise Refused(f"staleness must be a number from 0 to {MAX_STALENESS:g}, got {value!r}")
            return float(value)
        case "min_lease_s":
            if not number or not 0 <= value <= MAX_LEASE_S:
                raise Refused(f"min_lease_s must be seconds from 0 to {MAX_LEASE_S:g}, got {value!r}")
            return float(value)
        case "lend_cap":
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise Refused(f"lend_cap must be a number of devices from 0, or null for no cap, got {value!r}")
            return value
        case "arm":
            if value not in LIVE_ARMS:
                raise Refused(f"arm must be one of {', '.join(LIVE_ARMS)}, got {value!r}")
            return value
        case "partition":
            return _partition(value)
        case _:
            if not isinstance(value, bool):
                raise Refused(f"{name} must be true or false, got {value!r}")
            return value


def _partition(value: Any) -> str:
    parts = value.split(":") if isinstance(value, str) else []
    if len(parts) != 2 or not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise Refused(f"partition must be ROLLOUT:TRAIN, such as 12:4, got {value!r}")
    rollout, train = (int(part) for part in parts)
    return f"{rollout}:{train}"


def written(value: Any) -> str:
    """A setting's value as a job file and --set have it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else f"{value}"
