"""Marks of leases in the timeline: on the row of the lent device, inside the window, and never too many."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from app.clock import PageClock
from app.detail import Plan, Row
from app.figures.lease_marks import LIFT, LeaseMarks, lease_marks
from app.figures.timeline import timeline
from app.lending import MAX_LEASE_MARKS
from app.modelled import Pace
from storage.words import COLUMNS
from tests.app.fake_lending import make_lease

T0 = 1_790_000_000.0
WINDOW = (T0, T0 + 8)
CLOCK = PageClock(offset_s=3600.0)
ROWS = [Row(label=f"device {d}", devices=(d,), key=f"device:{d}") for d in range(3)]
PLAN = Plan(source="raw", resolution_s=None, bin_s=2.0, first=round(T0 / 2), bins=4)


def marked(*leases: dict[str, Any], rows: list[Row] | None = None) -> LeaseMarks:
    return lease_marks([make_lease(**lease) for lease in leases], rows or ROWS, WINDOW, CLOCK)


def by_name(marks: LeaseMarks) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in marks.traces}


def test_a_lease_is_marked_where_it_was_granted_and_where_its_device_came_home() -> None:
    traces = by_name(marked({"devices": [2], "granted_at": T0 + 1, "released_at": T0 + 5}))
    lent, home = traces["lent"], traces["home again"]
    assert (lent["x"], lent["y"]) == ([(T0 + 3601) * 1000], [2 - LIFT])
    assert (home["x"], home["y"]) == ([(T0 + 3605) * 1000], [2 + LIFT])
    assert lent["marker"]["symbol"] != home["marker"]["symbol"]
    assert lent["text"][0].startswith("<b>lease 1</b> · trainer's devices generate: 2<br>lent ")
    assert "12 groups are missing." in lent["text"][0]
    assert "after 4.0 s<br>delivered 3.5 groups, 4,200 tokens · won 0.50 s" in home["text"][0]


def test_a_block_has_one_mark_in_the_middle_of_its_rows() -> None:
    lease = {"devices": [0, 1, 2], "granted_at": T0 + 1, "released_at": None}
    lent = by_name(marked(lease))["lent"]
    assert lent["y"] == [1 - LIFT]
    assert ": 0–2<br>" in lent["text"][0]
    grouped = [Row(label="node0", devices=(0, 1), key="node:0"), Row(label="node1", devices=(2, 3), key="node:1")]
    assert by_name(marked(lease, rows=grouped))["lent"]["y"] == [0.5 - LIFT]


def test_the_mark_of_an_emulated_lease_is_in_modelled_seconds_and_says_so() -> None:
    lease = make_lease(granted_at=T0 + 1, released_at=T0 + 3, measured_gain_s=25.0)
    marks = lease_marks([lease], ROWS, WINDOW, CLOCK, Pace(scale=0.02))
    home = by_name(marks)["home again"]["text"][0]
    # two seconds here are a hundred of the devices that are stood for
    assert "after 1 min 40 s, modelled<br>" in home
    assert "won 25.00 s, modelled<br>EMULATED" in home
    assert by_name(marks)["lent"]["text"][0].endswith("<br>EMULATED")


def test_only_marks_inside_the_window_and_of_shown_devices_are_drawn() -> None:
    assert marked({"granted_at": T0 - 5, "released_at": T0 + 90}) == LeaseMarks()
    assert marked({"granted_at": T0 + 1, "devices": [77]}) == LeaseMarks()
    marks = marked({"granted_at": T0 - 5, "released_at": T0 + 2})
    assert [trace["name"] for trace in marks.traces] == [item["name"] for item in marks.legend] == ["home again"]


def test_of_too_many_marks_the_newest_are_drawn_and_the_cut_is_told() -> None:
    many = [{"lease": i, "granted_at": T0 + i * 0.01, "released_at": None} for i in range(MAX_LEASE_MARKS + 1)]
    marks = marked(*many)
    assert marks.cut
    assert len(marks.traces[0]["x"]) == MAX_LEASE_MARKS
    assert marks.traces[0]["text"][0].startswith("<b>lease 1</b>")
    assert not marked(*many[1:]).cut


def test_a_long_reason_is_cut_and_escaped_in_the_hover_text() -> None:
    marks = marked({"granted_at": T0 + 1, "released_at": None, "reason": "<i>x</i> and then some more. " * 40})
    text = marks.traces[0]["text"][0]
    assert len(text) < 300
    assert "<i>" not in text
    assert text.endswith("…")


def test_two_hundred_marks_stay_small() -> None:
    reason = (
        "Twelve groups of step 61 are missing and three primaries need 4.21 s for them; with two more it is 3.02 s."
    )
    many = [
        {"lease": i, "granted_at": T0 + i * 0.01, "released_at": T0 + 4 + i * 0.01, "reason": reason}
        for i in range(MAX_LEASE_MARKS)
    ]
    assert len(json.dumps(marked(*many).traces)) < 60_000


def test_the_timeline_draws_marks_and_auxiliary_work_and_names_both() -> None:
    aux = [COLUMNS.index(column) + 1 for column in ("rollout_aux", "train_aux")]
    codes = np.array([[aux[0]] * 4, [aux[1]] * 4, [1] * 4], np.uint8)
    marks = marked({"devices": [1], "granted_at": T0 + 1, "released_at": T0 + 5})
    figure = timeline(codes, ROWS, PLAN, window=WINDOW, clock=CLOCK, leases=marks)
    assert [item["name"] for item in figure.layout.meta["legend"]] == [
        "rollout",
        "aux rollout",
        "aux train",
        "lent",
        "home again",
    ]
    assert [trace.name for trace in figure.data if trace.type == "scatter" and trace.name] == ["lent", "home again"]


@pytest.mark.parametrize(("rows", "size"), [(2, 9), (16, 9), (32, 7), (64, 7), (256, 5)])
def test_marks_do_not_outgrow_thin_rows(rows: int, size: int) -> None:
    many = [Row(label=str(d), devices=(d,), key=f"device:{d}") for d in range(rows)]
    assert marked({"devices": [1], "granted_at": T0 + 1}, rows=many).traces[0]["marker"]["size"] == size
