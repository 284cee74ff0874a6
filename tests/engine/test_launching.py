"""From a launch command to a queued run: what is refused and why, and what a resumed run may change."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import checkpoints, launching
from engine.config import check_job, dump_job, parse_job
from engine.run.book import StartPoint
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.records import RunRow
from tests.engine.checkpoint_files import cut, write_files
from tests.tiny_models import tiny_folder

JOB = "name: first\nseed: 3\nalgorithm: {steps: 50, prompts_per_step: 4}\ntask: {items: 500}"


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path / "data")


def make_parent(data: DataDir, *, version: int | None = 20) -> RunRow:
    """A run of JOB, with a checkpoint unless told otherwise."""
    parent = RunRow(run_id="parent", state="stopped", job=dump_job(parse_job(JOB)), base_dir="/jobs/folder")
    if version is not None:
        folder = checkpoints.folder_of(data.checkpoints("parent"), version)
        write_files(folder, version=version)
        checkpoints.complete(folder, StartPoint(version=version, next_index=4 * version))
    return parent


def prepare(data: DataDir, payload: dict[str, Any], *runs: RunRow, cores: int = 2) -> launching.Launch:
    known = {run.run_id: run for run in runs}
    return launching.prepare(
        payload, data=data, cores=cores, find=lambda run_id: known.get(run_id or ""), verdict=lambda question: ""
    )


def test_a_job_becomes_the_row_of_a_queued_run(data: DataDir) -> None:
    launch = prepare(data, {"job": JOB, "base_dir": "/jobs"})
    row = RunRow(run_id="run", **launching.columns(launch))
    assert (row.name, row.kind, row.state, row.arm, row.consume) == (
        "first",
        "cpu",
        "queued",
        "no_borrow",
        "whole_batch",
    )
    assert (row.staleness, row.partition, row.seed, row.steps_target) == (1.0, "1:1", 3, 50)
    assert (row.start_step, row.steps, row.config_version, row.parent_run_id) == (0, 0, 0, None)
    assert (row.base_dir, parse_job(row.job)) == ("/jobs", launch.job)


def test_a_run_of_a_comparison_says_so_in_its_row_and_another_does_not(data: DataDir) -> None:
    part = {"id": "bench-1", "label": "no_borrow:stream", "repeat": 2, "plan": {"repeats": 3}}
    row = RunRow(run_id="run", **launching.columns(prepare(data, {"job": JOB, "comparison": part})))
    assert (row.comparison, row.comparison_label, row.comparison_repeat, row.comparison_plan) == (
        "bench-1",
        "no_borrow:stream",
        2,
        {"repeats": 3},
    )
    alone = RunRow(run_id="run", **launching.columns(prepare(data, {"job": JOB})))
    assert (alone.comparison, alone.comparison_label, alone.comparison_repeat) == (None, None, None)


def test_a_colocated_run_has_no_partition_and_no_staleness(data: DataDir) -> None:
    columns = launching.columns(prepare(data, {"job": "schedule: {arm: colocated, staleness: 2}"}))
    assert (columns["partition"], columns["staleness"]) == (None, 0.0)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        pytest.param({}, "job must be the text of a job file, got NoneType", id="nothing"),
        pytest.param({"job": {"name": "x"}}, "job must be the text of a job file, got dict", id="a mapping"),
        pytest.param({"job": "seed: -1"}, "job: seed: must be a whole number from 0 to 2147483647, got -1", id="value"),
        pytest.param({"job": "a: ["}, "job: line 1, column 5: not YAML", id="no yaml"),
        pytest.param(
            {"job": "devices: {kind: cuda}"},
            "job: devices.kind: device kind 'cuda' does not run yet; available: cpu, emulated",
            id="devices that do not run yet",
        ),
        pytest.param({"job": "devices: {partition: 2:1}"}, "job: devices: the job takes 3 devices", id="machine"),
        pytest.param(
            {"job": JOB, "comparison": {"id": "c"}},
            "comparison must be a mapping with id, label, repeat and plan, got {'id': 'c'}",
            id="half a comparison",
        ),
        pytest.param({"job": JOB, "resume": "gone"}, "resume: run 'gone' is not known", id="unknown parent"),
        pytest.param(
            {"job": "model: {source: /elsewhere/model}"},
            "job: model.source: '/elsewhere/model' is outside the folders a job may read",
            id="a model elsewhere",
        ),
        pytest.param(
            {"job": "model: {source: model}"},
            "job: model.source: 'model' does not exist (looked for",
            id="no such model",
        ),
    ],
)
def test_a_launch_that_cannot_be_run_is_refused_with_the_reason(
    payload: dict[str, Any], told: str, data: DataDir
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        prepare(data, payload)
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


def test_a_model_beside_the_job_file_is_found(data: DataDir, tmp_path: Path) -> None:
    tiny_folder(tmp_path / "jobs" / "model")
    launch = prepare(data, {"job": "model: {source: model}", "base_dir": str(tmp_path / "jobs")})
    assert launch.base_dir == tmp_path / "jobs"


def test_a_launch_counts_the_rows_beside_the_job_file_and_refuses_others_when_it_is_resumed(
    data: DataDir, tmp_path: Path
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    rows = [f'{{"question": "{n}?", "answer": {n}}}\n' for n in range(40)]
    (folder / "rows.jsonl").write_text("".join(rows), encoding="utf-8")
    text = """
model: {warm_start: {steps: 0, worked_only_steps: 0}}
task: {source: "jsonl:rows.jsonl", reward: exact}
eval: {items: 4}
algorithm: {prompts_per_step: 4}
"""
    launch = prepare(data, {"job": text, "base_dir": str(folder)})
    assert launch.job.task.items == 36
    parent = RunRow(run_id="parent", state="stopped", job=dump_job(launch.job), base_dir=str(folder))
    checkpoint = checkpoints.folder_of(data.checkpoints("parent"), 3)
    write_files(checkpoint, version=3)
    checkpoints.complete(checkpoint, StartPoint(version=3, next_index=12))
    assert prepare(data, {"resume": "parent"}, parent).job == launch.job
    assert prepare(data, {"resume": "parent", "job": text}, parent).job.task == launch.job.task
    (folder / "rows.jsonl").write_text("".join(rows[1:]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"^job: task.items: 36 are asked for"):
        prepare(data, {"resume": "parent"}, parent)
    told = r"^resume: task\.items: cannot change on resume: it was 36, now 35; task\.sha256: "
    with pytest.raises(ValueError, match=told):
        prepare(data, {"resume": "parent", "job": text}, parent)


# -- resuming ---------------------------------------------------------------------------------------------------------


def test_a_run_is_resumed_from_its_newest_checkpoint_with_its_own_job_and_folder(data: DataDir) -> None:
    parent = make_parent(data)
    launch = prepare(data, {"resume": "parent"}, parent)
    assert (launch.parent_run_id, launch.start_step) == ("parent", 20)
    assert (launch.job, str(launch.base_dir)) == (parse_job(JOB), "/jobs/folder")
    columns = launching.columns(launch)
    assert (columns["start_step"], columns["parent_run_id"], columns["steps"]) == (20, "parent", 0)


@pytest.mark.parametrize(
    "change",
    [
        "name: second",
        "algorithm: {steps: 90, prompts_per_step: 4, learning_rate: 1e-5}",
        "schedule: {arm: colocated}",
        "schedule: {staleness: 0}",
        "devices: {rollout_slots: 8}",
    ],
)
def test_what_does_not_touch_the_data_or_the_model_may_change(change: str, data: DataDir) -> None:
    job = parse_job(JOB).model_dump(mode="json") | parse_changes(change)
    launch = prepare(data, {"resume": "parent", "job": text_of(job)}, make_parent(data))
    assert launch.start_step == 20


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param("seed: 4", "resume: seed: cannot change on resume: it was 3, now 4", id="seed"),
        pytest.param(
            "task: {items: 501}", "resume: task.items: cannot change on resume: it was 500, now 501", id="data"
        ),
        pytest.param(
            "eval: {items: 7}", "resume: eval.items: cannot change on resume: it was 256, now 7", id="held out"
        ),
        pytest.param(
            "algorithm: {steps: 50, prompts_per_step: 8}",
            "resume: algorithm.prompts_per_step: cannot change on resume: it was 4, now 8",
            id="groups of a step",
        ),
        pytest.param(
            "algorithm: {steps: 20, prompts_per_step: 4}",
            "resume: algorithm.steps: must be more than the 20 steps that are made, got 20",
            id="nothing left to do",
        ),
    ],
)
def test_what_a_checkpoint_fixes_is_refused_by_name(change: str, told: str, data: DataDir) -> None:
    job = parse_job(JOB).model_dump(mode="json") | parse_changes(change)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        prepare(data, {"resume": "parent", "job": text_of(job)}, make_parent(data))
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


def test_a_finished_run_is_extended_by_setting_its_steps(data: DataDir) -> None:
    parent = make_parent(data, version=50)
    steer(data, "staleness", {"staleness": 2.0})
    with pytest.raises(ValueError, match=r"resume: algorithm\.steps: must be more than the 50 steps"):
        prepare(data, {"resume": "parent"}, parent)
    settings = ["algorithm.steps=80", "devices.partition=1:1", "algorithm.learning_rate=1e-5"]
    job = prepare(data, {"resume": "parent", "settings": settings}, parent).job
    assert (job.algorithm.steps, job.algorithm.learning_rate, str(job.devices.partition)) == (80, 1e-5, "1:1")
    assert (job.seed, job.schedule.staleness) == (3, 2.0), "the rest is the run's, with what operators changed"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["seed=4"], "resume: seed: cannot change on resume: it was 3, now 4"),
        (["algorithm.stepz=4"], "run parent: algorithm.stepz: "),
        (["steps"], "--set: must be key.path=value, got 'steps'"),
        ("steps=4", "settings must be a list of key.path=value, got 'steps=4'"),
    ],
    ids=["fixed", "unknown", "no value", "no list"],
)
def test_a_setting_that_a_resumed_run_cannot_take_is_refused(settings: Any, told: str, data: DataDir) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        prepare(data, {"resume": "parent", "settings": settings}, make_parent(data))
    assert str(caught.value).startswith(told)


def test_how_the_model_is_asked_is_fixed_like_the_task(data: DataDir, tmp_path: Path) -> None:
    tiny_folder(tmp_path / "model")
    text = JOB + "\nmodel: {source: model, prompt_template: plain}"
    parent = replace(make_parent(data), job=dump_job(parse_job(text)), base_dir=str(tmp_path))
    assert prepare(data, {"resume": "parent"}, parent).start_step == 20
    changed = text.replace("plain", '"Q: {prompt}"')
    with pytest.raises(ValueError, match=r"^resume: model\.prompt_template: cannot change on resume: it was plain, "):
        prepare(data, {"resume": "parent", "job": changed}, parent)


def test_of_another_task_only_what_differs_is_named_and_not_what_a_launch_counted_of_it(
    data: DataDir, tmp_path: Path
) -> None:
    for name, count in (("rows", 40), ("others", 30)):
        lines = [f'{{"question": "{name} {n}?", "answer": {n}}}\n' for n in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    text = """
model: {warm_start: {steps: 0, worked_only_steps: 0}}
task: {source: "jsonl:rows.jsonl", reward: exact}
eval: {items: 4}
algorithm: {prompts_per_step: 4, steps: 50}
"""
    launched = prepare(data, {"job": text, "base_dir": str(tmp_path)}).job
    parent = replace(make_parent(data), job=dump_job(launched), base_dir=str(tmp_path))
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        prepare(data, {"resume": "parent", "job": text.replace("rows", "others")}, parent)
    told = "cannot change on resume: it was jsonl:rows.jsonl, now jsonl:others.jsonl"
    assert str(caught.value) == f"resume: task.source: {told}"
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        prepare(data, {"resume": "parent", "job": text.replace("exact", "math_verify, shuffle: false")}, parent)
    assert str(caught.value) == (
        "resume: task.reward: cannot change on resume: it was exact, now math_verify; task.shuffle: cannot change on "
        "resume: it was true, now false"
    )


def test_a_run_without_a_checkpoint_cannot_be_resumed(data: DataDir) -> None:
    with pytest.raises(ValueError, match="resume: run 'parent' has no checkpoint to continue from"):
        prepare(data, {"resume": "parent"}, make_parent(data, version=None))


def test_a_damaged_checkpoint_is_named(data: DataDir) -> None:
    parent = make_parent(data)
    (checkpoints.folder_of(data.checkpoints("parent"), 20) / "resume.json").write_text("{")
    with pytest.raises(ValueError, match=r"step-000020/resume\.json is no record to resume from"):
        prepare(data, {"resume": "parent"}, parent)


def test_a_checkpoint_that_was_cut_off_is_told_before_anything_is_queued(data: DataDir) -> None:
    parent = make_parent(data)
    cut(checkpoints.folder_of(data.checkpoints("parent"), 20) / "optimizer.pt")
    with pytest.raises(ValueError, match=r"^resume: .*step-000020 is damaged: optimizer\.pt .* no older one is whole"):
        prepare(data, {"resume": "parent"}, parent)


def parse_changes(text: str) -> dict[str, Any]:
    """The sections that a text names, with the defaults of their other keys."""
    names = [line.split(":")[0] for line in text.splitlines()]
    return {name: value for name, value in parse_job(text).model_dump(mode="json").items() if name in names}


def text_of(document: dict[str, Any]) -> str:
    return dump_job(check_job(document))


# -- names and files --------------------------------------------------------------------------------------------------


def test_run_ids_are_readable_unique_and_safe_as_a_folder_name(data: DataDir) -> None:
    job = parse_job("name: my.job-1")
    ids = {launching.new_run_id(job, 1_700_000_000.0) for _ in range(50)}
    assert len(ids) > 45
    when = time.strftime("%m%d-%H%M%S", time.localtime(1_700_000_000.0))
    assert all(run_id.startswith(f"my.job-1-{when}-") for run_id in ids)
    assert all(data.checkpoints(run_id).parent == data.root / "checkpoints" for run_id in ids)


def test_removing_files_that_are_not_there_does_nothing(tmp_path: Path) -> None:
    launching.remove_files(tmp_path / "missing")
    (tmp_path / "run" / "step-000001").mkdir(parents=True)
    launching.remove_files(tmp_path / "run")
    assert not (tmp_path / "run").exists()


# -- what operators had changed ---------------------------------------------------------------------------------------


def steer(data: DataDir, kind: str, payload: dict[str, Any], state: str = "applied") -> None:
    """A command as the engine leaves it."""
    with Mailbox(data.control_db) as mailbox:
        command = mailbox.send(kind, payload, "parent", who="ann")
        mailbox.accept(command)
        if state == "applied":
            mailbox.apply(command, "done", result={"changes": payload, "settings": {}})
        elif state == "rejected":
            mailbox.reject(command, "The engine ended before this took effect.")


def test_a_resumed_run_goes_on_with_what_was_applied_and_not_with_what_was_only_accepted(data: DataDir) -> None:
    parent = make_parent(data)
    steer(data, "staleness", {"staleness": 2.0})
    steer(data, "policy", {"arm": "opportunistic", "lend_cap": 1})
    steer(data, "staleness", {"staleness": 0.5})
    steer(data, "staleness", {"staleness": 3.0}, state="rejected")
    job = prepare(data, {"resume": "parent"}, parent).job
    assert (job.schedule.staleness, job.schedule.arm, job.schedule.borrow.lend_cap) == (0.5, "opportunistic", 1)


def test_a_job_that_is_named_beside_a_resume_is_taken_as_it_is(data: DataDir) -> None:
    parent = make_parent(data)
    steer(data, "staleness", {"staleness": 2.0})
    assert prepare(data, {"resume": "parent", "job": JOB}, parent).job.schedule.staleness == 1.0
