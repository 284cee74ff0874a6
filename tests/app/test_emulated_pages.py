"""Emulated runs on the pages: labelled everywhere, without anything learnt, launched by one click beside real ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import one_click
from app.live_frame import View, read_frame
from app.modelled import LEARNS_NOTHING
from app.presets import described, preset
from engine.config import parse_job
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from tests.app.fake_emulated import REPLICA, STEP_S, write_emulated
from tests.app.fake_run import open_writer, write_engine, write_run
from tests.app.test_launch_page import field, launches
from tests.app.test_launch_page import show as show_launch
from tests.app.test_live_page import show, tables, told, words
from tests.app.test_runs_page import chosen
from tests.app.test_runs_page import show as show_runs

RUN = "emulated_16-0001"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    return DataDir(tmp_path)


def write(folder: DataDir, *, demo: bool = False, emulated: bool = True, **given: Any) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    if demo:
        write_run(writer, "demo-0001", now=now)
    if emulated:
        write_emulated(writer, RUN, now=now, **given)
    writer.close()


def keys(page: AppTest) -> set[str]:
    return {str(button.key) for button in page.button}


# -- the live page ----------------------------------------------------------------------------------------------------


def test_an_emulated_run_says_so_at_its_head_and_over_every_card(folder: DataDir) -> None:
    write(folder)
    page = show(RUN)
    said = words(page)
    assert "EMULATED · 50 times faster" in said
    # the timeline and what needs attention are parts of one element, which writes the label over both
    assert [part["tag"] for part in told(page) if "attention" in part] == ["EMULATED"]
    for card in ("Decisions", "Bubble heatmap", "Lost time by cause"):
        heading = next(line for line in said.splitlines() if line.startswith(f"**{card}"))
        assert ":violet-badge[EMULATED]" in heading
    assert "idle, modelled" in said
    assert "1 second here stands for 50" in said
    assert "predicted, modelled" in tables(page)


def test_predicted_and_measured_of_an_emulated_lease_are_modelled(folder: DataDir) -> None:
    write(folder)
    # 0.41 s and 0.266 s here, fifty times as many there
    assert '<td class="n first">20.5</td><td class="n">13.3</td>' in tables(show(RUN))


@pytest.mark.parametrize("state", ["running", "finished"])
def test_what_is_not_learnt_is_one_line_and_not_an_empty_chart(folder: DataDir, state: str) -> None:
    write(folder, state=state)
    page = show(RUN)
    assert LEARNS_NOTHING in words(page)
    assert "Charts begin with the first step" not in words(page)
    assert "No group has been consumed yet" not in words(page)
    assert all("Samples" not in str(expander.label) for expander in page.expander)
    assert [box.key for box in page.selectbox if box.key == "samples_state"] == []


def test_nothing_is_missed_in_a_run_that_learns_nothing(folder: DataDir) -> None:
    write(folder)
    assert "carried no signal" not in words(show(RUN))


@pytest.mark.parametrize("state", ["running", "paused", "stopped", "failed", "interrupted"])
def test_no_checkpoint_is_offered(folder: DataDir, state: str) -> None:
    write(folder, state=state)
    page = show(RUN)
    assert not keys(page) & {"control_checkpoint", "control_resume_run"}
    assert "there is no checkpoint to keep or to go on from" in words(page)
    assert "last checkpoint" not in words(page)


def test_a_real_run_is_nowhere_called_emulated(folder: DataDir) -> None:
    write(folder, demo=True, emulated=False)
    said = words(show("demo-0001"))
    assert "EMULATED" not in said
    assert "modelled" not in said


@pytest.mark.parametrize(("pools", "rows"), [((8, 8), 16), ((128, 128), 256)])
def test_each_device_has_a_row_and_those_of_a_train_replica_show_the_same(
    folder: DataDir, pools: tuple[int, int], rows: int
) -> None:
    write(folder, pools=pools)
    now = time.time()
    with TelemetryReader(folder.telemetry_db) as reader:
        run = reader.run(RUN)
        assert run is not None
        frame = read_frame(reader, run, View(window_s=60.0), now=now, last=None)
    assert len(frame.rows) == rows
    assert frame.seconds.shape[0] * frame.seconds.shape[1] <= 60_000
    replica = frame.seconds[pools[0] : pools[0] + REPLICA]
    assert (replica == replica[0]).all()
    steps = sum(s.t_end - s.t_start for s in frame.steps)
    assert steps == pytest.approx(30 * STEP_S)
    show(RUN)


def test_what_is_compared_to_notice_other_runs_changes_with_each_that_begins(folder: DataDir) -> None:
    write(folder, demo=True, emulated=False)
    alone = one_click.others("demo-0001")
    assert alone == ("False",)
    write(folder)
    assert one_click.others("demo-0001") == ("True", RUN)
    assert one_click.others(RUN) == ("True", "demo-0001")


# -- one click --------------------------------------------------------------------------------------------------------


def test_one_click_launches_the_job_file_and_shows_its_run_beside_the_demo(folder: DataDir) -> None:
    write(folder, demo=True, emulated=False)
    page = show()
    page.button(key="one_click").click().run()
    job = preset("emulated_16")
    assert job is not None
    (launch,) = launches(folder)
    assert (launch["base_dir"], launch["resume"]) == (job.base_dir, None)
    # the job file, long enough to be steered: steps of some two seconds each
    sent, own = parse_job(launch["job"]), parse_job(job.text)
    assert sent.algorithm.steps == one_click.STEPS >= 200
    assert sent == own.model_copy(update={"algorithm": own.algorithm.model_copy(update={"steps": one_click.STEPS})})
    assert "The launch of 16 emulated devices waits for the engine." in words(page)
    assert page.button(key="one_click").disabled
    now = time.time()
    writer = open_writer(folder, now)
    write_emulated(writer, RUN, now=now)
    writer.close()
    with Mailbox(folder.control_db) as mailbox:
        mailbox.accept(mailbox.list()[0].id)
        mailbox.apply(mailbox.list()[0].id, "Queued.", result={"run_id": RUN})
    page.run()
    assert page.query_params["run"] == RUN
    assert "EMULATED · 50 times faster" in words(page)
    # the demo goes on and is a click away; nothing offers a second emulated run
    assert "switch_demo-0001" in keys(page)
    assert "one_click" not in keys(page)
    page.button(key="switch_demo-0001").click().run()
    assert page.query_params["run"] == "demo-0001"
    assert f"switch_{RUN}" in keys(page)
    assert "one_click" not in keys(page)


def test_a_refused_click_says_why_and_may_be_repeated(folder: DataDir) -> None:
    write(folder, demo=True, emulated=False)
    page = show()
    page.button(key="one_click").click().run()
    with Mailbox(folder.control_db) as mailbox:
        mailbox.reject(mailbox.list()[0].id, "no room for 16 more")
    page.run()
    assert "16 emulated devices were not launched: it was rejected: no room for 16 more" in words(page).replace(
        "\\", ""
    )
    page.button(key="one_click").click().run()
    assert len(launches(folder)) == 2
    assert "were not launched" not in words(page)


def test_an_emulated_run_that_is_over_is_no_reason_not_to_launch_another(folder: DataDir) -> None:
    write(folder, state="finished")
    assert "one_click" in keys(show(RUN))


@pytest.mark.parametrize("engine", [True, False], ids=["an engine without runs", "no engine"])
def test_the_empty_page_offers_it_beside_the_demo(folder: DataDir, engine: bool) -> None:
    if engine:
        write(folder, emulated=False)
    page = show()
    assert keys(page) >= {"launch_demo", "one_click"}
    page.button(key="one_click").click().run()
    assert not page.exception
    assert len(launches(folder)) == 1


def test_the_launch_page_offers_it_and_leads_to_a_run_that_goes_on(folder: DataDir) -> None:
    write(folder, emulated=False)
    page = show_launch()
    page.button(key="one_click").click().run()
    assert len(launches(folder)) == 1
    write(folder)
    page = show_launch()
    page.button(key="one_click_show").click().run()
    assert [title.value for title in page.title] == ["Live"]
    assert page.query_params["run"] == RUN


def test_runs_that_go_on_are_on_top_of_the_picker_with_their_kind(folder: DataDir) -> None:
    write(folder, demo=True)
    now = time.time()
    writer = open_writer(folder, now)
    write_run(writer, "newer", now=now, steps=2, state="finished")
    writer.close()
    picker = next(box for box in show("newer").selectbox if str(box.key).startswith("run_picker"))
    assert [option.split(" · 20")[0] for option in picker.options] == [
        f"live · EMULATED · emulated_16 · {RUN}",
        "live · demo · demo-0001",
        "demo · newer",
    ]


# -- launching --------------------------------------------------------------------------------------------------------


def test_the_form_asks_what_means_something_to_the_kind_of_device(folder: DataDir) -> None:
    write(folder, emulated=False)
    page = show_launch(preset="emulated_16")
    assert field(page, "devices.time_scale").value == "0.02"
    assert field(page, "devices.train_replica_size").value == "4"
    for path in ("model.source", "task.reward", "eval.items", "checkpoint.keep", "devices.rollout_slots"):
        assert field(page, path) is None
    said = words(page).replace("\\", "")
    assert "16 EMULATED devices: RollPool 8, TrainPool 8" in said
    assert "1 second here stands for 50: 50 times faster." in said
    assert "accuracy on" not in said
    page.button(key="launch_send").click().run()
    assert parse_job(launches(folder)[0]["job"]).devices.kind == "emulated"


def test_changing_the_kind_shows_the_other_fields_with_the_values_of_the_file(folder: DataDir) -> None:
    write(folder, emulated=False)
    page = show_launch()
    field(page, "devices.kind").select("emulated").run()
    assert field(page, "devices.time_scale").value == ""
    assert "profile is needed\\: emulated devices obey its speeds and costs" in words(page)
    assert page.button(key="launch_send").disabled
    field(page, "devices.kind").select("cpu").run()
    assert field(page, "algorithm.learning_rate").value == "6e-4"
    assert field(page, "devices.rollout_slots").value == "128"
    assert not page.button(key="launch_send").disabled


def test_each_preset_says_in_one_line_what_it_is(folder: DataDir) -> None:
    write(folder, emulated=False)
    assert described("emulated_16").startswith("16 devices that nobody has to have: EMULATED")
    picker = show_launch().selectbox(key="launch_preset:preset:demo")
    assert "preset emulated_16 · 16 devices that nobody has to have" in picker.options
    assert described("demo") in words(show_launch()).replace("\\", "")


# -- runs -------------------------------------------------------------------------------------------------------------


def write_compared(folder: DataDir) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    write_run(writer, "demo-0001", now=now, steps=4)
    for repeat in (1, 2):
        write_emulated(
            writer,
            f"part-{repeat}",
            now=now - 100 * repeat,
            steps=4,
            state="stopped",
            comparison="sixteen",
            comparison_label="no_borrow:stream@8:8",
            comparison_repeat=repeat,
        )
    writer.close()


def test_runs_of_a_comparison_carry_its_label_and_can_be_asked_for_alone(folder: DataDir) -> None:
    write_compared(folder)
    page = show_runs()
    table = page.dataframe[0].value
    assert list(table["comparison"]) == ["", "no_borrow:stream@8:8 #1", "no_borrow:stream@8:8 #2"]
    assert list(table["kind"]) == ["cpu", "EMULATED", "EMULATED"]
    assert "tokens/s and lost device-h are modelled" in words(page)
    picker = page.selectbox(key="comparison")
    assert picker.options == ["all runs", "sixteen"]
    picker.select("sixteen").run()
    assert list(page.dataframe[0].value["run"]) == ["part-1", "part-2"]


def test_without_comparisons_nothing_is_asked(folder: DataDir) -> None:
    write(folder)
    assert [box for box in show_runs().selectbox if box.key == "comparison"] == []


def test_a_chosen_part_of_a_comparison_has_its_badge_and_cannot_be_resumed(folder: DataDir) -> None:
    write_compared(folder)
    page = show_runs(**chosen("part-1"))
    said = words(page).replace("\\", "")
    assert ":violet-badge[EMULATED] :gray-badge[comparison no_borrow:stream@8:8 #1]" in said
    assert page.button(key="run_resume").disabled
