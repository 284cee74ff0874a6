"""Marks of commands: what they say, where they stand in each chart, and that many at once stay readable."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.clock import PageClock
from app.command_words import History, change, history, mark, told
from app.detail import Plan, Row
from app.figures.bubbles import bubble_heatmap
from app.figures.command_marks import (
    CHARACTER_PX,
    LANE_PX,
    MAX_COMMANDS,
    CommandMarks,
    Point,
    command_marks,
    fewest_lanes,
    on_steps,
    on_time,
    stamp,
)
from app.figures.learning import NAMES, learning, step_span
from app.figures.timeline import timeline
from app.modelled import Pace
from storage.records import Command
from tests.app.test_figures import make_step

T0 = 1_790_000_000.0
CLOCK = PageClock(offset_s=3600.0)
PLAN = Plan(source="raw", resolution_s=None, bin_s=2.0, first=round(T0 / 2), bins=4)
ROWS = [Row(label=f"device {d}", devices=(d,), key=f"device:{d}") for d in range(2)]
BEGAN = {
    "staleness": 1.0,
    "partition": "12:4",
    "arm": "bidirectional",
    "rollout_on_train": True,
    "train_on_rollout": True,
    "lend_cap": None,
    "min_lease_s": 0.0,
}


def make_command(kind: str, payload: dict[str, Any] | None = None, **fields: Any) -> Command:
    """Applied a second after it was sent, unless told otherwise."""
    values: dict[str, Any] = {
        "id": 1,
        "run_id": "r",
        "kind": kind,
        "payload": payload or {},
        "who": "ana",
        "created_at": T0 + 1,
        "expires_at": None,
        "idem_key": "k",
        "expected_config_version": None,
        "expected_effect": None,
        "state": "applied",
        "answer": "Done.",
        "effective_step": 3,
        "effective_version": 2,
        "accepted_at": T0 + 1,
        "applied_at": T0 + 2,
        "result": None,
    }
    return Command(**{**values, **fields})


def of(*commands: Command) -> History:
    return history(commands, BEGAN)


def numbered(*commands: Command) -> History:
    """In the order given."""
    return of(*(replace(command, id=number) for number, command in enumerate(commands, start=1)))


# -- what changed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "payload", "short", "long"),
    [
        ("staleness", {"staleness": 0.5}, "s 1 → 0.5", "staleness 1 → 0.5"),
        ("partition", {"partition": "8:8"}, "12:4 → 8:8", "partition 12:4 → 8:8"),
        ("policy", {"arm": "no_borrow"}, "no_borrow", "arm bidirectional → no_borrow"),
        ("policy", {"lend_cap": 4}, "cap 4", "lend cap none → 4"),
        ("policy", {"min_lease_s": 2}, "lease ≥ 2 s", "minimum lease 0 s → 2 s"),
        (
            "policy",
            {"rollout_on_train": False},
            "rollout_on_train off",
            "trainer's devices generate: on → off",
        ),
        ("pause", {}, "paused", "pause"),
        ("checkpoint", {}, "checkpoint", "checkpoint"),
        ("stop", {"mode": "drain"}, "stopped", "stop after the step in hand"),
        ("stop", {}, "stopped", "stop at once"),
    ],
)
def test_a_command_is_told_from_what_to_what(kind: str, payload: dict[str, Any], short: str, long: str) -> None:
    made = of(make_command(kind, payload)).made[0]
    assert (mark(made), told(made)) == (short, long)


def test_each_change_is_told_from_what_the_one_before_it_set() -> None:
    found = numbered(
        make_command("staleness", {"staleness": 0.5}),
        make_command("staleness", {"staleness": 40}, state="rejected", accepted_at=None, applied_at=None),
        make_command("staleness", {"staleness": 2.0}),
    )
    assert [told(made) for made in found.made] == ["staleness 1 → 0.5", "staleness 0.5 → 40", "staleness 0.5 → 2"]


def test_an_undo_says_which_command_it_takes_back_and_to_what() -> None:
    found = numbered(
        make_command("staleness", {"staleness": 0.5}),
        make_command("partition", {"partition": "8:8"}),
        make_command("undo", result={"changes": {"partition": "12:4"}, "settings": {}}),
    )
    assert told(found.made[2]) == "undo of 2: partition 8:8 → 12:4"
    assert mark(found.made[2]) == "8:8 → 12:4"
    assert found.undoable is not None
    assert found.undoable.command.id == 1
    twice = numbered(*(made.command for made in found.made), make_command("undo"))
    assert told(twice.made[3]) == "undo of 1: staleness 0.5 → 1"
    assert twice.undoable is None


def test_what_was_never_accepted_can_not_be_undone() -> None:
    assert of(make_command("staleness", {"staleness": 0.5}, state="pending", accepted_at=None)).undoable is None


def test_where_it_is_not_known_what_was_before_nothing_is_made_up() -> None:
    made = history([make_command("staleness", {"staleness": 0.5})], {}).made[0]
    assert (told(made), mark(made)) == ("staleness → 0.5", "s 0.5")
    assert change("lend_cap", None, 4, known=False) == "lend cap → 4"


# -- points on an axis -------------------------------------------------------------------------------------------------


def test_commands_stand_where_they_were_applied_on_the_readers_clock_and_tell_who_when_and_what() -> None:
    point = on_time(of(make_command("staleness", {"staleness": 0.5}, who="<b>eve</b>")), CLOCK)[0]
    assert point.x == (T0 + 3602) * 1000
    assert point.hover.startswith("<b>staleness 1 → 0.5</b><br>&lt;b&gt;eve&lt;/b&gt; · sent ")
    assert "Done." in point.hover


def test_on_an_axis_of_steps_they_stand_at_the_first_step_that_they_govern() -> None:
    found = of(make_command("pause", effective_step=7), make_command("resume", id=2, effective_step=None))
    assert [(p.x, p.label) for p in on_steps(found, CLOCK)] == [(7.0, "paused")]


@pytest.mark.parametrize("state", ["pending", "accepted", "rejected", "superseded", "expired"])
def test_what_was_not_applied_is_not_marked(state: str) -> None:
    found = of(make_command("pause", state=state, applied_at=None))
    assert on_time(found, CLOCK) == on_steps(found, CLOCK) == []
    assert stamp(found) == ()


def test_marks_of_an_emulated_run_say_so() -> None:
    assert on_time(of(make_command("pause")), CLOCK, Pace(scale=0.02))[0].hover.endswith("<br>EMULATED")


# -- placing labels ----------------------------------------------------------------------------------------------------


def points(*at: float, label: str = "s 1 → 0.5") -> list[Point]:
    return [Point(x=x, label=label, hover=f"command at {x:g}") for x in at]


def placed(*at: float, width_px: float = 1000.0, lanes: int = 2, **more: Any) -> CommandMarks:
    return command_marks(points(*at, **more), span=(0.0, 1000.0), width_px=width_px, lanes=lanes)


def spans(marks: CommandMarks, width_px: float = 1000.0) -> list[tuple[int, float, float, float]]:
    """Lane, line, begin and end of each label, in pixels."""
    scale = width_px / 1000.0
    found = []
    for flag in marks.flags:
        line, width = flag.x * scale, len(flag.text) * CHARACTER_PX
        found.append((flag.lane, line, line - width, line) if flag.leftward else (flag.lane, line, line, line + width))
    return found


def test_commands_apart_have_their_own_labels_next_to_the_chart() -> None:
    marks = placed(100, 400, 700)
    assert [(flag.x, flag.lane, flag.leftward) for flag in marks.flags] == [
        (100, 0, False),
        (400, 0, False),
        (700, 0, False),
    ]
    assert marks.lines == (100, 400, 700)


def test_near_the_right_edge_a_label_stands_left_of_its_line() -> None:
    assert placed(990).flags[0].leftward


def test_of_two_near_ones_the_earlier_label_stands_above_the_later_line() -> None:
    earlier, later = placed(300, 330).flags
    assert (earlier.lane, later.lane) == (1, 0)


def test_commands_at_one_moment_share_a_line_and_a_label_that_tells_of_each() -> None:
    marks = command_marks(
        [Point(x=500, label=text, hover=text) for text in ("s 1 → 0.5", "no_borrow")], span=(0, 1000), width_px=1000
    )
    assert marks.lines == (500,)
    assert [flag.text for flag in marks.flags] == ["s 1 → 0.5 · no_borrow"]
    assert marks.flags[0].hover == "s 1 → 0.5<br><br>no_borrow"


@pytest.mark.parametrize("width_px", [330.0, 760.0])
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(
    "at",
    [
        tuple(range(0, 1001, 40)),
        tuple(range(900, 1000, 3)),
        (100, 103, 106, 500, 510, 520, 530, 540, 990, 995),
        tuple(x * 1.7 for x in range(400)),
    ],
    ids=["all over", "at the edge", "in heaps", "hundreds"],
)
def test_however_many_commands_no_label_covers_another_and_no_line_runs_through_one(
    at: tuple[float, ...], lanes: int, width_px: float
) -> None:
    marks = placed(*at, width_px=width_px, lanes=lanes)
    found = spans(marks, width_px)
    assert found
    for one, other in itertools.combinations(found, 2):
        if one[0] == other[0]:
            assert one[3] <= other[2] or other[3] <= one[2], (one, other)
        low, high = sorted((one, other))
        assert not low[2] < high[1] < low[3], f"the line of {high} runs through {low}"
    told_of = sum(flag.hover.count("command at") for flag in marks.flags)
    counted = sum(int(f.hover.split(" before these")[0]) for f in marks.flags if "before these" in f.hover)
    assert told_of + counted == min(len(at), MAX_COMMANDS), "each command is in a label, or counted in one"
    assert marks.cut == (len(at) > MAX_COMMANDS)
    assert len(json.dumps([flag.hover for flag in marks.flags])) < 40_000


def test_a_window_without_commands_keeps_the_room_of_their_labels() -> None:
    empty = command_marks(points(5000), span=(0, 1000), width_px=1000)
    assert (empty.flags, empty.lines) == ((), ())
    assert empty.height_px == 2 * LANE_PX
    assert command_marks([], span=(0, 1000), width_px=1000) == CommandMarks()


def test_a_chart_of_a_whole_run_has_as_many_lanes_as_its_labels_need() -> None:
    def lanes(*at: float) -> int:
        return fewest_lanes(points(*at), span=(0.0, 1000.0), width_px=1000.0).lanes

    assert [lanes(), lanes(100, 400), lanes(200, 220, 240), lanes(100, 130, 160, 190, 220)] == [0, 1, 2, 3]
    assert lanes(5000) == 1


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must end after its start 5\.0, got 5\.0"):
        command_marks([], span=(5.0, 5.0), width_px=100)


# -- in the charts -----------------------------------------------------------------------------------------------------


def lines_of(layout: Any) -> list[tuple[str, Any]]:
    return [(shape.xref, shape.x0) for shape in layout.shapes if shape.name == "command"]


def labels_of(layout: Any) -> list[tuple[str, str]]:
    return [(a.xref, a.text) for a in layout.annotations if a.name == "command"]


CHANGES = numbered(
    make_command("staleness", {"staleness": 0.5}, applied_at=T0 + 2, effective_step=3),
    make_command("pause", applied_at=T0 + 6, effective_step=8),
)
AT = [(T0 + 3602) * 1000, (T0 + 3606) * 1000]


def on_chart() -> CommandMarks:
    return command_marks(on_time(CHANGES, CLOCK), span=(CLOCK.axis(T0), CLOCK.axis(T0 + 8)), width_px=760)


def test_the_timeline_has_a_dashed_line_a_label_and_a_mark_for_each_command() -> None:
    codes = np.ones((2, 4), np.uint8)
    without = timeline(codes, ROWS, PLAN, window=(T0, T0 + 8), clock=CLOCK)
    figure = timeline(codes, ROWS, PLAN, window=(T0, T0 + 8), clock=CLOCK, commands=on_chart())
    layout = figure.layout
    assert lines_of(layout) == [("x", at) for at in AT]
    assert all("px" in shape.line.dash for shape in layout.shapes if shape.name == "command")
    assert labels_of(layout) == [("x", "s 1 → 0.5"), ("x", "paused")]
    assert layout.height == without.layout.height + on_chart().height_px
    diamonds = next(trace for trace in figure.data if trace.name == "command")
    assert list(diamonds.x) == AT
    assert "ana · sent" in diamonds.text[0]
    assert "command" in [item["name"] for item in layout.meta["legend"]]
    # labels stand above the strip of steps, which stands above the rows
    rows, strip = layout.yaxis.domain[1], layout.yaxis2.domain[1]
    assert rows < strip < min(a.y for a in layout.annotations if a.name == "command") <= 1


def test_the_bubble_heatmap_has_them_too() -> None:
    layout = bubble_heatmap(np.zeros((2, 4)), ROWS, PLAN, clock=CLOCK, commands=on_chart()).layout
    assert lines_of(layout) == [("x", at) for at in AT]
    assert [text for _, text in labels_of(layout)] == ["s 1 → 0.5", "paused"]
    assert all(a.hovertext for a in layout.annotations if a.name == "command")


def test_each_learning_chart_has_them_at_their_steps() -> None:
    steps = [make_step(i) for i in range(1, 11)]
    marks = command_marks(on_steps(CHANGES, CLOCK), span=step_span(steps, []), width_px=330)
    layout = learning(steps, [], marks).layout
    axes = ["x", *(f"x{i}" for i in range(2, len(NAMES) + 1))]
    assert lines_of(layout) == [(axis, at) for axis in axes for at in (3, 8)]
    assert labels_of(layout) == [(axis, text) for axis in axes for text in ("s 1 → 0.5", "paused")]
    assert len(learning(steps, []).layout.shapes) == 0


def test_a_change_that_governs_the_step_in_hand_is_inside_the_axis() -> None:
    found = on_steps(of(make_command("policy", {"arm": "no_borrow"}, effective_step=11)), CLOCK)
    assert command_marks(found, span=step_span([make_step(i) for i in range(1, 11)], []), width_px=330).lines == (11,)
