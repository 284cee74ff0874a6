"""`profile` of a job: its defaults are the planner's, its numbers arrive there unchanged, its mistakes are one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.config import apply_settings, check_job, parse_job, to_profile
from engine.config.errors import JobError
from engine.config.profile import from_profile
from planner.profile import Models
from planner.stage_model import StageModel
from tests.engine.test_config_runnable import PROFILE
from tests.planner.profiles import BASE

DOCUMENT: dict[str, Any] = parse_job(PROFILE).model_dump(mode="json", exclude_unset=True)


def told(*settings: str) -> str:
    with pytest.raises(JobError) as caught:
        check_job(apply_settings(DOCUMENT, list(settings)))
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_the_profile_of_the_contract_becomes_the_planners_with_its_defaults() -> None:
    config = check_job(DOCUMENT).profile
    assert config is not None
    assert to_profile(config) == BASE


def test_every_number_that_is_given_arrives_in_the_planners_profile() -> None:
    settings = [
        "profile.rollout.start_tokens=40",
        "profile.response_tokens={median: 500, max: 999, sigma_group: 0.1, sigma_response: 0.2, drift: 0.3}",
        "profile.response_tokens.linear_drift=-0.4",
        "profile.noise=0",
        "profile.models={rollout: {a: 1, b: 2}, train: {a: 3, b: 4}}",
    ]
    config = check_job(apply_settings(DOCUMENT, settings)).profile
    assert config is not None
    profile = to_profile(config)
    assert profile.rollout.start_tokens == 40
    lengths = profile.response_tokens
    assert (lengths.median, lengths.max, lengths.sigma_group, lengths.sigma_response) == (500, 999, 0.1, 0.2)
    assert (lengths.drift, lengths.linear_drift, profile.noise) == (0.3, -0.4, 0)
    assert profile.models == Models(rollout=StageModel(a=1, b=2), train=StageModel(a=3, b=4))


def test_a_measured_profile_becomes_a_jobs_and_the_same_again() -> None:
    speed = replace(BASE.rollout, start_tokens=12.5)
    models = Models(rollout=StageModel(a=1, b=2), train=StageModel(a=3, b=4))
    for profile in (BASE, replace(BASE, rollout=speed, models=models)):
        assert to_profile(from_profile(profile)) == profile
        assert check_job({"profile": from_profile(profile).model_dump(mode="json")}).profile == from_profile(profile)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        pytest.param("optimizer_s=null", "optimizer_s: must be a number from 0 to 1000000, got null", id="no number"),
        pytest.param("optimizer_s=-1", "optimizer_s: must be a number from 0 to 1000000, got -1", id="negative"),
        pytest.param("optimizer_s=true", "optimizer_s: must be a number from 0 to 1000000, got true", id="true"),
        pytest.param(
            "weight_sync_s=1e7",
            "weight_sync_s: must be a number from 0 to 1000000, got 10000000.0",
            id="long",
        ),
        pytest.param(
            "rollout.tokens_per_s=0",
            "rollout.tokens_per_s: must be a number from 0.1 to 1000000000, got 0",
            id="no speed",
        ),
        pytest.param("rollout.slot=3", "rollout.slot: unknown key 'slot'; did you mean 'slots'?", id="unknown"),
        pytest.param(
            "switch.rollout_on_train.grad_s=1",
            "switch.rollout_on_train.grad_s: unknown key 'grad_s'; known keys: in_s, out_s",
            id="a rollouter merges no gradients",
        ),
        pytest.param(
            "switch.train_on_rollout={in_s: 1, out_s: 1}",
            "switch.train_on_rollout.grad_s: is required: a number from 0 to 1000000",
            id="a cost is never assumed",
        ),
        pytest.param(
            "response_tokens.median=3000",
            "response_tokens: median 3000 is more than max 2048, where lengths are cut",
            id="median above the cut",
        ),
        pytest.param(
            "response_tokens.sigma_group=45",
            "response_tokens.sigma_group: must be a number from 0 to 3, got 45",
            id="percent",
        ),
        pytest.param(
            "models={rollout: {a: 0, b: 0}, train: {a: 0, b: 1}}",
            "models.rollout: a and b are both 0, so a step would take no time; allowed: one of them above 0",
            id="no time",
        ),
        pytest.param(
            "models.rollout={a: 0, b: 1}", "models.train: is required: a mapping of keys (a, b)", id="one model"
        ),
    ],
)
def test_a_mistake_in_a_profile_is_named_with_its_place(setting: str, line: str) -> None:
    assert told(f"profile.{setting}") == f"job: profile.{line}"


def test_a_profile_says_all_that_it_lacks() -> None:
    with pytest.raises(JobError) as caught:
        check_job({"profile": {"noise": 0}})
    assert list(caught.value.problems) == [
        f"profile.{name}"
        for name in ("rollout", "train", "optimizer_s", "weight_sync_s", "switch", "response_tokens", "prompt_tokens")
    ]


def test_slots_that_hold_no_group_are_named_with_the_group_size() -> None:
    assert told("profile.rollout.slots=7") == (
        "job: profile.rollout.slots 7 cannot hold one group of algorithm.group_size 8; allowed: at least as many"
    )
