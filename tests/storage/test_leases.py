"""Decisions, leases and policy states: stored, replaced, counted in SQL, deleted, and let in from an older schema."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from storage import words
from storage.database import connect_for_writing
from storage.reader import STATES_AT_A_TIME, TelemetryReader
from storage.records import LeaseOutcome
from storage.retention import CHUNK_STATES, Limits, Retention
from storage.schema import TELEMETRY
from storage.writer import TelemetryWriter
from tests.storage.builders import RUN, T0, make_decision, make_lease, make_span, make_state, make_step

HOUR = 3600.0

OF_OTHER_COLUMNS = ("lag", "metrics")
"""Fields of a step that are not a column of the same name in the older schema."""

NOTHING = LeaseOutcome(in_out_median_s=None, judged=0, paid_off=0, lost=0)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[TelemetryWriter]:
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    writer.run(RUN, created_at=T0)
    yield writer
    writer.close()


def reader_of(writer: TelemetryWriter) -> TelemetryReader:
    writer.flush()
    return TelemetryReader(writer.path)


def test_a_lease_a_decision_and_a_state_come_back_as_they_were_reported(writer: TelemetryWriter) -> None:
    decision = make_decision(
        action="lend", block=1, lease=1, gain_s=2.0, cost_s=1.1, inputs={"groups_missing": 12, "d_a": 1}
    )
    lease = make_lease(
        state="released",
        gain_s=2.0,
        cost_s=1.1,
        ready_at=T0 + 1,
        working_at=T0 + 1.5,
        ended_at=T0 + 9,
        released_at=T0 + 9.5,
        ended_by="policy",
        end_reason="The trainer has its groups.",
        groups=3.5,
        tokens=4200,
        cpu_s=7.0,
        busy_s=7.5,
        in_s=1.5,
        out_s=0.5,
        phases={"load": 0.8},
        measured_gain_s=-0.25,
        regret_s=0.25,
    )
    state = make_state(data=zlib.compress(json.dumps({"now": 1.0}).encode()))
    writer.decisions([decision])
    writer.leases([lease])
    writer.states([state])
    with reader_of(writer) as reader:
        assert reader.decisions(RUN) == [decision]
        assert reader.leases(RUN) == [lease]
        assert list(reader.states(RUN)) == [state]
        assert reader.decisions("another") == reader.leases("another") == list(reader.states("another")) == []


def test_a_lease_that_is_reported_again_replaces_the_whole_row(writer: TelemetryWriter) -> None:
    writer.leases([make_lease(phases={"load": 1.0}), make_lease(lease=2)])
    writer.leases([make_lease(state="working", working_at=T0 + 1)])
    with reader_of(writer) as reader:
        assert reader.leases(RUN) == [make_lease(state="working", working_at=T0 + 1), make_lease(lease=2)]


def test_decisions_are_read_newest_first_and_page_by_page(writer: TelemetryWriter) -> None:
    writer.decisions([make_decision(id=i) for i in (3, 1, 5, 2, 4)])
    with reader_of(writer) as reader:
        assert [row.id for row in reader.decisions(RUN, limit=2)] == [5, 4]
        assert [row.id for row in reader.decisions(RUN, limit=2, before=4)] == [3, 2]
        assert [row.id for row in reader.decisions(RUN, before=2)] == [1]


def test_leases_of_a_window_are_those_granted_or_home_again_in_it(writer: TelemetryWriter) -> None:
    ends: dict[int, tuple[float, float | None]] = {
        1: (0, 5),  # over before the window
        2: (0, 12),  # comes home inside
        3: (0, 90),  # works all through it: no marker of it lies inside
        4: (11, None),  # granted inside, still out
        5: (20, 25),  # starts where the window ends
    }
    writer.leases(
        [
            make_lease(lease=i, granted_at=T0 + start, released_at=None if end is None else T0 + end)
            for i, (start, end) in ends.items()
        ]
    )
    with reader_of(writer) as reader:
        assert [row.lease for row in reader.leases_in(RUN, T0 + 10, T0 + 20, limit=9)] == [2, 4]
        assert [row.lease for row in reader.leases_in(RUN, T0 + 10, T0 + 20, limit=1)] == [4], "the newest"
        assert [row.lease for row in reader.leases_numbered(RUN, [5, 1, 77])] == [1, 5]
        assert reader.leases_numbered(RUN, []) == []


def test_counts_and_outcomes_are_given_for_each_direction(writer: TelemetryWriter) -> None:
    out, back = words.DIRECTIONS
    with reader_of(writer) as reader:
        assert reader.lease_counts(RUN) == {key: {"admitted": 0, "refused": 0, "delivered": 0} for key in (out, back)}
        assert reader.lease_outcomes(RUN) == {out: NOTHING, back: NOTHING}
    figures: list[dict[str, Any]] = [
        {"groups": 2.0, "in_s": 1.0, "out_s": 1.0, "measured_gain_s": 3.0},
        {"groups": 0.0, "in_s": 5.0, "out_s": None, "measured_gain_s": -1.0},
        {"groups": 0.5, "in_s": 2.0, "out_s": 1.0, "measured_gain_s": 0.0},
        {},
    ]
    writer.leases([make_lease(lease=i, **row) for i, row in enumerate(figures)])
    writer.leases([make_lease(lease=9, direction=back, groups=4.0, in_s=0.25, out_s=0.5)])
    writer.leases([make_lease(run_id="another", groups=4.0)])
    writer.decisions([make_decision(id=i) for i in range(3)] + [make_decision(id=3, action="lend", lease=1)])
    with reader_of(writer) as reader:
        assert reader.lease_counts(RUN) == {
            out: {"admitted": 4, "refused": 3, "delivered": 2},
            back: {"admitted": 1, "refused": 0, "delivered": 1},
        }
        assert reader.lease_outcomes(RUN) == {
            # The middle two of 2.0 and 3.0; a lease without C_out has no cost yet.
            # It won 3 s, lost 1 s, and won nothing: together 2 s, of which not lending would have kept 1 s more.
            out: LeaseOutcome(in_out_median_s=2.5, judged=3, paid_off=1, lost=1, gain_s=2.0, regret_s=1.0),
            back: LeaseOutcome(in_out_median_s=0.75, judged=0, paid_off=0, lost=0),
        }


def test_states_are_read_in_order_over_several_pages(writer: TelemetryWriter) -> None:
    numbers = list(range(2 * STATES_AT_A_TIME + 3))
    writer.states([make_state(seq=seq) for seq in reversed(numbers)])
    with reader_of(writer) as reader:
        assert [state.seq for state in reader.states(RUN)] == numbers


def test_deleting_a_run_deletes_its_decisions_leases_and_states(writer: TelemetryWriter) -> None:
    for run_id in (RUN, "another"):
        writer.decisions([make_decision(run_id=run_id)])
        writer.leases([make_lease(run_id=run_id)])
        writer.states([make_state(run_id=run_id)])
    writer.delete_run(RUN)
    with reader_of(writer) as reader:
        assert reader.decisions(RUN) == reader.leases(RUN) == list(reader.states(RUN)) == []
        assert len(reader.decisions("another") + reader.leases("another")) + len(list(reader.states("another"))) == 3


@pytest.mark.parametrize(
    ("now", "raw_rows", "left"),
    [
        pytest.param(T0 + 6 * HOUR, 10**6, [0, 1, 2], id="fresh"),
        pytest.param(T0 + 6 * HOUR + 150, 10**6, [2], id="by age"),
        pytest.param(T0 + 300, 1, [2], id="with raw spans that were too many"),
    ],
)
def test_states_go_where_raw_spans_go_and_decisions_and_leases_stay(
    writer: TelemetryWriter, now: float, raw_rows: int, left: list[int]
) -> None:
    writer.spans([make_span(start) for start in (1.0, 101.0, 201.0)])
    writer.states([make_state(seq=i, at=T0 + 100 * i) for i in range(3)])
    writer.decisions([make_decision()])
    writer.leases([make_lease()])
    writer.flush()
    connection = connect_for_writing(writer.path)
    list(Retention(connection, Limits(raw_rows=raw_rows)).sweep(now))
    connection.close()
    with reader_of(writer) as reader:
        assert [state.seq for state in reader.states(RUN)] == left
        assert (len(reader.decisions(RUN)), len(reader.leases(RUN))) == (1, 1)


def test_old_states_are_deleted_chunk_by_chunk(writer: TelemetryWriter) -> None:
    writer.states([make_state(seq=seq) for seq in range(CHUNK_STATES + 1)])
    writer.flush()
    connection = connect_for_writing(writer.path)
    assert list(Retention(connection, Limits()).sweep(T0 + 7 * HOUR)) == [CHUNK_STATES, 1]
    connection.close()


def test_a_database_from_before_leases_keeps_its_runs_and_takes_leases(tmp_path: Path) -> None:
    old = Database(tmp_path / "telemetry.db")
    TELEMETRY.apply(old, stop_before="m004_leases_and_decisions")
    old.table("runs").insert({"run_id": RUN, "name": "old", "created_at": T0})
    old.table("steps").insert(
        {name: value for name, value in dataclasses.asdict(make_step()).items() if name not in OF_OTHER_COLUMNS}
        | {"lag_json": "{}", "metrics_json": "{}"}
    )
    old.close()
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    guard = {"train_on_rollout": "Off for 20 windows: its last 8 leases lost 0.4 s on average."}
    with reader_of(writer) as reader:
        run = reader.run(RUN)
        assert run is not None
        assert (run.name, run.guards, run.profile, run.model_error) == ("old", {}, None, None)
        assert reader.steps(RUN) == [make_step()]
        writer.run(RUN, guards=guard, profile={"mean_tokens": 90}, model_error={"rollout": 0.04})
        writer.leases([make_lease()])
        writer.close()
        run = reader.run(RUN)
        assert run is not None
        assert (run.guards, run.profile, run.model_error) == (guard, {"mean_tokens": 90}, {"rollout": 0.04})
        assert [lease.lease for lease in reader.leases(RUN)] == [1]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        pytest.param(lambda: make_decision(action="borrow"), "action of a decision must be one of lend,", id="action"),
        pytest.param(lambda: make_decision(direction="up"), "direction of a decision must be one of", id="direction"),
        pytest.param(lambda: make_lease(direction="up"), "direction of a lease must be one of", id="lease's direction"),
        pytest.param(lambda: make_lease(state="lost"), "state of a lease must be one of granted,", id="state"),
        pytest.param(lambda: make_lease(ended_by="me"), "end of a lease must be one of policy,", id="end"),
    ],
)
def test_unknown_words_are_refused(make: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


def test_a_run_always_has_guards(writer: TelemetryWriter) -> None:
    with pytest.raises(ValueError, match="guards of a run must not be None"):
        writer.run(RUN, guards=None)
