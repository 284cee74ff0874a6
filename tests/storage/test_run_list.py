"""The list of runs in short: what it reads of a stored result, what it leaves out, and when it is another list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.mailbox import Mailbox
from storage.reader import TelemetryReader
from storage.records import RunRow
from storage.run_list import LONG, SHORT
from storage.words import TERMINAL
from storage.writer import TelemetryWriter
from tests.storage.builders import T0

RESULT = {
    "idle": {
        "fraction": 0.3,
        "by_cause": {"no_work": 0.1, "staleness_cap": 0.2},
        "device_s": 80.0,
        "structural_fraction": 0.25,
        "residual_fraction": 0.05,
    },
    "tokens": 1200,
    "throughput_tokens_per_s": 30.5,
    "wall_s": 41.0,
    "reward": {"first": 0.1, "last": 0.3, "per_step": [0.1, None, 0.3]},
    "step_s": [1.0, 2.0, 3.0],
}


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[TelemetryWriter]:
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    yield writer
    writer.close()


def reader(writer: TelemetryWriter) -> TelemetryReader:
    writer.flush()
    return TelemetryReader(writer.path)


def test_every_column_of_a_run_is_either_short_or_long() -> None:
    assert set(SHORT).isdisjoint(LONG)
    assert {"run_id", "state", "training_at", "excluded_json", "settings_json"} <= set(SHORT)


def test_runs_come_newest_first_without_what_no_table_shows(writer: TelemetryWriter) -> None:
    writer.run("old", name="a", kind="cpu", arm="no_borrow", created_at=T0, job="name: a", result=RESULT, steps=3)
    writer.run("new", name="b", state="running", created_at=T0 + 1, excluded={"no_signal": 2}, settings={"arm": "x"})
    with reader(writer) as opened:
        new, old = opened.listed_runs()
        assert opened.listed_runs(limit=1) == [new]
    assert (new.run.run_id, new.run.excluded, new.run.settings, new.has_result) == (
        "new",
        {"no_signal": 2},
        {"arm": "x"},
        False,
    )
    assert (old.run.steps, old.run.job, old.run.result, old.has_result) == (3, "", None, True)
    assert isinstance(old.run, RunRow)


def test_the_figures_of_a_stored_result_are_its_own(writer: TelemetryWriter) -> None:
    writer.run("done", result=RESULT)
    writer.run("live", state="running")
    with reader(writer) as opened:
        found = opened.final_figures(["done", "live", "nowhere"])
        assert opened.final_figures([]) == {}
    assert set(found) == {"done"}
    figures = found["done"]
    assert (figures.idle_fraction, figures.device_s, figures.wall_s) == (0.3, 80.0, 41.0)
    assert figures.by_cause == {"no_work": 0.1, "staleness_cap": 0.2}
    assert (figures.structural_fraction, figures.residual_fraction) == (0.25, 0.05)
    assert (figures.tokens, figures.tokens_per_s, figures.rewards) == (1200, 30.5, (0.1, None, 0.3))


def test_what_an_older_result_lacks_is_not_known(writer: TelemetryWriter) -> None:
    writer.run("old", result={"idle": {"fraction": 0.3, "by_cause": {"no_work": 0.3}}})
    writer.run("bare", result={})
    with reader(writer) as opened:
        found = opened.final_figures(["old", "bare"])
    assert (found["old"].idle_fraction, found["old"].device_s, found["old"].rewards) == (0.3, None, ())
    assert (found["bare"].idle_fraction, found["bare"].by_cause, found["bare"].tokens) == (None, {}, None)


def test_the_list_is_another_one_whenever_a_run_comes_goes_ends_or_moves_on(writer: TelemetryWriter) -> None:
    stamps = []

    def stamp() -> None:
        with reader(writer) as opened:
            stamps.append(opened.list_stamp())

    stamp()
    writer.run("a", state="running", steps=0)
    stamp()
    writer.run("a", steps=1)
    stamp()
    writer.run("a", state="paused")
    stamp()
    writer.run("b", state="running")
    stamp()
    writer.run("a", state=TERMINAL[0], result=RESULT)
    stamp()
    writer.delete_run("a")
    stamp()
    assert len(set(stamps)) == len(stamps)
    writer.run("b", progress="warming up")
    stamp()
    assert stamps[-1] == stamps[-2], "nothing that the table shows is another"


def test_marks_of_all_runs_are_read_at_once(tmp_path: Path) -> None:
    with Mailbox(tmp_path / "control.db") as mailbox:
        assert (mailbox.all_tags(), mailbox.all_notes()) == ({}, {})
        for run_id, tag in (("a", "tail"), ("b", "good"), ("a", "good")):
            mailbox.add_tag(run_id, tag, who="ana")
        mailbox.set_note("a", "first", who="ana")
        mailbox.set_note("b", "", who="ana")
        assert mailbox.all_tags() == {"a": ("good", "tail"), "b": ("good",)}
        assert mailbox.all_notes() == {"a": "first"}
