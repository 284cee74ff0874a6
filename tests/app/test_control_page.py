"""The Control page under AppTest: the form and its review, what it sends, the log, and each state of run and reader."""

from __future__ import annotations

import re
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.control_form import key_of
from app.prediction import effect_text, expected_effect
from engine.config import dump_job, load_job, parse_job, settings_of
from engine.config.operators import SECRET_VARIABLE
from planner.effects import Effect
from planner.whatif import Band, Lately, Prediction
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.records import Command
from tests.app.fake_commands import Asked, write_commands
from tests.app.fake_emulated import JOB_FILE, STEP_S, write_emulated
from tests.app.fake_run import JOB, open_writer, write_engine, write_run
from tests.app.test_live_page import show as show_live
from tests.app.test_live_page import tables, words

MAIN = str(Path(__file__).parents[2] / "app" / "main.py")
PAGE = "app_pages/control.py"
RUN = "emulated_16-0001"
BEGAN = settings_of(load_job(JOB_FILE))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    return DataDir(tmp_path)


def write(folder: DataDir, *asked: Asked, beat_age_s: float = -600.0, **given: Any) -> None:
    """An emulated run of 30 steps, and its commands with moments in steps since it began."""
    now = time.time()
    steps = given.get("steps", 30)
    writer = open_writer(folder, now)
    write_engine(writer, now=now, beat_age_s=beat_age_s)
    values = {"config_version": 0, **given}
    if asked:
        start = now - steps * STEP_S
        placed = [replace(each, at=start + each.at * STEP_S) for each in asked]
        values["settings"] = write_commands(folder, RUN, placed, BEGAN)
        values["config_version"] = sum(each.state in ("applied", "accepted") for each in asked)
    write_emulated(writer, RUN, now=now, **values)
    writer.close()


def write_demo(folder: DataDir, **given: Any) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    write_run(writer, now=now, **given)
    writer.close()


def update(folder: DataDir, run_id: str = RUN, **columns: Any) -> None:
    writer = open_writer(folder, time.time())
    writer.run(run_id, **columns)
    writer.close()


def show(run: str | None = RUN) -> AppTest:
    page = AppTest.from_file(MAIN, default_timeout=60.0)
    if run is not None:
        page.query_params["run"] = run
    page.run()
    page.switch_page(PAGE)
    if run is not None:
        page.query_params["run"] = run
    page.run()
    assert not page.exception, page.exception
    return page


def field(page: AppTest, name: str, run: str = RUN, *, generation: int = 0) -> Any:
    key = key_of(run, name, generation)
    return next(widget for widget in (*page.number_input, *page.selectbox, *page.toggle) if str(widget.key) == key)


def sent(folder: DataDir, run: str = RUN) -> list[Command]:
    """Oldest first."""
    with Mailbox(folder.control_db) as mailbox:
        return mailbox.list(run)[::-1]


def review(page: AppTest, **values: Any) -> AppTest:
    for name, value in values.items():
        field(page, name).set_value(value).run()
    page.button(key="control_review").click().run()
    assert not page.exception, page.exception
    return page


def keys(page: AppTest) -> set[str]:
    return {str(button.key) for button in page.button}


# -- the form ----------------------------------------------------------------------------------------------------------


def test_the_form_holds_what_governs_and_offers_only_what_the_engine_would_take(folder: DataDir) -> None:
    write(folder)
    page = show()
    assert [title.value for title in page.title] == ["Control"]
    assert page.query_params["run"] == RUN
    held = {name: field(page, name).value for name in BEGAN}
    assert held == BEGAN
    assert [option.split(" ")[0] for option in field(page, "partition").options] == ["4:12", "8:8", "12:4"]
    assert not [arm for arm in field(page, "arm").options if "colocated" in arm]
    assert page.button(key="control_review").disabled
    assert "Nothing is changed yet." in words(page)


def test_what_cannot_be_made_is_said_beside_the_form_before_anything_is_sent(folder: DataDir) -> None:
    # three devices can train without lending, and cannot be lent
    job = load_job(JOB_FILE, ["schedule.arm=no_borrow", "devices.partition=9:3", "devices.count=12",
                              "devices.train_replica_size=3"])  # fmt: skip
    job = job.model_copy(update={"devices": job.devices.model_copy(update={"rollout_replica_size": 9})})
    write(folder, job=dump_job(job), arm="no_borrow", pools=(8, 4))
    page = show()
    field(page, "arm").set_value("bidirectional").run()
    assert page.button(key="control_review").disabled
    assert "to be lent" in words(page)


def test_a_field_that_nobody_touched_follows_and_a_touched_one_is_left_alone(folder: DataDir) -> None:
    write(folder)
    page = show()
    field(page, "staleness").set_value(2.0).run()
    update(folder, settings={**BEGAN, "partition": "12:4", "staleness": 0.5}, config_version=2)
    page.run()
    assert field(page, "partition").value == "12:4"
    assert field(page, "staleness").value == 2.0, "an input is never taken from under a hand"
    assert "staleness 0.5 → 2" in words(page)
    page.button(key="control_reset").click().run()
    assert field(page, "staleness", generation=1).value == 0.5
    assert page.button(key="control_review").disabled


def test_a_reset_replaces_every_field_because_a_browser_keeps_an_invalid_number_to_itself(folder: DataDir) -> None:
    write(folder)
    page = show()
    # a number out of range never leaves the browser, so that for the page nothing is changed yet
    assert not page.button(key="control_reset").disabled
    before = {field(page, name).id for name in BEGAN}
    page.button(key="control_reset").click().run()
    after = {field(page, name, generation=1).id for name in BEGAN}
    assert not before & after
    field(page, "staleness", generation=1).set_value(2.0).run()
    update(folder, settings={**BEGAN, "partition": "12:4"}, config_version=2)
    page.run()
    assert field(page, "partition", generation=1).value == "12:4", "what nobody touched still follows"
    assert "staleness 1 → 2" in words(page)


# -- review and confirm ------------------------------------------------------------------------------------------------


def test_a_review_says_what_is_expected_and_when_and_sends_nothing(folder: DataDir) -> None:
    write(folder)
    page = review(show(), staleness=0.5, partition="12:4")
    said = words(page)
    assert "**Review** · staleness 1 → 0.5 · partition 8\\:8 → 12\\:4" in said
    labels = [metric.label for metric in page.metric]
    assert labels == ["Tokens/s, modelled", "Idle", "Mean lag, versions"]
    assert " to " in page.metric[0].delta
    assert "now " in page.metric[1].delta
    assert "at most 30 of a step's 60 groups may be 1 version late" in said
    assert "4 devices change their pool\\: trainers leave when their chunk has ended" in said
    assert "With the settings as they are the model says" in said
    assert sent(folder) == []


def test_confirm_sends_staleness_partition_and_policy_for_the_versions_that_each_leaves(folder: DataDir) -> None:
    write(folder)
    update(folder, config_version=7)
    page = review(show(), arm="no_borrow", partition="12:4", staleness=0.5, lend_cap=4)
    page.button(key="control_confirm").click().run()
    found = sent(folder)
    assert [(c.kind, c.payload, c.expected_config_version) for c in found] == [
        ("staleness", {"staleness": 0.5}, 7),
        ("partition", {"partition": "12:4"}, 8),
        ("policy", {"arm": "no_borrow", "lend_cap": 4}, 9),
    ]
    assert {(c.who, c.state, c.run_id) for c in found} == {("ana", "pending", RUN)}
    assert all(c.expected_effect and c.expected_effect.startswith("tokens/s, modelled ") for c in found)
    assert all(c.expected_effect and c.expected_effect.endswith("of 3 changes together") for c in found)
    assert "control_confirm" not in keys(page)
    assert words(page).count("is sent and waits for the engine") == 3
    assert not page.success


def test_success_is_said_only_when_it_is_applied(folder: DataDir) -> None:
    write(folder)
    page = review(show(), staleness=0.5)
    page.button(key="control_confirm").click().run()
    with Mailbox(folder.control_db) as mailbox:
        mailbox.accept(1, "Governs starts from now on.")
        page.run()
        assert "**staleness 1 → 0.5** is accepted. Governs starts from now on." in words(page)
        assert not page.success
        mailbox.apply(1, "Effective at step 33.", effective_step=33, result={"changes": {"staleness": 0.5}})
    page.run()
    assert [str(told.value) for told in page.success] == ["**staleness 1 → 0.5** was applied. Effective at step 33."]
    # a minute later it is no news any more, and the log has it
    with sqlite3.connect(folder.control_db) as database:
        database.execute("UPDATE commands SET applied_at = applied_at - 61")
    page.run()
    assert not page.success
    assert "Effective at step 33." in tables(page)


def test_a_review_that_somebody_overtook_is_closed_until_it_is_made_again(folder: DataDir) -> None:
    write(folder)
    page = review(show(), staleness=0.5)
    update(folder, settings={**BEGAN, "lend_cap": 2}, config_version=1)
    page.run()
    assert "The run was changed since this review was made" in words(page)
    assert page.button(key="control_confirm").disabled
    page.button(key="control_review_again").click().run()
    assert not page.button(key="control_confirm").disabled
    page.button(key="control_confirm").click().run()
    assert [c.expected_config_version for c in sent(folder)] == [1]


def test_a_review_of_something_else_than_the_form_holds_is_closed(folder: DataDir) -> None:
    write(folder)
    page = review(show(), staleness=0.5)
    field(page, "staleness").set_value(0.25).run()
    assert "control_confirm" not in keys(page)
    page = review(page)
    page.button(key="control_discard").click().run()
    assert "control_confirm" not in keys(page)
    assert sent(folder) == []


def test_before_enough_is_measured_there_is_no_number_but_the_reason_and_the_change_can_be_sent(
    folder: DataDir,
) -> None:
    write(folder, steps=2)
    page = review(show(), staleness=0.5)
    assert "**No prediction** · 1 steps were made with the present settings; 5 are needed" in words(page)
    assert not page.metric
    page.button(key="control_confirm").click().run()
    assert str(sent(folder)[0].expected_effect).startswith("not predicted: 1 steps were made")


def test_a_real_run_without_measured_switch_costs_is_not_predicted(folder: DataDir) -> None:
    write_demo(folder)
    page = show("demo-0001")
    field(page, "staleness", "demo-0001").set_value(0.5).run()
    page.button(key="control_review").click().run()
    assert "the run has not measured all of its speeds and switch costs" in words(page)


def test_a_job_with_one_possible_split_offers_no_other(folder: DataDir) -> None:
    write_demo(folder)
    assert field(show("demo-0001"), "partition", "demo-0001").disabled


def test_an_expected_effect_is_one_sentence_with_its_band() -> None:
    band = Band(low=900.0, middle=1000.0, high=1100.0)
    now = Lately(steps=10, tokens_per_s=800.0, idle={"staleness_cap": 0.1}, lag=0.5)
    found = Prediction(ratio=band, tokens_per_s=band, now=now, idle={"staleness_cap": 0.05}, lag=0.25, model_error=0.02)
    assert expected_effect(found) == "tokens/s 800 → 1,000 (900 to 1,100), idle 10.0% → 5.0%, mean lag 0.50 → 0.25"
    assert expected_effect(Prediction(why_not="nothing fits")) == "not predicted: nothing fits"


# -- buttons -----------------------------------------------------------------------------------------------------------


def test_undo_says_which_command_it_takes_back_and_to_what(folder: DataDir) -> None:
    write(
        folder,
        Asked(kind="staleness", payload={"staleness": 0.5}, at=5, step=7),
        Asked(kind="partition", payload={"partition": "12:4"}, at=12, step=13, who="ben"),
    )
    page = show()
    said = words(page)
    assert "Takes back **command 2** of ben: partition 8\\:8 → 12\\:4." in said
    assert "From then on: **partition 12\\:4 → 8\\:8**" in said
    page.button(key="control_undo_confirm").click().run()
    undo = sent(folder)[-1]
    assert (undo.kind, undo.payload, undo.expected_config_version) == ("undo", {}, 2)
    assert undo.expected_effect == "command 2 is taken back: partition 12:4 → 8:8"


def test_without_a_change_there_is_nothing_to_undo(folder: DataDir) -> None:
    write(folder, Asked(kind="pause", at=3, step=4), Asked(kind="resume", at=4, step=4))
    assert "control_undo_confirm" not in keys(show())


@pytest.mark.parametrize(("state", "mode"), [("running", "drain"), ("paused", "now")])
def test_a_stop_asks_how_and_a_run_without_a_step_in_hand_stops_at_once(folder: DataDir, state: str, mode: str) -> None:
    write(folder, state=state)
    page = show()
    radio = next(box for box in page.radio if str(box.key).startswith("control_stop_mode"))
    assert radio.value == mode
    page.button(key="control_stop_confirm").click().run()
    assert [(c.kind, c.payload) for c in sent(folder)] == [("stop", {"mode": mode})]


def test_a_stop_that_waits_for_its_step_can_be_made_at_once_and_nothing_else_is_taken(folder: DataDir) -> None:
    write(folder, Asked(kind="stop", payload={"mode": "drain"}, at=29, state="accepted"))
    page = show()
    assert page.button(key="control_pause").disabled
    page.button(key="control_stop_confirm").click().run()
    assert [c.payload for c in sent(folder)] == [{"mode": "drain"}, {"mode": "now"}]
    assert page.button(key="control_stop_confirm").disabled


@pytest.mark.parametrize(("state", "kind"), [("running", "pause"), ("paused", "resume")])
def test_pause_and_resume_are_sent_from_here_too(folder: DataDir, state: str, kind: str) -> None:
    write(folder, state=state)
    show().button(key=f"control_{kind}").click().run()
    assert [c.kind for c in sent(folder)] == [kind]


# -- asked for and in effect -------------------------------------------------------------------------------------------


def test_what_was_asked_for_stands_beside_what_is_in_effect(folder: DataDir) -> None:
    write(
        folder,
        Asked(kind="staleness", payload={"staleness": 0.5}, at=29, state="accepted"),
        Asked(kind="partition", payload={"partition": "12:4"}, at=29, state="accepted"),
        guards={"train_on_rollout": "Off for 20 windows: they lost 0.3 s."},
    )
    html = tables(show())
    rows = [row for row in html.split("<tr>") if 'class="what"' in row]
    told = {row.split(">")[1].split("<")[0]: row for row in rows}
    assert '<td class="short">0.5</td><td class="state open">1</td>' in told["staleness"]
    assert '<td class="short">12:4</td><td class="state open">8:8</td>' in told["partition"]
    assert "4 devices have to move" in told["partition"]
    assert 'open">off for now</td>' in told["rollouter&#x27;s devices train"]
    assert "Off for 20 windows" in told["rollouter&#x27;s devices train"]
    assert 'settled">bidirectional</td>' in told["arm"]
    assert 'settled">0 s, modelled</td>' in told["minimum lease"]


# -- the log -----------------------------------------------------------------------------------------------------------


def test_the_log_tells_who_when_what_and_what_it_did(folder: DataDir) -> None:
    write(
        folder,
        Asked(kind="staleness", payload={"staleness": 0.5}, at=10, took_s=2.5, step=12, expected="tokens/s 1 → 2"),
        Asked(kind="staleness", payload={"staleness": 40}, at=11, who="<ben>", state="rejected", answer="at most 16"),
        Asked(
            kind="partition",
            payload={"partition": "12:4"},
            at=20,
            step=21,
            answer="Moving took 0.28 s.",
            cost={"moved": [8], "seconds": 0.28, "device_s": 1.12},
        ),
    )
    log = next(part.proto.body for part in show().get("html") if 'class="control-table log"' in part.proto.body)
    newest, refused, first = log.split("<tbody>")[1].split("</tr>")[:3]
    assert "partition 8:8 → 12:4" in newest
    assert "moving took 14 s, 56 device-s, modelled" in newest
    assert "steps on each side" in newest
    assert re.search(r"idle \d+\.\d% → \d+\.\d%", newest)
    assert "&lt;ben&gt;" in refused
    assert "staleness 0.5 → 40" in refused
    assert '<td class="state rejected">rejected</td><td class="n">–</td><td class="long">at most 16</td>' in refused
    assert "<b>" not in log
    assert '<td class="n">2.5 s</td>' in first
    assert "step 12" in first
    assert "tokens/s 1 → 2" in first
    assert "tokens/s, modelled " in first


def test_changes_that_were_sent_together_share_their_effect_and_a_short_stretch_has_none(folder: DataDir) -> None:
    write(
        folder,
        Asked(kind="staleness", payload={"staleness": 0.5}, at=10, step=12),
        Asked(kind="policy", payload={"lend_cap": 2}, at=10.01, step=12),
        Asked(kind="staleness", payload={"staleness": 1.0}, at=28, step=29),
    )
    log = next(part.proto.body for part in show().get("html") if 'class="control-table log"' in part.proto.body)
    last, policy, staleness = log.split("<tbody>")[1].split("</tr>")[:3]
    assert "<small>with 1</small>" in policy
    assert "<small>with 2</small>" in staleness
    assert "not measured: 1 of 3 steps" in last


def test_an_effect_names_the_causes_that_moved_most() -> None:
    did = Effect(
        before_tokens_per_s=100.0, after_tokens_per_s=110.0, ratio=1.1, low=1.05, high=1.15, steps=10, before_lag=None,
        after_lag=None, before_idle={"staleness_cap": 0.1, "waiting_for_groups": 0.02, "step_barrier": 0.01},
        after_idle={"waiting_for_groups": 0.035, "step_barrier": 0.012},
    )  # fmt: skip
    assert effect_text(did) == (
        "tokens/s 100 → 110, +10 % (+5.0 % to +15 %), idle 13.0% → 4.7% (staleness cap 10.0% → 0.0%, "
        "waiting for groups 2.0% → 3.5%), 10 steps on each side"
    )


# -- states ------------------------------------------------------------------------------------------------------------


def test_without_a_database_the_exact_command_is_shown(folder: DataDir) -> None:
    page = show(None)
    assert [title.value for title in page.title] == ["Control"]
    assert f"bidirl serve --data-dir {folder.root}" in words(page)


def test_an_unknown_run_in_the_url_is_named(folder: DataDir) -> None:
    write(folder)
    assert "There is no such run" in words(show("nobody"))


def test_the_run_in_the_url_is_the_one_that_is_steered(folder: DataDir) -> None:
    write(folder)
    write_demo(folder)
    page = show(RUN)
    page.button(key="control_pause").click().run()
    assert [c.run_id for c in sent(folder)] == [RUN]


def test_a_silent_engine_is_red_and_commands_wait_for_it(folder: DataDir) -> None:
    write(folder, beat_age_s=43.0)
    page = show()
    alarm = str(page.error[0].value)
    assert "Engine not reachable" in alarm
    assert "Commands will be queued and applied when it returns" in alarm
    assert "within 5 minutes expires" in words(page)
    page = review(page, staleness=0.5)
    page.button(key="control_confirm").click().run()
    assert [c.state for c in sent(folder)] == ["pending"]


def test_a_colocated_run_says_why_there_is_nothing_to_set(folder: DataDir) -> None:
    job = parse_job(JOB.replace("arm: no_borrow", "arm: colocated").replace(', partition: "1:1"', ""))
    write_demo(folder, arm="colocated", job=dump_job(job), partition=None)
    page = show("demo-0001")
    assert "**A colocated run has no pools**" in words(page)
    assert "control_review" not in keys(page)
    assert not page.button(key="control_pause").disabled


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_a_run_that_is_over_keeps_its_log_and_offers_a_clone(folder: DataDir, state: str) -> None:
    write(folder, Asked(kind="staleness", payload={"staleness": 0.5}, at=10, step=12), state=state)
    page = show()
    assert "there is nothing left to steer" in words(page)
    assert not keys(page) & {"control_review", "control_pause", "control_stop_confirm", "control_undo_confirm"}
    assert "staleness 1 → 0.5" in tables(page)
    assert "steps on each side" in tables(page)
    page.button(key="control_clone").click().run()
    assert [title.value for title in page.title] == ["Launch"]


@pytest.mark.parametrize("state", ["queued", "stopping"])
def test_a_run_that_takes_no_changes_says_so(folder: DataDir, state: str) -> None:
    write(folder, state=state)
    page = show()
    field(page, "staleness").set_value(0.5).run()
    assert page.button(key="control_review").disabled
    assert f"The run is {state}" in words(page)


def test_an_emulated_run_is_labelled_over_every_card(folder: DataDir) -> None:
    write(folder)
    said = words(review(show(), staleness=0.5))
    for card in ("Change settings", "Asked for and in effect", "Review", "Commands"):
        heading = next(line for line in said.splitlines() if line.startswith(f"**{card}"))
        assert ":violet-badge[EMULATED]" in heading


def test_a_real_run_is_nowhere_called_emulated(folder: DataDir) -> None:
    write_demo(folder)
    page = show("demo-0001")
    assert "EMULATED" not in words(page) + tables(page)
    assert "modelled" not in words(page) + tables(page)


def test_a_viewer_sees_everything_and_sends_nothing(folder: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "long enough a secret for anybody")
    write(folder, Asked(kind="staleness", payload={"staleness": 0.5}, at=5, step=7))
    page = review(show(), partition="12:4")
    assert "**You see and do not command**" in words(page)
    assert page.metric, "what is expected is nothing to hide"
    closed = {str(b.key) for b in page.button if b.disabled}
    assert closed >= {"control_pause", "control_confirm", "control_stop_confirm", "control_undo_confirm"}
    live = show_live(RUN)
    assert live.button(key="control_pause").disabled
    assert "sign in at the top of the page" in words(live)


def test_the_last_picture_stays_when_the_database_breaks_under_the_page(folder: DataDir) -> None:
    write(folder)
    page = show()
    for name in ("telemetry.db", "telemetry.db-wal", "telemetry.db-shm"):
        (folder.root / name).unlink(missing_ok=True)
    folder.telemetry_db.write_bytes(b"gone bad" * 500)
    page.run()
    assert not page.exception, page.exception
    assert "The last good picture stays below" in words(page)
    assert "**Change settings**" in words(page)
