"""The trace of a run: what Perfetto's trace processor makes of it, and what its message definitions decode it to."""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

from storage.exports.export import export
from storage.exports.source import open_run
from storage.exports.trace_marks import phases
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import DeviceRow, DeviceState
from storage.writer import TelemetryWriter
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import NOW, open_writer, write_engine, write_run
from tests.storage.builders import RUN, T0, WORDS, chain, make_decision, make_group, make_lease, make_span, make_step
from tests.traces.processor import processed

DEVICE_SLICES = "slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """A run of two pools with leases and commands, and an emulated one."""
    data = DataDir(tmp_path_factory.mktemp("data"))
    writer = open_writer(data, NOW)
    write_engine(writer)
    write_run(writer, "real", state="finished", lending=True, pools=(3, 2), steps=20)
    write_emulated(writer, "modelled", state="finished", steps=10)
    writer.close()
    with Mailbox(data.control_db, clock=lambda: NOW - 30) as mailbox:
        sent = mailbox.send("staleness", {"staleness": 2.0}, "real", who="ana")
        mailbox.accept(sent)
        mailbox.apply(sent, "From step 12 on.", effective_step=12)
    return data


def trace_of(data: DataDir, run_id: str, out: Path, window: tuple[float, float] | None = None) -> Path:
    return export(data, run_id, "perfetto", out, window).path


def seconds_by_column(data: DataDir, run_id: str) -> dict[str, float]:
    """The ledger: exact sums over the raw spans."""
    totals: dict[str, float] = defaultdict(float)
    with TelemetryReader(data.telemetry_db) as reader:
        for columns in reader.kind_seconds(run_id, 0.0, NOW * 2).values():
            for column, seconds in columns.items():
                totals[column] += seconds
    return dict(totals)


# -- through the trace processor --------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_id", ["real", "modelled"])
def test_the_processor_sums_the_ledger_and_finds_one_thing_at_a_time_on_each_device(
    folder: DataDir, tmp_path: Path, run_id: str
) -> None:
    with processed(trace_of(folder, run_id, tmp_path / "trace.gz")) as query:
        assert query("SELECT name FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0") == []
        summed = query(f"SELECT category AS c, sum(dur) / 1e9 AS s FROM {DEVICE_SLICES} GROUP BY 1")
        found = {row.c: row.s for row in summed}
        assert found == pytest.approx(seconds_by_column(folder, run_id), rel=1e-3)
        assert query(f"SELECT max(depth) AS d FROM {DEVICE_SLICES}")[0].d == 0
        assert query(f"SELECT min(dur) AS m FROM {DEVICE_SLICES}")[0].m > 0
        following = "lead(slice.ts) OVER (PARTITION BY track_id ORDER BY slice.ts)"
        pairs = f"SELECT slice.ts + slice.dur AS until, {following} AS next FROM {DEVICE_SLICES}"
        ends = f"SELECT count(*) AS n FROM ({pairs}) WHERE until > next"
        assert query(ends)[0].n == 0


def test_the_processor_finds_every_device_below_its_pool_and_counts_everything(folder: DataDir, tmp_path: Path) -> None:
    with TelemetryReader(folder.telemetry_db) as reader:
        leases, steps = reader.leases("real"), reader.steps("real")
        decisions, spans = reader.decisions("real", limit=10_000), reader.spans("real", 0, NOW * 2)
    with processed(trace_of(folder, "real", tmp_path / "trace.gz")) as query:
        below = {
            row.thread: row.process
            for row in query(
                "SELECT thread.name AS thread, process.name AS process FROM thread JOIN process USING (upid)"
                " WHERE thread.name LIKE 'device %'"
            )
        }
        assert below == {f"device {d} (core {d})": "RollPool" if d < 3 else "TrainPool" for d in range(5)}
        counts = {row.c: row.n for row in query("SELECT category AS c, count(*) AS n FROM slice GROUP BY 1")}
        assert query(f"SELECT count(*) AS n FROM {DEVICE_SLICES}")[0].n == len(spans)
        assert (counts["steps"], counts["decisions"], counts["lease"]) == (len(steps), len(decisions), len(leases))
        assert counts["commands"] == 1
        assert query("SELECT name FROM slice WHERE category = 'commands'")[0].name == "staleness: applied"
        checkpoints = {(span.step, span.version) for span in spans if span.kind == "checkpoint"}
        assert counts["checkpoint"] == len(checkpoints) + len([s for s in spans if s.kind == "checkpoint"])
        args = query(
            "SELECT args.key AS k, real_value AS v FROM slice JOIN args USING (arg_set_id) WHERE category = 'lease'"
            " AND args.key LIKE '%_gain_s' ORDER BY ts, k"
        )
        assert [row.v for row in args if row.k == "debug.measured_gain_s"] == pytest.approx(
            [lease.measured_gain_s for lease in leases]
        )
        inside = query("SELECT count(*) AS n FROM slice WHERE category = 'lease_phase' AND depth = 1")
        assert inside[0].n == sum(len(list(phases(lease))) for lease in leases)


def test_the_processor_reads_what_a_span_was_about_and_the_counters(folder: DataDir, tmp_path: Path) -> None:
    with TelemetryReader(folder.telemetry_db) as reader:
        first = next(span for span in reader.spans("real", 0, NOW * 2) if span.cause is not None)
    with processed(trace_of(folder, "real", tmp_path / "trace.gz")) as query:
        rows = query(
            "SELECT args.key AS k, string_value AS s, int_value AS i FROM slice JOIN args USING (arg_set_id)"
            f" WHERE slice.id = (SELECT min(slice.id) FROM {DEVICE_SLICES} WHERE category = 'idle_{first.cause}')"
        )
        said = {row.k: row.s if row.s is not None else row.i for row in rows}
        assert said == {
            "debug.kind": "idle",
            "debug.cause": first.cause,
            "debug.version": first.version,
            "debug.step": first.step,
        }
        named = {row.name for row in query("SELECT DISTINCT name FROM counter_track")}
        assert named == {
            "idle share of device time, 10 s bins",
            "tokens of a step per second",
            "finished groups whose step has not ended",
        }
        idle = "SELECT value FROM counter JOIN counter_track ON track_id = counter_track.id WHERE name LIKE 'idle%'"
        shares = [row.value for row in query(idle)]
        assert shares
        assert all(0 <= share <= 1 for share in shares)


def test_an_emulated_run_says_so_on_every_process_and_how_to_read_its_seconds(folder: DataDir, tmp_path: Path) -> None:
    with processed(trace_of(folder, "modelled", tmp_path / "trace.gz")) as query:
        named = [row.name for row in query("SELECT name FROM process WHERE name IS NOT NULL")]
        assert len(named) == 4
        assert all(name.startswith("EMULATED · ") for name in named)
        facts = query(
            "SELECT args.key AS k, string_value AS s, real_value AS r FROM slice JOIN args USING (arg_set_id)"
            " WHERE category = 'run'"
        )
        said = {row.k: row.s if row.s is not None else row.r for row in facts}
        assert said["debug.label"] == "EMULATED"
        assert said["debug.time_scale"] == 0.02
        assert "divide by time_scale 0.02" in said["debug.time"]


# -- decoded by the message definitions -------------------------------------------------------------------------------


def packets(path: Path) -> list[Any]:
    trace = messages.Trace()
    trace.ParseFromString(gzip.decompress(path.read_bytes()))
    return list(trace.packet)


def events(path: Path) -> Iterator[tuple[str, int, int, str]]:
    """Track's name, type, ns and the event's name, in the file's order; interned names looked up."""
    tracks: dict[int, str] = {}
    on: dict[int, int] = {}
    names: dict[tuple[int, int], str] = {}
    for packet in packets(path):
        assert not packet.FindInitializationErrors()
        if packet.HasField("track_descriptor"):
            made = packet.track_descriptor
            tracks[made.uuid] = made.thread.thread_name or made.process.process_name or made.name
        sequence = packet.trusted_packet_sequence_id
        if packet.HasField("trace_packet_defaults"):
            on[sequence] = packet.trace_packet_defaults.track_event_defaults.track_uuid
        for entry in packet.interned_data.event_names:
            names[sequence, entry.iid] = entry.name
        if packet.HasField("track_event"):
            event = packet.track_event
            yield tracks[on[sequence]], event.type, packet.timestamp, names.get((sequence, event.name_iid), "")


def written(path: Path, *spans: Any, **run: Any) -> tuple[DataDir, TelemetryWriter]:
    writer = TelemetryWriter(path / "telemetry.db", clock=lambda: T0)
    writer.run(RUN, **({"name": "x", "state": "finished", "created_at": T0} | run))
    writer.spans(spans)
    return DataDir(path), writer


words_st = st.sampled_from(WORDS)


@given(lengths=st.lists(st.lists(st.floats(1e-4, 90.0), min_size=1, max_size=12), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_slices_of_a_device_never_overlap_and_sum_up_to_its_spans(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[list[float]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    spans = [span for device, row in enumerate(lengths) for span in chain(row, device=device, start=device * 0.3)]
    data, writer = written(folder, *spans)
    writer.close()
    stacks: dict[str, list[int]] = defaultdict(list)
    totals: dict[str, float] = defaultdict(float)
    last: dict[str, int] = {}
    for track, kind, at, _ in events(trace_of(data, RUN, folder / "trace.gz")):
        if not track.startswith("device"):
            continue
        assert at >= last.get(track, 0)
        last[track] = at
        if kind == 1:
            assert not stacks[track], "a slice inside a slice"
            stacks[track].append(at)
        else:
            totals[track] += (at - stacks[track].pop()) / 1e9
    assert not any(stacks.values())
    for device, row in enumerate(lengths):
        assert totals[f"device {device}"] == pytest.approx(sum(row), abs=1e-6 * len(row) + 1e-6)


def test_a_span_that_begins_a_float_too_early_does_not_take_the_end_of_the_one_before(tmp_path: Path) -> None:
    edge = T0 + 10
    data, writer = written(tmp_path, make_span(0, 10), make_span(0, 0, t0=edge - 3e-7, t1=edge + 5, kind="checkpoint"))
    writer.close()
    begun: list[tuple[str, int]] = []
    lengths: dict[str, float] = {}
    for track, kind, at, name in events(trace_of(data, RUN, tmp_path / "trace.gz")):
        if track == "device 0" and kind == 1:
            begun.append((name, at))
        elif track == "device 0":
            name, since = begun.pop()
            lengths[name] = (at - since) / 1e9
    assert lengths == pytest.approx({"optimizer": 10, "checkpoint": 5}, abs=1e-6)


def test_what_is_not_known_is_left_out_and_odd_names_survive(tmp_path: Path) -> None:
    odd = "a\0b<b>$x$ é" + "y" * 200
    data, writer = written(tmp_path, make_span(), name=odd, error="\n", staleness=None)
    writer.decisions([make_decision(reason=odd, gain_s=None)])
    writer.leases([make_lease()])
    writer.devices(RUN, [DeviceRow(device=0, node="n")])
    writer.close()
    found = list(events(trace_of(data, RUN, tmp_path / "trace.gz")))
    begun = [name for _, kind, _, name in found if kind == 1]
    ended = [name for _, kind, _, name in found if kind == 2]
    # the lease has not ended, nor has its first phase: no end is made up
    assert begun == ["optimizer", "lease 1: rollout_on_train", "preparing"]
    assert len(ended) == 1


def test_a_run_that_goes_on_shows_what_its_devices_are_doing_without_an_end(tmp_path: Path) -> None:
    data, writer = written(tmp_path, make_span(0, 2), make_span(0, 3, device=1), state="running")
    writer.device_states(
        RUN,
        [
            DeviceState(device=0, kind="train", role="primary", since=T0 + 2, seen_at=T0 + 4),
            # closed meanwhile: it is among the spans
            DeviceState(device=1, kind="optimizer", since=T0, seen_at=T0 + 1),
        ],
    )
    writer.close()
    found = [(track, kind, name) for track, kind, _, name in events(trace_of(data, RUN, tmp_path / "trace.gz"))]
    on_devices = [item for item in found if item[0].startswith("device")]
    assert on_devices.count(("device 0", 1, "train")) == 1
    assert [kind for track, kind, _ in on_devices if track == "device 0"] == [1, 2, 1]
    assert [kind for track, kind, _ in on_devices if track == "device 1"] == [1, 2]


def test_raw_spans_that_are_gone_are_said_and_the_idle_share_goes_on(tmp_path: Path) -> None:
    from storage.database import connect_for_writing
    from storage.retention import Limits, Retention

    data, writer = written(tmp_path, *chain([1.0] * 100))
    writer.close()
    connection = connect_for_writing(data.telemetry_db)
    list(Retention(connection, Limits()).sweep(T0 + 7 * 3600))
    connection.close()
    report = export(data, RUN, "perfetto", tmp_path / "trace.gz")
    assert report.rows["spans"] == 0
    assert "100 raw spans" in report.notes[0]
    found = list(events(report.path))
    assert [name for track, kind, _, name in found if track == "raw spans that are gone" and kind == 1] == [
        "raw spans gone: retention"
    ]
    assert report.rows["values_of_idle_share"] == len([track for track, kind, _, _ in found if kind == 4]) > 5


def test_a_window_takes_what_overlaps_it_whole(tmp_path: Path) -> None:
    data, writer = written(tmp_path, *chain([10.0] * 10))
    writer.step(make_step(step=1, t_end=T0 + 5))
    writer.step(make_step(step=2, t_end=T0 + 35))
    writer.groups([make_group(group_id=1, step=2, finished_at=T0 + 33)])
    writer.leases([make_lease(lease=1, granted_at=T0, released_at=T0 + 5), make_lease(lease=2, granted_at=T0 + 45)])
    writer.close()
    report = export(data, RUN, "perfetto", tmp_path / "trace.gz", (T0 + 32, T0 + 48))
    assert (report.rows["spans"], report.rows["steps"], report.rows["leases"]) == (2, 1, 1)
    begun = [at for track, kind, at, _ in events(report.path) if track == "device 0" and kind == 1]
    # time 0 is the run's beginning, with or without a window
    assert begun == [30_000_000_000, 40_000_000_000]


def test_leases_that_overlap_on_a_block_get_tracks_of_their_own(tmp_path: Path) -> None:
    rng = random.Random(5)
    data, writer = written(tmp_path)
    moments = [T0 + rng.uniform(0, 50) for _ in range(30)]
    writer.leases(
        [
            make_lease(
                lease=n,
                block=n % 2,
                granted_at=at,
                working_at=at + 1,
                ended_at=at + 2,
                released_at=at + rng.uniform(2, 9),
                state="released",
            )
            for n, at in enumerate(moments, start=1)
        ]
    )
    writer.close()
    depth: dict[str, int] = defaultdict(int)
    for track, kind, _, _ in events(trace_of(data, RUN, tmp_path / "trace.gz")):
        if track.startswith("block"):
            depth[track] += 1 if kind == 1 else -1
            assert 0 <= depth[track] <= 2, "a lease inside another one"
    assert set(depth.values()) == {0}


def test_the_clock_says_which_moment_the_trace_begins_at(tmp_path: Path) -> None:
    data, writer = written(tmp_path, make_span(0.25, 1), created_at=T0 + 0.25)
    writer.close()
    found = packets(trace_of(data, RUN, tmp_path / "trace.gz"))
    clocks = {clock.clock_id: clock.timestamp for clock in found[0].clock_snapshot.clocks}
    assert clocks == {6: 0, 1: int(T0) * 10**9}
    first = next(packet for packet in found if packet.HasField("track_event") and packet.track_event.type == 1)
    assert first.timestamp == 250_000_000


def test_a_run_with_nothing_but_its_row_is_a_trace_that_says_what_it_is(tmp_path: Path) -> None:
    data, writer = written(tmp_path)
    writer.close()
    found = list(events(trace_of(data, RUN, tmp_path / "trace.gz")))
    assert [name for _, _, _, name in found] == [f"run {RUN}"]
    with open_run(data, RUN) as source:
        assert json.dumps(source.missing()) == "[]"
