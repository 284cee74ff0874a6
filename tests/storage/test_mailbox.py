"""The mailbox: a command is stored once, moves only along its arrows, and is never lost to a lock."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage import words
from storage.database import DatabaseBroken, SchemaTooNew
from storage.mailbox import TRANSITIONS, Mailbox
from tests.storage.builders import RUN, T0


class Clock:
    """Time that moves only when told."""

    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def mailbox(tmp_path: Path, clock: Clock) -> Iterator[Mailbox]:
    with Mailbox(tmp_path / "new" / "control.db", clock=clock) as box:
        yield box


MOVES: dict[str, Callable[[Mailbox, int], object]] = {
    "accepted": lambda box, i: box.accept(i),
    "applied": lambda box, i: box.apply(i, "done from step 4 on", effective_step=4),
    "rejected": lambda box, i: box.reject(i, "no"),
    "superseded": lambda box, i: box.supersede(i, "a later one"),
}
PATHS = {
    "pending": (),
    "accepted": ("accepted",),
    "applied": ("accepted", "applied"),
    "rejected": ("rejected",),
    "superseded": ("superseded",),
    "expired": None,
}


def in_state(box: Mailbox, state: str) -> int:
    command_id = box.send("pause", {}, RUN, who="test", expires_in_s=1.0 if state == "expired" else None)
    if state == "expired":
        box.expire(T0 + 1)
    for step in PATHS[state] or ():
        MOVES[step](box, command_id)
    assert box.get(command_id).state == state
    return command_id


def test_every_state_of_a_command_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(words.COMMAND_STATES) == set(PATHS)


@pytest.mark.parametrize("target", list(MOVES))
@pytest.mark.parametrize("state", words.COMMAND_STATES)
def test_a_command_moves_only_along_its_arrows(mailbox: Mailbox, state: str, target: str) -> None:
    command_id = in_state(mailbox, state)
    if target in TRANSITIONS[state]:
        MOVES[target](mailbox, command_id)
        assert mailbox.get(command_id).state == target
    else:
        with pytest.raises(RuntimeError, match=f"command {command_id} is {state} and cannot become {target}"):
            MOVES[target](mailbox, command_id)
        assert mailbox.get(command_id).state == state


def test_an_applied_command_tells_everything(mailbox: Mailbox, clock: Clock) -> None:
    command_id = mailbox.send(
        "staleness",
        {"staleness": 0.5},
        RUN,
        who="ann",
        idem_key="click-1",
        expires_in_s=30,
        expected_config_version=2,
        expected_effect="idle share 12% to 15%",
    )
    mailbox.accept(command_id)
    clock.now += 5
    mailbox.apply(command_id, "in force", effective_step=12, effective_version=11, result={"old": 1.0})
    command = mailbox.get(command_id)
    assert (command.payload, command.who, command.run_id, command.kind) == ({"staleness": 0.5}, "ann", RUN, "staleness")
    assert (command.created_at, command.expires_at, command.accepted_at, command.applied_at) == (
        T0,
        T0 + 30,
        T0,
        T0 + 5,
    )
    assert (command.expected_config_version, command.expected_effect) == (2, "idle share 12% to 15%")
    assert (command.answer, command.effective_step, command.effective_version) == ("in force", 12, 11)
    assert (command.result, command.idem_key) == ({"old": 1.0}, "click-1")


def test_sending_the_same_key_again_is_the_same_command(mailbox: Mailbox) -> None:
    first = mailbox.send("pause", {}, RUN, who="ann", idem_key="k")
    mailbox.accept(first)
    assert mailbox.send("resume", {"other": 1}, "run-2", who="bob", idem_key="k") == first
    assert [command.kind for command in mailbox.list()] == ["pause"]
    assert mailbox.send("pause", {}, RUN, who="ann") != first


def test_pending_commands_come_in_the_order_of_sending_and_without_the_expired(mailbox: Mailbox, clock: Clock) -> None:
    ids = [mailbox.send("pause", {}, RUN, who="a", expires_in_s=expiry) for expiry in (None, 10, 20)]
    assert [command.id for command in mailbox.pending()] == ids
    clock.now += 10
    assert [command.id for command in mailbox.pending()] == [ids[0], ids[2]]
    assert mailbox.get(ids[1]).answer == "expired before the engine took it"
    assert mailbox.expire(T0 + 100) == [ids[2]]
    assert mailbox.expire(T0 + 100) == []


def test_an_accepted_command_does_not_expire(mailbox: Mailbox) -> None:
    command_id = mailbox.send("pause", {}, RUN, who="a", expires_in_s=1)
    mailbox.accept(command_id)
    assert mailbox.expire(T0 + 100) == []
    assert [command.id for command in mailbox.list(state="accepted")] == [command_id]


@pytest.mark.parametrize(
    ("send", "told"),
    [
        pytest.param(lambda box: box.send("paws", {}, RUN, who="a"), "kind of a command must be one of", id="kind"),
        pytest.param(lambda box: box.send("pause", {}, who="a"), "must name a run, got None", id="no run"),
        pytest.param(
            lambda box: box.send("pause", {}, RUN, who="a", expires_in_s=0), "greater than 0, got 0", id="expiry"
        ),
        pytest.param(lambda box: box.get(7), "there is no command 7", id="unknown id"),
        pytest.param(lambda box: box.list(state="done"), "must be one of pending", id="unknown state"),
    ],
)
def test_wrong_questions_are_refused(mailbox: Mailbox, send: Callable[[Mailbox], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        send(mailbox)
    assert mailbox.list() == []


def test_a_launch_need_not_name_a_run_and_lists_are_by_run_newest_first(mailbox: Mailbox) -> None:
    launch = mailbox.send("launch", {"job": "name: x"}, who="a")
    first, second = (mailbox.send("pause", {}, RUN, who="a") for _ in range(2))
    assert mailbox.get(launch).run_id is None
    assert [command.id for command in mailbox.list(RUN)] == [second, first]
    assert [command.id for command in mailbox.list(limit=1)] == [second]


def test_settings_notes_and_tags_are_kept(mailbox: Mailbox) -> None:
    assert mailbox.get_setting("price") is None
    mailbox.set_setting("price", 2.0, who="a")
    mailbox.set_setting("price", {"per_hour": 2.5}, who="b")
    assert mailbox.get_setting("price") == {"per_hour": 2.5}
    assert mailbox.settings() == {"price": {"per_hour": 2.5}}
    assert mailbox.note(RUN) == ""
    mailbox.set_note(RUN, "good one", who="a")
    mailbox.set_note(RUN, "best one", who="a")
    assert mailbox.note(RUN) == "best one"
    for tag in ("b", "a", "b"):
        mailbox.add_tag(RUN, tag, who="a")
    assert mailbox.tags(RUN) == ("a", "b")
    mailbox.remove_tag(RUN, "a")
    assert mailbox.tags(RUN) == ("b",)


def test_marks_of_one_run_are_forgotten_and_those_of_others_kept(mailbox: Mailbox) -> None:
    for run in (RUN, "other"):
        mailbox.add_tag(run, "good", who="a")
        mailbox.set_note(run, "as expected", who="a")
    mailbox.forget_marks(RUN)
    mailbox.forget_marks("nobody")
    assert mailbox.all_tags() == {"other": ("good",)}
    assert mailbox.all_notes() == {"other": "as expected"}


SENDER = """
import sys
from pathlib import Path
from storage.mailbox import Mailbox
box = Mailbox(Path(sys.argv[1]))
for i in range(100):
    box.send("pause", {"i": i}, "run-1", who=sys.argv[2], idem_key=f"{sys.argv[2]}-{i}")
"""


def test_processes_and_threads_that_open_and_write_at_once_are_never_told_locked(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    senders = [subprocess.Popen([sys.executable, "-c", SENDER, str(path), name]) for name in ("app", "cli")]
    failures: list[BaseException] = []

    def engine() -> None:
        try:
            with Mailbox(path) as box:
                while any(sender.poll() is None for sender in senders):
                    for command in box.pending():
                        box.accept(command.id)
                        box.apply(command.id, "done")
                    box.set_setting("beat", 1, who="engine")
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=engine)
    worker.start()
    assert [sender.wait(60) for sender in senders] == [0, 0]
    worker.join(60)
    assert failures == []
    with Mailbox(path) as box:
        assert len(box.list(limit=1000)) == 200
        assert {command.state for command in box.list(limit=1000)} <= {"applied", "pending"}


def test_a_mailbox_that_cannot_be_used_says_where_it_lies(tmp_path: Path, mailbox: Mailbox) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is not a database, whatever its name says" * 100)
    with pytest.raises(DatabaseBroken, match="not a database") as caught:
        Mailbox(broken)
    assert caught.value.path == broken
    mailbox._db.execute("INSERT INTO _sqlite_migrations (migration_set, name) VALUES ('control', 'm999_later')")
    with pytest.raises(SchemaTooNew, match=r"newer program \(knows m999_later\)"):
        Mailbox(mailbox.path)
