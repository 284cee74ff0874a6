"""The error of the policy's forecasts, told apart from what leases do."""

from __future__ import annotations

import math

import pytest

from engine.run.forecasts import LEAST, Forecasts
from planner.policy import actions as act
from tests.engine.lent import Lent


def refusal(alone_s: float | None) -> act.Refuse:
    return act.Refuse(direction="rollout_on_train", gain_s=0.0, cost_s=2.0, reason="it does not pay", alone_s=alone_s)


def grant(alone_s: float, *, gain_s: float, cost_s: float) -> act.Lend:
    return act.Lend(
        block=2, direction="rollout_on_train", gain_s=gain_s, cost_s=cost_s, reason="it pays", alone_s=alone_s
    )


def step(found: Forecasts, action: act.Lend | act.Refuse, seconds: float, *, lent: bool) -> None:
    found.decided(action, 100.0)
    found.step_closes(100.0 + seconds, lent=lent)


def test_nothing_is_corrected_before_a_few_forecasts_were_made() -> None:
    found = Forecasts()
    for _ in range(LEAST - 1):
        step(found, refusal(10.0), 15.0, lent=False)
    assert found.error == 1.0
    step(found, refusal(10.0), 15.0, lent=False)
    assert found.error == pytest.approx(1.5)


def test_forecasts_of_steps_in_which_something_was_lent_count_only_where_there_are_no_others() -> None:
    found = Forecasts()
    for _ in range(LEAST):
        # without it 20 s, with it 20 - (8 - 2) = 14 s; it took 28
        step(found, grant(20.0, gain_s=8.0, cost_s=2.0), 28.0, lent=True)
    assert found.error == pytest.approx(2.0)
    for _ in range(LEAST):
        step(found, refusal(10.0), 11.0, lent=False)
        step(found, refusal(10.0), 30.0, lent=True)  # a lease went on: no example of a step without one
    assert found.error == pytest.approx(1.1)


@pytest.mark.parametrize("alone_s", [None, math.inf, 0.0])
def test_what_foretells_no_end_does_not_count(alone_s: float | None) -> None:
    found = Forecasts()
    for _ in range(LEAST):
        step(found, refusal(alone_s), 15.0, lent=False)
    assert found.error == 1.0


def test_a_lease_is_not_charged_for_a_model_that_is_too_hopeful() -> None:
    lent = Lent()
    for number in range(LEAST):
        lent.lending.refuse(refusal(10.0), 100.0 * number)
        lent.lending.step_closes(100.0 * number + 15.0)  # every forecast is too short by half
    lent.grant(2, 1000.0, alone_s=20.0)
    lent.ready(2, 1000.5, 1000.75)
    lent.work(2, 1001.0)
    lent.end(2, 1010.0)
    lent.release(2, 1010.0, 1011.0)
    lent.lending.step_closes(1025.0)
    assert lent.rows[-1].measured_gain_s == pytest.approx(1.5 * 20.0 - 25.0)
