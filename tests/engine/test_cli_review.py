"""`bidirl control RUN set ... --review`: what a change is expected to do, from rows as a run leaves them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.cli import client
from engine.cli.main import main
from engine.config import dump_job, load_job, settings_of
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.writer import TelemetryWriter
from tests.storage.builders import RUN, T0, make_span, make_step

ROOT = Path(__file__).parents[2]

JOB = load_job(ROOT / "jobs" / "emulated_16.yaml", ["algorithm.prompts_per_step=24"])

SCALE = JOB.devices.time_scale

STEP_S = 1.0
"""Of wall clock; 50 modelled seconds."""

TOKENS = 250_000
"""Of a step: 5000 a modelled second."""

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.chdir(tmp_path)
    return DataDir.from_env()


@pytest.fixture
def call(data: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.setattr(client, "LOOK_S", 0.01)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bidirl", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        text = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, text.out, text.err

    return run


def store(data: DataDir, *, steps: int = 12, **columns: Any) -> None:
    """A run that goes on: steps of a second, a tenth of the devices' time idle, every group a version late."""
    writer = TelemetryWriter(data.telemetry_db)
    fields: dict[str, Any] = {
        "name": JOB.name,
        "kind": "emulated",
        "state": "running",
        "arm": JOB.schedule.arm,
        "partition": str(JOB.partition),
        "job": dump_job(JOB),
        "created_at": T0,
        "time_scale": SCALE,
        "config_version": 3,
    }
    writer.run(RUN, **(fields | columns))
    for place in range(steps):
        writer.step(
            make_step(
                step=place + 1,
                t_start=T0 + place * STEP_S,
                t_end=T0 + (place + 1) * STEP_S,
                prompt_tokens=0,
                response_tokens=TOKENS,
                lag={1: 24},
            )
        )
    for device in range(16):
        for place in range(steps):
            start = place * STEP_S
            writer.spans(
                [
                    make_span(start, 0.9, device=device, kind="rollout", role="primary"),
                    make_span(start + 0.9, 0.1, device=device, kind="idle", cause="no_work"),
                ]
            )
    writer.close()


def commands(data: DataDir) -> list[Any]:
    with Mailbox(data.control_db) as mailbox:
        return list(mailbox.list(RUN))


def test_a_review_gives_now_and_expected_in_the_time_that_emulated_devices_stand_for(call: Call, data: DataDir) -> None:
    store(data)
    code, out, err = call("control", RUN, "set", "staleness=0", "--review", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["before"]["staleness"], found["after"]["staleness"], found["config_version"]) == (1.0, 0.0, 3)
    assert found["now"] == {
        "steps": 10,
        "tokens_per_s": pytest.approx(TOKENS * SCALE / STEP_S),
        "idle": {"no_work": pytest.approx(0.1)},
        "lag": 1.0,
    }
    assert found["ratio"]["middle"] < 1.0, "on-policy is slower"
    for name in ("low", "middle", "high"):
        assert found["tokens_per_s"][name] == pytest.approx(found["ratio"][name] * TOKENS * SCALE / STEP_S)
    assert found["lag"] == 0.0
    assert commands(data) == []


def test_a_review_is_a_few_lines_for_people(call: Call, data: DataDir) -> None:
    store(data)
    code, out, err = call("control", RUN, "set", "rollout_on_train=false", "lend_cap=4", "--review")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == ("rollout_on_train true -> false, lend_cap null -> 4; nothing is sent (configuration version 3)")
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "modelled now",
        "expected",
        "idle",
        "mean lag",
        "model error",
    ]
    assert "5,000 tokens/s over 10 steps" in lines[1]
    assert commands(data) == []


def test_where_nothing_can_be_expected_the_reason_is_given_and_the_change_may_be_sent(
    call: Call, data: DataDir
) -> None:
    store(data, steps=4)
    code, out, _ = call("control", RUN, "set", "staleness=0", "--review")
    assert code == 0
    assert out.splitlines()[1:] == ["no prediction: 3 steps were made with the present settings; 5 are needed"]
    code, out, _ = call("control", RUN, "set", "staleness=0", "--review", "--json")
    assert (code, json.loads(out)["tokens_per_s"]) == (0, None)


def test_what_governs_now_is_what_operators_have_set(call: Call, data: DataDir) -> None:
    store(data, settings=settings_of(JOB) | {"staleness": 2.0, "partition": "12:4"})
    code, _, err = call("control", RUN, "set", "partition=12:4", "--review")
    assert (code, err) == (2, "bidirl: set: partition is 12:4 already\n")
    code, out, _ = call("control", RUN, "set", "partition=8:8", "--review", "--json")
    assert (code, json.loads(out)["before"]["partition"]) == (0, "12:4")
    # the sender's check is the same one, so nothing that is refused becomes a row
    code, _, err = call("control", RUN, "set", "staleness=2")
    assert (code, err) == (2, "bidirl: set: staleness is 2.0 already\n")
    code, _, err = call("control", RUN, "set", "partition=6:10")
    assert (code, err) == (2, "bidirl: set: its 10 train devices are not whole replicas of 4; got '6:10'\n")
    assert commands(data) == []


def test_an_undo_is_reviewed_as_the_change_that_it_makes(call: Call, data: DataDir) -> None:
    store(data, settings=settings_of(JOB) | {"partition": "12:4"}, steps=24)
    assert call("control", RUN, "undo", "--review")[::2] == (
        2,
        "bidirl: undo: nothing was changed since this run began: there is nothing to undo\n",
    )
    with Mailbox(data.control_db, clock=lambda: T0 + 2.5) as mailbox:
        sent = mailbox.send("partition", {"partition": "12:4"}, run_id=RUN, who="ada")
        mailbox.accept(sent)
        mailbox.apply(sent, "Done.", effective_step=3, result={"settings": {"staleness": 1.0}})
    code, out, _ = call("control", RUN, "undo", "--review")
    assert code == 0
    assert out.startswith("partition 12:4 -> 8:8; nothing is sent")
    assert len(commands(data)) == 1


def test_a_command_names_the_version_that_it_was_made_for(call: Call, data: DataDir) -> None:
    store(data)
    code, out, _ = call("control", RUN, "set", "partition=12:4", "--expect-version", "3", "--json")
    assert (code, json.loads(out)["state"]) == (0, "pending"), "no engine runs: it waits for one"
    (row,) = commands(data)
    assert (row.kind, row.payload, row.expected_config_version) == ("partition", {"partition": "12:4"}, 3)
    assert call("control", RUN, "stop", "--drain")[0] == 0
    assert commands(data)[0].payload == {"mode": "drain"}
    with TelemetryReader(data.telemetry_db) as reader:
        found = reader.run(RUN)
    assert found is not None
    assert found.settings is None, "only an engine changes a run"
