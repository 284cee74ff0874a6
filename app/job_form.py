"""The Launch form as data: its fields, and how a field reads and changes the text of a job file. Pure.

The text is the truth and the form a view of it; comments and order of a file survive an edit. What is allowed is said
by `engine.config` alone.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from app.job_fields import FIELDS, SECTIONS, Section
from app.modelled import LEARNS_NOTHING, Pace
from engine.config import Job, JobError, check_runnable, parse_job, parse_setting
from engine.config.job import KINDS_AVAILABLE
from planner.policy.bound import Bound, lag_limit


def kind_of(document: dict[str, Any]) -> str:
    """The kind of device that a document asks for."""
    return field_text(document, "devices.kind") or default_text("devices.kind")


def sections(kind: str) -> list[Section]:
    """What to ask for devices of this kind; of a kind that is not known, everything."""
    known = kind in KINDS_AVAILABLE
    found = [
        Section(
            title=section.title, fields=tuple(f for f in section.fields if not known or not f.kinds or kind in f.kinds)
        )
        for section in SECTIONS
    ]
    return [section for section in found if section.fields]


def _yaml() -> YAML:
    # the round-trip reader keeps comments, order and the way numbers were written; it reads YAML 1.2 like the engine
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 120
    yaml.preserve_quotes = True
    return yaml


def read_document(text: str) -> dict[str, Any] | None:
    """The text as a mapping that remembers its comments; None when it is not a mapping in YAML."""
    try:
        document = _yaml().load(text)
    except (YAMLError, ValueError):
        return None
    if document is None:
        return {}
    return document if isinstance(document, dict) else None


def field_text(document: dict[str, Any], path: str) -> str:
    """A field's value as one would type it; "" where the document leaves it to its default."""
    here: Any = document
    for part in path.split("."):
        if not isinstance(here, dict) or part not in here:
            return ""
        here = here[part]
    return scalar_text(here)


def scalar_text(value: Any) -> str:
    """A value on one line, as in a job file."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return str(value)
    yaml = _yaml()
    yaml.default_flow_style = True
    stream = io.StringIO()
    yaml.dump(value, stream)
    return " ".join(stream.getvalue().removesuffix("...\n").split())


def default_text(path: str) -> str:
    """What a job uses where its file says nothing."""
    return field_text(DEFAULTS, path)


DEFAULTS: dict[str, Any] = Job().model_dump(mode="json")


def set_field(text: str, path: str, typed: str) -> str:
    """The text with one field changed; "" leaves it to its default again.

    Raises JobError (problem at `path`) when what was typed is not YAML, and when the text is none.
    """
    document = read_document(text)
    if document is None:
        raise JobError({"": "the YAML beside this form must be mended first"}, source="form")
    if not isinstance(document, dict) or not text.strip():
        document = _yaml().map()
    *parents, last = path.split(".")
    if not typed.strip():
        return _without(document, parents, last)
    try:
        value = parse_setting(f"{path}={typed}")[1]
    except JobError as error:
        raise JobError({path: next(iter(error.problems.values()))}, source="form") from None
    here = document
    for part in parents:
        if not isinstance(here.get(part), dict):
            here[part] = _yaml().map()
        here = here[part]
    here[last] = value
    return _dumped(document)


def _without(document: dict[str, Any], parents: list[str], last: str) -> str:
    here: Any = document
    for part in parents:
        here = here.get(part) if isinstance(here, dict) else None
    if isinstance(here, dict):
        here.pop(last, None)
    return _dumped(document)


def _dumped(document: dict[str, Any]) -> str:
    stream = io.StringIO()
    _yaml().dump(document, stream)
    return stream.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the validator says about a text."""

    job: Job | None
    """The job, None when there are problems."""
    problems: dict[str, str]
    """Path -> sentence; "" for the job as a whole."""

    def beside(self, path: str) -> str:
        """What to write beside a field: its own problem, one inside it, or one of the whole job that names it."""
        own = [s for p, s in self.problems.items() if p == path or p.startswith(f"{path}.")]
        if own:
            return own[0]
        whole = self.problems.get("", "")
        return whole if whole and first_path(whole) == path else ""

    def elsewhere(self) -> dict[str, str]:
        """Problems that no field shows."""
        return {
            path: sentence
            for path, sentence in self.problems.items()
            if not any(path == field or path.startswith(f"{field}.") for field in FIELDS)
        }


def first_path(sentence: str) -> str:
    """The field of the form that a sentence names first, "" if none."""
    found = [(at, path) for path in FIELDS if (at := sentence.find(path)) >= 0]
    return min(found, key=lambda item: (item[0], -len(item[1])))[1] if found else ""


def check(text: str, *, cores: int | None) -> Checked:
    """Validate a text as the engine will, on a machine with so many cores (None: not known)."""
    try:
        job = parse_job(text)
        check_runnable(job)
    except JobError as error:
        return Checked(job=None, problems=error.problems)
    if cores is not None:
        try:
            job.check_machine(cores)
        except ValueError as error:
            return Checked(job=None, problems={"devices.count": str(error)})
    return Checked(job=job, problems={})


def plan_sentences(job: Job) -> list[str]:
    """What a job will do, in figures that follow from it alone."""
    algorithm, sampling = job.algorithm, job.sampling
    pools = job.partition
    where = f"RollPool {pools.rollout}, TrainPool {pools.train}" if pools else "no pools, each device does both"
    if job.emulated and pools and job.devices.partition == "auto":
        where = "pools as the planner finds best"
    bound = Bound(staleness=job.schedule.staleness_resolved, prompts_per_step=algorithm.prompts_per_step)
    versions = f"{lag_limit(bound)} version{'' if lag_limit(bound) == 1 else 's'}"
    late = (
        f"Staleness {bound.staleness:g}: at most {versions} late, {bound.start_allowance} groups may be started ahead."
    )
    if bound.staleness == 0:
        late = "Staleness 0: strictly on-policy, nothing is started ahead."
    if bound.staleness > 0 and not bound.start_allowance:
        late = f"Staleness {bound.staleness:g} with B={algorithm.prompts_per_step} lets no group start ahead: as if 0."
    consume = job.schedule.consume_resolved.replace("_", " ")
    shape = f"{where}; arm {job.schedule.arm}, {consume}."
    work = f"{algorithm.steps} steps of {algorithm.prompts_per_step} prompts x {algorithm.group_size} responses."
    if job.emulated:
        return [f"{job.device_count} EMULATED devices: {shape}", work, late, *_emulated_sentences(job)]
    judge = job.task.named_judge
    right = f", the share of answers that {judge} gives 1 or more," if judge else ""
    evals = f"every {job.eval.every_steps} steps" if job.eval.every_steps else "before and after"
    return [
        f"{job.device_count} {job.devices.kind} devices: {shape}",
        work,
        _scoring_sentence(job),
        f"At most {sampling.max_response_tokens} new tokens each, {job.devices.rollout_slots} sequences at once.",
        late,
        f"Held-out accuracy{right} on {job.eval.items} items {evals}." if job.eval.items else "No held-out evaluation.",
        f"Checkpoints every {job.checkpoint.every_steps} steps and at the end."
        if job.checkpoint.every_steps
        else "One checkpoint, at the end.",
    ]


def _scoring_sentence(job: Job) -> str:
    """How answers become rewards, and what is made of those."""
    by = " + ".join(r.name if r.weight == 1 else f"{r.weight:g} x {r.name}" for r in job.task.scored_by)
    replaced = "; groups without signal are replaced" if job.algorithm.dynamic_sampling else ""
    return f"Scored by {by}, learnt from by {job.algorithm.loss}{replaced}."


def _emulated_sentences(job: Job) -> list[str]:
    """What is special about emulated devices; their speeds are the profile's."""
    devices, pace = job.devices, Pace(scale=job.devices.time_scale)
    sizes = f"Replicas of {devices.rollout_replica_size} (rollout) and {devices.train_replica_size} (train) devices"
    told = [f"{sizes}, {job.slots} sequences at once in one of rollout."]
    if job.profile is not None:
        lengths = job.profile.response_tokens
        told.append(
            f"Responses of {lengths.median:g} tokens in the median, {lengths.max} at most; times of its profile."
        )
    return [*told, f"{pace.second}: {pace.speed}. {LEARNS_NOTHING}"]
