"""What an operator wants a run to be: the changes, whether they can be made, and when each takes effect. Pure.

Changes are checked by the function that the engine checks them with, in the order in which they are sent: what the page
accepts, the engine does not refuse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from app.command_words import change
from app.run_job import job_of
from engine.config import CHANGES, Job, Refused, changed, consume_told, settings_of, with_settings
from planner.policy.bound import Bound
from storage.records import RunRow

KEPT = 64
"""Jobs with their settings that are kept: a page asks for the same few with every refresh."""

Part = tuple[str, dict[str, Any]]
"""Kind and payload of a command."""

Frozen = tuple[tuple[str, Any], ...]
"""Settings as a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Changes of a run's settings."""

    parts: tuple[Part, ...] = ()
    """Commands in the order of sending; empty when nothing is to change."""
    told: tuple[str, ...] = ()
    """Each setting: "staleness 1 → 0.5"."""
    job: Job | None = None
    """What the run would be; None when nothing is to change or it cannot be made."""
    problem: str = ""
    """Why it cannot be made, one sentence."""
    safe_points: tuple[str, ...] = field(default=())
    """When each part takes effect, in the order of `parts`."""


@lru_cache(maxsize=KEPT)
def present_job(text: str, settings: Frozen | None) -> Job | None:
    """The job as it is steered now; None when it was written for another version of the program."""
    job = job_of(text)
    if job is None or settings is None:
        return job
    try:
        return with_settings(job, dict(settings))
    except Refused:
        return None


def job_now(run: RunRow) -> Job | None:
    """What the run is now: its job with what operators changed."""
    return present_job(run.job, None if run.settings is None else tuple(run.settings.items()))


@lru_cache(maxsize=KEPT)
def _splits(text: str, settings: Frozen | None) -> tuple[str, ...]:
    job = present_job(text, settings)
    if job is None or job.partition is None:
        return ()
    found = []
    for rollout in range(1, job.device_count):
        split = f"{rollout}:{job.device_count - rollout}"
        if split != str(job.partition):
            try:
                changed(job, "partition", {"partition": split})
            except Refused:
                continue
        found.append(split)
    return tuple(found)


def splits(run: RunRow) -> tuple[str, ...]:
    """Partitions that the run may have, the present one among them, fewest rollout devices first."""
    return _splits(run.job, None if run.settings is None else tuple(run.settings.items()))


def ahead_of(run: RunRow) -> int | None:
    """Groups that were started and not consumed; None when not known."""
    known = [count for count in (run.buffer_groups, run.in_flight_groups) if count is not None]
    return sum(known) if known else None


def parts_of(changes: Mapping[str, Any]) -> tuple[Part, ...]:
    """The commands that make these changes: staleness, partition, policy."""
    found = [(kind, {name: changes[name] for name in names if name in changes}) for kind, names in CHANGES.items()]
    return tuple((kind, payload) for kind, payload in found if payload)


def wanted(job: Job, values: Mapping[str, Any], *, ahead_groups: int | None = None) -> Wanted:
    """Going from a job to one with these values, by setting; a value that is the same changes nothing.

    ahead_groups: groups that were started and not consumed, None when not known.
    """
    before = settings_of(job)
    changes = {name: value for name, value in values.items() if name in before and value != before[name]}
    parts = parts_of(changes)
    told = tuple(change(name, before[name], changes[name]) for _, payload in parts for name in payload)
    if not parts:
        return Wanted()
    made, points = job, []
    for kind, payload in parts:
        points.append(safe_point(kind, payload, made, ahead_groups))
        try:
            made = changed(made, kind, payload)
        except Refused as refusal:
            return Wanted(parts=parts, told=told, problem=_hint(job, parts, str(refusal)))
    return Wanted(parts=parts, told=told, job=made, safe_points=tuple(points))


def _hint(job: Job, parts: tuple[Part, ...], refusal: str) -> str:
    """Where the same changes can be made in another order, say so: they are sent in one, and each must hold."""
    try:
        made = job
        for kind, payload in reversed(parts):
            made = changed(made, kind, payload)
    except Refused:
        return refusal
    return f"{refusal}. Send the change of {', '.join(parts[-1][1])} alone first, and the rest when it is applied"


def safe_point(kind: str, payload: Mapping[str, Any], job: Job, ahead_groups: int | None) -> str:
    """When a part takes effect, by the rules of the engine; the answer to the command names the step."""
    match kind:
        case "staleness":
            effect = staleness_effect(
                settings_of(job)["staleness"], float(payload["staleness"]), job.algorithm.prompts_per_step
            )
            if ahead_groups is None:
                return effect
            steps = max(1, math.ceil(ahead_groups / job.algorithm.prompts_per_step))
            some = f"{ahead_groups} groups are started, about {steps} step{'' if steps == 1 else 's'}"
            return f"{effect} Effective at the first step made only of groups started under it: {some}."
        case "partition":
            assert job.partition is not None, "a job without pools has no partition to change"
            moved = int(str(payload["partition"]).partition(":")[0]) - job.partition.rollout
            way = "trainers leave when their chunk has ended" if moved > 0 else "rollouters give their groups back"
            one = abs(moved) == 1
            who = "1 device changes its" if one else f"{abs(moved)} devices change their"
            return (
                f"{who} pool: {way}, and a lease of theirs ends before. Applied when each works in its new pool; the "
                "answer says what moving cost."
            )
        case _:
            taken = consume_told(job, payload.get("arm", job.schedule.arm))
            return (
                "Governs the next decision; leases in a direction that is switched off end at once."
                f"{f' With it {taken}.' if taken else ''}"
            )


def staleness_effect(now: float, wanted: float, prompts_per_step: int) -> str:
    """What a change does, by the rules of design.md section 4."""
    before = Bound(staleness=now, prompts_per_step=prompts_per_step)
    after = Bound(staleness=wanted, prompts_per_step=prompts_per_step)
    return (
        f"Staleness {now:g} → {wanted:g}: {_late(after)}; groups that may be started ahead {before.start_allowance} → "
        f"{after.start_allowance}. Groups already started keep their bound."
    )


def _late(bound: Bound) -> str:
    """How late groups may be under a bound."""
    step = f"of a step's {bound.prompts_per_step} groups"
    if not bound.k and not bound.F:
        tiny = f", since it is too little for one {step}" if bound.staleness else ""
        return f"every group is of the version that it trains{tiny}"
    if not bound.F:
        return f"groups may be up to {_versions(bound.k)} late"
    if not bound.k:
        return f"at most {bound.F} {step} may be 1 version late, the others not at all"
    return f"groups may be up to {_versions(bound.k)} late, {bound.F} {step} {_versions(bound.k + 1)}"


def _versions(count: int) -> str:
    return f"{count} version{'' if count == 1 else 's'}"
