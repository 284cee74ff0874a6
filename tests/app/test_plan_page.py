"""The Plan page under AppTest: every source of a job and of stage times, playing, replays, and the way to Launch."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import plan_played, plan_points_view
from engine import profiles
from engine.config import dump_job, load_job, parse_job
from engine.config.calibrations import Calibration
from engine.config.operators import HOST_VARIABLE
from engine.config.profile import from_profile
from storage.paths import DataDir
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import open_writer, write_engine, write_run
from tests.app.test_live_page import MAIN, TIMEOUT_S, words
from tests.app.test_plan import JOB_FILE, SMALL, _group
from tests.planner.profiles import BASE

RUN = "emulated_16-0001"


@pytest.fixture(autouse=True)
def _nothing_played() -> None:
    plan_played.MEMORY.clear()


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """A data folder in which no engine ever ran."""
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    return DataDir(tmp_path)


@pytest.fixture
def measured(nothing: DataDir) -> DataDir:
    """A small emulated run that measured itself, and one on cores that did not."""
    now = time.time()
    job = load_job(JOB_FILE, [*SMALL[:2], "algorithm.steps=8", "devices.partition=8:8"])
    profile = None if job.profile is None else job.profile.model_dump(mode="json")
    writer = open_writer(nothing, now)
    write_engine(writer, now=now + 600)
    write_run(writer, "cores-1", now=now - 900, state="finished", steps=6)
    write_emulated(
        writer, RUN, now=now, steps=8, state="finished", profile=profile, job=dump_job(job), config_version=0
    )
    writer.groups([_group(RUN, i) for i in range(64)])
    writer.close()
    return nothing


def show(**query: str) -> AppTest:
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    page.switch_page("app_pages/plan.py")
    for name, value in query.items():
        page.query_params[name] = value
    page.run()
    assert not page.exception, page.exception
    return page


def has(page: AppTest, key: str) -> bool:
    return any(button.key == key for button in page.button)


def metrics(page: AppTest) -> dict[str, Any]:
    return {metric.label: metric.value for metric in page.metric}


def played(page: AppTest, stop: str) -> AppTest:
    """Until nothing is played any more; there is no timer here."""
    for _ in range(80):
        if not has(page, stop):
            return page
        page.run()
        assert not page.exception, page.exception
    raise AssertionError("it goes on for ever")


def text_of(page: AppTest, key: str) -> str:
    return str(page.text_area(key=key).value)


def table(page: AppTest, column: str) -> Any:
    return next(frame.value for frame in page.dataframe if column in frame.value)


def test_without_any_engine_a_preset_is_planned(nothing: DataDir) -> None:
    page = show()
    assert page.selectbox(key="plan_job_picker").value == "preset:emulated_16"
    assert metrics(page)["Feasible splits"] == "3 of 15"
    assert "PREDICTED" in words(page)
    rows = table(page, "verdict")
    assert len(rows) == 15
    assert "no: 15 trainer devices are not a multiple of the trainer replica size 4" in set(rows["verdict"])
    assert "No run can be replayed" in words(page)


def test_another_number_of_devices_is_planned_at_once_and_leaves_the_split_to_the_planner(nothing: DataDir) -> None:
    page = show(preset="emulated_16")
    page.text_input(key="plan_devices_count").input("32").run()
    assert metrics(page)["Feasible splits"] == "7 of 31"
    job = parse_job(text_of(page, "plan_yaml"))
    assert (job.device_count, job.devices.partition) == (32, "auto")


def test_a_job_without_stage_times_says_how_to_get_them(measured: DataDir) -> None:
    page = show(preset="demo")
    assert "There are no stage times for this job" in words(page)
    assert "bidirl calibrate jobs/demo.yaml" in words(page)
    assert not page.metric
    # another run's are offered, and taken only when they are chosen
    page.selectbox(key="plan_times_picker").select(f"run:{RUN}").run()
    assert not page.exception
    assert "There are no stage times" not in words(page)


def test_the_stored_calibration_is_found_and_named(nothing: DataDir) -> None:
    job = load_job(JOB_FILE.with_name("demo.yaml"), ["devices.count=2"])
    profiles.store(nothing, job, Calibration(profile=from_profile(BASE), run_id="c-1", at="then", model_error={}))
    page = show(preset="demo")
    page.text_input(key="plan_devices_count").input("4").run()
    assert "the stored calibration, by run c-1" in words(page)
    assert metrics(page)["Feasible splits"] == "3 of 3"


def test_a_runs_job_goes_by_what_the_run_measured_and_the_source_can_be_changed(measured: DataDir) -> None:
    page = show(run=RUN)
    assert page.selectbox(key="plan_times_picker").value == f"run:{RUN}"
    assert "measured by this run" in words(page)
    page.selectbox(key="plan_times_picker").select("job").run()
    assert "the job's profile" in words(page)


def test_a_run_that_is_not_there_is_named_and_others_are_offered_on_this_page(measured: DataDir) -> None:
    page = show(run="nobody")
    assert "There is no such run" in words(page)
    assert "nobody" in words(page)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "not YAML"),
        ("nme: x", "unknown key 'nme'; did you mean 'name'?"),
        ("schedule: {arm: colocated}\nprofile: null", "There are no stage times"),
    ],
)
def test_what_cannot_be_planned_says_why(nothing: DataDir, text: str, said: str) -> None:
    page = show(preset="emulated_16")
    page.text_area(key="plan_yaml").input(text).run()
    assert not page.exception
    assert said in words(page).replace("\\", "")
    assert not page.metric


def test_an_arm_without_pools_has_nothing_to_split(nothing: DataDir) -> None:
    page = show(preset="emulated_16")
    page.selectbox(key="plan_schedule_arm").select("colocated").run()
    assert "This job cannot be planned" in words(page)
    assert "has no pools" in words(page)


def test_devices_that_no_split_fits_have_their_reasons(nothing: DataDir) -> None:
    page = show(preset="emulated_16")
    page.text_input(key="plan_devices_count").input("18").run()
    assert "No split of these devices is feasible" in words(page)
    assert metrics(page)["Best split, rollout:train"] == "–"
    assert not has(page, "plan_launch")


def test_points_are_an_estimate_until_they_are_asked_for_and_then_simulated(nothing: DataDir) -> None:
    page = show(preset="emulated_16")
    page.text_input(key="plan_algorithm_prompts_per_step").input("8").run()
    assert "An estimate from mean stage times" in words(page)
    page.button(key="plan_points_play").click().run()
    page = played(page, "plan_points_stop")
    assert "15 of 15 points" in words(page)
    assert "SIMULATED" in words(page)
    assert not has(page, "plan_points_play"), "nothing is left to play"
    # kept by content: another session sees them at once
    other = show(preset="emulated_16")
    other.text_input(key="plan_algorithm_prompts_per_step").input("8").run()
    assert "15 of 15 points" in words(other)


def test_playing_can_be_stopped_and_gone_on_with(nothing: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_points_view.plan_played, "play_some", partial(plan_played.play_some, slice_s=0.0))
    page = show(preset="emulated_16")
    page.text_input(key="plan_algorithm_prompts_per_step").input("8").run()
    page.button(key="plan_points_play").click().run()
    page.button(key="plan_points_stop").click().run()
    assert not has(page, "plan_points_stop")
    assert "more points" in page.button(key="plan_points_play").label


def test_the_chosen_point_fills_the_launch_page_and_starts_nothing(nothing: DataDir) -> None:
    page = show(preset="emulated_16")
    page.selectbox(key="plan_split").select("12:4").run()
    page.selectbox(key="plan_staleness").select(0.5).run()
    page.button(key="plan_points_launch").click().run()
    assert [title.value for title in page.title] == ["Launch"]
    job = parse_job(text_of(page, "launch_yaml"))
    assert (str(job.devices.partition), job.schedule.staleness, job.device_count) == ("12:4", 0.5, 16)
    assert job.profile is not None
    assert text_of(page, "launch_yaml").startswith("# 16 devices"), "comments stay"
    assert not nothing.control_db.exists(), "nothing is sent"


def test_the_best_split_is_what_the_button_of_the_table_launches(nothing: DataDir) -> None:
    page = show(preset="emulated_16")
    best = metrics(page)["Best split with borrowing"]
    assert page.button(key="plan_launch").label == f"Launch {best} · staleness 1"
    page.button(key="plan_launch").click().run()
    assert str(parse_job(text_of(page, "launch_yaml")).devices.partition) == best


def test_a_plan_that_this_session_does_not_know_is_said_on_the_launch_page(nothing: DataDir) -> None:
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    page.switch_page("app_pages/launch.py")
    page.query_params["plan"] = "somebody's 8:8"
    page.run()
    assert not page.exception
    assert "has made no plan" in words(page)


def test_a_viewer_sees_the_plan_and_cannot_launch_it(nothing: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOST_VARIABLE, "0.0.0.0")
    page = show(preset="emulated_16")
    assert metrics(page)["Feasible splits"] == "3 of 15"
    assert page.button(key="plan_launch").disabled
    assert page.button(key="plan_points_launch").disabled
    assert not page.button(key="plan_points_play").disabled, "playing sends nothing"


def test_a_recorded_run_is_replayed_beside_what_was_measured(measured: DataDir) -> None:
    page = show(run=RUN)
    page.multiselect(key=f"plan_stalenesses:{RUN}").set_value(["0", "2"]).run()
    page.multiselect(key=f"plan_partitions:{RUN}").set_value(["8:8", "4:12"]).run()
    page.button(key="plan_whatif_play").click().run()
    page = played(page, "plan_whatif_stop")
    said = words(page)
    assert "the model’s error on this run" in said
    assert "8 steps are compared" in said
    rows = table(page, "settings")
    assert list(rows["settings"])[:2] == ["measured, as it was", "replayed, as it was"]
    assert len(rows) == 2 + 4
    assert rows["tokens/s"].notna().all()
    assert all(" to " in band for band in rows["expected tokens/s"][2:])
    assert "EMULATED" in said


def test_nothing_to_compare_and_too_much_are_said_and_not_played(measured: DataDir) -> None:
    page = show(run=RUN)
    page.multiselect(key=f"plan_stalenesses:{RUN}").set_value(["1"]).run()
    assert page.button(key="plan_whatif_play").disabled
    assert "nothing differs from the run as it was" in words(page)
    page.multiselect(key=f"plan_arms:{RUN}").set_value(["no_borrow", "bidirectional", "opportunistic"]).run()
    page.multiselect(key=f"plan_stalenesses:{RUN}").set_value(["0", "0.5", "1", "2", "4"]).run()
    page.multiselect(key=f"plan_partitions:{RUN}").set_value(["4:12", "8:8", "12:4"]).run()
    assert "at most 24 are replayed at once" in words(page)


def test_runs_that_measured_too_little_are_not_offered_for_a_replay(measured: DataDir) -> None:
    page = show(run="cores-1")
    picker = next(box for box in page.selectbox if box.label == "Recorded run")
    assert [option.split(" ")[0] for option in picker.options] == [RUN]
    assert "1 of 2 runs have not measured" in picker.help


def test_a_broken_database_is_said_and_presets_are_still_planned(measured: DataDir) -> None:
    measured.telemetry_db.write_bytes(b"not a database" * 100)
    page = show(preset="emulated_16")
    assert "The database cannot be read" in words(page)
    assert metrics(page)["Feasible splits"] == "3 of 15"
