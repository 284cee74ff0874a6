"""The Runs page with several runs chosen: the comparison, its address, and what `bidirl bench` made."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import runs_bench
from app.price import SETTING, Price, as_setting
from engine.config import dump_job, load_job, parse_job
from planner.compared_text import COLUMNS
from storage.mailbox import Mailbox
from storage.paths import DataDir
from tests.app.fake_run import JOB, open_writer, write_engine, write_run
from tests.app.many_runs import make_final
from tests.app.test_live_page import MAIN, TIMEOUT_S, words
from tests.engine.comparisons import make_plan, make_result

JOBS = Path(__file__).parents[2] / "jobs"
LABELS = ("no_borrow", "no_borrow:stream", "bidirectional")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    return DataDir(tmp_path)


def show(**query: str) -> AppTest:
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    page.switch_page("app_pages/runs.py")
    for key, value in query.items():
        page.query_params[key] = value
    page.run()
    assert not page.exception, page.exception
    return page


def write_three(folder: DataDir) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    slower = dump_job(parse_job(JOB, ["schedule.staleness=0.5", "algorithm.learning_rate=1e-3"]))
    write_run(writer, "a", now=now - 3000, state="stopped", steps=20, seed=1)
    write_run(writer, "b", now=now - 2000, state="interrupted", steps=10, seed=2, staleness=0.5, job=slower)
    write_run(writer, "c", now=now - 1000, state="stopped", steps=20, seed=3)
    writer.close()


KEYS = ("reward", "idle", "lost", "bubbles", "staleness")


def charts(page: AppTest) -> dict[str, Any]:
    """Label -> figure of every chart of the comparison and of bench that was drawn."""
    keys = [f"_payload:compare_{name}_chart" for name in KEYS] + ["_payload:bench_ratios:bench-1:0"]
    drawn = [page.session_state[key][0] for key in keys if key in page.session_state]
    return {chart.label: json.loads(chart.fig) for chart in drawn}


def address(page: AppTest, name: str) -> str:
    """A value of the address, which the test gives as text and the page as a list."""
    value = page.query_params[name]
    return value if isinstance(value, str) else value[0]


def test_an_address_opens_the_comparison_with_its_baseline(folder: DataDir) -> None:
    write_three(folder)
    page = show(compare="a,b,c", baseline="b")
    assert [s.value for s in page.subheader] == ["Compared with b"]
    tables = {frame.value.columns[0]: frame.value for frame in page.dataframe}
    differing = tables["setting"]
    assert list(differing.columns) == ["setting", "b", "a", "c"]
    assert list(differing["setting"]) == ["algorithm.learning_rate", "schedule.staleness"]
    assert list(differing["b"]) == ["0.001", "0.5"]
    figures = tables["figure"].set_index("figure")
    assert figures.loc["steps", "a"] == "20 (+100.0 %)"
    assert figures.loc["steps", "b"] == "10"
    labels = " ".join(charts(page))
    for word in ("reward", "Idle share", "Lost device time", "Structural and residual", "against staleness"):
        assert word in labels


def test_real_and_emulated_runs_are_not_judged_against_each_other_and_no_setting_is_cut(folder: DataDir) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    write_run(writer, "real", now=now - 3000, state="stopped", steps=20)
    job = dump_job(load_job(JOBS / "emulated_16.yaml"))
    bad = {"ok": False, "problems": ["device 1: 2% missing", "device 2: 3% missing"]}
    write_run(writer, "played", now=now - 2000, state="stopped", steps=20, kind="emulated", time_scale=0.02, job=job,
              ledger=bad)  # fmt: skip
    writer.close()
    page = show(compare="real,played")
    said = words(page)
    assert "Emulated and real runs are not comparable" in said
    assert "%, better" not in said
    assert "%, worse" not in said
    settings, figures = (table.value for table in page.dataframe[1:3])
    assert f"{len(settings)} settings differ." in said
    assert len(settings) > 18
    assert not any("%)" in cell or " %," in cell for cell in figures["played"])
    # what is wrong with its shares of time is said where they are judged
    assert "played · **Ledger check failed** · device 1\\: 2% missing, and 1 more. Do not trust" in said
    page = show(compare="real")
    assert "not comparable" not in words(page)


def test_another_baseline_goes_into_the_address(folder: DataDir) -> None:
    write_three(folder)
    page = show(compare="a,b")
    assert address(page, "baseline") == "a"
    box = next(box for box in page.selectbox if box.label == "Baseline")
    box.select("b").run()
    assert not page.exception
    assert (address(page, "baseline"), address(page, "compare")) == ("b", "a,b")
    assert [s.value for s in page.subheader] == ["Compared with b"]


@pytest.mark.parametrize(("axis", "title"), [("step", "step"), ("tokens", "tokens"), ("device_s", "device-hours")])
def test_reward_and_idle_are_laid_over_the_axis_that_is_chosen(folder: DataDir, axis: str, title: str) -> None:
    write_three(folder)
    page = show(compare="a,b")
    page.segmented_control(key="axis").select(axis).run()
    assert not page.exception
    titles = {
        figure["layout"]["xaxis"]["title"]["text"]
        for label, figure in charts(page).items()
        if " over " in label and "runs over" in label
    }
    assert titles == {title}


def test_money_is_offered_only_where_a_price_is_set(folder: DataDir) -> None:
    write_three(folder)
    assert page_units(show(compare="a,b")) == ["share", "device-hours"]
    with Mailbox(folder.control_db) as mailbox:
        mailbox.set_setting(SETTING, as_setting(Price(amount=2.0, currency="EUR")), who="ana")
    page = show(compare="a,b")
    assert page_units(page) == ["share", "device-hours", "money"]
    page.segmented_control(key="unit").select("money").run()
    figure = next(figure for label, figure in charts(page).items() if label.startswith("Lost device time"))
    assert figure["layout"]["xaxis"]["tickprefix"] == "EUR "


def page_units(page: AppTest) -> list[str]:
    return [option.content for option in page.segmented_control(key="unit").proto.options]


def test_runs_that_are_not_there_are_named_and_can_be_left_out(folder: DataDir) -> None:
    write_three(folder)
    page = show(compare="a,<b>gone</b>,c")
    assert "Not in this data folder" in words(page)
    assert "\\<b\\>gone\\</b\\>" in words(page)
    assert [s.value for s in page.subheader] == ["Compared with a"]
    page.button(key="runs_leave_out").click().run()
    assert address(page, "compare") == "a,c"
    assert "Not in this data folder" not in words(page)


def test_a_telemetry_that_breaks_keeps_the_last_list(folder: DataDir) -> None:
    write_three(folder)
    page = show(compare="a,b")
    for path in folder.root.glob("telemetry.db*"):
        path.write_bytes(b"this is no database" * 400)
    page.run()
    assert not page.exception
    assert "cannot be read" in words(page)
    assert list(page.dataframe[0].value["run"]) == ["c", "b", "a"]


# -- bench ------------------------------------------------------------------------------------------------------------


def write_bench(folder: DataDir, *, kind: str = "cpu") -> None:
    """Two repeats; streaming is 20% faster than a whole batch, and lending 10 and 30% faster than that. The last run
    failed."""
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    plan = make_plan(*LABELS, repeats=2)
    job = dump_job(parse_job(JOB))
    speeds = {"no_borrow": (100.0, 100.0), "no_borrow:stream": (120.0, 120.0), "bidirectional": (132.0, 156.0)}
    for label, of_label in speeds.items():
        for repeat, speed in enumerate(of_label, start=1):
            run_id = f"{label.replace(':', '-')}-{repeat}"
            part = {"id": "bench-1", "label": label, "repeat": repeat}
            result = make_result(label, run_id=run_id, throughput_tokens_per_s=speed, comparison=part, kind=kind)
            result = make_final(run_id, random.Random(3)) | result
            writer.run(
                run_id,
                name="demo",
                kind=kind,
                state="finished",
                arm=label.partition(":")[0],
                staleness=1.0,
                partition="1:1",
                job=job,
                created_at=now - 100 + len(run_id),
                config_version=0,
                comparison="bench-1",
                comparison_label=label,
                comparison_repeat=repeat,
                comparison_plan=plan,
                result=result,
            )
    writer.close()


def test_a_bench_comparison_is_shown_as_the_command_line_prints_it(folder: DataDir) -> None:
    write_bench(folder)
    page = show(comparison="bench-1")
    found = next(frame.value for frame in page.dataframe if frame.value.columns[0] == COLUMNS[0])
    assert list(found["configuration"]) == list(LABELS)
    told = dict(zip(found["configuration"], found["over better baseline"], strict=True))
    assert told["no_borrow:stream"] == "the baseline"
    # 1.1 and 1.3, whose geometric mean is 1.196
    assert told["bidirectional"].startswith("1.196 [")
    said = words(page).replace("\\", "")
    assert "Best static split: 1:1, stream, 120 tokens/s" in said
    assert "6 of 6 runs count, 2 repeats" in said
    figure = next(figure for label, figure in charts(page).items() if "95% intervals" in label)
    assert figure["data"][0]["x"] == pytest.approx([100 / 120, 1.0, (1.1 * 1.3) ** 0.5])


def test_without_a_comparison_chosen_none_is_shown(folder: DataDir) -> None:
    write_bench(folder)
    assert "Best static split" not in words(show())


def test_a_run_without_a_result_counts_for_nothing_and_says_why(folder: DataDir) -> None:
    write_bench(folder)
    writer = open_writer(folder, time.time())
    writer.run("bidirectional-2", state="failed", error="a worker died", result=None)
    writer.flush()
    writer.close()
    found = runs_bench.read_document("bench-1")
    assert found is not None
    assert (found["runs_counted"], found["runs_failed"]) == (5, 1)
    assert [run["not_counted"] for run in found["runs"] if run["not_counted"]] == ["failed: a worker died"]
    page = show(comparison="bench-1")
    assert "failed: a worker died" in words(page).replace("\\", "")


def test_a_comparison_of_emulated_runs_says_so(folder: DataDir) -> None:
    write_bench(folder, kind="emulated")
    assert ":violet-badge[EMULATED]" in words(show(comparison="bench-1"))


def test_an_unknown_comparison_is_none(folder: DataDir) -> None:
    write_bench(folder)
    assert runs_bench.read_document("nowhere") is None
    with Mailbox(folder.control_db):
        pass
