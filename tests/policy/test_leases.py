"""The life of a lease: what may follow what, and that everything else is refused with what would be allowed."""

from __future__ import annotations

import pickle
import re
from itertools import pairwise
from typing import Any

import pytest

from planner.policy.leases import TRANSITIONS, Lease, LeaseState, advance

GRANTED, PREPARING, WORKING, DRAINING, RELEASING, RELEASED = LeaseState


def make_lease(state: LeaseState = GRANTED, **overrides: Any) -> Lease:
    fields: dict[str, Any] = {
        "lease_id": 7,
        "direction": "rollout_on_train",
        "block": (2, 3),
        "granted_at": 10.0,
        "expected_end": None,
        "gain_s": 8.0,
        "cost_s": 7.0,
        "reason": "the gain of 8.00 s exceeds the switch cost of 7.00 s",
    }
    return Lease(state=state, **(fields | overrides))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param((GRANTED, PREPARING, WORKING, DRAINING, RELEASING, RELEASED), id="an ordinary life"),
        pytest.param((GRANTED, DRAINING, RELEASING, RELEASED), id="revoked when granted"),
        pytest.param((GRANTED, RELEASING, RELEASED), id="revoked at once when granted"),
        pytest.param((GRANTED, PREPARING, DRAINING, RELEASING, RELEASED), id="revoked while preparing"),
        pytest.param((GRANTED, PREPARING, RELEASING, RELEASED), id="revoked at once while preparing"),
        pytest.param((GRANTED, PREPARING, WORKING, RELEASING, RELEASED), id="revoked at once while working"),
        pytest.param((GRANTED, RELEASED), id="dead when granted"),
        pytest.param((GRANTED, PREPARING, RELEASED), id="dead while preparing"),
        pytest.param((GRANTED, PREPARING, WORKING, RELEASED), id="dead while working"),
        pytest.param((GRANTED, PREPARING, WORKING, DRAINING, RELEASED), id="dead while draining"),
    ],
)
def test_a_lease_lives_like_this(path: tuple[LeaseState, ...]) -> None:
    lease = make_lease()
    for state in path[1:]:
        lease = advance(lease, state)
    assert lease == make_lease(RELEASED)


@pytest.mark.parametrize("state", LeaseState)
def test_whatever_may_not_follow_is_refused_with_both_states_and_what_may(state: LeaseState) -> None:
    for following in LeaseState:
        if following in TRANSITIONS[state]:
            assert advance(make_lease(state), following).state is following
            continue
        allowed = ", ".join(TRANSITIONS[state])
        what = f"only {allowed} may follow" if allowed else "nothing follows it"
        message = f"lease 7 cannot go from {state} to {following}: {what}"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            advance(make_lease(state), following)


def test_no_lease_goes_back() -> None:
    order = list(LeaseState)
    assert all(order.index(later) > order.index(state) for state, all_ in TRANSITIONS.items() for later in all_)
    assert all(later in TRANSITIONS[state] for state, later in pairwise(order))


def test_a_device_can_die_in_every_state_but_the_last() -> None:
    assert [state for state in LeaseState if RELEASED in TRANSITIONS[state]] == list(LeaseState)[:-1]


def test_advancing_leaves_the_earlier_lease_as_it_was_and_a_lease_survives_pickling() -> None:
    lease = make_lease()
    assert advance(lease, PREPARING).reason == lease.reason
    assert lease.state is GRANTED
    assert pickle.loads(pickle.dumps(lease)) == lease


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"direction": "both"}, "direction must be one of rollout_on_train, train_on_rollout, got 'both'"),
        ({"block": ()}, r"block must be one or more different devices, got \(\)"),
        ({"block": (2, 2)}, r"block must be one or more different devices, got \(2, 2\)"),
    ],
    ids=["direction", "no device", "a device twice"],
)
def test_a_lease_that_cannot_be_is_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_lease(**overrides)
