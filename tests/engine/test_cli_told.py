"""What a terminal is told of a run: bar and table agree, names say what is averaged, and a narrow one holds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from engine.cli import client, follow, show
from engine.config import dump_job, parse_job
from storage import words
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import DeviceRow, Span
from tests.engine.test_results import Store, train
from tests.storage.builders import RUN, T0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "telemetry.db")
    yield made
    made.writer.close()


def printed(capsys: pytest.CaptureFixture[str], result: dict[str, Any], judge: str | None = None) -> dict[str, str]:
    """The rows of the table by their names."""
    show.summary(result, judge=judge)
    cells = [line.strip("│ ").split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    return {name.strip(): value.strip() for name, value in cells}


# -- the bar and the table --------------------------------------------------------------------------------------------


def with_devices(store: Store) -> None:
    """Busy in the steps but for 5 of 40 device-seconds, idle for 100 after them, and idle for 20 before."""
    store.writer.devices(RUN, [DeviceRow(device=d, node="local", pool=pool) for d, pool in enumerate(words.POOLS)])
    spans = []
    for device, (kind, busy) in enumerate((("rollout", 20), ("train", 15))):
        common = {"run_id": RUN, "device": device, "cpu_s": None}
        ends = T0 + 20 + busy
        spans += [
            Span(**common, t0=T0, t1=T0 + 20, kind="idle", cause="no_work"),
            Span(**common, t0=T0 + 20, t1=ends, kind=kind, role="primary"),
            Span(**common, t0=ends, t1=T0 + 90, kind="idle", cause="no_work"),
        ]
    store.writer.spans(spans)


def bar(store: Store, target: int, now: float) -> list[str]:
    store.writer.flush()
    with TelemetryReader(store.path) as reader:
        run = reader.run(RUN)
        assert run is not None
        return follow._figures(reader, run, target, now)


def test_the_bar_of_a_run_that_has_ended_says_what_its_table_says(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    train(store, {"reward_mean": 0.25}, {"reward_mean": 0.5})  # from T0 + 20 to T0 + 40
    with_devices(store)
    result = store.build(state="finished", ended_at=T0 + 90)
    store.run(state="finished", steps_target=2, result=result)
    store.writer.flush()
    with TelemetryReader(store.path) as reader:
        run = reader.run(RUN)
    assert run is not None
    assert follow._ended(run) == ["step 2/2 finished", "reward 0.500", "- tokens/s", "idle 12.5%"]
    rows = printed(capsys, result)
    assert rows["idle share of device time"] == "12.5%"
    assert rows["reward, first / last step"] == "0.250 / 0.500"


def test_while_a_run_goes_on_the_bar_says_which_seconds_its_idle_share_is_of(store: Store) -> None:
    train(store, {}, {})
    with_devices(store)
    store.run(steps_target=9)
    # 15 of the 2 x 25 s since training began are idle; what was before does not count
    assert "idle 30% (last 25 s)" in bar(store, 9, T0 + 45)
    # of the 2 x 30 s before T0 + 65 the first device was busy for 5
    assert "idle 92% (last 30 s)" in bar(store, 9, T0 + 65)


def test_what_comes_after_the_last_step_is_no_idle_time_in_the_bar_either(store: Store) -> None:
    train(store, {}, {})
    with_devices(store)
    store.run(steps_target=2)
    assert "idle 12% (last 20 s)" in bar(store, 2, T0 + 85)


def test_a_state_stands_beside_the_step_where_a_narrow_terminal_still_shows_it(store: Store) -> None:
    train(store, {}, {})
    store.run(state="stopping", steps_target=9)
    assert bar(store, 9, T0 + 45)[0] == "step 2/9 stopping"


# -- names that say what is averaged ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "name", "told"),
    [
        ([], "reward, first / last step", "-"),
        ([0.5], "reward, its one step", "0.500"),
        ([0.25, None, 0.5], "reward, first / last step", "0.250 / 0.500"),
        ([1.0, 2.0, 9.0, 3.0, 5.0], "reward, first 2 / last 2 steps", "1.500 / 4.000"),
        # means of 0 to 9 and of 20 to 29
        ([float(n) for n in range(30)], "reward, first 10 / last 10 steps", "4.500 / 24.500"),
    ],
)
def test_no_step_is_both_a_first_and_a_last_one(
    rewards: list[float | None], name: str, told: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    train(store, *({"reward_mean": reward} for reward in rewards))
    assert printed(capsys, store.build())[name] == told


@pytest.mark.parametrize(
    ("task", "judge"),
    [
        ("{}", None),
        ("{source: 'jsonl:d', reward: exact}", None),
        ("{source: 'jsonl:d', reward: 'python:rw:good'}", "python:rw:good"),
        ("{source: 'jsonl:d', rewards: [{name: exact}, {name: 'python:rw:good', weight: 2}]}", "exact"),
    ],
)
def test_an_accuracy_says_which_reward_judges_where_one_could_think_of_another_rule(
    task: str, judge: str | None, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = parse_job(f"task: {task}")
    assert job.task.named_judge == judge
    store.run(job=dump_job(job))
    store.writer.flush()
    assert client.judge(DataDir(tmp_path), RUN) == judge
    result = store.build() | {"eval": [{"step": 0, "accuracy": 0.0}, {"step": 2, "accuracy": 0.25}]}
    told = printed(capsys, result, judge)
    right = f" (share of answers that {judge} gives 1 or more)" if judge else ""
    assert told["held-out accuracy, first / last"] == f"0.000 / 0.250{right}"
    assert told["control accuracy, first / last"] == "-"


def test_a_job_of_another_version_names_no_judge(store: Store, tmp_path: Path) -> None:
    store.run(job="algorithm: {forgotten: 3}")
    store.writer.flush()
    assert client.judge(DataDir(tmp_path), RUN) is None


# -- narrow terminals -------------------------------------------------------------------------------------------------


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> int:
    """As on a terminal of 80 columns."""
    monkeypatch.setattr(show, "console", lambda: Console(width=80))
    return 80


def test_a_failed_check_is_wrapped_under_one_name_and_long_lists_are_cut_short(
    store: Store, narrow: int, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = [f"device {n}: CPU over busy seconds is 0.51, expected 0.8 to 1.1; most likely others" for n in range(9)]
    path = "/a/path/" + "x" * 90
    result = store.build(ledger={"ok": False, "problems": problems, "max_gap_fraction": 0.02}, error=path)
    show.summary(result)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= narrow
    assert out.count("  ledger ") == 1
    assert [n for n in range(9) if f"device {n}:" in out] == list(range(6))
    assert "and 3 more, all of them in --json" in out
    cells = "".join(line.split("│")[2].strip() for line in out.splitlines() if line.startswith("│"))
    assert path in cells, "a path is wrapped, not cut"


def test_an_error_with_brackets_is_printed_as_it_is(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, store.build(error="no [red] here [/]"))["error"] == "no [red] here [/]"


def test_ids_are_whole_in_a_narrow_list(store: Store, narrow: int, capsys: pytest.CaptureFixture[str]) -> None:
    run_id = "a-job-with-a-name-1129-101500-ab12"
    show.table([store.build() | {"run_id": run_id}])
    out = capsys.readouterr().out
    assert run_id in out
    assert max(map(len, out.splitlines())) <= narrow
