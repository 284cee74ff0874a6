"""Why a device does nothing: one cause for each that has no work, the first that holds, and none for the others."""

from __future__ import annotations

from typing import Any

import pytest

from planner.policy.idle import CAUSES, idle_causes
from planner.policy.state import State
from storage.words import IDLE_CAUSES
from tests.policy.builders import B, bound, full_step, make_colocated, make_rollout, make_state, make_step, make_train

ROLLOUT, TRAIN = 0, 1


def test_the_policy_and_the_storage_name_the_same_causes_in_the_same_order() -> None:
    assert CAUSES == IDLE_CAUSES


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        pytest.param(make_state(), "no_work", id="it is about to be handed groups"),
        pytest.param(make_state(started=2 * B), "staleness_cap", id="all that s allows is started"),
        pytest.param(make_state(rollout=(make_rollout(version=None),)), "weights_pending", id="no weights yet"),
        pytest.param(make_state(started=2 * B, prompts_left=0), "no_work", id="the run has all it needs"),
        pytest.param(make_state(started=2 * B, steps_left=0), "no_work", id="no step is left"),
        pytest.param(make_state(rollout=(make_rollout(in_flight=1),)), None, id="it generates"),
        pytest.param(make_state(rollout=(make_rollout(loading=True),)), None, id="it loads weights"),
        pytest.param(make_state(started=2 * B, paused=True), "paused", id="paused goes before the cap"),
        pytest.param(make_state(stopping=True), "draining", id="stopping"),
        pytest.param(make_state(paused=True, stopping=True), "paused", id="paused goes before draining"),
    ],
)
def test_a_rollouter_without_groups_has_a_cause(state: State, cause: str | None) -> None:
    assert idle_causes(state).get(ROLLOUT) == cause


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        pytest.param(make_state(), "waiting_for_groups", id="the step is not full"),
        pytest.param(make_state(step=full_step(trained=2)), "step_barrier", id="others still train"),
        pytest.param(make_state(train=(make_train(ready=False),)), "weights_pending", id="not ready"),
        pytest.param(make_state(steps_left=0), "no_work", id="all steps are made"),
        pytest.param(make_state(train=(make_train(busy="chunk", chunks=1),)), None, id="it trains"),
        pytest.param(make_state(train=(make_train(busy="evaluate"),)), None, id="it evaluates"),
        pytest.param(make_state(paused=True), "paused", id="paused"),
        pytest.param(make_state(stopping=True), "draining", id="stopping"),
    ],
)
def test_a_trainer_without_work_has_a_cause(state: State, cause: str | None) -> None:
    assert idle_causes(state).get(TRAIN) == cause


def test_a_failure_goes_before_everything() -> None:
    assert idle_causes(make_state(paused=True), failing=True) == {ROLLOUT: "failure", TRAIN: "failure"}


@pytest.mark.parametrize(
    ("role", "overrides", "cause"),
    [
        pytest.param("rollout", {"rollout": (make_rollout(in_flight=2),)}, None, id="it generates"),
        pytest.param("rollout", {"started": B}, "staleness_cap", id="its share is with the others"),
        pytest.param("train", {"step": full_step()}, "step_barrier", id="it waits for the merge"),
        pytest.param("train", {"step": make_step()}, "waiting_for_groups", id="the others still generate"),
        pytest.param("train", {"train": (make_train(0, busy="optimizer"),)}, None, id="the optimizer works"),
    ],
)
def test_a_colocated_device_has_the_cause_of_the_role_it_is_in(
    role: str, overrides: dict[str, Any], cause: str | None
) -> None:
    state = make_state(
        **(
            {
                "arm": "colocated",
                "bound": bound(0),
                "train": (make_train(0),),
                "colocated": (make_colocated(role=role),),
            }
            | overrides
        )
    )
    assert idle_causes(state) == ({} if cause is None else {0: cause})
