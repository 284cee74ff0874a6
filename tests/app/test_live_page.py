"""The Live page under AppTest: each state of a run and of its data folder, and the commands that it sends."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from engine.config import dump_job, parse_job
from storage.mailbox import Mailbox
from storage.paths import DataDir
from tests.app.fake_lending import make_decision, make_lease
from tests.app.fake_run import JOB, open_writer, write_engine, write_folder, write_run

MAIN = str(Path(__file__).parents[2] / "app" / "main.py")
TIMEOUT_S = 30.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    return DataDir(tmp_path)


def show(run: str | None = None) -> AppTest:
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    if run is not None:
        page.query_params["run"] = run
    page.run()
    assert not page.exception, page.exception
    return page


def write(folder: DataDir, **given: Any) -> None:
    write_folder(folder.root, now=time.time(), **given)


def words(page: AppTest) -> str:
    """Everything that the page says."""
    parts = [
        *page.markdown,
        *page.caption,
        *page.subheader,
        *page.title,
        *page.code,
        *page.error,
        *page.warning,
        *page.info,
        *page.success,
    ]
    return "\n".join([*(str(part.value) for part in parts), *texts_of(told(page))])


def told(page: AppTest) -> Any:
    """What the page hands to its own elements."""
    return [json.loads(part.proto.json or "{}") for part in page.get("bidi_component")]


def texts_of(part: Any) -> list[str]:
    """Every text in it."""
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return [part] if isinstance(part, str) else [text for one in inner for text in texts_of(one)]


def button(page: AppTest, key: str) -> Any:
    return page.button(key=key)


def test_without_a_database_the_exact_command_is_shown(folder: DataDir) -> None:
    page = show()
    assert "No engine has run here yet" in words(page)
    assert f"bidirl serve --data-dir {folder.root}" in words(page)
    assert f"bidirl serve --demo --data-dir {folder.root}" in words(page)
    assert str(folder.telemetry_db) in words(page)


def test_the_empty_page_leads_to_the_demo(folder: DataDir) -> None:
    page = show()
    button(page, "launch_demo").click().run()
    assert [t.value for t in page.title] == ["Launch"]


def test_an_engine_without_runs_offers_the_demo(folder: DataDir) -> None:
    writer = open_writer(folder, time.time())
    write_engine(writer, now=time.time())
    writer.close()
    assert "No runs yet" in words(show())


def test_a_running_run_shows_its_state_its_progress_and_its_url(folder: DataDir) -> None:
    write(folder, steps=30)
    page = show()
    said = words(page)
    assert "Running · live" in said
    assert "step **30 / 60**" in said
    assert "no_borrow" in said
    assert "heartbeat" in said
    assert page.query_params["run"] == "demo-0001"
    assert not page.error


def test_the_newest_run_is_shown_when_none_is_named_and_the_named_one_otherwise(folder: DataDir) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now)
    write_run(writer, "old-1", now=now - 900, state="finished", steps=4)
    write_run(writer, "new-2", now=now, steps=4)
    writer.close()
    assert show().query_params["run"] == "new-2"
    assert "Finished" in words(show("old-1"))


def test_an_unknown_run_in_the_url_is_named_and_the_others_are_listed(folder: DataDir) -> None:
    write(folder)
    page = show("no<b>such")
    assert "There is no such run" in words(page)
    assert [c.value for c in page.code] == ["no<b>such"]
    assert "These runs are here" in words(page)


def test_the_warm_start_is_a_visible_state(folder: DataDir) -> None:
    write(
        folder,
        steps=0,
        state="warming_up",
        spans=False,
        training_at=None,
        measured_until=None,
        progress="warm start 120/520",
        progress_fraction=0.23,
    )
    page = show()
    assert "Warming up" in words(page)
    bars = page.get("progress")
    assert [bar.proto.value for bar in bars] == [23]
    assert "warm start 120/520" in bars[0].proto.text


def test_a_queued_run_says_what_it_waits_for(folder: DataDir) -> None:
    write(
        folder,
        steps=0,
        state="queued",
        spans=False,
        training_at=None,
        measured_until=None,
        progress="waits for 2 devices that demo-0000 holds",
    )
    said = words(show())
    assert "waits for 2 devices that demo-0000 holds" in said


def test_a_silent_engine_is_red_and_says_when_the_charts_froze(folder: DataDir) -> None:
    write(folder, beat_age_s=43.0)
    page = show()
    alarm = str(page.error[0].value)
    assert "Engine not reachable" in alarm
    assert "last heartbeat 4" in alarm
    assert "Charts are frozen at" in alarm
    assert "will be queued" in alarm
    assert "Interrupted" in words(page)
    button(page, "control_pause").click().run()
    with Mailbox(folder.control_db) as mailbox:
        assert [c.kind for c in mailbox.list("demo-0001")] == ["pause"]


def test_late_telemetry_is_a_warning(folder: DataDir) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now, queue_depth=1200)
    write_run(writer, now=now - 15)
    writer.close()
    page = show()
    assert "Telemetry is late" in words(page)
    assert "1,200 rows" in words(page)


def test_a_failed_run_says_why_and_when_it_was_last_well(folder: DataDir) -> None:
    write(folder, state="failed", error="device 1 ended with *exit* code 137")
    said = words(show())
    assert "The run failed: device 1 ended with *exit* code 137" in said
    assert "Last good step 30" in said


def test_an_interrupted_run_is_not_shown_as_running(folder: DataDir) -> None:
    write(folder, engine_id="engine-0")
    page = show()
    assert "Interrupted" in words(page)
    assert "Running" not in words(page)
    assert not button(page, "control_resume_run").disabled


@pytest.mark.parametrize(
    ("ledger", "says"),
    [
        ({"ok": True, "problems": [], "max_gap_fraction": 0.001, "cpu_over_busy": 0.95}, "Ledger check passed"),
        ({"ok": False, "problems": ["device 1: 2.1% of its time missing"]}, "device 1\\: 2.1% of its time missing"),
        (None, "not checked"),
    ],
    ids=["passed", "failed", "none"],
)
def test_the_ledgers_check_is_shown_when_a_run_is_over(folder: DataDir, ledger: Any, says: str) -> None:
    write(folder, state="finished", ledger=ledger)
    assert says in words(show())


def test_a_run_that_is_not_real_is_labelled(folder: DataDir) -> None:
    write(folder, kind="emulated", pools=(24, 8), steps=6)
    assert "EMULATED" in words(show())


def tables(page: AppTest) -> str:
    """The HTML that the page writes itself."""
    return "\n".join(part.proto.body for part in page.get("html"))


def test_decisions_are_listed_with_what_their_leases_brought(folder: DataDir) -> None:
    write(folder, arm="bidirectional", pools=(2, 2), steps=20, lending=True)
    page = show()
    assert "**Decisions** · the newest 20" in words(page)
    assert "**trainer's devices generate** · " in words(page)
    assert " delivered · median C\\_in + C\\_out " in words(page)
    assert "rollouter&#x27;s devices train" in tables(page)
    assert tables(page).count("<tr>") == 2 + 20
    assert "wins " in tables(page)


def test_an_arm_that_never_lends_says_so(folder: DataDir) -> None:
    write(folder)
    page = show()
    assert "Arm no\\_borrow lends nothing" in words(page)
    assert "<tr>" not in tables(page)


@pytest.mark.parametrize(
    ("state", "says"), [("running", "Nothing decided yet."), ("finished", "Nothing was decided in this run.")]
)
def test_a_run_that_may_lend_and_has_not_decided_says_so(folder: DataDir, state: str, says: str) -> None:
    write(folder, arm="bidirectional", state=state)
    assert says in words(show())


def test_of_five_hundred_decisions_the_newest_twenty_are_shown_and_all_are_counted(folder: DataDir) -> None:
    write(folder, arm="bidirectional")
    now = time.time()
    writer = open_writer(folder, now)
    writer.decisions([make_decision(id=i, at=now, step=i, reason=f"Reason <{i}>. " * 30) for i in range(1, 501)])
    writer.leases([make_lease(lease=i, granted_at=now - 60, released_at=now - 59) for i in range(1, 301)])
    writer.close()
    page = show()
    assert "300 admitted · 500 refused · 300 delivered" in words(page)
    assert tables(page).count("<tr>") == 2 + 20
    assert "Reason &lt;500&gt;." in tables(page)
    assert "Reason &lt;480&gt;." not in tables(page)


def test_a_guard_and_leases_that_lose_time_need_attention(folder: DataDir) -> None:
    write(folder, arm="bidirectional", guards={"train_on_rollout": "Off for 20 windows: they lost 0.3 s."})
    writer = open_writer(folder, time.time())
    writer.leases([make_lease(lease=i, measured_gain_s=-0.1 if i < 4 else 0.1) for i in range(8)])
    writer.close()
    said = words(show())
    assert "The guard switched a direction off: rollouter's devices train" in said
    assert said.replace("\\", "").count("Off for 20 windows: they lost 0.3 s.") == 2, "in its card and above the table"
    assert "4 of 8 measured leases lost time: trainer's devices generate" in said


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_deterministic_run_has_a_badge(folder: DataDir, deterministic: bool) -> None:
    job = parse_job(JOB.replace("staleness: 1.0", f"staleness: 1.0, deterministic: {str(deterministic).lower()}"))
    write(folder, job=dump_job(job))
    assert ("deterministic" in words(show())) == deterministic


def test_a_broken_database_is_named(folder: DataDir) -> None:
    folder.telemetry_db.write_bytes(b"this is no database" * 500)
    page = show()
    assert "cannot be read" in str(page.error[0].value)
    assert str(folder.telemetry_db) in str(page.error[0].value)


def test_a_database_of_a_newer_program_is_not_misread(folder: DataDir) -> None:
    write(folder)
    with sqlite3.connect(folder.telemetry_db) as connection:
        connection.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
            " SELECT migration_set, 'm999_future', applied_at FROM _sqlite_migrations LIMIT 1"
        )
    assert "newer than this page" in str(show().error[0].value)


def test_the_last_frame_stays_when_the_database_breaks_under_the_page(folder: DataDir) -> None:
    write(folder)
    page = show()
    for name in ("telemetry.db", "telemetry.db-wal", "telemetry.db-shm"):
        (folder.root / name).unlink(missing_ok=True)
    folder.telemetry_db.write_bytes(b"gone bad" * 500)
    page.run()
    assert not page.exception
    assert "The last good picture stays below" in words(page)
    assert "step **30 / 60**" in words(page)


@pytest.mark.parametrize("kind", ["pause", "checkpoint"])
def test_a_button_sends_a_command_and_says_nothing_of_success(folder: DataDir, kind: str) -> None:
    write(folder)
    page = show()
    button(page, f"control_{kind}").click().run()
    with Mailbox(folder.control_db) as mailbox:
        sent = mailbox.list("demo-0001")
    assert [(c.kind, c.who, c.state, c.run_id) for c in sent] == [(kind, "ana", "pending", "demo-0001")]
    assert sent[0].expires_at is not None
    assert f"**{kind}** is sent and waits for the engine." in words(page)
    assert not page.success
    assert button(page, f"control_{kind}").disabled


def test_stopping_asks_first(folder: DataDir) -> None:
    write(folder)
    page = show()
    button(page, "control_stop_confirm").click().run()
    with Mailbox(folder.control_db) as mailbox:
        assert [c.kind for c in mailbox.list("demo-0001")] == ["stop"]


def test_settings_are_changed_on_the_control_page_to_which_the_live_page_leads(folder: DataDir) -> None:
    write(folder)
    page = show()
    assert not page.number_input or all("staleness" not in str(field.key) for field in page.number_input)
    links = [link.proto for link in page.get("page_link")]
    assert [(link.page, link.query_string) for link in links if "staleness" in link.label] == [
        ("control", "run=demo-0001")
    ]


def test_a_command_is_a_success_only_when_it_is_applied(folder: DataDir) -> None:
    write(folder)
    with Mailbox(folder.control_db) as mailbox:
        command = mailbox.send("pause", {}, "demo-0001", who="ben")
        mailbox.accept(command)
        page = show()
        assert not page.success
        mailbox.apply(command, "Paused in step 31.")
    page = show()
    assert "Paused in step 31." in str(page.success[0].value)


def test_a_refused_command_says_why(folder: DataDir) -> None:
    write(folder)
    with Mailbox(folder.control_db) as mailbox:
        mailbox.reject(mailbox.send("staleness", {"staleness": 40}, "demo-0001", who="ben"), "at most 16, got 40")
    assert "was rejected. at most 16, got 40" in words(show())


@pytest.mark.parametrize(
    ("state", "enabled"),
    [
        ("running", {"pause", "checkpoint"}),
        ("paused", {"resume", "checkpoint"}),
        ("warming_up", {"pause"}),
        ("stopping", set()),
    ],
)
def test_only_commands_that_make_sense_are_offered(folder: DataDir, state: str, enabled: set[str]) -> None:
    write(folder, state=state)
    page = show()
    offered = {k for k in ("pause", "resume", "checkpoint") if not button(page, f"control_{k}").disabled}
    assert offered == enabled


def test_a_run_that_is_over_offers_a_clone_instead_of_controls(folder: DataDir) -> None:
    write(folder, state="finished")
    page = show()
    assert "nothing left to steer" in words(page)
    button(page, "control_clone").click().run()
    assert [t.value for t in page.title] == ["Launch"]
    assert page.query_params["clone"] == "demo-0001"


def test_samples_show_prompt_answers_rewards_and_versions_as_they_are(folder: DataDir) -> None:
    write(folder, steps=16)
    page = show()
    shown = [c.value for c in page.code]
    assert any("Work this out" in c for c in shown)
    assert any("<answer>" in c for c in shown)
    assert "reward 1" in words(page)
    assert "version 14 (4)" in words(page)


def test_samples_can_be_narrowed(folder: DataDir) -> None:
    write(folder, steps=16)
    page = show()
    page.selectbox(key="samples_state").select("excluded").run()
    assert "no reward" in words(page)
    page.text_input(key="samples_step").input("x").run()
    assert "must be the number of a step, got 'x'" in words(page)
    page.text_input(key="samples_step").input("3").run()
    assert "No group matches." in words(page)
