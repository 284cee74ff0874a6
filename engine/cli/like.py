"""A past run for the simulator: its job, the speeds it measured of itself, the work it was given, and what it reached.

    measured, replayed as it was --> the model's error on this run --> what the forecast is worth in measured tokens/s

The Plan page says the same of the same run; where nothing steady was measured there is the reason instead of a figure.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine import simulation
from engine.cli.client import BadInput, known_run
from engine.config import Job, consume_told, load_job, parse_job
from engine.config.playing import Recorded
from engine.config.recorded import job_of_run, known_of_run, lengths_of
from planner import replayed
from planner.throughput import throughput
from planner.whatif import Band
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import RunRow, StepRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A past run that is played again."""

    run: RunRow
    job: Job
    """What is simulated: a job file's, or the run's own, with the settings that were asked for."""
    recorded: Recorded
    """Its speeds and its work."""
    steps: int
    """Steps over which it was measured and is replayed as it was: those it made, as many as are simulated."""
    made: int
    """Steps that it made."""
    tokens_per_s: float | None
    """Measured, of the steady part of these steps, modelled seconds where it was emulated; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A simulated run beside what the past run measured."""

    run_id: str
    steps: int
    """Steps of the past run that are compared."""
    measured_tokens_per_s: float | None
    replayed_tokens_per_s: float | None
    """Simulated with the settings in force at its end."""
    model_error: float | None
    """Replayed over measured, less 1."""
    expected_tokens_per_s: Band | None
    """The measured throughput times the simulated ratio."""
    notes: tuple[str, ...]
    """What a reader must know to believe them, sentences."""


def read(data: DataDir, run_id: str, job_file: Path | None, settings: list[str]) -> Past:
    """The job to simulate, from its file or else the run's own, and what was recorded of the run.

    Raises BadInput for a run that is not known or measured too little, JobError for settings that do not fit.
    """
    with TelemetryReader(data.telemetry_db) as reader:
        run = known_run(reader, run_id, told="--like: run")
        if run.profile is None:
            raise BadInput(
                f"--like: run {run_id} has not measured a whole profile (speeds, lengths and both switch costs); "
                "use a longer run of an arm that lends both ways, or bidirl calibrate"
            )
        job = job_of_run(run, settings) if job_file is None else load_job(job_file, settings)
        lengths = lengths_of(reader, run_id, group_size=parse_job(run.job).algorithm.group_size)
        steps = reader.steps(run_id)
    if not lengths:
        raise BadInput(f"--like: run {run_id} has no recorded groups whose work could be played again")
    try:
        known = known_of_run(run)
    except ValueError as error:
        raise BadInput(f"--like: run {run_id} measured what no job file may say: {error}") from None
    assert known is not None, "a run with a profile has measured"
    counted = steps[: job.algorithm.steps]
    return Past(
        run=run,
        job=job,
        recorded=Recorded(known=known, lengths=lengths),
        steps=len(counted),
        made=len(steps),
        tokens_per_s=_measured(run, counted),
    )


def _measured(run: RunRow, steps: list[StepRow]) -> float | None:
    rate = throughput(
        [(step.prompt_tokens + step.response_tokens, step.t_end - step.t_start) for step in steps], run.staleness or 0.0
    )
    return None if rate is None else rate * (run.time_scale or 1.0)


def compared(past: Past, result: dict[str, Any]) -> Compared:
    """`result`: of the simulated run. Plays the run as it was too. Raises JobError for a run that cannot be."""
    as_is = None
    own = job_of_run(past.run, [f"algorithm.steps={past.steps}"]) if past.steps else None
    if own == past.job:
        as_is = result["throughput_tokens_per_s"]
    elif own is not None and past.tokens_per_s is not None:
        played = simulation.simulate(own, source=f"run {past.run.run_id}", like=past.recorded)
        as_is = played["throughput_tokens_per_s"]
    return Compared(
        run_id=past.run.run_id,
        steps=past.steps,
        measured_tokens_per_s=past.tokens_per_s,
        replayed_tokens_per_s=as_is,
        model_error=replayed.error_of(past.tokens_per_s, as_is),
        expected_tokens_per_s=replayed.expected(past.tokens_per_s, as_is, result["throughput_tokens_per_s"]),
        notes=tuple(_notes(past)),
    )


def _notes(past: Past) -> list[str]:
    run, found = past.run, []
    own = job_of_run(run)
    if past.tokens_per_s is None:
        found.append(
            f"run {run.run_id} has no steady throughput in {past.steps} steps, so the model's error on it is not known"
        )
    elif past.steps < past.made:
        found.append(f"compared over the first {past.steps} of its {past.made} steps")
    if past.tokens_per_s is not None and past.job.algorithm.steps != past.steps:
        found.append(f"simulated over {past.job.algorithm.steps} steps, measured over {past.steps}")
    if own.schedule.consume == past.job.schedule.consume and (taken := consume_told(own, past.job.schedule.arm)):
        found.append(taken)
    if run.config_version:
        found.append(
            "its settings were changed while it ran: the replay has those in force at its end, so that a part of the "
            "model's error is that change"
        )
    return found


def document(found: Compared) -> dict[str, Any]:
    """As `simulate --like --json` has it, in `like`."""
    return asdict(found)
