"""From what is typed after `bidirl control RUN` to the command: of the run itself only its present job is looked at."""

from __future__ import annotations

from typing import Any

from engine.cli.client import BadInput
from engine.config import (
    CHANGES,
    Job,
    JobError,
    Refused,
    change_of,
    changed,
    parse_job,
    parse_setting,
    with_settings,
)
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import RunRow
from storage.words import TERMINAL

ACTIONS = ("set", "undo", "pause", "resume", "checkpoint", "stop")


def parse_action(action: str, settings: list[str], *, drain: bool = False) -> tuple[str, dict[str, Any]]:
    """The command's kind and payload. Raises BadInput for what no run understands."""
    if action not in ACTIONS:
        raise BadInput(f"action must be one of {', '.join(ACTIONS)}, got {action!r}")
    if drain and action != "stop":
        raise BadInput(f"--drain belongs to stop, got {action!r}")
    if action != "set":
        if settings:
            raise BadInput(f"{action} takes no setting, got {settings[0]!r}")
        return action, {"mode": "drain"} if drain else {}
    if not settings:
        raise BadInput("set needs KEY=VALUE, such as staleness=0.5 or partition=12:4")
    kinds: dict[str, str] = {}
    payload: dict[str, Any] = {}
    for setting in settings:
        try:
            name, value = parse_setting(setting)
            kinds[name], change = change_of(name, value)
        except JobError as error:
            raise BadInput(f"set: {'; '.join(error.problems.values())}") from None
        except Refused as refusal:
            raise BadInput(f"set: {refusal}") from None
        payload |= change
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise BadInput(f"set: one command changes settings of one kind, got {told}; send one after the other")
    return kinds[next(iter(payload))], payload


def present_job(run: RunRow) -> Job:
    """The run's job as it governs now, with what operators have changed."""
    job = parse_job(run.job, source=run.run_id)
    return job if run.settings is None else with_settings(job, run.settings)


def check_change(data: DataDir, kind: str, payload: dict[str, Any], *, run_id: str) -> None:
    """Raise BadInput for a change that the run's present job cannot take; the engine checks again."""
    with TelemetryReader(data.telemetry_db) as reader:
        run = reader.run(run_id)
    if kind not in CHANGES or run is None or run.state in TERMINAL:
        return
    try:
        changed(present_job(run), kind, payload)
    except Refused as refusal:
        raise BadInput(f"set: {refusal}") from None
