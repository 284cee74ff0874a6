"""Colour modes of the timeline: which category a bin shows, and what a version's colour may claim."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app import detail
from app.clock import PageClock
from app.figures.event_marks import event_marks
from app.figures.timeline import timeline
from app.timeline_colours import CAUSES, MAX_VERSIONS, PHASES, ROLES, SCHEMES, Scheme, majority_of, versions
from app.timeline_events import events_of
from storage.records import LogRow, RunRow
from storage.words import COLUMNS, IDLE_COLUMNS
from tests.app.test_detail import T0, make_plan, make_row, make_span

CLOCK = PageClock()


def at(column: str, seconds: float) -> tuple[int, float]:
    return COLUMNS.index(column), seconds


def make_bin(*held: tuple[int, float]) -> np.ndarray:
    seconds = np.zeros((1, 1, len(COLUMNS)))
    for column, value in held:
        seconds[0, 0, column] = value
    return seconds


def shown(seconds: np.ndarray, scheme: Scheme) -> str:
    return ("no data", *scheme.labels)[majority_of(seconds, scheme)[0, 0]]


def test_work_of_all_kinds_together_is_weighed_against_each_cause() -> None:
    seconds = make_bin(at("rollout", 0.3), at("scoring", 0.3), at("idle_staleness_cap", 0.4))
    assert shown(seconds, PHASES) == "idle · staleness cap"
    assert shown(seconds, CAUSES) == "not idle"


def test_roles_are_told_apart_and_idle_time_has_none() -> None:
    assert shown(make_bin(at("train_aux", 0.6), at("train", 0.4)), ROLES) == "auxiliary"
    assert shown(make_bin(at("rollout", 0.6), at("train_aux", 0.4)), ROLES) == "primary"
    assert (
        shown(make_bin(at("switch_in", 0.3), at("grad_merge", 0.3), at("rollout", 0.4)), ROLES) == "changing its role"
    )
    assert shown(make_bin(at("idle_no_work", 0.3), at("idle_failure", 0.3), at("rollout", 0.4)), ROLES) == "idle"


def test_missing_telemetry_has_no_category_in_any_scheme() -> None:
    for scheme in SCHEMES.values():
        assert majority_of(make_bin(), scheme)[0, 0] == detail.NO_DATA


def test_every_column_has_a_category_in_every_scheme() -> None:
    for scheme in SCHEMES.values():
        assert len(scheme.category_of) == len(COLUMNS)
        assert set(scheme.category_of) <= set(range(len(scheme.labels)))
        assert len(scheme.labels) == len(scheme.colours)
        listed = [category for _, _, categories in scheme.entries for category in categories]
        assert sorted(listed) == list(range(len(scheme.labels)))


@given(st.lists(st.floats(0, 1), min_size=len(COLUMNS), max_size=len(COLUMNS)))
def test_the_phase_scheme_is_the_majority_that_other_pages_draw(values: list[float]) -> None:
    seconds = np.array(values).reshape(1, 1, -1)
    assert (majority_of(seconds, PHASES) == detail.majority(seconds)).all()


def versioned(t0: float, t1: float, version: int | None, kind: str = "rollout", device: int = 0) -> Any:
    span = make_span(t0, t1, kind, device)
    return type(span)(**{name: getattr(span, name) for name in span.__slots__} | {"version": version})


def test_a_bin_shows_the_version_behind_most_of_its_work() -> None:
    spans = [versioned(0, 0.7, 3), versioned(0.7, 2, 4), versioned(2, 3, 4, "idle"), versioned(3, 4, None)]
    found = versions(spans, [make_row(0)], make_plan(1.0, 5))
    assert found is not None
    codes, scheme = found
    labels = ["no data", *scheme.labels]
    assert [labels[code] for code in codes[0]] == [
        "version 3",
        "version 4",
        "idle",
        "work without a version",
        "no data",
    ]


def test_two_versions_that_follow_each_other_never_look_alike() -> None:
    spans = [versioned(i, i + 1, i) for i in range(30)]
    found = versions(spans, [make_row(0)], make_plan(1.0, 30))
    assert found is not None
    colours = found[1].colours[2:]
    assert all(one != other for one, other in itertools.pairwise(colours))
    named = [name for name, _, _ in found[1].entries]
    assert "version 0, 8, …" in named


def test_more_versions_than_colours_can_tell_are_refused() -> None:
    spans = [versioned(i, i + 1, i) for i in range(MAX_VERSIONS + 1)]
    assert versions(spans, [make_row(0)], make_plan(1.0, 300)) is None


def drawn(codes: np.ndarray, scheme: Scheme, **more: Any) -> dict[str, Any]:
    rows = [make_row(0)]
    figure = timeline(
        codes, rows, make_plan(1.0, codes.shape[1]), window=(T0, T0 + 4), clock=CLOCK, scheme=scheme, **more
    )
    spec: dict[str, Any] = json.loads(figure.to_json())
    return spec


def test_the_picture_has_the_colours_and_the_words_of_its_scheme() -> None:
    codes = np.array([[1, 2, 0, 7]], np.uint8)
    spec = drawn(codes, CAUSES)
    raster, legend = spec["data"][0], [item["name"] for item in spec["layout"]["meta"]["legend"]]
    assert raster["meta"]["labels"] == ["no data", *CAUSES.labels]
    assert raster["zmax"] == len(CAUSES.labels) + 0.5
    assert [colour for _, colour in raster["colorscale"]][2::2] == list(CAUSES.colours)
    assert legend == ["not idle", "idle · failure", "idle · staleness cap", "no data"]


def test_checkpoints_and_failures_are_marked_where_devices_spent_time_on_them() -> None:
    seconds = np.zeros((2, 6, len(COLUMNS)))
    seconds[0, 1:3, COLUMNS.index("checkpoint")] = 0.5
    seconds[1, 4, COLUMNS.index("idle_failure")] = 1.0
    run = RunRow(run_id="r", state="failed", ended_at=T0 + 5.5, error="out of <memory>")
    logs = [
        LogRow(run_id="r", at=T0 + 4.2, level="warning", device=1, text="The worker is gone."),
        LogRow(run_id="r", at=T0 + 0.5, level="error", text="a disk is full"),
    ]
    rows = [make_row(0), make_row(1)]
    events = events_of(seconds, rows, make_plan(1.0, 6), logs[:1], run)
    assert [(e.kind, e.at - T0) for e in events] == [("checkpoint", 1), ("failure", 4), ("failure", 5.5)]
    assert "1.0 s of device time" in events[0].text
    assert "The worker is gone." in events[1].text
    assert "out of <memory>" in events[2].text
    spec = drawn(np.ones((1, 6), np.uint8), PHASES, events=event_marks(events, CLOCK, 0.8))
    marks = {trace["name"]: trace for trace in spec["data"] if trace["type"] == "scatter"}
    assert marks["checkpoint"]["x"] == [CLOCK.axis(T0 + 1)]
    assert "out of &lt;memory&gt;" in marks["failure"]["text"][1]


def test_an_error_in_the_log_without_idle_time_is_a_failure_of_its_own() -> None:
    seconds = np.zeros((1, 6, len(COLUMNS)))
    line = LogRow(run_id="r", at=T0 + 0.5, level="error", text="a disk is full")
    events = events_of(seconds, [make_row(0)], make_plan(1.0, 6), [line], RunRow(run_id="r", state="running"))
    assert [(e.kind, e.at, e.text) for e in events] == [("failure", T0 + 0.5, "a disk is full")]


def test_idle_columns_are_the_only_ones_with_causes() -> None:
    assert [c for c, category in zip(COLUMNS, CAUSES.category_of, strict=True) if category] == list(IDLE_COLUMNS)
