"""What a change of a running job is expected to do, on the command line: as the Control page says before it is sent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.cli.client import BadInput, present_job
from engine.config import CHANGES, Refused, changed, settings_of
from engine.config.whatif import lately_of, recent, work_of
from planner.whatif import Band, Prediction, predict
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader

CAUSES_SHOWN = 4
"""The rest of the causes is less than what the model tells apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A change and its prediction."""

    run_id: str
    before: dict[str, Any]
    after: dict[str, Any]
    prediction: Prediction
    modelled: bool
    """Figures are those of the devices that emulated ones stand for."""


def review(data: DataDir, run_id: str, kind: str, payload: dict[str, Any]) -> Review:
    """Ask the simulator. Raises BadInput for a run that is not known and a change that it cannot take."""
    if kind not in CHANGES:
        raise BadInput(f"--review says what a change of the settings would do; {kind} changes none")
    with TelemetryReader(data.telemetry_db) as reader:
        run = reader.run(run_id)
        if run is None:
            raise BadInput(f"RUN: {run_id!r} is not known")
        steps = reader.steps(run_id)
        with Mailbox(data.control_db) as mailbox:
            commands = mailbox.list(run_id, limit=10_000)
        last = recent(steps, commands)
        seconds = reader.kind_seconds(run_id, last[0].began_at, last[-1].ended_at) if last else {}
    job = present_job(run)
    try:
        wanted = changed(job, kind, payload)
    except Refused as refusal:
        raise BadInput(f"set: {refusal}") from None
    before, after = settings_of(job), settings_of(wanted)
    now = lately_of(last, seconds, scale=(run.time_scale or 1.0) if job.emulated else 1.0)
    return Review(
        run_id=run_id,
        before=before,
        after=after,
        prediction=predict(work_of(job, run.profile), before, after, now),
        modelled=job.emulated,
    )


def document(found: Review) -> dict[str, Any]:
    """As JSON."""
    return {
        "run_id": found.run_id,
        "before": found.before,
        "after": found.after,
        "modelled": found.modelled,
        **asdict(found.prediction),
    }


def text(found: Review) -> str:
    """For people."""
    changes = [
        f"{name} {found.before[name]} -> {value}" for name, value in found.after.items() if found.before[name] != value
    ]
    lines = [f"{', '.join(changes)}; nothing is sent"]
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
    idle = sum(prediction.idle.values())
    causes = ", ".join(f"{cause} {share:.1%}" for cause, share in list(prediction.idle.items())[:CAUSES_SHOWN])
    lines.append(f"idle           {sum(now.idle.values()):.1%} now, {idle:.1%} expected ({causes or 'none'})")
    if now.lag is not None and prediction.lag is not None:
        lines.append(f"mean lag       {now.lag:.2f} now, {prediction.lag:.2f} expected")
    lines.append(f"model error    {prediction.model_error:+.1%} on this run, part of the band")
    return "\n".join(lines)


def _band(band: Band | None, form: str) -> str:
    assert band is not None
    return f"{band.middle:{form}} [{band.low:{form}}, {band.high:{form}}]"
