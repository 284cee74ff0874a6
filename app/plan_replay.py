"""A recorded run under other settings: measured, played again as it was, and played under each alternative. Reads and
computes; it draws nothing.

    job, measured profile, lengths of groups --simulator--> as is (the model's error), alternatives --ratio--> expected

The same as `bidirl simulate --like RUN --set ...`. It refuses a run that has measured too little or kept no groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

from app.modelled import pace_of
from app.plan_played import Figures, Todo, content
from engine.config import Job, JobError, parse_job
from engine.config.playing import Recorded, prepare
from engine.config.recorded import Reader, job_of_run, known_of_run, lengths_of
from engine.config.whatif import idle_shares
from planner import replayed
from planner.bubbles import measured_bubbles
from planner.throughput import throughput
from planner.whatif import Band
from storage.reader import TelemetryReader
from storage.records import RunRow, StepRow

LEAST_STEPS = 5
"""Below, a run says nothing about its steady speed."""

MOST_SEQUENCES = 60_000
"""Responses of a run that are played again: of a longer one its first steps, measured over the same ones."""

MOST_ALTERNATIVES = 24
"""Rows of the comparison: more is the frontier's work."""

NOTHING = Figures()
"""Of what was not played."""

AS_IS = "as is"
"""Key of the replay without a change."""


class NotReplayable(ValueError):
    """A run that cannot be played again, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Settings under which a run is played again."""

    arm: str
    partition: str | None
    """rollout:train; None for an arm without pools."""
    staleness: float

    @property
    def label(self) -> str:
        """ "bidirectional · 8:8 · staleness 1"."""
        return " · ".join(filter(None, (self.arm, self.partition, f"staleness {self.staleness:g}")))

    @property
    def settings(self) -> list[str]:
        """As `--set` takes them."""
        if self.partition is None:
            return [f"schedule.arm={self.arm}"]
        return [
            f"schedule.arm={self.arm}",
            f"devices.partition={self.partition}",
            f"schedule.staleness={self.staleness:g}",
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A recorded run."""

    run: RunRow
    job: Job
    """With the settings in force now, or at its end."""
    recorded: Recorded
    """Its measured speeds, and the lengths of its groups."""
    measured: Figures
    """Of its first `steps`; of an emulated run in modelled time."""
    steps: int
    """Steps that are compared and played again."""
    made: int
    """Steps that it made."""

    @property
    def own(self) -> Alternative:
        """The settings that it is replayed with as it was."""
        return _own(self.job)


def own_of(run: RunRow) -> Alternative:
    """The settings that a run is replayed with as it was. Raises JobError for a job of another version."""
    return _own(job_of_run(run))


def _own(job: Job) -> Alternative:
    partition = None if job.schedule.arm == "colocated" else str(job.partition)
    return Alternative(arm=job.schedule.arm, partition=partition, staleness=job.schedule.staleness_resolved)


def read(reader: TelemetryReader, run: RunRow, *, groups: Reader | None = None) -> Past:
    """What was recorded of a run. groups: what reads its groups where not the reader itself.

    Raises NotReplayable, and what the reader raises.
    """
    try:
        known = known_of_run(run)
        job = job_of_run(run)
        group_size = parse_job(run.job).algorithm.group_size
    except ValueError as error:
        raise NotReplayable(f"it cannot be read as a run of this version: {error}") from None
    if known is None:
        raise NotReplayable(
            "it has not measured a whole profile (speeds, lengths and both switch costs); a longer run of an arm that "
            "lends both ways has"
        )
    steps = reader.steps(run.run_id)
    counted = min(len(steps), MOST_SEQUENCES // (job.algorithm.prompts_per_step * group_size))
    if counted < LEAST_STEPS:
        told = f"{len(steps)} steps were made" if len(steps) < LEAST_STEPS else "its steps are too large"
        raise NotReplayable(f"{told}; {LEAST_STEPS} are needed, of at most {MOST_SEQUENCES:,} responses in all")
    lengths = lengths_of(groups or reader, run.run_id, group_size=group_size)
    if not lengths:
        raise NotReplayable("it has no recorded groups whose work could be played again")
    return Past(
        run=run,
        job=job,
        recorded=Recorded(known=known, lengths=lengths),
        measured=measured(reader, run, steps[:counted]),
        steps=counted,
        made=len(steps),
    )


def measured(reader: TelemetryReader, run: RunRow, steps: Sequence[StepRow]) -> Figures:
    """The figures of a run's first steps, from its first possible rollout on."""
    pace = pace_of(run)
    rate = throughput(
        [(step.prompt_tokens + step.response_tokens, step.t_end - step.t_start) for step in steps],
        run.staleness or 0.0,
    )
    lags = [pair for step in steps for pair in step.lag.items()]
    groups = sum(count for _, count in lags)
    idle = structural = residual = None
    if run.training_at is not None:
        seconds = reader.kind_seconds(run.run_id, run.training_at, steps[-1].t_end, quick=True)
        if any(seconds.values()):
            idle = min(1.0, sum(idle_shares(seconds).values()))
            pools = {device.device: device.pool for device in reader.devices(run.run_id)}
            parts = measured_bubbles(seconds, pools, groups=sum(step.groups for step in steps), idle_fraction=idle)
            structural, residual = (parts.structural, parts.residual) if parts else (None, None)
    return Figures(
        tokens_per_s=None if rate is None else pace.rate(rate),
        step_s=pace.seconds(median(step.t_end - step.t_start for step in steps)),
        idle=idle,
        structural=structural,
        residual=residual,
        lag=sum(lag * count for lag, count in lags) / groups if groups else None,
    )


def alternatives(
    own: Alternative, arms: Sequence[str], partitions: Sequence[str], staleness: Sequence[float]
) -> list[Alternative]:
    """Every combination, once, without the run's own; what is not chosen stays as it was."""
    found: dict[Alternative, None] = {}
    splits: list[str | None] = [*partitions] or [own.partition]
    for arm, partition, s in product(arms or [own.arm], splits, staleness or [own.staleness]):
        if arm == "colocated":
            found[Alternative(arm=arm, partition=None, staleness=0.0)] = None
        elif partition is not None:
            found[Alternative(arm=arm, partition=partition, staleness=s)] = None
    found.pop(own, None)
    return list(found)


def settings_of(past: Past, other: Alternative | None) -> list[str]:
    """What is set beside the run's own job: so many steps as are compared, and the alternative."""
    return [f"algorithm.steps={past.steps}", *(other.settings if other is not None else [])]


def command(past: Past, other: Alternative | None) -> str:
    """The same on the command line."""
    told = " ".join(f"--set {setting}" for setting in settings_of(past, other))
    return f"bidirl simulate --like {past.run.run_id} {told}"


def todo_of(past: Past, others: Sequence[Alternative]) -> tuple[dict[str, Todo], dict[str, str]]:
    """What is played by label, the replay as is first; and label -> reason of what cannot be."""
    todo: dict[str, Todo] = {}
    refused: dict[str, str] = {}
    for name, other in ((AS_IS, None), *((each.label, each) for each in others)):
        try:
            made = prepare(job_of_run(past.run, settings_of(past, other)), like=past.recorded)
        except JobError as error:
            refused[name] = "; ".join(error.problems.values())
            continue
        todo[name] = (content(made), made)
    return todo, refused


def error_of(past: Past, found: Mapping[str, Figures]) -> float | None:
    """Simulated over measured throughput of the run as it is, less 1; None before both are known."""
    return replayed.error_of(past.measured.tokens_per_s, found.get(AS_IS, NOTHING).tokens_per_s)


def expected(past: Past, found: Mapping[str, Figures], name: str) -> Band | None:
    """The measured throughput times the simulated ratio, and as far around it as the model is off on this run."""
    as_is, played = found.get(AS_IS, NOTHING), found.get(name, NOTHING)
    return replayed.expected(past.measured.tokens_per_s, as_is.tokens_per_s, played.tokens_per_s)
