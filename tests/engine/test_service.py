"""The service around the runs: queue, take-over, refusals, and faults of its own. No Ray: its workers say nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.config import dump_job, load_job
from engine.devices import Report
from engine.lock import EngineRunning, is_locked
from engine.models.trials import Question
from engine.service import Service
from engine.worker.messages import Command, WorkerSpec
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import RunRow
from storage.writer import TelemetryWriter
from tests.tiny_models import tiny_folder

ROOT = Path(__file__).resolve().parents[2]
JOB = load_job(ROOT / "jobs" / "demo.yaml")
EMULATED = load_job(ROOT / "jobs" / "emulated_16.yaml", ["devices.partition=auto"])


class SilentWorkers:
    """Starts nothing and hears nothing."""

    cpu_s = 0.0

    def __init__(self, cores: int) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        self.on_wait: Any = lambda: None

    def start(self, specs: Sequence[WorkerSpec]) -> None:
        self.started.append(specs[0].run_id)

    def submit(self, run_id: str, device: int, command: Command) -> None: ...

    def flush(self) -> None: ...

    def wait(self, timeout_s: float) -> list[Report]:
        self.on_wait()
        return []

    def end(self, run_id: str) -> None:
        self.ended.append(run_id)

    def shutdown(self) -> None: ...


class Served:
    """A service that is driven pass by pass."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("engine.service.usable_cores", lambda: [0, 1])
        monkeypatch.setattr("engine.service.MAILBOX_S", 0.0)
        self.data = DataDir(root)
        self.stop = threading.Event()
        self.workers = SilentWorkers(2)
        self.mailbox = Mailbox(self.data.control_db)
        self.service = Service(self.data, make_workers=lambda cores: self.workers, stop=self.stop)

    def passes(self, count: int) -> None:
        """Serve for `count` passes, then shut down."""
        left = [count]

        def count_down() -> None:
            left[0] -= 1
            if left[0] == 0:
                self.stop.set()

        self.workers.on_wait = count_down
        self.service.serve()

    def launch(self, **payload: Any) -> int:
        document = {"job": dump_job(JOB), "base_dir": str(ROOT / "jobs"), "resume": None} | payload
        return self.mailbox.send("launch", document, who="test")

    def runs(self) -> list[RunRow]:
        with TelemetryReader(self.data.telemetry_db) as reader:
            return reader.runs()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    made = Served(tmp_path, monkeypatch)
    yield made
    made.mailbox.close()


def store_run(data: DataDir, run_id: str, **columns: Any) -> None:
    """What an engine life that is over left behind."""
    writer = TelemetryWriter(data.telemetry_db)
    writer.engine("dead", started_at=50.0, beat_at=123.0, state="ready")
    defaults = {"engine_id": "dead", "created_at": 100.0, "started_at": 101.0, "job": dump_job(JOB)}
    writer.run(run_id, **(defaults | columns))
    writer.flush(10)
    writer.close(10)


def test_one_engine_has_a_data_folder_and_looking_does_not_take_it(served: Served) -> None:
    assert is_locked(served.data)
    with pytest.raises(EngineRunning, match="has this data folder already"):
        Service(served.data, make_workers=lambda cores: served.workers, stop=served.stop)
    served.passes(1)
    assert not is_locked(served.data)


def test_the_oldest_queued_run_takes_the_devices_and_the_next_one_waits(served: Served) -> None:
    first, second = served.launch(), served.launch()
    served.passes(3)
    ids = [served.mailbox.get(command).result["run_id"] for command in (first, second)]
    assert served.workers.started == [ids[0]]
    states = {run.run_id: run.state for run in served.runs()}
    assert states == {ids[0]: "interrupted", ids[1]: "queued"}


def test_emulated_devices_need_no_core_and_run_beside_real_ones_on_the_split_of_the_planner(served: Served) -> None:
    served.launch()
    emulated = served.launch(job=dump_job(EMULATED))
    served.passes(3)
    row = served.mailbox.get(emulated)
    assert row.result is not None, row.answer
    run = next(run for run in served.runs() if run.run_id == row.result["run_id"])
    assert served.workers.started[-1] == run.run_id
    assert len(served.workers.started) == 2
    assert (run.kind, run.time_scale, run.partition) == ("emulated", 0.02, "8:8")


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        ({"job": "schedule: {stalenes: 1}"}, "unknown key 'stalenes'; did you mean 'staleness'?"),
        ({"job": 3}, "job must be the text of a job file, got int"),
        ({"resume": "nobody"}, "resume: run 'nobody' is not known"),
        ({"job": "devices: {count: 8}"}, "the job takes 8 devices and this machine has 2 cores"),
        ({"job": "task: {source: reasoning_gym:chain_smu}"}, "unknown data set 'chain_smu'"),
        ({"job": "model: {source: /etc}"}, "outside the folders a job may read"),
    ],
    ids=["unknown key", "no text", "unknown parent", "too many devices", "unknown data set", "foreign folder"],
)
def test_a_launch_that_cannot_run_is_refused_with_its_reason(
    served: Served, payload: dict[str, Any], answer: str
) -> None:
    command = served.launch(**payload)
    served.passes(2)
    row = served.mailbox.get(command)
    assert row.state == "rejected"
    assert answer in (row.answer or "")
    assert served.runs() == []


class SlowTrial:
    """Tells of a model folder when it was looked at three times."""

    decided = True
    ended = 0

    def __init__(self, question: Question) -> None:
        self.question, self.fingerprint = question, question.fingerprint()
        self.looks = 0

    def told(self) -> str | None:
        self.looks += 1
        bad = "broken" in self.question.folder
        return None if self.looks < 3 else f"model.source {self.question.folder}: it is an encoder" if bad else ""

    def end(self) -> None:
        type(self).ended += 1


def test_a_launch_waits_for_its_model_folder_while_others_and_the_loop_go_on(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.models.trials.Trial", SlowTrial)
    for name in ("broken", "sound"):
        tiny_folder(tmp_path / name)
    job = "name: of-{0}\nmodel: {{source: {0}}}"
    refused, taken = (served.launch(job=job.format(name), base_dir=str(tmp_path)) for name in ("broken", "sound"))
    builtin = served.launch()
    states: list[list[str]] = []

    def note() -> None:
        states.append([served.mailbox.get(command).state for command in (refused, taken, builtin)])
        if len(states) == 12:
            served.stop.set()

    served.workers.on_wait = note
    served.service.serve()
    assert ["accepted", "accepted", "applied"] in states, "the loop waited for the trial, or the other launch did"
    assert states[-1] == ["rejected", "applied", "applied"]
    assert served.mailbox.get(refused).answer == f"job: model.source: {tmp_path / 'broken'}: it is an encoder"
    assert {run.name for run in served.runs()} == {"demo", "of-sound"}


def test_an_engine_that_ends_leaves_no_trial_and_a_launch_that_is_told(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.models.trials.Trial", SlowTrial)
    tiny_folder(tmp_path / "sound")
    command = served.launch(job="model: {source: sound}", base_dir=str(tmp_path))
    before = SlowTrial.ended
    served.passes(2)
    assert SlowTrial.ended == before + 1
    assert "tried first" in (served.mailbox.get(command).answer or "")
    Served(tmp_path, monkeypatch).passes(1)
    row = served.mailbox.get(command)
    assert (row.state, row.answer) == ("rejected", "The engine ended before this took effect.")


def test_a_new_engine_marks_what_the_old_one_ran_and_keeps_what_it_had_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataDir(tmp_path)
    store_run(data, "active", state="running")
    store_run(data, "waiting", state="queued", created_at=110.0)
    store_run(data, "over", state="finished", ended_at=120.0)
    served = Served(tmp_path, monkeypatch)
    accepted = served.mailbox.send("pause", {}, run_id="active", who="test")
    served.mailbox.accept(accepted)
    served.passes(2)
    rows = {run.run_id: run for run in served.runs()}
    assert (rows["active"].state, rows["active"].ended_at) == ("interrupted", 123.0)
    assert rows["over"].ended_at == 120.0
    assert served.workers.started == ["waiting"]
    assert served.mailbox.get(accepted).answer == "The engine ended before this took effect."
    served.mailbox.close()


def test_a_queued_job_that_this_version_refuses_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = DataDir(tmp_path)
    store_run(data, "strange", state="queued", job="algoritm: {}")
    store_run(data, "sound", state="queued", created_at=110.0)
    served = Served(tmp_path, monkeypatch)
    served.passes(3)
    rows = {run.run_id: run for run in served.runs()}
    assert rows["strange"].state == "failed"
    assert "did you mean 'algorithm'?" in (rows["strange"].error or "")
    assert served.workers.started == ["sound"]
    served.mailbox.close()


def test_a_fault_of_the_engine_ends_its_run_and_not_the_service(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = served.launch()
    monkeypatch.setattr("engine.run.run.Run.tick", lambda run: 1 / 0)
    served.passes(4)
    run = served.runs()[0]
    assert run.state == "failed"
    assert run.error == "The engine met a fault of its own: ZeroDivisionError: division by zero"
    assert run.result is not None
    assert served.workers.ended == [run.run_id]
    assert served.mailbox.get(command).state == "applied"
    with TelemetryReader(served.data.telemetry_db) as reader:
        assert any("ZeroDivisionError" in line.text for line in reader.logs(run.run_id, limit=10))


def test_a_command_to_a_run_that_is_over_or_unknown_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_run(DataDir(tmp_path), "over", state="finished", ended_at=120.0)
    served = Served(tmp_path, monkeypatch)
    over = served.mailbox.send("pause", {}, run_id="over", who="test")
    unknown = served.mailbox.send("stop", {}, run_id="nobody", who="test")
    delete = served.mailbox.send("delete", {}, run_id="over", who="test")
    for run in ("over", "other"):
        served.mailbox.add_tag(run, "good", who="test")
        served.mailbox.set_note(run, "as expected", who="test")
    served.passes(2)
    assert served.mailbox.get(over).answer == "run 'over' is finished; only a running one takes commands"
    assert served.mailbox.get(unknown).answer == "run 'nobody' is not known; only a running one takes commands"
    assert served.mailbox.get(delete).state == "applied"
    assert served.mailbox.get(delete).answer == "Run over is deleted, with its checkpoints, tags and note."
    assert (served.mailbox.all_tags(), served.mailbox.all_notes()) == ({"other": ("good",)}, {"other": "as expected"})
    assert served.runs() == []
    served.mailbox.close()
