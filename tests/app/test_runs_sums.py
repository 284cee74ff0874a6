"""What runs came to: equal to the sum over their raw spans, and read once."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import runs_sums
from app.modelled import pace_of
from app.runs_sums import Kept, read_listing
from app.runs_table import Figures
from engine import results
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import DeviceRow, Span
from storage.words import IDLE_CAUSES, POOLS
from tests.app.fake_run import ENGINE, NOW, open_writer, write_engine, write_run
from tests.app.many_runs import make_final, write_many

BEGIN = NOW - 500.0

pieces = st.lists(
    st.tuples(
        st.floats(0.05, 70.0),
        st.sampled_from([("rollout", "primary"), ("train", "auxiliary"), ("optimizer", None), ("idle", None)]),
        st.sampled_from(IDLE_CAUSES),
    ),
    min_size=1,
    max_size=12,
)
ledgers = st.lists(pieces, min_size=1, max_size=4)
"""For each device what it did, one after the other: seconds, kind and role, cause where it is idle."""


def write_ledger(folder: DataDir, run_id: str, ledger: list, *, scale: float | None, ended: bool) -> list[Span]:
    """A run that did this from before its first possible rollout on; returns its spans."""
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW)
    spans = []
    for device, parts in enumerate(ledger):
        t0 = BEGIN - 3.0
        for seconds, (kind, role), cause in parts:
            told = cause if kind == "idle" else None
            spans.append(Span(run_id=run_id, device=device, t0=t0, t1=t0 + seconds, kind=kind, role=role, cause=told))
            t0 += seconds
    end = max(span.t1 for span in spans)
    fields = {
        "name": "ledger",
        "kind": "cpu" if scale is None else "emulated",
        "time_scale": scale,
        "state": "finished" if ended else "interrupted",
        "engine_id": ENGINE,
        "created_at": BEGIN - 10,
        "started_at": BEGIN - 5,
        "training_at": BEGIN,
        "measured_until": end,
        "ended_at": end,
    }
    writer.run(run_id, **fields)
    writer.devices(run_id, [DeviceRow(device=d, node="local", pool=POOLS[d % 2]) for d in range(len(ledger))])
    writer.spans(spans)
    writer.flush()
    if ended:
        # as the engine stores it when a run is over
        with TelemetryReader(folder.telemetry_db) as reader:
            run = reader.run(run_id)
            assert run is not None
            writer.run(run_id, result=results.build(reader, run, now=end))
    writer.close()
    return spans


def raw(spans: list[Span]) -> tuple[dict[str, float], float]:
    """Idle device-seconds by cause and all device-seconds, of what lies after the first possible rollout."""
    by_cause: dict[str, float] = defaultdict(float)
    known = []
    for span in spans:
        seconds = max(0.0, span.t1 - max(span.t0, BEGIN))
        known.append(seconds)
        if span.cause is not None:
            by_cause[span.cause] += seconds
    return by_cause, math.fsum(known)


@pytest.mark.parametrize("ended", [True, False], ids=["stored result", "summed once"])
@pytest.mark.parametrize("scale", [None, 0.02], ids=["real", "emulated"])
@given(ledger=ledgers)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_idle_by_cause_is_the_sum_over_the_raw_spans(ledger: list, scale: float | None, ended: bool) -> None:
    with TemporaryDirectory() as root:
        folder = DataDir(Path(root))
        spans = write_ledger(folder, "run-1", ledger, scale=scale, ended=ended)
        (listed,) = read_listing(folder, Kept(), NOW).runs
    by_cause, known = raw(spans)
    figures = listed.figures
    assert figures is not None
    if known == 0:
        assert (figures.idle, figures.lost_s) == (None, None)
        return
    assert figures.device_s is not None
    assert figures.device_s == pytest.approx(known, rel=1e-3)
    # rollups, which stand in where a run has no result, are right to a millisecond a column and a device
    tolerance = 0.001 * len(ledger)
    for cause in IDLE_CAUSES:
        shown = figures.by_cause.get(cause, 0.0) * figures.device_s
        assert shown == pytest.approx(by_cause.get(cause, 0.0), rel=1e-3, abs=tolerance)
    assert figures.lost_s == pytest.approx(sum(by_cause.values()), rel=1e-3, abs=tolerance)
    assert sum(figures.by_cause.values()) == pytest.approx(figures.idle)


@pytest.fixture
def folder(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path)


def summed_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the runs that are summed from now on."""
    asked: list[str] = []
    before = runs_sums.summed

    def counted(reader: TelemetryReader, run: object, end: float) -> Figures:
        asked.append(run.run_id)  # type: ignore[attr-defined]
        return before(reader, run, end)  # type: ignore[arg-type]

    monkeypatch.setattr(runs_sums, "summed", counted)
    return asked


def test_a_run_that_is_over_is_summed_once_and_one_that_goes_on_at_every_look(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW)
    write_run(writer, "cut", now=NOW - 900, state="interrupted", steps=5)
    write_run(writer, "live", now=NOW, steps=5)
    writer.run("done", state="finished", training_at=NOW - 400, ended_at=NOW - 1, result=make_final("done", _random()))
    writer.close()
    kept, asked = Kept(), summed_runs(monkeypatch)
    first, second = read_listing(folder, kept, NOW), read_listing(folder, kept, NOW)
    assert asked == ["live", "cut", "live"]
    assert [each.figures for each in first.runs] == [each.figures for each in second.runs]
    assert all(each.figures is not None and each.figures.idle is not None for each in second.runs)


def _random() -> random.Random:
    return random.Random(1)


def test_a_result_without_its_device_time_is_summed(folder: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW)
    write_run(writer, "older", now=NOW - 900, state="finished", steps=5, result={"idle": {"fraction": 0.5}})
    writer.close()
    asked = summed_runs(monkeypatch)
    (listed,) = read_listing(folder, Kept(), NOW).runs
    assert asked == ["older"]
    # 5 steps of 4 s on two devices
    assert listed.figures is not None
    assert listed.figures.device_s == pytest.approx(40.0, rel=0.01)


def test_what_the_budget_leaves_out_is_told_and_comes_next_time(folder: DataDir) -> None:
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW)
    for number in range(4):
        write_run(writer, f"cut-{number}", now=NOW - 900, state="interrupted", steps=3)
    writer.close()
    kept = Kept()
    none = read_listing(folder, kept, NOW, budget_s=-1.0)
    assert (none.waiting, [each.figures for each in none.runs]) == (4, [None] * 4)
    later = read_listing(folder, kept, NOW, budget_s=60.0)
    assert later.waiting == 0
    assert read_listing(folder, kept, NOW, budget_s=-1.0).waiting == 0


def test_figures_of_a_live_run_that_cannot_be_summed_now_are_its_last_ones(folder: DataDir) -> None:
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW)
    write_run(writer, "live", now=NOW, steps=5)
    writer.close()
    kept = Kept()
    before = read_listing(folder, kept, NOW).runs[0].figures
    again = read_listing(folder, kept, NOW, budget_s=-1.0)
    assert (again.waiting, again.runs[0].figures) == (1, before)


def test_a_run_that_has_not_begun_to_train_has_no_figures_and_waits_for_none(folder: DataDir) -> None:
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW)
    writer.run("queued", state="queued", created_at=NOW)
    writer.close()
    listing = read_listing(folder, Kept(), NOW, budget_s=-1.0)
    assert (listing.waiting, listing.runs[0].figures) == (0, runs_sums.NOTHING)


def test_a_silent_engines_run_counts_until_its_last_beat(folder: DataDir) -> None:
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW, beat_age_s=100.0)
    write_run(writer, "silent", now=NOW, steps=5, measured_until=None)
    writer.close()
    with TelemetryReader(folder.telemetry_db) as reader:
        run, engine = reader.run("silent"), reader.engine()
    assert run is not None
    assert runs_sums.until(run, engine, NOW, over=True) == NOW - 100.0
    assert runs_sums.until(run, engine, NOW, over=False) == NOW


def test_tags_and_notes_are_an_extra_that_never_fails(folder: DataDir) -> None:
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW)
    write_run(writer, "a", now=NOW - 900, state="stopped", steps=3)
    writer.close()
    with Mailbox(folder.control_db) as mailbox:
        mailbox.add_tag("a", "good", who="ana")
        mailbox.set_note("a", "first", who="ana")
    listing = read_listing(folder, Kept(), NOW)
    assert (listing.runs[0].tags, listing.runs[0].note) == (("good",), "first")
    folder.control_db.write_bytes(b"this is no database" * 100)
    broken = runs_sums.with_marks(listing, folder)
    assert broken.marks_problem is not None
    assert (broken.runs[0].tags, broken.runs[0].figures) == ((), listing.runs[0].figures)


def test_figures_of_an_emulated_result_are_kept_in_stored_seconds(folder: DataDir) -> None:
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW)
    final = make_final("e", _random())
    fields = {"state": "finished", "kind": "emulated", "time_scale": 0.1, "training_at": NOW - 9, "result": final}
    writer.run("e", **fields)
    writer.close()
    (listed,) = read_listing(folder, Kept(), NOW).runs
    assert listed.figures is not None
    assert listed.figures.device_s == pytest.approx(final["idle"]["device_s"] * 0.1)
    rate = listed.figures.tokens_per_s
    assert rate is not None
    assert pace_of(listed.run).rate(rate) == pytest.approx(final["throughput_tokens_per_s"])


def test_two_thousand_runs_are_listed_with_what_they_came_to(folder: DataDir) -> None:
    write_many(folder, 2000, steps=60, interrupted=20, live=2)
    listing = read_listing(folder, Kept(), NOW)
    assert len(listing.runs) == 2000
    told = sum(listed.figures is not None for listed in listing.runs)
    assert told + listing.waiting >= 2000 - 2, "all but live ones have figures, or wait for them"
    assert told >= 2000 - 20 - 2
