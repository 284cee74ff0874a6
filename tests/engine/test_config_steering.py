"""What may be changed on a running job, and what is said where it may not."""

from __future__ import annotations

from typing import Any

import pytest

from engine.config import CHANGES, Refused, change_of, changed, check_job, setting_names, settings_of, with_settings

JOB = check_job(
    {"devices": {"partition": "2:2"}, "schedule": {"arm": "bidirectional", "improvements": {"keep_lease": False}}}
)

EMULATED = {"kind": "emulated", "partition": "8:8", "train_replica_size": 4}


def test_every_setting_belongs_to_one_command() -> None:
    assert sorted(name for names in CHANGES.values() for name in names) == sorted(setting_names())
    assert set(settings_of(JOB)) == set(setting_names())


@pytest.mark.parametrize(
    ("name", "value", "kind", "kept"),
    [
        pytest.param("staleness", 2, "staleness", 2.0, id="a whole number"),
        pytest.param("partition", "3:1", "partition", "3:1", id="a split"),
        pytest.param("partition", " 3 : 1", "partition", "3:1", id="with blanks"),
        pytest.param("arm", "no_borrow", "policy", "no_borrow", id="an arm"),
        pytest.param("rollout_on_train", False, "policy", False, id="a direction"),
        pytest.param("lend_cap", None, "policy", None, id="no cap"),
        pytest.param("min_lease_s", 3, "policy", 3.0, id="seconds"),
    ],
)
def test_a_setting_says_its_command_and_its_form(name: str, value: Any, kind: str, kept: Any) -> None:
    assert change_of(name, value) == (kind, {name: kept})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("stalenes", 1, "unknown setting 'stalenes'; did you mean 'staleness'?"),
        ("staleness", True, "staleness must be a number from 0 to 16, got True"),
        ("partition", 4, "partition must be ROLLOUT:TRAIN, such as 12:4, got 4"),
        ("partition", "4", "partition must be ROLLOUT:TRAIN, such as 12:4, got '4'"),
        ("partition", "²:1", "partition must be ROLLOUT:TRAIN, such as 12:4, got '²:1'"),
        ("arm", "colocated", "arm must be one of no_borrow,"),
        ("lend_cap", 1.5, "lend_cap must be a number of devices from 0, or null for no cap, got 1.5"),
        ("min_lease_s", -1, "min_lease_s must be seconds from 0 to 3600, got -1"),
        ("train_on_rollout", "yes", "train_on_rollout must be true or false, got 'yes'"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: Any, told: str) -> None:
    with pytest.raises(Refused) as refused:
        change_of(name, value)
    assert str(refused.value).startswith(told)


def test_a_change_makes_another_job_and_leaves_the_rest() -> None:
    made = changed(JOB, "policy", {"arm": "no_borrow", "lend_cap": 1})
    assert settings_of(made) == settings_of(JOB) | {"arm": "no_borrow", "lend_cap": 1}
    assert made.schedule.improvements == JOB.schedule.improvements, "they are there again when the arm is"
    back = changed(made, "policy", {"arm": "bidirectional", "lend_cap": None})
    assert back == JOB.model_copy(update={"devices": back.devices})


@pytest.mark.parametrize(
    ("kind", "payload", "told"),
    [
        ("partition", {"partition": "3:2"}, "needs 5 devices"),
        ("partition", {"partition": "4:0"}, "must be a whole number of at least 1"),
        ("partition", {"partition": "2:2"}, "partition is 2:2 already"),
        ("policy", {"lend_cap": None}, "lend_cap is null already"),
        ("policy", {"staleness": 1}, "a policy command sets arm"),
        ("staleness", {}, "it is empty"),
    ],
)
def test_a_change_that_cannot_be_made_says_why(kind: str, payload: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused) as refused:
        changed(JOB, kind, payload)
    assert told in str(refused.value)


def test_an_arm_that_lends_needs_whole_blocks_in_both_pools() -> None:
    profile = {
        "rollout": {"slots": 64, "tokens_per_s": 1250, "half_batch": 24, "resume_tokens": 25},
        "train": {"tokens_per_s": 2800, "chunk_s": 0.6, "max_chunk_groups": 8},
        "optimizer_s": 2.0,
        "weight_sync_s": 3.0,
        "switch": {
            "rollout_on_train": {"in_s": 1, "out_s": 1},
            "train_on_rollout": {"in_s": 1, "out_s": 1, "grad_s": 1},
        },
        "response_tokens": {"median": 700, "max": 2048},
        "prompt_tokens": 400,
    }
    job = check_job({"devices": EMULATED | {"partition": "6:8"}, "schedule": {"arm": "no_borrow"}, "profile": profile})
    with pytest.raises(Refused, match="its 6 rollout devices are not whole blocks of 4, to be lent"):
        changed(job, "policy", {"arm": "bidirectional"})
    assert settings_of(changed(job, "partition", {"partition": "2:12"}))["partition"] == "2:12"


def test_stale_samples_without_a_correction_are_refused_on_a_running_job_too() -> None:
    job = check_job({"schedule": {"staleness": 0}, "algorithm": {"correction": "none"}})
    with pytest.raises(Refused, match="trains on stale samples as if they were fresh"):
        changed(job, "staleness", {"staleness": 1})


def test_a_colocated_run_has_nothing_to_change() -> None:
    job = check_job({"schedule": {"arm": "colocated"}})
    for kind, payload in (
        ("staleness", {"staleness": 1}),
        ("partition", {"partition": "1:1"}),
        ("policy", {"lend_cap": 1}),
    ):
        with pytest.raises(Refused, match="a colocated run has no pools"):
            changed(job, kind, payload)


def test_a_run_that_goes_on_begins_with_all_of_the_settings() -> None:
    settings = settings_of(JOB) | {"partition": "1:3", "staleness": 0.5, "min_lease_s": 2.0}
    assert settings_of(with_settings(JOB, settings)) == settings
