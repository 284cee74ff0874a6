"""Whether the gates were right, drawn: the diagonal, regret that only grows, and a share over the last leases."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clock import PageClock
from app.decision_charts import over_time_chart, predicted_chart
from app.decision_numbers import direction_numbers, directions
from app.figures.decisions import (
    MAX_LINE_POINTS,
    MAX_POINTS,
    SHARE_LEASES,
    drawn,
    predicted_and_measured,
    regret_so_far,
    share_paid_off,
    share_width,
    thinned,
)
from app.modelled import EMULATED, REAL, Pace
from storage.records import LeaseOutcome, LeaseVerdict
from storage.words import DIRECTIONS

OUT, BACK = DIRECTIONS


def make_verdict(**overrides: Any) -> LeaseVerdict:
    values: dict[str, Any] = {
        "lease": 1, "direction": OUT, "granted_at": 0.0, "gain_s": 1.0, "cost_s": 0.25, "measured_gain_s": 0.5,
    }  # fmt: skip
    values |= overrides
    return LeaseVerdict(**{"regret_s": max(0.0, -values["measured_gain_s"]), **values})


gains = st.lists(st.tuples(st.sampled_from(DIRECTIONS), st.floats(-5, 5)), max_size=60)


@given(gains)
def test_regret_only_grows_and_ends_at_the_sum_of_what_was_lost(found: list[tuple[str, float]]) -> None:
    verdicts = [
        make_verdict(lease=n, direction=d, granted_at=float(n), measured_gain_s=g) for n, (d, g) in enumerate(found)
    ]
    for direction in DIRECTIONS:
        values = [value for _, value in regret_so_far(verdicts, direction)]
        assert values == sorted(values)
        lost = math.fsum(max(0.0, -g) for d, g in found if d == direction)
        assert (values[-1] if values else 0.0) == pytest.approx(lost)


@given(gains)
def test_a_share_is_that_of_the_last_leases_of_its_direction(found: list[tuple[str, float]]) -> None:
    verdicts = [
        make_verdict(lease=n, direction=d, granted_at=float(n), measured_gain_s=g) for n, (d, g) in enumerate(found)
    ]
    for direction in DIRECTIONS:
        won = [g > 0 for d, g in found if d == direction]
        expected = [
            sum(some) / len(some) for n in range(len(won)) if (some := won[max(0, n + 1 - SHARE_LEASES) : n + 1])
        ]
        assert [share for _, share in share_paid_off(verdicts, direction)] == pytest.approx(expected)


def test_a_long_runs_share_is_over_a_fortieth_of_it() -> None:
    assert share_width([make_verdict()] * 100) == SHARE_LEASES
    assert share_width([make_verdict()] * 8000) == 200


@given(st.integers(0, 3 * MAX_LINE_POINTS))
def test_a_thinned_line_keeps_its_ends_exact(length: int) -> None:
    points = [(float(n), float(n * n)) for n in range(length)]
    kept = thinned(points)
    assert len(kept) <= MAX_LINE_POINTS + 1
    assert kept[:1] + kept[-1:] == points[:1] + points[-1:]
    assert set(kept) <= set(points)


def test_the_diagonal_spans_what_is_drawn_and_a_lease_without_a_prediction_is_not_drawn() -> None:
    verdicts = [
        make_verdict(lease=1, gain_s=2.0, cost_s=1.0, measured_gain_s=-3.0),
        make_verdict(lease=2, direction=BACK, gain_s=None),
        make_verdict(lease=3, direction=BACK, measured_gain_s=4.0),
    ]
    figure = json.loads(predicted_and_measured(verdicts).to_json())
    diagonal, out, back = figure["data"]
    assert diagonal["x"] == diagonal["y"] == figure["layout"]["xaxis"]["range"] == figure["layout"]["yaxis"]["range"]
    assert diagonal["x"][0] < -3.0
    assert diagonal["x"][1] > 4.0
    assert (out["x"], out["y"], out["customdata"]) == ([1.0], [-3.0], [1])
    assert (back["x"], back["y"], back["customdata"]) == ([0.75], [4.0], [3])
    assert out["marker"]["symbol"] != back["marker"]["symbol"], "not by colour alone"


def test_the_newest_leases_are_drawn_and_what_is_left_out_is_said() -> None:
    verdicts = [make_verdict(lease=n) for n in range(MAX_POINTS + 5)]
    assert [v.lease for v in drawn(verdicts)][:1] == [5]
    assert "the newest 600 of 605 measured leases" in predicted_chart(verdicts, 0.0, REAL, live=True).note
    assert "the newest" not in predicted_chart(verdicts[:9], 0.0, REAL, live=True).note


def test_charts_of_emulated_devices_say_so_and_have_tables() -> None:
    verdicts, pace = [make_verdict(granted_at=60.0 * n, measured_gain_s=n - 1.0) for n in range(3)], Pace(scale=0.02)
    scatter = predicted_chart(verdicts, 0.0, pace, live=False)
    lines = over_time_chart(verdicts, 0.0, PageClock(), pace, live=False)
    assert (scatter.tag, lines.tag) == (EMULATED, EMULATED)
    assert scatter.table is not None
    assert scatter.table["columns"][2:] == [
        *("predicted, s, modelled", "measured as foretold, s, modelled"),
        "measured in all, s, modelled",
    ]
    assert lines.table is not None
    # newest first; of three leases only the last one won
    assert lines.table["rows"][0] == ["00:02:00", "trainer's devices generate", 1.0, "33%"]


def test_a_lease_that_went_on_is_judged_by_the_work_that_was_foretold() -> None:
    kept = make_verdict(lease=1, gain_s=1.0, cost_s=0.5, measured_gain_s=40.0, foretold_gain_s=0.75)
    before = make_verdict(lease=2, gain_s=1.0, cost_s=0.5, measured_gain_s=0.25)
    figure = json.loads(predicted_and_measured([kept, before]).to_json())
    assert [y for trace in figure["data"][1:] for y in trace["y"]] == [0.75, 0.25]
    chart = predicted_chart([kept, before], 0.0, REAL, live=True)
    assert chart.table is not None
    assert [row[2:] for row in chart.table["rows"]] == [[0.5, 0.25, 0.25], [0.5, 0.75, 40.0]]
    assert "1 of them won at least what was predicted" in chart.label
    # the sums stay those of all that was won
    assert share_paid_off([kept], OUT)[-1][1] == 1.0


def test_numbers_of_a_direction_are_dashes_until_something_is_measured() -> None:
    nothing = LeaseOutcome(in_out_median_s=None, judged=0, paid_off=0, lost=0)
    counts = {"admitted": 3, "refused": 2, "delivered": 1}
    cards = {card.key: card for card in direction_numbers(OUT, counts=counts, outcome=nothing, verdicts=[], pace=REAL)}
    assert [cards[key].value for key in ("leases", "paid_off", "cost", "gain", "regret")] == ["3", *"––––"]
    assert cards["leases"].note == "2 refused · 1 delivered"
    known = LeaseOutcome(in_out_median_s=1.4, judged=9, paid_off=6, lost=3, gain_s=-2.5, regret_s=4.0)
    cards = {card.key: card for card in direction_numbers(OUT, counts=counts, outcome=known, verdicts=[], pace=REAL)}
    assert [cards[key].value for key in ("paid_off", "cost", "gain", "regret")] == ["67%", "1.4 s", "−2.50 s", "4.00 s"]
    assert cards["gain"].tone == "bad"
    assert cards["regret"].note == "3 lost time"
    assert all(card.help for card in cards.values())


@pytest.mark.parametrize(
    ("arm", "counted", "guards", "found"),
    [
        ("no_borrow", (), {}, []),
        ("bidirectional", (), {}, [OUT, BACK]),
        ("rollout_on_train", (), {}, [OUT]),
        # what an arm of before lent is told still
        ("no_borrow", (BACK,), {}, [BACK]),
        ("no_borrow", (), {OUT: "Off."}, [OUT]),
    ],
)
def test_directions_are_those_with_something_to_tell(
    arm: str, counted: tuple[str, ...], guards: dict[str, str], found: list[str]
) -> None:
    counts = {d: {"admitted": int(d in counted), "refused": 0, "delivered": 0} for d in DIRECTIONS}
    assert directions(arm, counts, guards) == found
