"""What the Plan page remembers: the job that is planned, as text, and where it came from; and a job for Launch.

Nothing of it is sent anywhere: a plan becomes a run only through the Launch page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256

import streamlit as st

from app import job_form, session
from app.job_text import JobText
from app.launch_state import keep_plan
from app.presets import EMPTY, Source, preset, preset_names
from app.run_job import job_of
from engine.config import settings_of
from engine.config.steering import PLACES
from storage.records import RunRow

TIMES, PICKER, TIMES_PICKER = "_plan_times", "plan_job_picker", "plan_times_picker"

FIRST_PRESET = "emulated_16"
"""Where there is no run: the preset with a profile, so that there is something to plan."""

FIELDS = (
    "devices.count",
    "schedule.arm",
    "schedule.staleness",
    "algorithm.prompts_per_step",
    "devices.rollout_replica_size",
    "devices.train_replica_size",
)
"""Paths beside the editor: what a plan is asked for."""


JOB = JobText(page="plan", fields=FIELDS, widgets="plan")
"""The job that is planned."""


def own_run() -> str | None:
    """The run whose job it is, None for another source."""
    kind, _, name = JOB.source().key.partition(":")
    return name if kind == "run" else None


def prepare(runs: Sequence[RunRow]) -> None:
    """Load what the URL names; without a wish what was planned last, else the run looked at last, else a preset."""
    wanted = _asked(runs)
    if not JOB.show(wanted):
        load(wanted or _first(runs))


def load(wanted: Source) -> None:
    """Plan another job."""
    st.session_state[TIMES] = None
    st.session_state.pop(TIMES_PICKER, None)
    JOB.load(wanted)


def field_changed(path: str) -> None:
    """A field changed the text; another number of devices leaves their split to the planner,
    and an arm without pools has none."""
    typed = JOB.set_from_field(path)
    if typed is not None and (path == "devices.count" or (path == "schedule.arm" and typed == "colocated")):
        JOB.set_path("devices.partition", "")


def picked(runs: Sequence[RunRow]) -> None:
    """A job was picked from the list, which goes into the URL."""
    kind, _, name = str(st.session_state[PICKER] or "").partition(":")
    found = preset(name) if kind == "preset" else _of_run(runs, name)
    if found is None:
        return
    st.query_params.clear()
    if kind == "preset":
        st.query_params["preset"] = name
    else:
        session.look_at(name)
    load(found)


def times_picked() -> None:
    """A source of stage times was picked."""
    st.session_state[TIMES] = st.session_state[TIMES_PICKER]


def options(runs: Sequence[RunRow]) -> list[str]:
    """Keys of the jobs to plan: the presets, then the runs, newest first."""
    return [*(f"preset:{name}" for name in preset_names()), *(f"run:{run.run_id}" for run in runs)]


def launched(base: str, base_dir: str | None, settings: Mapping[str, str], *, name: str) -> str:
    """Keep a job for the Launch page and return its name there. settings: path -> value as typed, "" for the default.

    Raises JobError for a text that is no mapping.
    """
    text = base
    for path, typed in settings.items():
        text = job_form.set_field(text, path, typed)
    key = f"{name} {sha256(text.encode()).hexdigest()[:4]}"
    keep_plan(key, text, base_dir)
    return key


def settings_for(*, partition: str | None, staleness: float, arm: str, devices: int) -> dict[str, str]:
    """What makes a job that of a point of the plan; without pools there is neither partition nor staleness."""
    return {
        "schedule.arm": arm,
        "schedule.staleness": "" if partition is None else f"{staleness:g}",
        "devices.count": str(devices),
        "devices.partition": partition or "",
    }


def _asked(runs: Sequence[RunRow]) -> Source | None:
    """What the URL asks for; None when it asks for nothing that is there."""
    if named := st.query_params.get("preset"):
        return preset(named)
    named = session.run_in_url()
    return _of_run(runs, named) if named else None


def _first(runs: Sequence[RunRow]) -> Source:
    run = session.choose_run(runs, None)
    found = _of_run(runs, run.run_id) if run is not None else preset(FIRST_PRESET)
    return found or Source(key="empty:", text=EMPTY, base_dir=None)


def _of_run(runs: Sequence[RunRow], run_id: str) -> Source | None:
    run = next((run for run in runs if run.run_id == run_id), None)
    return None if run is None else Source(key=f"run:{run_id}", text=governed(run), base_dir=run.base_dir)


def governed(run: RunRow) -> str:
    """The run's job with what operators changed, as it is in force now or was at the run's end: what is planned on. As
    it was stored where it cannot be read."""
    job = job_of(run.job)
    if run.settings is None or job is None:
        return run.job
    began, text = settings_of(job), run.job
    for name, value in run.settings.items():
        if name in PLACES and value != began[name]:
            text = job_form.set_field(text, ".".join(PLACES[name]), json.dumps(value))
    return text
