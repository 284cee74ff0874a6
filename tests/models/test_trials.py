"""Trials of model folders: a process with a deadline, verdicts that are kept, commands that wait for them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

from engine.config import parse_job
from engine.models import trials
from engine.models.trials import Question, Trial, Trials, Undecided, Verdicts, ask, question_of
from storage.mailbox import Mailbox
from storage.records import Command
from tests.tiny_models import tiny_folder

LATE = 10**9


class PlayedTrial:
    """Ends when it is released, with the sentence that belongs to its folder."""

    begun: ClassVar[list[str]] = []
    released = False
    decided = True

    def __init__(self, question: Question) -> None:
        self.question = question
        self.fingerprint = question.fingerprint()
        self.begun.append(Path(question.folder).name)

    def told(self) -> str | None:
        return f"told of {Path(self.question.folder).name}" if self.released else None

    def end(self) -> None:
        self.begun.append("ended")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> type[PlayedTrial]:
    class Played(PlayedTrial):
        begun: ClassVar[list[str]] = []

    monkeypatch.setattr(trials, "Trial", Played)
    return Played


def folder(place: Path) -> Path:
    place.mkdir()
    (place / "config.json").write_text("{}", encoding="utf-8")
    return place


def question(place: Path, **changes: Any) -> Question:
    asked: dict[str, Any] = {"template": None, "recompute": False, "response_tokens": 16, "lora": None}
    return Question(folder=str(place), **(asked | changes))


def commands(place: Path, count: int) -> list[Command]:
    with Mailbox(place / "control.db") as mailbox:
        return [mailbox.get(mailbox.send("launch", {}, who="test")) for _ in range(count)]


def test_a_folder_is_tried_by_a_process_once_and_again_when_it_changed(tmp_path: Path, monkeypatch) -> None:
    model, cache = tiny_folder(tmp_path / "model"), tmp_path / "cache"
    assert ask(question(model), cache, keep=True) == ""
    with monkeypatch.context() as without:
        without.setattr(trials, "Trial", lambda question: pytest.fail("tried again"))
        assert ask(question(model), cache, keep=True) == ""
    config = json.loads((model / "config.json").read_text(encoding="utf-8")) | {"num_hidden_layers": 1}
    config["layer_types"] = None
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert "the files hold 2 layers and config.json says 1" in ask(question(model), cache, keep=True)


@pytest.mark.parametrize(
    "change",
    [{"template": "plain"}, {"recompute": True}, {"response_tokens": 17}, {"lora": {"r": 1}}],
    ids=lambda change: next(iter(change)),
)
def test_a_verdict_holds_for_what_was_asked_alone(change, tmp_path: Path, played) -> None:
    played.released = True
    model = folder(tmp_path / "model")
    assert ask(question(model), tmp_path / "cache", keep=True) == "told of model"
    assert Verdicts(tmp_path / "cache").get(question(model)) == "told of model"
    assert Verdicts(tmp_path / "cache").get(question(model, **change)) is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda model: (model / "config.json").write_text("{ }", encoding="utf-8"), id="size"),
        pytest.param(lambda model: os.utime(model / "config.json", ns=(LATE, LATE)), id="time"),
        pytest.param(lambda model: (model / "chat_template.jinja").touch(), id="another file"),
        pytest.param(lambda model: (model / "config.json").rename(model / "old.json"), id="another name"),
    ],
)
def test_a_folder_that_changed_is_one_of_which_nothing_is_known(change, tmp_path: Path, played) -> None:
    played.released = True
    model = folder(tmp_path / "model")
    ask(question(model), tmp_path / "cache", keep=True)
    change(model)
    assert Verdicts(tmp_path / "cache").get(question(model)) is None


def test_a_verdict_that_cannot_be_kept_or_read_costs_another_trial_and_nothing_else(tmp_path: Path, played) -> None:
    played.released = True
    model, cache = folder(tmp_path / "model"), tmp_path / "cache"
    cache.write_text("no folder", encoding="utf-8")
    assert ask(question(model), cache, keep=True) == "told of model"
    cache.unlink()
    assert ask(question(model), cache, keep=False) == "told of model"
    assert not cache.exists()
    ask(question(model), cache, keep=True)
    next((cache / "model_trials").iterdir()).write_text("{", encoding="utf-8")
    assert ask(question(model), cache, keep=True) == "told of model"
    assert played.begun.count("model") == 4


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("/bin/false", "the process that tried it ended with code 1: it said nothing"),
        ("/bin/echo", "the process that tried it ended with code 0: it said nothing"),
        ("/bin/none", "no process could be started to try it: No such file or directory"),
    ],
    ids=["dies", "tells no verdict", "does not start"],
)
def test_an_accident_is_told_as_such_and_not_kept(program: str, sentence: str, tmp_path: Path, monkeypatch) -> None:
    model, cache = folder(tmp_path / "model"), tmp_path / "cache"
    monkeypatch.setattr(trials.sys, "executable", program)
    assert ask(question(model), cache, keep=True) == f"model.source {model}: {sentence}"
    assert Verdicts(cache).get(question(model)) is None


def test_what_does_not_answer_in_time_is_ended(tmp_path: Path, monkeypatch) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n", encoding="utf-8")
    slow.chmod(0o755)
    monkeypatch.setattr(trials.sys, "executable", str(slow))
    model = folder(tmp_path / "model")
    trial = Trial(question(model))
    assert trial.told() is None
    trial._ends_at = 0.0
    assert trial.told() == f"model.source {model}: it could not be tried within 120 s"
    assert trial._process is not None
    assert trial._process.returncode == -9
    assert not trial.decided


def test_commands_wait_for_their_folders_one_after_the_other(tmp_path: Path, played) -> None:
    first, second = question(folder(tmp_path / "first")), question(folder(tmp_path / "second"))
    waiting = Trials(tmp_path / "cache")
    sent = commands(tmp_path, 3)
    for command, asked in zip(sent, (first, second, first), strict=True):
        with pytest.raises(Undecided) as undecided:
            waiting.verdict(asked)
        waiting.add(command, undecided.value.question)
    assert list(waiting.ended()) == []
    assert list(waiting.ended()) == []
    assert played.begun == ["first"]
    played.released = True
    assert list(waiting.ended()) == sent[:1]
    assert waiting.verdict(first) == "told of first"
    assert list(waiting.ended()) == sent[1:], "the third asked what the first had been told"
    assert (waiting.verdict(second), waiting.verdict(first)) == ("told of second", "told of first")
    assert played.begun == ["first", "second"]


def test_an_accident_is_told_to_the_command_that_waited_and_the_next_one_tries_again(tmp_path: Path, played) -> None:
    played.released, played.decided = True, False
    asked = question(folder(tmp_path / "model"))
    waiting = Trials(tmp_path / "cache")
    (sent,) = commands(tmp_path, 1)
    waiting.add(sent, asked)
    assert list(waiting.ended()) == []
    assert [(done, waiting.verdict(asked)) for done in waiting.ended()] == [(sent, "told of model")]
    with pytest.raises(Undecided):
        waiting.verdict(asked)


def test_an_engine_that_ends_takes_its_trial_along(tmp_path: Path, played) -> None:
    waiting = Trials(tmp_path / "cache")
    waiting.close()
    waiting.add(commands(tmp_path, 1)[0], question(folder(tmp_path / "model")))
    list(waiting.ended())
    waiting.close()
    assert played.begun == ["model", "ended"]


def test_a_job_asks_by_its_folder_and_by_what_decides(tmp_path: Path) -> None:
    job = parse_job(
        "model: {source: m, prompt_template: plain, gradient_checkpointing: true, lora: {r: 3}}\n"
        "sampling: {max_response_tokens: 9}"
    )
    asked = question_of(job, tmp_path / "x" / "..")
    assert (asked.folder, asked.template, asked.recompute, asked.response_tokens) == (str(tmp_path), "plain", True, 9)
    assert asked.lora is not None
    assert (asked.lora["r"], asked.lora["targets"]) == (3, "all-linear")
