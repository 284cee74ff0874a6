"""From the rows of a run to the question what a change would do, and to what changes did. Pure, and shared by page and
command line: it is handed rows and reads none.

    job, measured profile, steps, commands, idle sums --> planner.whatif.predict, planner.effects
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from engine.config.job import Job
from engine.config.profile import ProfileConfig, to_profile
from engine.config.steering import CHANGES
from planner.effects import Change, StepTime, lately, mean_lag, rate
from planner.profile import Profile
from planner.whatif import Lately, Work


class StepLike(Protocol):
    """A stored step."""

    @property
    def step(self) -> int: ...
    @property
    def t_start(self) -> float: ...
    @property
    def t_end(self) -> float: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def response_tokens(self) -> int: ...
    @property
    def lag(self) -> Mapping[int, int]: ...


class CommandLike(Protocol):
    """A row of the mailbox."""

    @property
    def kind(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def created_at(self) -> float: ...
    @property
    def applied_at(self) -> float | None: ...
    @property
    def effective_step(self) -> int | None: ...
    @property
    def result(self) -> Mapping[str, Any] | None: ...


def changes_settings(command: CommandLike) -> bool:
    """It changed the settings of its run, and governs or governed."""
    return (
        command.kind in (*CHANGES, "undo")
        and command.state == "applied"
        and command.applied_at is not None
        and command.effective_step is not None
    )


def changes_of(commands: Iterable[CommandLike]) -> list[Change]:
    """Applied changes in the order of sending; `commands` may be newest first."""
    found = [
        Change(
            sent_at=command.created_at,
            applied_at=command.applied_at or command.created_at,
            effective_step=command.effective_step or 0,
            staleness=float(((command.result or {}).get("settings") or {}).get("staleness") or 0.0),
        )
        for command in commands
        if changes_settings(command)
    ]
    return sorted(found, key=lambda change: change.sent_at)


def step_times(steps: Sequence[StepLike]) -> list[StepTime]:
    """The steps in their order."""
    return [
        StepTime(
            step=each.step,
            began_at=each.t_start,
            ended_at=each.t_end,
            tokens=each.prompt_tokens + each.response_tokens,
            lag=each.lag,
        )
        for each in sorted(steps, key=lambda each: each.step)
    ]


def recent(steps: Sequence[StepLike], commands: Iterable[CommandLike]) -> tuple[StepTime, ...]:
    """The last steps that the present settings govern wholly: what a prediction starts from."""
    return lately(step_times(steps), changes_of(commands))


def idle_shares(seconds: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Cause -> share of device time, of the exact sums by device and column (`idle_CAUSE`)."""
    total = math.fsum(value for sums in seconds.values() for value in sums.values())
    shares: dict[str, float] = {}
    for sums in seconds.values():
        for column, value in sums.items():
            if column.startswith("idle_") and total > 0:
                cause = column.removeprefix("idle_")
                shares[cause] = shares.get(cause, 0.0) + value / total
    return {cause: share for cause, share in sorted(shares.items(), key=lambda item: -item[1]) if share > 0}


def lately_of(steps: Sequence[StepTime], seconds: Mapping[int, Mapping[str, float]], *, scale: float) -> Lately:
    """What a run did in these steps; `seconds`: sums over their time; `scale`: wall seconds of a modelled one."""
    reached = rate(steps) if steps else None
    return Lately(
        steps=len(steps),
        tokens_per_s=None if reached is None else reached * scale,
        idle=idle_shares(seconds),
        lag=mean_lag(steps),
    )


def work_of(job: Job, measured: Mapping[str, Any] | None) -> Work:
    """The run's job and its speeds: those it has measured, else those that its job gives."""
    algorithm, devices, schedule = job.algorithm, job.devices, job.schedule
    return Work(
        profile=_profile(job, measured),
        prompts_per_step=algorithm.prompts_per_step,
        group_size=algorithm.group_size,
        rollout_replica_size=devices.rollout_replica_size,
        train_replica_size=devices.train_replica_size,
        consume=schedule.consume,
        improvements=schedule.improvements_resolved,
        seed=job.seed,
    )


def _profile(job: Job, measured: Mapping[str, Any] | None) -> Profile | None:
    if measured is not None:
        try:
            return to_profile(ProfileConfig.model_validate(measured))
        except (ValidationError, ValueError):
            pass  # what was measured so far is no profile: the job's is next
    return None if job.profile is None else to_profile(job.profile)
