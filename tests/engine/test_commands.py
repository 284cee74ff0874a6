"""Operator commands on one run through a real mailbox: refused with a reason, or answered when they take effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.config import Refused, change_of
from engine.run.commands import RunCommands
from storage.mailbox import Mailbox
from storage.records import Command
from tests.engine.simulated import Physics
from tests.engine.simulated_run import SimulatedRun, make_job


class Operated:
    """A simulated run with its mailbox, taken in as the service does."""

    def __init__(self, folder: Path, **sections: dict[str, Any]) -> None:
        # B = 4, and enough steps that a change at s = 2 becomes effective before the end
        sections["algorithm"] = {"steps": 14} | sections.get("algorithm", {})
        self.sim = SimulatedRun(make_job(**sections), folder / "run", physics=Physics(excluded=0.0))
        self.mailbox = Mailbox(folder / "control.db")
        self.commands = RunCommands(self.sim.run, self.mailbox)
        self.sim.each_tick = self.commands.settle

    def until(self, moment: Callable[[], bool]) -> None:
        self.sim.play(until=moment)
        assert moment(), "the run ended before"

    def reach(self, version: int) -> None:
        self.until(lambda: self.sim.book.step.version == version)

    def send(self, kind: str, payload: dict[str, Any] | None = None, *, expected: int | None = None) -> int:
        command_id = self.mailbox.send(kind, payload or {}, "run", who="ann", expected_config_version=expected)
        for command in self.mailbox.pending():
            self.commands.receive(command)
        return command_id

    def answer(self, command_id: int) -> Command:
        return self.mailbox.get(command_id)

    def finish(self) -> None:
        self.sim.play()
        self.commands.end()


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[Callable[..., Operated]]:
    made: list[Operated] = []

    def make(**sections: dict[str, Any]) -> Operated:
        made.append(Operated(tmp_path / str(len(made)), **sections))
        return made[-1]

    yield make
    for run in made:
        run.mailbox.close()


Make = Callable[..., Operated]


# -- staleness --------------------------------------------------------------------------------------------------------


def test_a_change_of_staleness_is_applied_at_the_first_step_made_only_of_groups_started_under_it(
    make_run: Make,
) -> None:
    run = make_run(schedule={"staleness": 2})
    run.reach(3)
    first_new = run.sim.book.started
    change = run.send("staleness", {"staleness": 0})
    accepted = run.answer(change)
    assert accepted.state == "accepted"
    assert accepted.answer is not None
    assert accepted.answer.startswith("Staleness 0 governs starts from now on; groups already started keep their bound")
    assert run.sim.book.bound.staleness == 0
    run.finish()
    applied = run.answer(change)
    effective = next(
        row.step for step, row in run.sim.recorder.steps if min(group.group_id for group in step.taken) >= first_new
    )
    assert (applied.state, applied.effective_step, applied.effective_version) == ("applied", effective, effective - 1)
    assert applied.answer == f"Effective at step {effective}, the first one made only of groups started under it."
    assert run.sim.recorder.columns["staleness_effective_step"] == effective
    assert all(row.lag_max == 0 for _, row in run.sim.recorder.steps if row.step >= effective)


def test_the_answer_names_a_step_that_the_change_keeps(make_run: Make) -> None:
    run = make_run(schedule={"staleness": 2})
    run.reach(3)
    change = run.send("staleness", {"staleness": 0.5})
    words = (run.answer(change).answer or "").replace(",", " ").split()
    expected, latest = (int(words[place + 1]) for place, word in enumerate(words) if word == "step")
    run.finish()
    effective = run.answer(change).effective_step
    assert effective is not None
    assert expected <= effective <= latest


def test_2_to_0_to_1_on_a_live_run_keeps_each_groups_bound(make_run: Make) -> None:
    run = make_run(schedule={"staleness": 2}, algorithm={"steps": 16})
    run.reach(3)
    to_0 = run.send("staleness", {"staleness": 0})
    run.until(lambda: run.answer(to_0).state == "applied")
    to_1 = run.send("staleness", {"staleness": 1})
    run.until(lambda: run.answer(to_1).state == "applied")
    run.finish()
    lags = {row.step: row.lag_max for _, row in run.sim.recorder.steps}
    at_0, at_1 = run.answer(to_0).effective_step, run.answer(to_1).effective_step
    assert at_0 is not None
    assert at_1 is not None
    assert at_0 < at_1
    assert all(lags[step] == 0 for step in range(at_0, at_1 - 1))
    assert max(lag for step, lag in lags.items() if step >= at_1) == 1
    assert run.commands.config_version == run.sim.recorder.columns["config_version"] == 2


def test_a_change_that_a_later_one_overtakes_is_superseded(make_run: Make) -> None:
    run = make_run(schedule={"staleness": 2})
    run.reach(3)
    first, second = run.send("staleness", {"staleness": 0}), run.send("staleness", {"staleness": 1})
    superseded = run.answer(first)
    assert (superseded.state, superseded.answer) == (
        "superseded",
        "A later change of staleness took effect before this one.",
    )
    assert run.answer(second).state == "accepted"
    run.finish()
    assert run.answer(second).state == "applied"


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        pytest.param({"staleness": -0.5}, "staleness must be a number from 0 to 16, got -0.5", id="negative"),
        pytest.param({"staleness": 17}, "staleness must be a number from 0 to 16, got 17", id="too much"),
        pytest.param({"staleness": "1"}, "staleness must be a number from 0 to 16, got '1'", id="text"),
        pytest.param({"staleness": True}, "staleness must be a number from 0 to 16, got True", id="a truth value"),
        pytest.param({"staleness": [1]}, "staleness must be a number from 0 to 16, got [1]", id="a list"),
        pytest.param({}, "a staleness command sets staleness; it is empty", id="nothing"),
        pytest.param({"staleness": 1.0}, "staleness is 1.0 already", id="the same"),
    ],
)
def test_a_staleness_that_cannot_be_is_refused_and_changes_nothing(
    payload: dict[str, Any], told: str, make_run: Make
) -> None:
    run = make_run()
    run.reach(1)
    bound = run.sim.book.bound
    answer = run.answer(run.send("staleness", payload))
    assert (answer.state, answer.answer) == ("rejected", told)
    assert run.sim.book.bound is bound
    assert run.commands.config_version == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_what_is_no_finite_number_is_refused_even_where_json_would_let_it_through(value: float) -> None:
    with pytest.raises(Refused, match=f"staleness must be a number from 0 to 16, got {value}"):
        change_of("staleness", value)


def test_the_job_file_and_a_command_refuse_alike(make_run: Make) -> None:
    run = make_run(schedule={"staleness": 0}, algorithm={"correction": "none"})
    run.reach(1)
    answer = run.answer(run.send("staleness", {"staleness": 1}))
    assert answer.state == "rejected"
    assert "trains on stale samples as if they were fresh" in (answer.answer or "")


def test_a_colocated_run_has_no_staleness_to_change(make_run: Make) -> None:
    run = make_run(schedule={"arm": "colocated"}, devices={"partition": "auto", "count": 1})
    run.reach(1)
    answer = run.answer(run.send("staleness", {"staleness": 1}))
    assert answer.state == "rejected"
    assert answer.answer == (
        "a colocated run has no pools: its staleness is 0 by construction, and there is nothing to split or to lend"
    )


# -- pause and resume -------------------------------------------------------------------------------------------------


def test_a_pause_is_applied_when_running_work_has_ended_and_a_resume_at_once(make_run: Make) -> None:
    run = make_run()
    run.reach(2)
    pause = run.send("pause")
    assert run.answer(pause).state == "accepted"
    assert run.answer(pause).answer == "Pausing in step 3: running groups and chunks end first."
    run.until(lambda: run.sim.run.state == "paused")
    applied = run.answer(pause)
    step = run.sim.book.step.version + 1
    assert (applied.state, applied.effective_step, applied.effective_version) == ("applied", step, step - 1)
    assert applied.answer == f"Paused in step {step}: running groups and chunks have ended."
    resume = run.answer(run.send("resume"))
    assert (resume.state, resume.answer) == ("applied", f"Resumed in step {step}.")
    run.finish()
    assert run.sim.run.state == "finished"
    assert run.commands.config_version == 2


def test_a_resume_before_the_run_has_come_to_rest_supersedes_the_pause(make_run: Make) -> None:
    run = make_run()
    run.until(lambda: run.sim.groups.flying > 0)
    pause = run.send("pause")
    resume = run.send("resume")
    assert run.answer(pause).state == "superseded"
    assert run.answer(pause).answer == "Resumed before the run had come to rest."
    assert run.answer(resume).state == "applied"
    run.finish()


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        pytest.param(["pause", "pause"], "the run is already", id="pausing twice"),
        pytest.param(["resume"], "the run is running, not paused", id="resuming what runs"),
    ],
)
def test_a_command_that_has_nothing_to_do_is_refused(kinds: list[str], told: str, make_run: Make) -> None:
    run = make_run()
    run.reach(1)
    last = [run.answer(run.send(kind)) for kind in kinds][-1]
    assert last.state == "rejected"
    assert (last.answer or "").startswith(told)


# -- checkpoint -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_applied_when_its_folder_is_complete(make_run: Make) -> None:
    run = make_run()
    run.reach(2)
    first, second = run.send("checkpoint"), run.send("checkpoint")
    assert run.answer(first).answer == "Version 2 is written as soon as the trainer has a gap."
    run.until(lambda: run.answer(first).state == "applied")
    for command_id in (first, second):
        applied = run.answer(command_id)
        assert (applied.state, applied.effective_step, applied.effective_version) == ("applied", 2, 2)
        assert applied.result is not None
        assert (Path(applied.result["folder"]) / "resume.json").is_file()
    run.finish()


def test_a_checkpoint_asked_for_while_one_is_written_is_answered_by_that_one(make_run: Make) -> None:
    run = make_run()
    run.reach(2)
    first = run.send("checkpoint")
    run.until(lambda: run.sim.book.step.checkpoint_running)
    second = run.send("checkpoint")
    run.until(lambda: run.answer(first).state == "applied")
    assert run.answer(second).effective_version == 2
    run.finish()


def test_a_checkpoint_asked_for_while_the_optimizer_works_is_written_after_that_step(make_run: Make) -> None:
    run = make_run()
    run.until(lambda: run.sim.book.train[1].busy == "optimizer")
    version = run.sim.book.step.version
    checkpoint = run.send("checkpoint")
    run.until(lambda: run.answer(checkpoint).state == "applied")
    assert run.answer(checkpoint).effective_version == version + 1
    run.finish()


def test_a_paused_run_can_be_checkpointed(make_run: Make) -> None:
    run = make_run()
    run.reach(2)
    run.send("pause")
    run.until(lambda: run.sim.run.state == "paused")
    checkpoint = run.send("checkpoint")
    run.until(lambda: run.answer(checkpoint).state == "applied")
    assert run.sim.book.paused
    run.send("resume")
    run.finish()


def test_there_is_nothing_to_keep_before_training(make_run: Make) -> None:
    run = make_run()
    run.until(lambda: run.sim.ticks > 0)
    answer = run.answer(run.send("checkpoint"))
    assert (answer.state, answer.answer) == ("rejected", "the run is starting: there is nothing to keep yet")


# -- stop, ends, and the rest -----------------------------------------------------------------------------------------


def test_a_stop_is_applied_when_the_run_is_over_and_names_the_step_it_kept(make_run: Make) -> None:
    run = make_run()
    run.reach(3)
    stop = run.send("stop")
    assert run.answer(stop).answer == "Stopping in step 4."
    late = {kind: run.send(kind, {"staleness": 0.5}) for kind in ("staleness", "pause", "checkpoint", "stop")}
    for command_id in late.values():
        answer = run.answer(command_id)
        assert (answer.state, answer.answer) == ("rejected", "the run is stopping and takes no more commands")
    run.finish()
    applied = run.answer(stop)
    assert (applied.state, applied.effective_step, applied.effective_version) == ("applied", 3, 3)
    assert applied.answer == "Stopped after step 3; the checkpoint of that step is kept."


def test_a_stop_before_the_first_step_does_not_claim_a_checkpoint(make_run: Make) -> None:
    run = make_run()
    run.until(lambda: run.sim.run.state == "running")
    stop = run.send("stop")
    run.finish()
    applied = run.answer(stop)
    assert applied.state == "applied"
    assert applied.answer == "Stopped before a step was made; there is no checkpoint to keep."


def test_a_stop_of_a_run_that_fails_on_the_way_is_rejected_with_the_error(make_run: Make) -> None:
    run = make_run()
    run.reach(2)
    stop = run.send("stop")
    run.until(lambda: run.sim.run.closing)
    run.sim.workers.lose(1, "its process died")
    run.finish()
    answer = run.answer(stop)
    assert answer.state == "rejected"
    assert (answer.answer or "").startswith("The run failed while it stopped: The worker of device 1 (train) is gone")


def test_a_stop_is_applied_although_the_trainer_dies_on_the_way(make_run: Make) -> None:
    run = make_run()
    run.reach(2)
    stop = run.send("stop")
    run.sim.workers.lose(1, "its process died")
    run.finish()
    applied = run.answer(stop)
    assert (applied.state, applied.effective_step) == ("applied", 2)
    assert applied.answer == "Stopped after step 2; the checkpoint of that step is kept."


def test_what_still_waits_when_a_run_ends_is_rejected(make_run: Make) -> None:
    run = make_run(schedule={"staleness": 2})
    run.reach(13)
    change, checkpoint = run.send("staleness", {"staleness": 0}), run.send("checkpoint")
    run.finish()
    assert run.sim.run.state == "finished"
    assert run.answer(change).state == "rejected"
    assert run.answer(change).answer == "The run ended (finished) before this took effect."
    assert run.answer(checkpoint).state == "applied"
    assert run.mailbox.pending() == run.mailbox.list(state="accepted") == []


def test_a_run_that_is_over_takes_no_command(make_run: Make) -> None:
    run = make_run(algorithm={"steps": 2})
    run.finish()
    answer = run.answer(run.send("pause"))
    assert (answer.state, answer.answer) == ("rejected", "the run is ending and takes no more commands")


@pytest.mark.parametrize("kind", ["pause", "staleness", "checkpoint", "stop"])
def test_a_command_made_for_another_configuration_is_refused(kind: str, make_run: Make) -> None:
    run = make_run()
    run.reach(1)
    assert run.answer(run.send("staleness", {"staleness": 0.5}, expected=0)).state == "accepted"
    answer = run.answer(run.send(kind, {"staleness": 0.25}, expected=0))
    assert answer.state == "rejected"
    assert (answer.answer or "").startswith(
        "the run was changed since this was prepared (its configuration is version 1"
    )
    assert run.answer(run.send(kind, {"staleness": 0.25}, expected=1)).state == "accepted"


def test_a_command_that_no_run_has_is_refused(make_run: Make) -> None:
    run = make_run()
    run.reach(1)
    answer = run.answer(run.send("delete"))
    assert (answer.state, answer.answer) == ("rejected", "a run has no command 'delete'")


# -- partition, policy, undo ------------------------------------------------------------------------------------------


FOUR = {"devices": {"partition": "3:1"}}

SCARCE = {"partition": "1:3", "rollout_slots": 4}
"""One rollouter with room for two groups: the TrainPool idles."""


def test_a_change_of_the_partition_is_applied_when_every_device_works_in_its_new_pool(make_run: Make) -> None:
    run = make_run(**FOUR)
    run.reach(2)
    change = run.send("partition", {"partition": "1:3"})
    assert run.answer(change).answer == (
        "Devices 1, 2 change their pool: rollouters give their groups back at once. Expected in step 3; a lease of "
        "theirs ends before."
    )
    run.until(lambda: run.answer(change).state == "applied")
    applied = run.answer(change)
    assert [spec.home for spec in run.sim.run.specs] == ["rollout", "train", "train", "train"]
    assert set(run.sim.book.train) == {1, 2, 3}, "they count as trainers by then"
    assert applied.result is not None
    assert applied.result["changes"] == {"partition": "1:3"}
    assert applied.result["moved"] == [1, 2]
    assert applied.result["device_s"] >= applied.result["seconds"] > 0
    assert (applied.answer or "").startswith(f"Partition 1:3 since step {applied.effective_step}: devices 1, 2 to the")
    run.finish()
    assert run.sim.recorder.columns["partition"] == "1:3"
    assert len(run.sim.recorder.steps) == 14


def test_a_later_partition_takes_the_place_of_one_under_way(make_run: Make) -> None:
    run = make_run(**FOUR)
    run.reach(2)
    first, second = run.send("partition", {"partition": "1:3"}), run.send("partition", {"partition": "2:2"})
    assert run.answer(first).state == "superseded"
    run.until(lambda: run.answer(second).state == "applied")
    assert [spec.home for spec in run.sim.run.specs] == ["rollout", "rollout", "train", "train"]
    run.finish()


def test_a_paused_run_changes_its_partition(make_run: Make) -> None:
    run = make_run(**FOUR)
    run.reach(2)
    run.send("pause")
    run.until(lambda: run.sim.run.state == "paused")
    change = run.send("partition", {"partition": "2:2"})
    run.until(lambda: run.answer(change).state == "applied")
    run.send("resume")
    run.finish()
    assert run.sim.run.state == "finished"


def test_a_partition_that_is_under_way_when_the_run_stops_is_not_applied(make_run: Make) -> None:
    run = make_run(**FOUR)
    run.reach(2)
    change = run.send("partition", {"partition": "1:3"})
    run.send("stop")
    run.finish()
    assert run.answer(change).state == "rejected"


def test_a_policy_governs_at_once_and_devices_take_their_other_role_before_they_are_lent(make_run: Make) -> None:
    run = make_run(devices=SCARCE, schedule={"arm": "no_borrow"}, algorithm={"steps": 30})
    run.reach(2)
    assert not any(entry.prepared for entry in run.sim.run.lending.entries.values())
    change = run.answer(run.send("policy", {"arm": "opportunistic"}))
    assert (change.state, change.effective_step) == ("applied", 3)
    assert "4 devices take their other role into memory before they can be lent" in (change.answer or "")
    run.finish()
    assert all(entry.prepared for entry in run.sim.run.lending.entries.values())
    assert run.sim.run.lending.count > 0, "nothing was lent"
    assert run.sim.recorder.columns["arm"] == "opportunistic"


def test_turning_a_direction_off_ends_its_leases_and_opens_none(make_run: Make) -> None:
    run = make_run(devices=SCARCE, schedule={"arm": "opportunistic", "staleness": 0}, algorithm={"steps": 30})
    run.until(lambda: run.sim.run.lending.out)
    off = run.answer(run.send("policy", {"rollout_on_train": False, "train_on_rollout": False}))
    assert off.state == "applied"
    before = run.sim.run.lending.count
    run.finish()
    assert run.sim.run.lending.count == before
    assert not run.sim.run.lending.out


def test_undo_walks_back_through_the_changes_and_says_what_it_takes_back(make_run: Make) -> None:
    run = make_run(**FOUR)
    run.reach(1)
    first = run.send("policy", {"lend_cap": 2})
    second = run.send("staleness", {"staleness": 0.5})
    undone = run.answer(run.send("undo"))
    assert undone.state == "accepted"
    assert (undone.answer or "").startswith(f"Command {second} is taken back (staleness 1). Staleness 1 governs starts")
    again = run.answer(run.send("undo"))
    assert (again.state, again.result and again.result["changes"]) == ("applied", {"lend_cap": None})
    assert f"Command {first} is taken back (lend_cap no limit)" in (again.answer or "")
    none = run.answer(run.send("undo"))
    assert none.state == "rejected"
    assert none.answer == "nothing was changed since this run began: there is nothing to undo"
    assert run.commands.config_version == 4
    run.finish()


def test_an_undo_of_a_partition_under_way_brings_the_devices_back(make_run: Make) -> None:
    run = make_run(**FOUR)
    run.reach(2)
    change = run.send("partition", {"partition": "1:3"})
    undo = run.send("undo")
    assert run.answer(change).state == "superseded"
    run.until(lambda: run.answer(undo).state == "applied")
    assert [spec.home for spec in run.sim.run.specs] == ["rollout", "rollout", "rollout", "train"]
    run.finish()


def test_a_draining_stop_makes_the_step_in_hand_and_keeps_it(make_run: Make) -> None:
    run = make_run()
    run.reach(3)
    stop = run.send("stop", {"mode": "drain"})
    assert run.answer(stop).answer == "Stopping when step 4 is made."
    late = run.answer(run.send("staleness", {"staleness": 0.5}))
    assert late.answer == "the run stops after this step and takes no more commands but another stop"
    run.finish()
    applied = run.answer(stop)
    assert (run.sim.run.state, applied.state, applied.effective_step) == ("stopped", "applied", 4)
    assert applied.answer == "Stopped after step 4; the checkpoint of that step is kept."


def test_a_stop_at_once_takes_the_place_of_one_that_drains(make_run: Make) -> None:
    run = make_run()
    run.reach(3)
    drain, now = run.send("stop", {"mode": "drain"}), run.send("stop", {"mode": "now"})
    assert run.answer(drain).state == "superseded"
    run.finish()
    assert run.answer(now).effective_step == 3


def test_a_paused_run_that_is_to_drain_stops_at_once_and_says_so(make_run: Make) -> None:
    run = make_run()
    run.reach(3)
    run.send("pause")
    run.until(lambda: run.sim.run.state == "paused")
    stop = run.send("stop", {"mode": "drain"})
    assert run.answer(stop).answer == "Stopping in step 4. A run that is paused has no step to end."
    run.finish()
    assert run.answer(stop).state == "applied"
