"""From a launch command to the row of a queued run."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import allowed_paths, checkpoints, profiles
from engine.config import (
    Job,
    JobError,
    Partition,
    Refused,
    check_runnable,
    dump_job,
    parse_job,
    settings_of,
    with_settings,
)
from engine.config.differences import shown
from engine.learning.vllm.check import check_rollouter, model_folder
from engine.models.check import check_model
from engine.models.memory import available_bytes
from engine.models.trials import Question
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.records import RunRow

MOST_COMMANDS = 100_000
"""Applied commands of one run that are looked at: more than anybody sends in its life."""


FIXED = (
    "seed",
    "model.source",
    "model.prompt_template",
    "model.lora",
    "task",
    "eval.items",
    "algorithm.prompts_per_step",
)
"""Places of a job that a checkpoint fixes: the model, the data order and the groups of a step."""

ROWS = ("task.source", "task.params", "task.held_out", "task.prompt_field", "task.answer_field", "eval.items")
"""Settings that say which rows are trained on and which are held out."""

COUNTED = ("task.items", "task.sha256")
"""What a launch fills in of them: to name it beside one of those settings would say the same twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A job that can be run on this machine."""

    job: Job
    base_dir: Path
    """Folder that relative paths of the job start from."""
    parent_run_id: str | None
    """Run whose newest checkpoint it continues from."""
    start_step: int
    """Version of that checkpoint."""
    comparison: Mapping[str, Any] | None = None
    """The comparison that it is a part of: id, label, repeat, plan."""


def prepare(
    payload: Mapping[str, Any],
    *,
    data: DataDir,
    cores: int,
    find: Callable[[str | None], RunRow | None],
    verdict: Callable[[Question], str],
    available: Callable[[], int] = available_bytes,
) -> Launch:
    """Check a launch command. Raises ValueError with the reason it cannot be run, and Undecided, from `verdict`, where
    its model folder has to be tried first.

    `payload`: `job` (YAML text; may be left out when resuming), `base_dir`, `resume` (a run id), `settings` (changes of
    the resumed run's job, each `key.path=value`, where there is no `job`), `comparison` (`id`, `label`, `repeat`, and
    the whole `plan`, for a run that is part of one). `verdict`: what a trial of a model folder told; `available`: bytes
    of memory that are free.
    """
    resume = payload.get("resume")
    parent = find(resume) if resume else None
    if resume and parent is None:
        raise ValueError(f"resume: run {resume!r} is not known")
    text = payload.get("job") or (parent.job if parent else None)
    if not isinstance(text, str):
        raise ValueError(f"job must be the text of a job file, got {type(text).__name__}")
    job = parse_job(text)
    if parent is not None and not payload.get("job"):
        job = _with_changes(as_steered(job, data, parent.run_id), payload.get("settings") or [], parent.run_id)
    base_dir = Path(payload.get("base_dir") or (parent.base_dir if parent else None) or data.root).absolute()
    job = checked(job, base_dir=base_dir, data=data, cores=cores, available=available, verdict=verdict)
    if job.emulated:
        job = with_partition(job)
    start_step = 0
    if parent is not None:
        try:
            found = checkpoints.resumable(data.checkpoints(parent.run_id))
        except ValueError as error:
            raise ValueError(f"resume: {error}") from None
        if found is None:
            raise ValueError(f"resume: run {resume!r} has no checkpoint to continue from")
        start_step = found[1].version
        _check_resumable(job, parse_job(parent.job), start_step)
    return Launch(
        job=job,
        base_dir=base_dir,
        parent_run_id=parent.run_id if parent else None,
        start_step=start_step,
        comparison=_comparison(payload),
    )


def checked(
    job: Job,
    *,
    base_dir: Path,
    data: DataDir,
    cores: int,
    available: Callable[[], int],
    verdict: Callable[[Question], str],
    source: str = "job",
) -> Job:
    """The job, completed from its task, when it can be run on a machine with that many cores. Raises JobError that
    begins with `source`; the other parameters are those of `prepare`."""
    check_runnable(job, source=source)
    try:
        job.check_machine(cores)
    except ValueError as error:
        raise JobError({"devices": str(error)}, source=source) from None
    if job.emulated:
        return job
    from engine.learning.tasks import check_task  # a second of imports, at the first launch, not at every start

    roots = allowed_paths.roots(base_dir=base_dir, data_root=data.root)
    check_rollouter(job, folder=model_folder(job, roots), where=source)
    job = check_task(job, roots=roots, source=source)
    check_model(job, roots=roots, available=available, verdict=verdict, where=source)  # last: it may take seconds
    return job


def as_steered(job: Job, data: DataDir, run_id: str) -> Job:
    """The job with what operators had changed when the run ended: what the mailbox says was applied, and nothing that
    was only accepted."""
    with Mailbox(data.control_db) as mailbox:
        applied = sorted(mailbox.list(run_id, state="applied", limit=MOST_COMMANDS), key=lambda command: command.id)
    changes: dict[str, Any] = {}
    for command in applied:
        changes |= (command.result or {}).get("changes", {})
    if not changes:
        return job
    try:
        return with_settings(job, settings_of(job) | changes)
    except Refused as refusal:
        raise JobError({"": f"cannot go on with what was changed while it ran: {refusal}"}, source="resume") from None


def _with_changes(job: Job, settings: Any, run_id: str) -> Job:
    """The job of a run that is resumed with what is set on top. Raises JobError."""
    if not isinstance(settings, list) or not all(isinstance(setting, str) for setting in settings):
        raise ValueError(f"settings must be a list of key.path=value, got {settings!r}")
    return parse_job(dump_job(job), settings, source=f"run {run_id}") if settings else job


def _comparison(payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The part that the run has in a comparison; None for a run of its own."""
    found = payload.get("comparison")
    if found is None:
        return None
    kinds = {"id": str, "label": str, "repeat": int, "plan": dict}
    if not isinstance(found, Mapping) or not all(isinstance(found.get(name), kind) for name, kind in kinds.items()):
        raise ValueError(f"comparison must be a mapping with id, label, repeat and plan, got {found!r}")
    return found


def with_partition(job: Job) -> Job:
    """An emulated job that leaves its partition to the planner, with the planner's choice. Raises JobError without."""
    if job.schedule.arm == "colocated" or isinstance(job.devices.partition, Partition):
        return job
    from engine.config import planning, playing  # the planner's numpy, which only such jobs need

    best = playing.chosen_split(job, planning.plan_job(job))
    partition = Partition(rollout=best.rollout_devices, train=best.train_devices)
    chosen = job.model_copy(update={"devices": job.devices.model_copy(update={"partition": partition})})
    check_runnable(chosen)
    return chosen


def _check_resumable(job: Job, before: Job, start_step: int) -> None:
    """What a checkpoint fixes: the model, the data order and the groups of a step."""
    now, then = job.model_dump(mode="json"), before.model_dump(mode="json")
    changed: dict[str, tuple[Any, Any]] = {}
    for place in FIXED:
        changed |= _changes(place, _at(now, place), _at(then, place))
    if any(place.startswith(ROWS) for place in changed):
        changed = {place: values for place, values in changed.items() if place not in COUNTED}
    if changed:
        told = {
            place: f"cannot change on resume: it was {_told(was)}, now {_told(is_now)}"
            for place, (is_now, was) in changed.items()
        }
        raise JobError(told, source="resume")
    if job.algorithm.steps <= start_step:
        raise JobError(
            {"algorithm.steps": f"must be more than the {start_step} steps that are made, got {job.algorithm.steps}"},
            source="resume",
        )


def _at(document: Mapping[str, Any], place: str) -> Any:
    here: Any = document
    for key in place.split("."):
        here = here[key]
    return here


def _changes(place: str, now: Any, then: Any) -> dict[str, tuple[Any, Any]]:
    """Dotted path -> both values, of the innermost keys that differ."""
    if now == then:
        return {}
    if not (isinstance(now, Mapping) and isinstance(then, Mapping)):
        return {place: (now, then)}
    found: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys((*now, *then)):
        found |= _changes(f"{place}.{key}", now.get(key), then.get(key))
    return found


def _told(value: Any) -> str:
    """A value of a job as a job file has it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_told(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_told, value))}]"
    return shown(value)


def new_run_id(job: Job, now: float) -> str:
    """Readable, unique, safe as a folder name."""
    return f"{job.name}-{time.strftime('%m%d-%H%M%S', time.localtime(now))}-{uuid.uuid4().hex[:4]}"


def columns(launch: Launch) -> dict[str, Any]:
    """The run's row as it enters the queue."""
    job, part = launch.job, launch.comparison
    return {
        "name": job.name,
        "kind": job.devices.kind,
        "time_scale": job.devices.time_scale if job.emulated else None,
        "work_key": profiles.work_key(job),
        "state": "queued",
        "arm": job.schedule.arm,
        "consume": job.schedule.consume_resolved,
        "staleness": job.schedule.staleness_resolved,
        "partition": str(job.partition) if job.partition else None,
        "seed": job.seed,
        "job": dump_job(job),
        "base_dir": str(launch.base_dir),
        "steps_target": job.algorithm.steps,
        "start_step": launch.start_step,
        "steps": 0,
        "parent_run_id": launch.parent_run_id,
        "config_version": 0,
        "comparison": part["id"] if part else None,
        "comparison_label": part["label"] if part else None,
        "comparison_repeat": part["repeat"] if part else None,
        "comparison_plan": part["plan"] if part else None,
    }


def remove_files(folder: Path) -> None:
    """Remove a run's checkpoints, if there are any."""
    if folder.exists():
        shutil.rmtree(folder)
