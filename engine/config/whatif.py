"""From the rows of a run to the question what a change would do, and to what changes did. Pure, and shared by page and
command line: it is handed rows, or in `predicted` the reader of them.

    job, measured profile, steps, commands, idle sums --> planner.whatif.predict, planner.effects
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from engine.config.job import Job
from engine.config.profile import ProfileConfig, to_profile
from engine.config.steering import CHANGES, Refused, change_of, settings_of
from planner.effects import Change, StepTime, lately, mean_lag, rate
from planner.profile import Profile
from planner.whatif import Lately, Prediction, Work, predict

INTERRUPTIONS = ("pause", "resume")
"""They change no setting, but the time of a step that they fall into says nothing about the settings."""


RECORDED_STEPS, LEAST_RECORDED_STEPS = 10, 2
"""Groups of so many steps say how long responses are, better than a distribution that was fitted to them; fewer than
the second number do not."""

MOST_RECORDED = 4000
"""Responses of those groups: they are read with their texts."""


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


class GroupLike(Protocol):
    """A stored group."""

    @property
    def responses(self) -> Sequence[Mapping[str, Any]]: ...


class RunLike(Protocol):
    """A stored run."""

    @property
    def run_id(self) -> str: ...
    @property
    def time_scale(self) -> float | None: ...
    @property
    def profile(self) -> Mapping[str, Any] | None: ...


class Reader(Protocol):
    """What reads the rows of a run."""

    def steps(self, run_id: str, /) -> Sequence[StepLike]: ...
    def groups(self, run_id: str, /, *, limit: int) -> Sequence[GroupLike]: ...
    def kind_seconds(self, run_id: str, t0: float, t1: float, /) -> Mapping[int, Mapping[str, float]]: ...


class CommandLike(Protocol):
    """A row of the mailbox."""

    @property
    def id(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def payload(self) -> Mapping[str, Any]: ...
    @property
    def state(self) -> str: ...
    @property
    def created_at(self) -> float: ...
    @property
    def accepted_at(self) -> float | None: ...
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
    """The last steps that the present settings govern wholly, none of them in a pause: what a prediction starts from.
    Empty while a change that was accepted has not taken effect."""
    kept = list(commands)
    if any(command.state == "accepted" and command.kind in (*CHANGES, "undo") for command in kept):
        return ()
    pauses = [
        Change(
            sent_at=command.created_at,
            effective_step=command.effective_step,
        )
        for command in kept
        if command.kind in INTERRUPTIONS and command.state == "applied" and command.effective_step is not None
    ]
    return lately(step_times(steps), [*changes_of(kept), *pauses])


def undone(settings: Mapping[str, Any], commands: Iterable[CommandLike]) -> tuple[str, dict[str, Any]] | None:
    """Kind and payload of the change that an undo sent now would make; None where nothing is left to take back.

    `settings`: those that the run began with. As the engine reckons: each undo takes the last change back that was not
    taken back yet.
    """
    present, made = dict(settings), list[tuple[str, dict[str, Any]]]()
    for command in sorted(commands, key=lambda each: each.id):
        if command.accepted_at is None:
            continue
        if command.kind in CHANGES:
            values = dict(pair for name, value in command.payload.items() for pair in _written(name, value))
            made.append((command.kind, {name: present[name] for name in values}))
            present |= values
        elif command.kind == "undo" and made:
            present |= made.pop()[1]
    return made[-1] if made else None


def _written(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    try:
        return change_of(name, value)[1].items()
    except Refused:
        return ()  # no engine accepted that


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


Predict = Callable[[Work, Mapping[str, Any], Mapping[str, Any], Lately], Prediction]
"""`planner.whatif.predict`, or what stands for it."""


def predicted(
    reader: Reader,
    run: RunLike,
    job: Job,
    wanted: Job,
    commands: Sequence[CommandLike],
    *,
    ask: Predict = predict,
) -> Prediction:
    """What going from one job to the other is expected to do to the run. Some seconds of simulation, by `ask`; raises
    what the reader raises."""
    last = recent(reader.steps(run.run_id), commands)
    seconds = reader.kind_seconds(run.run_id, last[0].began_at, last[-1].ended_at) if last else {}
    now = lately_of(last, seconds, scale=(run.time_scale or 1.0) if job.emulated else 1.0)
    groups = reader.groups(run.run_id, limit=groups_wanted(job))
    return ask(work_of(job, run.profile, groups), settings_of(job), settings_of(wanted), now)


def groups_wanted(job: Job) -> int:
    """The newest groups of a run that `work_of` takes lengths from."""
    algorithm = job.algorithm
    return min(RECORDED_STEPS * algorithm.prompts_per_step, max(1, MOST_RECORDED // algorithm.group_size))


def work_of(job: Job, measured: Mapping[str, Any] | None, groups: Sequence[GroupLike] = ()) -> Work:
    """The run's job and its speeds: those it has measured, else those that its job gives.

    groups: its newest, `groups_wanted` of them; without enough of them lengths are drawn from the profile.
    """
    algorithm, devices, schedule = job.algorithm, job.devices, job.schedule
    own = _measured(measured)
    return Work(
        profile=own if own is not None or job.profile is None else to_profile(job.profile),
        measured=own is not None,
        prompts_per_step=algorithm.prompts_per_step,
        group_size=algorithm.group_size,
        rollout_replica_size=devices.rollout_replica_size,
        train_replica_size=devices.train_replica_size,
        consume=schedule.consume,
        improvements=schedule.improvements_resolved,
        seed=job.seed,
        recorded=_lengths(job, groups),
    )


def _lengths(job: Job, groups: Sequence[GroupLike]) -> tuple[tuple[int, ...], ...] | None:
    # an empty answer took a token too: the one that ended it
    found = [tuple(max(1, int(response["tokens"])) for response in group.responses) for group in groups]
    whole = tuple(lengths for lengths in found if len(lengths) == job.algorithm.group_size)
    least = min(LEAST_RECORDED_STEPS * job.algorithm.prompts_per_step, groups_wanted(job))
    return whole if len(whole) >= least else None


def _measured(measured: Mapping[str, Any] | None) -> Profile | None:
    """None while what was measured is not yet a whole profile."""
    if measured is None:
        return None
    try:
        return to_profile(ProfileConfig.model_validate(measured))
    except (ValidationError, ValueError):
        return None
