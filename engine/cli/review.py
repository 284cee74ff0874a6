"""What a change of a running job is expected to do, on the command line: as the Control page says before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.cli.changes import present_job
from engine.cli.client import BadInput, known_run
from engine.config import CHANGES, Job, Refused, changed, parse_job, settings_of, written
from engine.config.whatif import predicted, undone
from planner.whatif import Band, Prediction
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import Command, RunRow

CAUSES_SHOWN = 4
"""The rest of the causes is less than what the model tells apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A change and its prediction."""

    run_id: str
    before: dict[str, Any]
    after: dict[str, Any]
    config_version: int
    """The run's configuration that it was made for: what --expect-version takes."""
    prediction: Prediction
    modelled: bool
    """Figures are those of the devices that emulated ones stand for."""


def review(data: DataDir, run_id: str, kind: str, payload: dict[str, Any]) -> Review:
    """Ask the simulator. Raises BadInput for a run that is not known and a change that it cannot take."""
    if kind not in (*CHANGES, "undo"):
        raise BadInput(f"--review says what a change of the settings would do; {kind} changes none")
    with TelemetryReader(data.telemetry_db) as reader:
        run = known_run(reader, run_id)
        with Mailbox(data.control_db) as mailbox:
            commands = mailbox.list(run_id, limit=10_000)
        job = present_job(run)
        wanted = _wanted(run, job, commands, kind, payload)
        prediction = predicted(reader, run, job, wanted, commands)
    return Review(
        run_id=run_id,
        before=settings_of(job),
        after=settings_of(wanted),
        config_version=run.config_version or 0,
        prediction=prediction,
        modelled=job.emulated,
    )


def _wanted(run: RunRow, job: Job, commands: Sequence[Command], kind: str, payload: dict[str, Any]) -> Job:
    if kind == "undo":
        taken = undone(settings_of(parse_job(run.job, source=run.run_id)), commands)
        if taken is None:
            raise BadInput("undo: nothing was changed since this run began: there is nothing to undo")
        kind, payload = taken
    try:
        return changed(job, kind, payload)
    except Refused as refusal:
        raise BadInput(f"set: {refusal}") from None


def document(found: Review) -> dict[str, Any]:
    """As JSON."""
    return {
        "run_id": found.run_id,
        "before": found.before,
        "after": found.after,
        "config_version": found.config_version,
        "modelled": found.modelled,
        **asdict(found.prediction),
    }


def text(found: Review) -> str:
    """For people."""
    changes = [
        f"{name} {written(found.before[name])} -> {written(value)}"
        for name, value in found.after.items()
        if found.before[name] != value
    ]
    lines = [f"{', '.join(changes)}; nothing is sent (configuration version {found.config_version})"]
    prediction = found.prediction
    if prediction.why_not is not None:
        return "\n".join([*lines, f"no prediction: {prediction.why_not}"])
    now, unit = prediction.now, " modelled" if found.modelled else ""
    assert now is not None
    assert now.tokens_per_s is not None
    lines.append(f"{unit.strip() or 'measured'} now   {now.tokens_per_s:,.0f} tokens/s over {now.steps} steps")
    lines.append(
        f"expected       {_band(prediction.tokens_per_s, ',.0f')} tokens/s, {_band(prediction.ratio, '.3f')} of now"
    )
    causes = ", ".join(f"{cause} {share:.1%}" for cause, share in list(prediction.idle.items())[:CAUSES_SHOWN])
    lines.append(
        f"idle           {sum(now.idle.values()):.1%} now, {_band(prediction.idle_total, '.1%')} expected "
        f"({causes or 'none'})"
    )
    if now.lag is not None:
        lines.append(f"mean lag       {now.lag:.2f} now, {_band(prediction.lag_band, '.2f')} expected")
    lines.append(f"model error    {prediction.model_error:+.1%} on this run, part of the band")
    return "\n".join(lines)


def _band(band: Band | None, form: str) -> str:
    assert band is not None
    return f"{band.middle:{form}} [{band.low:{form}}, {band.high:{form}}]"
