"""The Learning page under AppTest: real and emulated runs, runs without a step, its findings, and its samples."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.samples_view import devices_by_role
from storage.paths import DataDir
from storage.records import DeviceRow, GroupRow
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import open_writer, write_engine, write_run
from tests.app.test_learning_health import make_step

PAGE = "app_pages/learning.py"
MAIN = str(Path(__file__).parents[2] / "app" / "main.py")
RUN = "learns-1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    return DataDir(tmp_path)


def write(folder: DataDir, groups: tuple[GroupRow, ...] = (), **given: Any) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    write_run(writer, RUN, now=now - 60, **({"state": "finished", "steps": 12} | given))
    writer.groups(list(groups))
    writer.close()


def show(run: str | None = RUN) -> AppTest:
    page = AppTest.from_file(MAIN, default_timeout=30.0)
    page.switch_page(PAGE)
    if run:
        page.query_params["run"] = run
    page.run()
    assert not page.exception, page.exception
    return page


def words(page: AppTest) -> str:
    parts = [*page.markdown, *page.caption, *page.subheader, *page.error, *page.warning, *page.info, *page.success]
    return "\n".join(str(part.value) for part in [*parts, *page.code])


def make_group(number: int, **fields: Any) -> GroupRow:
    values: dict[str, Any] = {
        "run_id": RUN, "group_id": number, "epoch": 0, "item": number, "state": "consumed", "step": 900, "version": 1,
        "lag": 0, "bound": 1.0, "device": 0, "reward_mean": 0.5, "started_at": 1.0, "finished_at": 2.0,
        "prompt": f"question {number}",
        "responses": [{"text": "yes", "reward": 1.0, "tokens": 1}, {"text": "no", "reward": 0.0, "tokens": 1}],
    }  # fmt: skip
    return GroupRow(**(values | fields))


def prompts(page: AppTest) -> list[str]:
    return list(page.dataframe[0].value["prompt"])


def test_without_a_database_it_says_what_to_start(folder: DataDir) -> None:
    assert "No engine has run here yet" in words(show(None))


def test_an_unknown_run_is_named(folder: DataDir) -> None:
    write(folder)
    assert "There is no such run" in words(show("gone-1"))


def test_a_healthy_run_says_so_beside_its_charts_and_samples(folder: DataDir) -> None:
    write(folder)
    page = show()
    assert "Learning looks healthy" in words(page)
    assert "consumed groups carried no signal" in words(page)
    assert page.dataframe, "samples"


def test_a_run_that_mismatches_says_by_how_much(folder: DataDir) -> None:
    write(folder)
    writer = open_writer(folder, time.time())
    writer.step(make_step(13, run_id=RUN, metrics={"mismatch_kl": 6.0}))
    writer.close()
    # twelve steps of about 0.0025 and one of 6
    assert "Mismatch KL 0.46 \\> 0.1" in words(show())


def test_a_run_without_a_step_says_why_its_charts_are_empty(folder: DataDir) -> None:
    write(folder, steps=0)
    page = show()
    assert "This run made no step." in words(page)
    assert "No group has been consumed yet." in words(page)


def test_a_run_that_told_no_roles_says_so(folder: DataDir) -> None:
    write(folder, steps=0)
    writer = open_writer(folder, time.time())
    writer.step(make_step(1, run_id=RUN))
    writer.close()
    page = show()
    page.selectbox(key="learning_split").select("by_role").run()
    assert "No step of this run says which trainer computed its groups" in words(page)


def test_emulated_devices_learn_nothing_and_have_no_samples(folder: DataDir) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    write_emulated(writer, "emulated-1", now=now - 60, steps=4, state="finished")
    writer.close()
    page = show("emulated-1")
    assert "Emulated devices learn nothing" in words(page)
    assert ":violet-badge[EMULATED]" in words(page)
    assert not page.dataframe
    assert not [box for box in page.selectbox if box.key == "learning_split"]


def test_excluded_groups_are_told_by_reason(folder: DataDir) -> None:
    write(folder, excluded={"reward_failed": 7, "too_long": 1})
    said = words(show())
    assert "**7** excluded: reward failed · **1** excluded: too long" in said


def test_samples_are_narrowed_and_sorted(folder: DataDir) -> None:
    same = [{"text": "a", "reward": 1.0, "tokens": 1}, {"text": "b", "reward": 1.0, "tokens": 1}]
    write(
        folder,
        groups=(
            make_group(901, reward_mean=0.1),
            make_group(902, reward_mean=0.9, lag=1, device=1),
            make_group(903, reward_mean=1.0, responses=same),
        ),
    )
    page = show()
    page.text_input(key="samples_step").input("900").run()
    assert prompts(page) == ["question 903", "question 902", "question 901"]
    page.selectbox(key="samples_sort").select("lowest reward").run()
    assert prompts(page) == ["question 901", "question 902", "question 903"]
    page.number_input(key="samples_low").set_value(0.5).run()
    assert prompts(page) == ["question 902", "question 903"]
    page.number_input(key="samples_high").set_value(0.2).run()
    assert "must be at least the reward on the left" in words(page)
    assert prompts(page) == ["question 902", "question 903"]
    page.number_input(key="samples_high").set_value(None).run()
    page.toggle(key="samples_silent").set_value(True).run()
    assert prompts(page) == ["question 903"]
    page.toggle(key="samples_silent").set_value(False).run()
    # device 1 is at home in the TrainPool, so what it generated it generated as an auxiliary
    page.selectbox(key="samples_role").select("auxiliary").run()
    assert prompts(page) == ["question 902"]
    page.number_input(key="samples_lag").set_value(0).run()
    assert "No group matches." in words(page)


def test_roles_of_rollouters_follow_the_home_of_their_device() -> None:
    devices = [DeviceRow(device=0, node="n", pool="rollout"), DeviceRow(device=1, node="n", pool="train")]
    assert devices_by_role(devices) == {"primary": frozenset({0}), "auxiliary": frozenset({1})}
    assert devices_by_role([DeviceRow(device=0, node="n")]) == {}, "without pools there are no roles"


def test_a_database_that_breaks_leaves_the_last_picture(folder: DataDir) -> None:
    write(folder, state="running")
    page = show()
    for path in folder.root.glob("telemetry.db*"):
        path.write_bytes(b"nothing of the kind")
    page.run()
    assert not page.exception, page.exception
    assert "The last good picture stays below." in words(page)
    assert "Learning looks healthy" in words(page)


def test_a_live_run_is_read_on_from_where_it_was(folder: DataDir) -> None:
    write(folder, state="running", steps=3)
    page = show()
    writer = open_writer(folder, time.time())
    writer.step(make_step(4, run_id=RUN, groups=1000, no_signal=1000))
    writer.close()
    page.run()
    assert "of 1,024 consumed groups carried no signal" in words(page)
    assert "of groups carried no signal" in words(page), "a finding of the newest step"
