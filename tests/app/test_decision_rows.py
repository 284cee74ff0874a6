"""Rows of the Decisions table: what they say, where a lease's outcome stands, and that a reason is never markup."""

from __future__ import annotations

from typing import Any

import pytest

from app.clock import PageClock
from app.decision_rows import DecisionLine, decision_lines, nothing_decided, seconds, summaries
from app.decisions_view import table
from app.lending import Lending, delivered, device_list, measured_cost_s
from storage.records import DecisionRow, LeaseOutcome, LeaseRow
from storage.words import DIRECTIONS
from tests.app.fake_lending import make_decision, make_lease

NOTHING = LeaseOutcome(in_out_median_s=None, judged=0, paid_off=0, lost=0)


def make_lending(*decisions: DecisionRow, leases: tuple[LeaseRow, ...] = (), **fields: Any) -> Lending:
    values: dict[str, Any] = {
        "decisions": list(decisions),
        "leases": {lease.lease: lease for lease in leases},
        "marked": [],
        "counts": {d: {"admitted": 0, "refused": 0, "delivered": 0} for d in DIRECTIONS},
        "outcomes": dict.fromkeys(DIRECTIONS, NOTHING),
        "summed_at": 0.0,
    }
    return Lending(**{**values, **fields})


def lines_of(*decisions: DecisionRow, leases: tuple[LeaseRow, ...] = ()) -> list[DecisionLine]:
    return decision_lines(make_lending(*decisions, leases=leases), PageClock())


def test_a_grant_shows_what_was_predicted_beside_what_was_measured() -> None:
    lease = make_lease(devices=[4, 5], grad_s=0.1, direction="train_on_rollout", chunks=2, tokens=12_800)
    grant = make_decision(
        action="lend", lease=1, gain_s=1.25, cost_s=0.4, direction="train_on_rollout", at=3661.0, step=9
    )
    assert lines_of(grant, leases=(lease,)) == [
        DecisionLine(
            action="lend",
            time="01:01:01",
            step="9",
            what="lent · 1",
            direction="rollouter's devices train",
            devices="4–5",
            gain="1.25",
            cost="0.40",
            state="released",
            delivered="2 chunks, 12.8 k tokens",
            # 0.25 + 0.125 + 0.1, to the nearest even hundredth of a float
            measured_cost="0.47",
            cost_parts="in 0.25 s + out 0.12 s + gradient 0.10 s",
            measured_gain="0.50",
            regret="0.00",
            reason="It would cost more than it wins.",
        )
    ]


def test_a_refusal_names_its_block_and_has_no_outcome() -> None:
    (line,) = lines_of(make_decision(block=3))
    assert (line.what, line.devices, line.gain, line.cost) == ("refused", "block 3", "0.25", "0.40")
    assert (line.state, line.delivered, line.measured_cost, line.measured_gain, line.regret) == ("",) * 5


@pytest.mark.parametrize(
    ("actions", "with_outcome"),
    [
        pytest.param(("end", "lend"), (False, True), id="beside the grant"),
        pytest.param(("end",), (True,), id="beside the end when the grant is not listed"),
        pytest.param(("end", "revoke"), (True, False), id="once"),
    ],
)
def test_an_outcome_stands_once(actions: tuple[str, ...], with_outcome: tuple[bool, ...]) -> None:
    decisions = [make_decision(action=action, lease=1) for action in actions]
    lines = lines_of(*decisions, leases=(make_lease(),))
    assert tuple(bool(line.state) for line in lines) == with_outcome


def test_a_lease_that_lost_time_says_so_and_how_it_ended() -> None:
    lease = make_lease(measured_gain_s=-1.5, ended_by="run_ended")
    (line,) = lines_of(make_decision(action="lend", lease=1), leases=(lease,))
    assert (line.measured_gain, line.lost_time, line.state) == ("−1.50", True, "released, run ended")
    assert 'class="n bad">−1.50<' in table([line])


def test_a_lease_that_is_not_stored_yet_is_still_a_row() -> None:
    (line,) = lines_of(make_decision(action="lend", lease=7, block=2))
    assert (line.what, line.devices, line.state) == ("lent · 7", "block 2", "")


@pytest.mark.parametrize(
    ("lease", "says"),
    [
        ({"groups": 3.4567, "tokens": 900}, "3.46 groups, 900 tokens"),
        ({"groups": 1.0, "tokens": 90}, "1 group, 90 tokens"),
        ({"direction": "train_on_rollout", "chunks": 1, "tokens": 90}, "1 chunk, 90 tokens"),
        ({"groups": 0.0, "tokens": 0}, "nothing"),
        ({"groups": 0.0, "tokens": 0, "state": "working"}, "nothing yet"),
    ],
)
def test_what_a_lease_delivered(lease: dict[str, Any], says: str) -> None:
    assert delivered(make_lease(**lease)) == says


def test_a_cost_is_known_when_both_switches_are() -> None:
    assert measured_cost_s(make_lease(in_s=0.5, out_s=None)) is None
    assert measured_cost_s(make_lease(in_s=0.5, out_s=0.25)) == 0.75
    assert measured_cost_s(make_lease(in_s=0.5, out_s=0.25, grad_s=0.25)) == 1.0


@pytest.mark.parametrize(
    ("devices", "says"), [([], ""), ([3], "3"), ([2, 0, 1], "0–2"), ([1, 4, 5], "1, 4–5"), ([0, 2], "0, 2")]
)
def test_devices_are_told_in_ranges(devices: list[int], says: str) -> None:
    assert device_list(devices) == says


@pytest.mark.parametrize(
    ("value", "says"), [(None, "–"), (0.0, "0.00"), (-0.5, "−0.50"), (12.34, "12.3"), (1234.5, "1,234")]
)
def test_seconds_keep_about_three_figures(value: float | None, says: str) -> None:
    assert seconds(value) == says


def test_a_reason_of_any_length_is_shown_as_it_is() -> None:
    reason = 'Because <b>a & b</b> "hold". ' * 60
    (line,) = lines_of(make_decision(reason=reason))
    shown = table([line])
    assert line.reason == reason
    assert "<b>" not in shown
    assert shown.count("&lt;b&gt;a &amp; b&lt;/b&gt; &quot;hold&quot;") == 2 * 60, "as text, and on pointing at it"


def test_the_line_above_tells_of_directions_that_have_something_to_tell() -> None:
    out, back = DIRECTIONS
    counts = {
        out: {"admitted": 1200, "refused": 34, "delivered": 11},
        back: {"admitted": 0, "refused": 0, "delivered": 0},
    }
    outcomes = {out: LeaseOutcome(in_out_median_s=1.4, judged=9, paid_off=6, lost=3), back: NOTHING}
    lending = make_lending(counts=counts, outcomes=outcomes)
    told = (
        "**trainer's devices generate** · 1,200 admitted · 34 refused · 11 delivered · median C\\_in + C\\_out 1.4 s · "
        "6 of 9 measured paid off (67%)"
    )
    assert summaries(lending, {}) == [told]
    guarded = summaries(lending, {back: "Off [now]"})
    assert guarded[0] == told
    assert guarded[1].endswith(":orange[:material/shield: Off \\[now\\]]")
    assert summaries(make_lending(), {}) == []


@pytest.mark.parametrize(
    ("lends", "live", "says"),
    [
        (False, True, "Arm no\\_borrow lends nothing"),
        (True, True, "Nothing decided yet."),
        (True, False, "Nothing was decided in this run."),
    ],
)
def test_an_empty_table_says_why(lends: bool, live: bool, says: str) -> None:
    assert nothing_decided("no_borrow", lends=lends, live=live).startswith(says)
