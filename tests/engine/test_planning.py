"""A job's plan: the contract's fields, the planner's reasons, and what cannot be planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.config import Job, JobError, load_job, planning, to_profile
from engine.config.planning import Known, plan_job
from planner.partitions import plan_profile
from planner.profile_models import models_of

SIMULATED = Path(__file__).resolve().parents[2] / "jobs" / "emulated_16.yaml"

CANDIDATE = {
    "rollout_devices",
    "train_devices",
    "rollout_replicas",
    "train_replicas",
    "rate_rollout",
    "rate_train",
    "rate",
    "step_s",
    "feasible",
    "reason",
}
"""Fields of a split, as the contract names them."""


def make_job(*settings: str) -> Job:
    """The shipped job with some values set."""
    return load_job(SIMULATED, ["algorithm.prompts_per_step=64", "algorithm.steps=14", *settings])


def document(*settings: str) -> dict[str, Any]:
    """The plan as JSON gives it."""
    job = make_job(*settings)
    made: dict[str, Any] = json.loads(json.dumps(planning.document(job, plan_job(job)), allow_nan=False))
    return made


def test_the_document_has_the_fields_of_the_contract() -> None:
    made = document()
    assert {"best", "best_borrowing", "candidates", "models", "source"} <= set(made)
    assert all(set(each) >= CANDIDATE for each in made["candidates"])
    assert {stage: set(model) for stage, model in made["models"].items()} == {
        "rollout": {"a", "b"},
        "train": {"a", "b"},
    }
    assert (made["source"], len(made["candidates"])) == ("profile", 15)


def test_the_splits_are_the_planners_ranked_with_their_reasons() -> None:
    made, job = document(), make_job()
    assert job.profile is not None
    profile = to_profile(job.profile)
    plan = plan_profile(profile, devices=16, layouts=[(1, 4)], prompts_per_step=64, group_size=8, staleness=1.0)
    models = models_of(profile, 64, 8)
    assert [each["rate"] for each in made["candidates"]] == [each.rate for each in plan.candidates]
    assert made["models"]["train"] == {"a": models.train.a, "b": models.train.b}
    assert [(each["rollout_devices"], each["train_devices"]) for each in made["candidates"][:3]] == [
        (8, 8),
        (4, 12),
        (12, 4),
    ]
    best = made["best"]
    assert best == made["candidates"][0]
    # lambda_t = B / (a + b * B / d_t), and the step takes B / min(lambda_r, lambda_t)
    assert best["rate_train"] == pytest.approx(64 / (models.train.a + models.train.b * 64 / 2), rel=1e-12)
    assert best["step_s"] == pytest.approx(64 / min(best["rate_rollout"], best["rate_train"]), rel=1e-12)
    infeasible = made["candidates"][3:]
    assert all(not each["feasible"] and each["rate"] is None for each in infeasible)
    assert infeasible[0]["reason"] == "15 trainer devices are not a multiple of the trainer replica size 4"


def test_a_partition_of_the_job_does_not_limit_the_plan() -> None:
    assert document("devices.partition=5:11") == document() == document("devices.partition=auto")


def test_a_job_without_a_profile_is_planned_by_one_that_was_measured_and_says_so() -> None:
    known = Known(profile=plan_job(make_job()).known.profile, source="calibration of run c-1")
    planned = plan_job(make_job("profile=null"), measured=known)
    assert planning.document(make_job(), planned) == {**document(), "source": "calibration of run c-1"}
    assert plan_job(make_job(), measured=known).known.source == "profile", "the job's own goes before it"


def test_given_stage_models_are_used_and_named_as_the_source() -> None:
    made = document("profile.models={rollout: {a: 1, b: 2}, train: {a: 3, b: 4}}")
    assert made["source"] == "models given"
    assert made["models"] == {"rollout": {"a": 1, "b": 2}, "train": {"a": 3, "b": 4}}
    # 64 / (1 + 2 * 64 / 8) on 8 rollouters
    eight = next(each for each in made["candidates"] if each["rollout_devices"] == 8)
    assert eight["rate_rollout"] == pytest.approx(64 / 17, rel=1e-12)


def test_an_arm_that_lends_nothing_needs_no_pool_that_hosts_the_other_role() -> None:
    uneven = ("devices.count=18", "devices.partition=auto")
    lending = document(*uneven)
    assert lending["best"] is None
    assert lending["best_borrowing"] is None
    assert all(each["reason"] for each in lending["candidates"])
    alone = document(*uneven, "schedule.arm=no_borrow")
    # 12 trainer devices and 6 rollout devices that no trainer replica of 4 fills
    assert (6, 12) in [
        (each["rollout_devices"], each["train_devices"]) for each in alone["candidates"] if each["feasible"]
    ]
    assert alone["best_borrowing"] is None


def test_the_frontier_rises_in_rate_with_staleness() -> None:
    points = document("schedule.staleness=0.25", "schedule.consume=whole_batch")["frontier"]
    assert [point["staleness"] for point in points] == sorted({point["staleness"] for point in points})
    assert [point["rate"] for point in points] == sorted(point["rate"] for point in points)
    assert 0.25 in [point["staleness"] for point in points]


def test_what_the_job_should_know_is_a_note() -> None:
    notes = document("schedule.staleness=0.01")["notes"]
    assert notes[0].startswith("staleness 0.01 lets no group of a step of 64 be older")
    assert notes[1] == "steps are those of both pools at work all the time, without optimizer step and weight sync"
    assert notes[2].startswith("at staleness 0.01 the pools wait for each other and steps take longer")
    assert notes[3].startswith("with borrowing, 4:12, 12:4 come within 3% of the best: a tie here")


def test_many_devices_are_planned_and_too_many_refused() -> None:
    assert len(document("devices.count=2048", "devices.partition=auto")["candidates"]) == 2047
    with pytest.raises(JobError, match=r"^job: devices.count: must be at most 16384 to plan or simulate, got 16388$"):
        plan_job(make_job("devices.count=16388", "devices.partition=auto"))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        pytest.param(
            ["profile=null"],
            "profile: is needed to plan or simulate: add the speeds and costs rollout, train, optimizer_s, "
            "weight_sync_s, switch, response_tokens and prompt_tokens, as in jobs/emulated_16.yaml, or measure them "
            "with: bidirl calibrate JOB.yaml",
            id="no profile",
        ),
        pytest.param(
            ["schedule.arm=colocated", "devices.partition=auto"],
            "schedule.arm: arm 'colocated' has no pools, so there is no split to plan; allowed: no_borrow, "
            "rollout_on_train, train_on_rollout, opportunistic, bidirectional_paper, bidirectional",
            id="no pools",
        ),
        pytest.param(
            ["devices.count=auto", "devices.partition=auto"],
            "devices.count: must be a number to plan or simulate, such as 16: auto means this machine's cores; got "
            "'auto'",
            id="no number of devices",
        ),
    ],
)
def test_a_job_that_cannot_be_planned_is_refused_with_what_to_change(settings: list[str], line: str) -> None:
    with pytest.raises(JobError) as caught:
        plan_job(make_job(*settings), source="file.yaml")
    assert str(caught.value) == f"file.yaml: {line}"


def test_a_partition_says_the_number_of_devices_where_the_count_is_automatic() -> None:
    assert plan_job(make_job("devices.count=auto", "devices.partition=24:8")).devices == 32
