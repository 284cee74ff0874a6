"""What a reader types into the filters of decisions, and what is told of one decision."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clock import PageClock
from app.decision_filters import Asked, understood
from app.decision_story import around, compared, inputs, life, others, phases, told
from app.modelled import REAL, Pace
from tests.app.fake_lending import make_decision, make_lease

EAST = PageClock(offset_s=3600.0)
BEGAN = 1_700_000_000.0
"""22:13:20 UTC, which is 23:13:20 an hour to the east."""


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        pytest.param("", None, None, id="whole run"),
        # the run began 20 seconds into that minute
        pytest.param("23:13", -20, 40, id="a minute"),
        pytest.param("23:15 – 23:16", 100, 220, id="from a minute to another one, both included"),
        pytest.param("23:15:05-23:15:06", 105, 107, id="seconds"),
        pytest.param("00:10", 3400, 3460, id="after midnight"),
        pytest.param("23:50-00:10", 2200, 3460, id="over midnight"),
        pytest.param("-23:20", None, 460, id="until"),
        pytest.param("23:20-", 400, None, id="from"),
        pytest.param("2023-11-14 23:14:05", 45, 46, id="a date"),
        pytest.param("2023-11-15 23:14 - 2023-11-15 23:15", 86_440, 86_560, id="dates"),
    ],
)
def test_times_are_the_readers_own_and_the_first_ones_of_the_run(
    text: str, low: float | None, high: float | None
) -> None:
    found, problems = understood(Asked(times=text), EAST, BEGAN)
    assert [None if t is None else t - BEGAN for t in found.times] == [low, high]
    assert problems == {}


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", (None, None)),
        ("12", (12, 12)),
        (" 10 - 20 ", (10, 20)),
        ("10–20", (10, 20)),
        ("10-", (10, None)),
        ("-5", (None, 5)),
    ],
)
def test_steps_are_one_or_a_range(text: str, steps: tuple[int | None, int | None]) -> None:
    assert understood(Asked(steps=text), EAST, BEGAN)[0].steps == steps


@pytest.mark.parametrize(
    ("field", "text", "says"),
    [
        ("times", "25:00", "must be times such as"),
        ("times", "23:15 23:16", "must be times such as"),
        ("times", "-", "must be times such as"),
        ("times", "2023-02-30 10:00", "must be times such as"),
        ("times", "2023-11-15 10:00-2023-11-14 10:00", "must not run backwards"),
        ("steps", "20-10", "must not run backwards"),
        ("steps", "1 2", "must be steps such as"),
        ("steps", "-", "must be steps such as"),
        ("steps", "٣", "must be steps such as"),
        ("lease", "-1", "must be the number of a lease, got '-1'"),
        ("device", "1e3", "must be the number of a device, got '1e3'"),
        ("device", "9" * 13, "must be the number of a device"),
    ],
)
def test_what_cannot_be_read_is_said_and_narrows_nothing(field: str, text: str, says: str) -> None:
    found, problems = understood(Asked(**{field: text}, action="lend"), EAST, BEGAN)
    assert problems[field].startswith(says)
    assert found == understood(Asked(action="lend"), EAST, BEGAN)[0]


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_no_text_breaks_a_filter(device: str, steps: str, times: str, lease: str, text: str) -> None:
    asked = Asked(device=device, steps=steps, times=times, lease=lease, text=text)
    understood(asked, EAST, BEGAN)
    understood(asked, EAST, None)


def test_a_grant_is_told_with_what_it_was_expected_to_do_and_did() -> None:
    decision = make_decision(action="lend", lease=3, gain_s=1.25, cost_s=0.4, at=3661.0, step=9)
    lease = make_lease(lease=3, devices=[4, 5], measured_gain_s=-0.5)
    assert told(decision, lease, REAL, PageClock()) == (
        "At 01:01:01, while step 9 was being filled, devices 4–5 were lent as lease 3: trainer's devices generate. "
        "It was expected to win 1.25 s and to cost 0.40 s. "
        "The devices were home again after 1.0 s, and had delivered 3.5 groups, 4,200 tokens. "
        # 0.25 + 0.125, to the nearest even hundredth
        "Switching cost 0.38 s. Costs deducted, it lost 0.50 s."
    )


@pytest.mark.parametrize(
    ("decision", "lease", "says"),
    [
        ({"block": None}, None, "lending was refused (trainer's devices generate, no block in particular)."),
        ({"gain_s": None, "cost_s": None}, None, "Nothing was predicted."),
        ({"gain_s": None}, None, "It would have won – and cost 0.40 s."),
        ({"action": "lend", "lease": 1}, {"state": "working"}, "The lease is working and has delivered 3.5 groups"),
        ({"action": "lend", "lease": 1}, {"measured_gain_s": None}, "What it won cannot be told."),
        ({"action": "revoke", "lease": 1}, {}, "lease 1 of device 1 was revoked"),
        ({"action": "lend", "lease": 1}, None, "block 1 was lent as lease 1"),
    ],
    ids=["no block", "no prediction", "half a prediction", "at work", "not measured", "revoked", "not stored yet"],
)
def test_what_is_not_known_is_said_and_never_made_up(
    decision: dict[str, Any], lease: dict[str, Any] | None, says: str
) -> None:
    found = None if lease is None else make_lease(**lease)
    assert says in told(make_decision(**decision), found, REAL, PageClock())


def test_predicted_and_measured_stand_side_by_side() -> None:
    lease = make_lease(gain_s=1.0, cost_s=0.25, in_s=0.5, out_s=0.25, measured_gain_s=-0.25, regret_s=0.25)
    rows = compared(lease, make_decision(action="lend", lease=1))
    # it won 0.5 s before 0.75 s of switching
    assert [(row.predicted, row.measured, row.bad) for row in rows] == [
        ("1.00 s", "0.50 s", False),
        ("0.25 s", "0.75 s", False),
        ("0.75 s", "−0.25 s", True),
        ("", "0.25 s", False),
    ]
    refused = compared(None, make_decision())
    assert [row.measured for row in refused] == ["–"] * 4


def test_inputs_have_words_and_seconds_of_emulated_devices_are_modelled() -> None:
    decision = make_decision(
        inputs={"version": 1200, "start_cap": None, "group_s": 0.0123456, "odd_one": "text", "held": True}
    )
    assert [(what, value) for _, what, value in inputs(decision, Pace(scale=0.02))] == [
        ("version of the weights that the step is trained at", "1,200"),
        ("groups that staleness allows to be started by now", "–"),
        ("time for a group on a fully loaded rollout replica", "0.6173 s, modelled"),
        ("odd one", "text"),
        ("held", "True"),
    ]


def test_the_life_of_a_lease_tells_only_what_has_come() -> None:
    lease = make_lease(granted_at=10.0, working_at=10.5, ready_at=None, ended_at=None, released_at=None)
    assert life(lease, PageClock(), REAL) == [
        ("granted", "00:00:10", ""),
        ("first useful work", "00:00:10", "+0.50 s"),
    ]
    # a phase may take less than a hundredth of a second
    spent = make_lease(phases={"in_fetch": 0.1, "out_ship": 0.00025, "strange": 0.3})
    assert phases(spent, Pace(scale=0.1)) == [
        ("in", "fetching weights", "1 s"),
        ("out", "shipping what it had", "0.0025 s"),
        ("", "strange", "3 s"),
    ]


def test_the_timeline_around_a_decision_holds_its_whole_lease() -> None:
    lease = make_lease(granted_at=100.0, released_at=200.0)
    # three tenths of its hundred seconds on either side
    assert around(make_decision(at=100.0), lease, REAL) == (70.0, 230.0)
    assert around(make_decision(at=50.0), None, REAL) == (40.0, 60.0)
    # a hundred modelled seconds
    assert around(make_decision(at=50.0), None, Pace(scale=0.02)) == (48.0, 52.0)


def test_other_decisions_about_a_lease_are_named_by_what_they_did() -> None:
    grant, end = make_decision(id=1, action="lend"), make_decision(id=2, action="revoke")
    assert others(grant, [end, grant]) == [(2, "its revocation")]
    assert others(end, [end, grant]) == [(1, "its grant")]
