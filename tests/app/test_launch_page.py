"""The Launch page under AppTest: form and YAML are one text, problems beside their fields, commands sent once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.presets import preset
from engine.config import parse_job
from storage.mailbox import Mailbox
from storage.paths import DataDir
from tests.app.fake_run import open_writer, write_engine, write_folder
from tests.app.test_live_page import MAIN, TIMEOUT_S, words


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    writer = open_writer(DataDir(tmp_path), time.time())
    write_engine(writer, now=time.time() + 600)
    writer.close()
    return DataDir(tmp_path)


def show(**query: str) -> AppTest:
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    page.switch_page("app_pages/launch.py")
    for name, value in query.items():
        page.query_params[name] = value
    page.run()
    assert not page.exception, page.exception
    return page


def field(page: AppTest, path: str) -> Any:
    key = f"field_{path.replace('.', '_')}"
    return next((w for w in (*page.text_input, *page.selectbox) if w.key == key), None)


def launches(folder: DataDir) -> list[dict[str, Any]]:
    with Mailbox(folder.control_db) as mailbox:
        return [c.payload for c in mailbox.list() if c.kind == "launch"]


def test_the_demo_is_ready_to_be_launched(folder: DataDir) -> None:
    page = show()
    assert field(page, "name").value == "demo"
    assert field(page, "algorithm.learning_rate").value == "6e-4"
    assert "220 steps" in words(page)
    page.button(key="launch_send").click().run()
    demo = preset("demo")
    assert demo is not None
    assert launches(folder) == [{"job": demo.text, "base_dir": demo.base_dir, "resume": None}]
    assert "waits for the engine" in words(page)
    assert not page.success
    with Mailbox(folder.control_db) as mailbox:
        [command] = mailbox.list()
        mailbox.accept(command.id, "Its model folder is tried first.")
    page.run()
    assert f"Launch {command.id} is being prepared by the engine. Its model folder is tried first." in words(page)


def test_a_field_changes_the_yaml_and_keeps_its_comments(folder: DataDir) -> None:
    page = show()
    field(page, "algorithm.steps").input("12").run()
    text = page.text_area(key="launch_yaml").value
    assert "steps: 12" in text
    assert text.startswith("# The built-in job")
    page.button(key="launch_send").click().run()
    assert parse_job(launches(folder)[0]["job"]).algorithm.steps == 12


def test_the_yaml_changes_the_fields(folder: DataDir) -> None:
    page = show()
    page.text_area(key="launch_yaml").input("name: other\nschedule: {arm: colocated}\n").run()
    assert field(page, "name").value == "other"
    assert field(page, "schedule.arm").value == "colocated"
    assert field(page, "algorithm.steps").value == ""
    assert "no pools" in words(page)


@pytest.mark.parametrize(
    ("path", "typed", "says"),
    [
        ("algorithm.group_size", "1", "must be a whole number of at least 2, got 1"),
        ("algorithm.learning_rate", "fast", "must be a number above 0"),
        ("devices.partition", "1:x", "ROLLOUT\\:TRAIN"),
        ("task.params", "{a: ", "not YAML"),
        ("schedule.staleness", "-1", "must be a number from 0 to 16"),
        ("devices.count", "16", "needs 2 devices"),
    ],
)
def test_a_problem_stands_beside_its_field_and_nothing_can_be_launched(
    folder: DataDir, path: str, typed: str, says: str
) -> None:
    page = show()
    field(page, path).input(typed).run()
    beside = [m.value for m in page.markdown if ":red[" in m.value]
    assert any(says in text for text in beside), beside
    assert page.button(key="launch_send").disabled
    assert page.button(key="launch_dry_run").disabled
    assert field(page, path).value == typed
    field(page, path).input("" if path != "devices.count" else "2").run()
    assert not page.button(key="launch_send").disabled


def test_yaml_that_cannot_be_read_freezes_the_form_and_says_where(folder: DataDir) -> None:
    page = show()
    page.text_area(key="launch_yaml").input("name: [\n").run()
    assert "the form shows what it was before" in words(page)
    assert "line 2" in words(page)
    assert field(page, "name").disabled
    assert page.button(key="launch_send").disabled


def test_an_unknown_key_names_the_nearest_one(folder: DataDir) -> None:
    page = show()
    page.text_area(key="launch_yaml").input("name: a\nalgorithm: {stepz: 1}\n").run()
    assert "did you mean 'steps'?" in words(page)


def test_a_dry_run_shows_the_resolved_job_and_starts_nothing(folder: DataDir) -> None:
    page = show()
    page.button(key="launch_dry_run").click().run()
    resolved = next(c.value for c in page.code if "worked_only_steps" in c.value)
    assert parse_job(resolved) == parse_job(page.text_area(key="launch_yaml").value)
    assert launches(folder) == []


def test_a_clone_starts_from_the_job_of_its_run(folder: DataDir) -> None:
    write_folder(folder.root, now=time.time() + 600, state="finished")
    page = show(clone="demo-0001")
    assert field(page, "algorithm.prompts_per_step").value == "8"
    page.button(key="launch_send").click().run()
    assert launches(folder)[0]["resume"] is None
    assert launches(folder)[0]["base_dir"] == "."


def test_resuming_says_what_is_fixed_and_sends_the_run(folder: DataDir) -> None:
    write_folder(folder.root, now=time.time() + 600, state="stopped")
    page = show(resume="demo-0001")
    assert "from its newest checkpoint" in words(page)
    page.button(key="launch_send").click().run()
    assert launches(folder)[0]["resume"] == "demo-0001"


def test_a_run_that_is_not_there_cannot_be_cloned(folder: DataDir) -> None:
    page = show(clone="nothing")
    assert "There is no run `nothing` to clone" in words(page)
    assert field(page, "name").value == "demo"


def test_a_launch_is_a_success_only_when_the_engine_names_the_run(folder: DataDir) -> None:
    page = show()
    page.button(key="launch_send").click().run()
    with Mailbox(folder.control_db) as mailbox:
        command = mailbox.list()[0]
        mailbox.accept(command.id)
        page.run()
        assert "is being prepared" in words(page)
        mailbox.apply(command.id, "Queued.", result={"run_id": "demo-0001"})
    page.run()
    assert "Launched as **demo-0001**" in str(page.success[0].value)
    assert page.session_state["_run"] == "demo-0001"


def test_a_refused_launch_says_why(folder: DataDir) -> None:
    page = show()
    page.button(key="launch_send").click().run()
    with Mailbox(folder.control_db) as mailbox:
        mailbox.reject(mailbox.list()[0].id, "the job takes 4 devices and this machine has 2")
    page.run()
    assert "the job takes 4 devices" in str(page.error[0].value)


def test_two_clicks_are_two_launches_and_one_click_is_one(folder: DataDir) -> None:
    page = show()
    page.button(key="launch_send").click().run()
    page.run()
    assert len(launches(folder)) == 1
    page.button(key="launch_send").click().run()
    assert len(launches(folder)) == 2


def test_without_an_engine_the_command_to_start_one_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path / "new"))
    page = show()
    assert "No engine answers" in words(page)
    page.button(key="launch_send").click().run()
    assert len(launches(DataDir(tmp_path / "new"))) == 1


def test_what_was_typed_is_there_after_another_page_was_shown(folder: DataDir) -> None:
    page = show()
    field(page, "algorithm.steps").input("12").run()
    page.switch_page("app_pages/runs.py").run()
    page.switch_page("app_pages/launch.py").run()
    assert field(page, "algorithm.steps").value == "12"
