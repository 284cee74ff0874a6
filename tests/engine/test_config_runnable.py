"""Valid jobs that this version cannot run live: refused by name, where a job would run, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import ARMS, JobError, check_runnable, load_job, parse_job

JOBS = sorted((Path(__file__).resolve().parents[2] / "jobs").glob("*.yaml"))

PROFILE = """
profile:
  rollout: {slots: 64, tokens_per_s: 1250, half_batch: 24, resume_tokens: 25}
  train: {tokens_per_s: 2800, chunk_s: 0.6, max_chunk_groups: 8}
  optimizer_s: 2
  weight_sync_s: 3
  switch: {rollout_on_train: {in_s: 7.7, out_s: 5.59}, train_on_rollout: {in_s: 6.16, out_s: 5.62, grad_s: 1.21}}
  response_tokens: {median: 700, max: 2048}
  prompt_tokens: 400
"""


def emulated(devices: str, *, arm: str = "bidirectional", schedule: str = "") -> str:
    """A job with a profile on emulated devices."""
    return f"{PROFILE}\ndevices: {{kind: emulated, {devices}}}\nschedule: {{arm: {arm}{schedule}}}"


def refused(text: str) -> str:
    """The one line that says why a valid job is not run."""
    job = parse_job(text)
    with pytest.raises(JobError) as caught:
        check_runnable(job)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_runs_live(arm: str) -> None:
    check_runnable(parse_job(f"schedule: {{arm: {arm}}}"))


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_runs_on_emulated_devices(arm: str) -> None:
    check_runnable(parse_job(emulated("count: 16, train_replica_size: 4", arm=arm)))


def test_pools_that_lend_nothing_need_no_whole_blocks() -> None:
    check_runnable(parse_job(emulated("partition: 3:8, train_replica_size: 4", arm="no_borrow")))


def test_a_profile_is_what_a_live_run_starts_from() -> None:
    check_runnable(parse_job(PROFILE))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            "devices: {kind: cuda}",
            "devices.kind: device kind 'cuda' does not run yet; available: cpu, emulated",
            id="cuda",
        ),
        pytest.param(
            "devices: {kind: emulated, count: 16}",
            "profile: is needed: emulated devices obey its speeds and costs, as in jobs/emulated_16.yaml",
            id="emulated without speeds",
        ),
        pytest.param(
            emulated("count: auto"),
            "devices.count: must be a number for emulated devices, such as 16: auto means cores; got 'auto'",
            id="no number of emulated devices",
        ),
        pytest.param(
            emulated("partition: 3:8, train_replica_size: 4"),
            "devices.partition: its 3 rollout devices are not whole blocks of 4, to be lent; got '3:8'",
            id="blocks that cannot be lent",
        ),
        pytest.param(
            emulated("partition: 3:6, train_replica_size: 4", arm="no_borrow"),
            "devices.partition: its 6 train devices are not whole replicas of 4; got '3:6'",
            id="half a replica",
        ),
        pytest.param(
            emulated("count: 10, train_replica_size: 4", arm="colocated"),
            "devices.count: must be a multiple of the train replica size 4, got 10",
            id="half a unit without pools",
        ),
        pytest.param(
            emulated("count: 12, train_replica_size: 4, rollout_replica_size: 3", arm="colocated"),
            "devices.train_replica_size: must be a multiple of the rollout replica size 3 for arm colocated, got 4",
            id="replicas that fit no unit",
        ),
        pytest.param(
            emulated("count: 8", schedule=", deterministic: true"),
            "schedule.deterministic: true has no meaning for emulated devices, which learn nothing",
            id="deterministic",
        ),
        pytest.param(
            "devices: {train_replica_size: 4}",
            "devices.train_replica_size: must be 1 where one core is one replica, got 4",
            id="replicas",
        ),
        pytest.param(
            "schedule: {improvements: {keep_lease: true, block_leases: false}}",
            "schedule.improvements: improvements belong to the arms bidirectional, rollout_on_train, train_on_rollout, "
            "the arm is no_borrow; got keep_lease, block_leases",
            id="improvements",
        ),
        pytest.param(
            "task: {source: 'jsonl:sums.jsonl', reward: exact}",
            "model.source: builtin:tiny is warmed up with worked answers, of which task.source 'jsonl:sums.jsonl' has "
            "none; allowed: the folder of a model, or model.warm_start {steps: 0, worked_only_steps: 0}: random "
            "weights",
            id="the built-in model on a file",
        ),
    ],
)
def test_what_does_not_run_yet_is_named_with_its_place_and_what_is_allowed(text: str, line: str) -> None:
    assert refused(text) == f"job: {line}"


def test_everything_that_keeps_a_job_from_running_is_named_at_once() -> None:
    with pytest.raises(JobError) as caught:
        check_runnable(
            parse_job("schedule: {improvements: {keep_lease: true}}\ndevices: {kind: cuda}"), source="file.yaml"
        )
    assert list(caught.value.problems) == ["schedule.improvements", "devices.kind"]
    assert str(caught.value).startswith("file.yaml: ")


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_a_job_that_ships_runs_live_or_says_in_its_own_words_that_it_does_not(path: Path) -> None:
    try:
        check_runnable(load_job(path))
    except JobError:
        assert "does not run live yet" in path.read_text(encoding="utf-8")
