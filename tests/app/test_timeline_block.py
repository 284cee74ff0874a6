"""What a click tells: the block, what it worked on, its lease, and what is left when spans are gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.modelled import REAL
from app.timeline_block import Chosen, Work, joined, read_block, read_lease
from app.timeline_chosen import told
from app.timeline_rows import coarser, members, timeline_rows
from app.timeline_url import Block
from storage.reader import TelemetryReader
from storage.records import DeviceRow, DeviceState, GroupRow, RunRow, Span
from storage.writer import TelemetryWriter
from tests.app.fake_lending import make_decision, make_lease
from tests.app.test_detail import T0, make_devices, make_span
from tests.app.test_figures import make_step

DEVICES = [DeviceRow(device=0, node="n0", pool="rollout"), DeviceRow(device=1, node="n0", pool="train")]
STEPS = [make_step(7, t_start=T0 + 5, t_end=T0 + 20)]


def span(t0: float, t1: float, device: int, kind: str, **fields: object) -> Span:
    base = make_span(t0, t1, kind, device, str(fields.pop("cause", "")) or None)
    values = {name: getattr(base, name) for name in Span.__slots__} | fields
    return Span(**values)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    writer.run("r", name="r", kind="cpu", state="running")
    writer.devices("r", DEVICES)
    writer.spans(
        [
            span(0, 10, 0, "rollout", role="primary", version=3),
            span(10, 140, 0, "idle", cause="staleness_cap", version=3),
            span(140, 150, 0, "train", role="auxiliary", version=6, step=7, ref="chunk 12"),
            span(0, 5, 1, "train", role="primary", version=6, step=7, ref="chunk 11"),
            span(5, 9, 1, "train", role="primary", version=6, step=7, ref="chunk 12"),
        ]
    )
    writer.device_states(
        "r", [DeviceState(device=1, kind="idle", cause="waiting_for_groups", since=T0 + 9, seen_at=T0 + 200)]
    )
    writer.leases(
        [
            make_lease(run_id="r", lease=4, direction="train_on_rollout", devices=[0], granted_at=T0 + 138,
                       released_at=T0 + 155),
        ]
    )  # fmt: skip
    writer.decisions(
        [
            make_decision(run_id="r", id=1, at=T0 + 9),
            make_decision(run_id="r", id=2, at=T0 + 138, action="lend", lease=4, reason="It wins $5 <b>."),
            make_decision(run_id="r", id=3, at=T0 + 155, action="end", lease=4, gain_s=None, cost_s=None),
        ]
    )
    group = GroupRow(
        run_id="r", group_id=1, epoch=0, item=1, state="consumed", version=3, bound=1.0, device=0, step=7,
        started_at=T0 + 1, finished_at=T0 + 8, prompt="2 + 2 =",
    )  # fmt: skip
    writer.groups([group])
    writer.close()
    return tmp_path / "telemetry.db"


@pytest.fixture
def reader(path: Path) -> Iterator[TelemetryReader]:
    with TelemetryReader(path) as reader:
        yield reader


def click(reader: TelemetryReader, row: str, at: float) -> Chosen:
    run = reader.run("r")
    assert run is not None
    found = read_block(reader, run, Block(row=row, at=T0 + at), DEVICES, STEPS)
    assert found is not None
    return found


def work_of(chosen: Chosen) -> Work:
    assert chosen.work is not None
    return chosen.work


def test_a_long_wait_is_one_block_though_it_is_stored_in_pieces(reader: TelemetryReader) -> None:
    chosen = click(reader, "device:0", 100)
    work = work_of(chosen)
    assert (work.t0 - T0, work.t1 - T0, work.open) == (10, 140, False)
    assert told(work, REAL)[:2] == ["**idle · staleness cap**", "2 min 10 s"]
    # what was decided just before it began and just before it ended
    assert chosen.around is not None
    assert [d.id for d in chosen.around] == [2, 1]


def test_a_rollout_tells_of_the_groups_that_were_being_generated(reader: TelemetryReader) -> None:
    chosen = click(reader, "device:0", 5)
    assert [g.group_id for g in chosen.groups] == [1]
    assert chosen.step is None
    assert chosen.around is None


def test_an_auxiliary_block_tells_of_its_chunk_its_step_and_its_lease_with_the_decision(
    reader: TelemetryReader,
) -> None:
    chosen = click(reader, "device:0", 145)
    assert work_of(chosen).span.ref == "chunk 12"
    assert chosen.step == STEPS[0]
    assert chosen.lease is not None
    assert chosen.lease.lease == 4
    assert [(d.action, d.lease) for d in chosen.decisions] == [("end", 4), ("lend", 4)]


def test_chunks_that_follow_each_other_are_blocks_of_their_own(reader: TelemetryReader) -> None:
    work = work_of(click(reader, "device:1", 6))
    assert (work.t0 - T0, work.t1 - T0, work.span.ref) == (5, 9, "chunk 12")


def test_what_goes_on_is_told_as_far_as_its_worker_said(reader: TelemetryReader) -> None:
    work = work_of(click(reader, "device:1", 50))
    assert (work.open, work.t0 - T0, work.t1 - T0) == (True, 9, 200)
    assert "and goes on" in told(work, REAL)[1]


def test_a_group_of_rows_tells_what_each_device_did(reader: TelemetryReader) -> None:
    chosen = click(reader, "node:n0", 6)
    assert [(device, work.span.kind) for device, work in chosen.others] == [(0, "rollout"), (1, "train")]


def test_where_spans_are_gone_the_sums_around_are_told(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM spans")
    connection.execute("INSERT INTO raw_missing VALUES ('r', 'retention', ?, ?, 9)", [T0, T0 + 150])
    connection.commit()
    connection.close()
    with TelemetryReader(path) as reader:
        chosen = click(reader, "device:0", 5.5)
    assert chosen.work is None
    assert chosen.sums == {"rollout": pytest.approx(1.0, abs=2e-3)}
    assert chosen.bin_s == 1.0


def test_a_time_of_which_nothing_is_known_is_nothing(reader: TelemetryReader) -> None:
    chosen = click(reader, "device:0", 5000)
    assert (chosen.work, chosen.sums) == (None, None)


def test_a_lease_is_told_by_its_number(reader: TelemetryReader) -> None:
    run = reader.run("r")
    assert run is not None
    chosen = read_lease(reader, run, 4)
    assert chosen is not None
    assert chosen.devices == (0,)
    assert {d.action for d in chosen.decisions} == {"lend", "end"}
    assert read_lease(reader, run, 5) is None


@pytest.mark.parametrize("row", ["device:9", "node:other", "pool:none", "rack:1"])
def test_a_row_that_is_not_there_is_nothing(reader: TelemetryReader, row: str) -> None:
    assert read_block(reader, RunRow(run_id="r"), Block(row=row, at=T0), DEVICES, []) is None


def test_a_block_ends_where_another_step_or_version_begins() -> None:
    spans = [span(0, 5, 0, "train", role="primary", step=1), span(5, 9, 0, "train", role="primary", step=2)]
    found = joined(spans, T0 + 6, set())
    assert found is not None
    assert found.t0 == T0 + 5


# -- rows --------------------------------------------------------------------------------------------------------------


def test_rows_are_devices_nodes_or_pools_as_is_asked() -> None:
    devices = make_devices(12, 4)
    assert len(timeline_rows(devices, "device")) == 16
    assert [row.key for row in timeline_rows(devices, "node")] == ["node:node0", "node:node1"]
    roles = timeline_rows(devices, "role")
    assert [(row.key, row.label) for row in roles] == [
        ("pool:rollout", "RollPool (12 devices)"),
        ("pool:train", "TrainPool (4 devices)"),
    ]


def test_a_group_that_is_opened_has_a_row_a_device_and_an_unknown_one_opens_nothing() -> None:
    devices = make_devices(12, 4)
    assert [row.devices for row in timeline_rows(devices, "role", opened="pool:train")] == [(d,) for d in range(12, 16)]
    assert timeline_rows(devices, "role", opened="pool:nothing") == timeline_rows(devices, "role")
    assert members(devices, "device:3") == [devices[3]]


def test_rows_that_are_fewer_than_asked_for_are_said_to_be() -> None:
    many = make_devices(300, 100)
    assert "400 devices are more than 256 rows" in coarser(many, "device", timeline_rows(many, "device"))
    spread = make_devices(60, 20, per_node=1)
    assert "more than 64 nodes" in coarser(spread, "node", timeline_rows(spread, "node"))
    few = make_devices(3, 1)
    assert coarser(few, "device", timeline_rows(few, "device")) == ""


def test_the_axis_has_room_for_the_longest_name_of_a_node() -> None:
    devices = [DeviceRow(device=0, node="<b>" + "y" * 120, pool=None)]
    row = timeline_rows(devices, "node")[0]
    assert len(row.tick) <= 20
    assert "y" * 120 in row.label
