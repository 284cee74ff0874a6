"""The command line on measured speeds: calibrate stores them, plan and simulate find them, --like plays a run again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.cli import calibrate, client, follow
from engine.cli.main import main
from engine.config import Job, calibrations, dump_job, load_job, parse_job
from engine.config.profile import from_profile
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.writer import TelemetryWriter
from tests.planner.profiles import BASE
from tests.storage.builders import RUN, T0, make_group, make_step

JOB = "name: small\nalgorithm: {group_size: 2, prompts_per_step: 4, steps: 6}\ndevices: {partition: '1:1'}"

PROFILE = from_profile(BASE).model_dump(mode="json")

ERROR = {"rollout": {"median": 0.031, "p90": 0.058, "count": 200}, "train": {"median": 0.02, "p90": 0.04, "count": 48}}

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "job1.yaml").write_text("name: x\ndevices: {partition: '1:1'}")
    monkeypatch.chdir(tmp_path)
    return DataDir.from_env()


@pytest.fixture
def call(data: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bidirl", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        text = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, text.out, text.err

    return run


def store_run(data: DataDir, job: Job, run_id: str = RUN, *, groups: int = 0, **columns: Any) -> None:
    """A run that has ended, with groups of 10, 20, 30, ... tokens a response."""
    writer = TelemetryWriter(data.telemetry_db)
    fields: dict[str, Any] = {
        "name": job.name,
        "kind": "cpu",
        "state": "finished",
        "arm": job.schedule.arm,
        "partition": str(job.partition) if job.partition else None,
        "job": dump_job(job),
        "created_at": T0,
        "ended_at": T0,
        "profile": PROFILE,
        "model_error": ERROR,
    }
    writer.run(run_id, **(fields | columns))
    # written in the order in which they finish, which is not that of the data
    writer.groups(
        [
            make_group(run_id=run_id, group_id=place, responses=[{"text": "", "tokens": 10 * (place + 1)}] * 2)
            for place in reversed(range(groups))
        ]
    )
    writer.close()


@pytest.fixture
def engine(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands for an engine that runs whatever is launched at once; `launched` is the job, `columns` how it ends."""
    state: dict[str, Any] = {"columns": {}}

    @contextmanager
    def no_engine(folder: DataDir) -> Iterator[None]:
        yield None

    def launch(folder: DataDir, text: str, *, base_dir: Path) -> str:
        state["launched"] = parse_job(text)
        store_run(folder, state["launched"], **state["columns"])
        return RUN

    def finish(folder: DataDir, run_id: str, *, quiet: bool, owner: None) -> tuple[dict[str, Any], bool]:
        with TelemetryReader(folder.telemetry_db) as reader:
            row = reader.run(run_id)
        assert row is not None
        return {"run_id": run_id, "state": row.state, "steps": 12, "error": row.error}, row.state == "stopped"

    monkeypatch.setattr(client, "engine", no_engine)
    monkeypatch.setattr(client, "launch", launch)
    monkeypatch.setattr(follow, "follow", finish)
    return state


# -- calibrate --------------------------------------------------------------------------------------------------------


def test_calibrate_runs_the_job_short_and_stores_what_it_measured(
    call: Call, data: DataDir, engine: dict[str, Any]
) -> None:
    code, out, err = call("calibrate", "job.yaml", "--set", "schedule.staleness=0.5", "--json")
    assert (code, err) == (0, "")
    ran = engine["launched"]
    assert (ran.name, ran.algorithm.steps, ran.eval.items, ran.checkpoint.every_steps) == ("calibrate-small", 12, 0, 0)
    assert (ran.schedule.staleness, ran.schedule.arm, ran.profile) == (0.5, "bidirectional", None)
    document = json.loads(out)
    assert document["profile"] == PROFILE
    assert (document["run_id"], document["at"], document["model_error"]) == (RUN, "2023-11-14T22:13:20Z", ERROR)
    assert Path(document["path"]) == data.root / "profiles" / f"{document['fingerprint']}.yaml"
    found = calibrations.find(data, load_job(Path("job.yaml")))
    assert found is not None
    assert (found.run_id, found.model_error) == (RUN, ERROR)
    assert found.profile.model_dump(mode="json") == PROFILE


def test_calibrate_prints_what_it_found_and_what_to_paste_into_a_job(call: Call, engine: dict[str, Any]) -> None:
    code, out, err = call("calibrate", "job.yaml", "--steps", "3")
    assert (code, err, engine["launched"].algorithm.steps) == (0, "", 3)
    assert "3.1% in the median, 5.8% at the 90th percentile" in out
    assert "909 tokens/s with all 64 slots in use" in out
    _, _, block = out.partition(f"# measured by run {RUN}, 2023-11-14T22:13:20Z\n")
    pasted = parse_job(f"{JOB}\n{block}").profile
    assert pasted is not None
    assert pasted.model_dump(mode="json") == PROFILE


@pytest.mark.parametrize(
    ("columns", "code", "told"),
    [
        ({"profile": None}, 1, f"run {RUN} of arm bidirectional measured no whole profile"),
        ({"profile": PROFILE | {"noise": 7}}, 1, "noise: must be a number from 0 to 1, got 7"),
        ({"state": "failed", "error": "a worker died"}, 1, f"run {RUN} failed: a worker died"),
        ({"state": "stopped"}, 130, f"run {RUN} stopped: it did not finish, so nothing is stored"),
    ],
)
def test_a_calibration_that_measured_nothing_stores_nothing_and_says_why(
    call: Call, data: DataDir, engine: dict[str, Any], columns: dict[str, Any], code: int, told: str
) -> None:
    engine["columns"] = columns
    found, out, err = call("calibrate", "job.yaml")
    assert (found, out) == (code, "")
    assert told in err
    assert len(err.splitlines()) == 1
    assert not (data.root / "profiles").exists()


def test_a_second_calibration_replaces_the_first(call: Call, data: DataDir, engine: dict[str, Any]) -> None:
    call("calibrate", "job.yaml")
    engine["columns"] = {"profile": PROFILE | {"optimizer_s": 0.125}}
    call("calibrate", "job.yaml")
    assert len(list((data.root / "profiles").iterdir())) == 1
    found = calibrations.find(data, load_job(Path("job.yaml")))
    assert found is not None
    assert found.profile.optimizer_s == 0.125


# -- what a calibration is good for -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "same"),
    [
        ("name=other", True),
        ("seed=4", True),
        ("algorithm.steps=9", True),
        ("algorithm.prompts_per_step=8", True),
        ("schedule.arm=bidirectional", True),
        ("schedule.staleness=2", True),
        ("devices.partition=2:2", True),
        ("algorithm.group_size=4", False),
        ("sampling.max_response_tokens=64", False),
        ("task.source=reasoning_gym:gcd", False),
        ("model.source=some/folder", False),
        ("model.size.layers=3", False),
        ("devices.kind=cuda", False),
        ("devices.rollout_slots=32", False),
        ("devices.train_replica_size=2", False),
        ("schedule.max_chunk_groups=2", False),
        ("schedule.deterministic=true", False),
    ],
)
def test_a_calibration_holds_for_jobs_that_run_at_the_same_speeds(setting: str, same: bool, data: DataDir) -> None:
    before, after = load_job(Path("job.yaml")), load_job(Path("job.yaml"), [setting])
    assert (calibrations.fingerprint(before) == calibrations.fingerprint(after)) == same


def test_plan_and_simulate_go_by_the_stored_calibration_and_say_so(
    call: Call, data: DataDir, engine: dict[str, Any]
) -> None:
    for command in ("plan", "simulate"):
        code, _, err = call(command, "job.yaml")
        assert code == 2
        assert "or measure them with: bidirl calibrate JOB.yaml" in err
    assert not data.root.exists()
    call("calibrate", "job.yaml")
    source = f"calibration of run {RUN}, 2023-11-14T22:13:20Z"
    for command in ("plan", "simulate"):
        code, out, err = call(command, "job.yaml", "--json")
        assert (code, err, json.loads(out)["source"]) == (0, "", source)
        assert source in call(command, "job.yaml")[1]
    code, out, _ = call("simulate", "job.yaml", "--set", "schedule.arm=bidirectional", "--json")
    assert (code, json.loads(out)["kind"]) == (0, "simulated")
    assert call("plan", "job.yaml", "--set", "algorithm.group_size=4")[0] == 2, "another group size is another speed"


@pytest.mark.parametrize("text", ["[", "{}", "profile: {}", "1", "run_id: x\nat: y\nmodel_error: 3\nprofile: {}"])
def test_a_file_that_is_no_calibration_is_named(call: Call, data: DataDir, text: str) -> None:
    path = calibrations.path_of(data, load_job(Path("job.yaml")))
    path.parent.mkdir(parents=True)
    path.write_text(text)
    code, out, err = call("plan", "job.yaml")
    assert (code, out) == (2, "")
    assert err.startswith(f"bidirl: {path}: is no calibration (")
    assert err.endswith("; remove it and calibrate again\n")
    assert len(err.splitlines()) == 1


# -- a past run -------------------------------------------------------------------------------------------------------


def like(call: Call, *arguments: str) -> dict[str, Any]:
    code, out, err = call("simulate", "--like", RUN, "--json", *arguments)
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_past_run_is_played_again_with_its_job_its_devices_its_speeds_and_its_work(call: Call, data: DataDir) -> None:
    store_run(data, load_job(Path("job.yaml")), groups=3)
    found = like(call)
    assert (found["kind"], found["source"], found["partition"]) == (
        "simulated",
        f"run {RUN}",
        {"rollout": 1, "train": 1},
    )
    assert found["model_error"] == {"rollout": {"median": 0.031, "p90": 0.058}, "train": {"median": 0.02, "p90": 0.04}}
    # 6 steps of 4 groups: of 10, 20 and 30 tokens a response in turn, 400 of prompt
    assert (found["arm"], found["steps"], found["tokens"]) == ("no_borrow", 6, 8 * 2 * (10 + 20 + 30) + 24 * 2 * 400)
    assert "SIMULATED" in call("simulate", "--like", RUN)[1]


@pytest.mark.parametrize(
    ("settings", "partition"),
    [
        (["schedule.arm=bidirectional"], {"rollout": 1, "train": 1}),
        (["schedule.arm=colocated"], None),
        (["schedule.staleness=0"], {"rollout": 1, "train": 1}),
        (["devices.partition=1:3"], {"rollout": 1, "train": 3}),
        (["devices.count=4"], {"rollout": 2, "train": 2}),
    ],
)
def test_another_schedule_is_played_on_the_work_of_the_same_run(
    call: Call, data: DataDir, settings: list[str], partition: dict[str, int] | None
) -> None:
    store_run(data, load_job(Path("job.yaml")), groups=5)
    before, after = like(call), like(call, *(word for setting in settings for word in ("--set", setting)))
    assert before["tokens"] == after["tokens"]
    assert before["wall_s"] != after["wall_s"]
    if "count" in settings[0]:
        assert sum(after["partition"].values()) == 4, "the best split of that many"
    else:
        assert after["partition"] == partition


def test_a_run_whose_partition_was_automatic_or_that_had_no_pools_is_played_on_its_devices(
    call: Call, data: DataDir
) -> None:
    store_run(data, load_job(Path("job.yaml"), ["devices.partition=auto"]), groups=3)
    assert like(call)["partition"] == {"rollout": 1, "train": 1}
    store_run(data, load_job(Path("job.yaml"), ["devices.partition=auto", "schedule.arm=colocated"]), groups=3)
    assert like(call)["partition"] is None
    assert like(call, "--set", "schedule.arm=no_borrow")["partition"] == {"rollout": 1, "train": 1}


def test_a_job_file_is_played_on_the_work_of_a_past_run(call: Call, data: DataDir) -> None:
    store_run(data, load_job(Path("job.yaml")), groups=5)
    found = like(call, "job.yaml", "--set", "algorithm.steps=4", "--set", "schedule.arm=opportunistic")
    assert (found["arm"], found["steps"], found["source"]) == ("opportunistic", 4, f"run {RUN}")


def store_steps(data: DataDir, *seconds: float) -> None:
    """Steps of 1000 tokens, one after the other."""
    writer, ended = TelemetryWriter(data.telemetry_db), T0
    for number, lasted in enumerate(seconds):
        began, ended = ended, ended + lasted
        writer.step(
            make_step(run_id=RUN, step=number, t_start=began, t_end=ended, prompt_tokens=400, response_tokens=600)
        )
    writer.close()


def test_the_forecast_stands_beside_what_the_run_measured_and_its_replay_as_it_was(call: Call, data: DataDir) -> None:
    settings = ["schedule.arm=bidirectional", "schedule.staleness=1"]
    store_run(data, load_job(Path("job.yaml"), settings), groups=5, staleness=1.0)
    store_steps(data, 9, 2, 2, 2, 9)
    found = like(call, "--set", "schedule.arm=no_borrow", "--set", "algorithm.steps=5")
    beside = found["like"]
    # the first and the last step are not steady: 3 * 1000 / 6
    assert (beside["run_id"], beside["steps"], beside["measured_tokens_per_s"]) == (RUN, 5, 500.0)
    as_is = like(call, "--set", "algorithm.steps=5")
    assert beside["replayed_tokens_per_s"] == as_is["throughput_tokens_per_s"] == as_is["like"]["replayed_tokens_per_s"]
    assert beside["model_error"] == pytest.approx(as_is["throughput_tokens_per_s"] / 500 - 1)
    ratio = found["throughput_tokens_per_s"] / as_is["throughput_tokens_per_s"]
    assert beside["expected_tokens_per_s"]["middle"] == pytest.approx(500 * ratio)
    assert as_is["like"]["expected_tokens_per_s"]["middle"] == pytest.approx(500)
    assert beside["notes"] == ["consume goes from stream to whole_batch with the arm: schedule.consume is not set"]
    assert as_is["like"]["notes"] == []
    text = call("simulate", "--like", RUN, "--set", "schedule.arm=no_borrow", "--set", "algorithm.steps=4")[1]
    assert "measured, as it was" in text
    assert "the model's error on this run" in text
    assert "note: compared over the first 4 of its 5 steps" in text
    assert "note: consume goes from stream to whole_batch" in text


def test_a_run_without_a_steady_part_says_why_nothing_is_expected(call: Call, data: DataDir) -> None:
    store_run(data, load_job(Path("job.yaml")), groups=3)
    beside = like(call)["like"]
    assert (beside["measured_tokens_per_s"], beside["expected_tokens_per_s"]) == (None, None)
    assert beside["notes"][0].startswith(f"run {RUN} has no steady throughput in 0 steps")


def test_a_steered_run_is_played_with_what_was_in_force_at_its_end(call: Call, data: DataDir) -> None:
    store_run(data, load_job(Path("job.yaml")), groups=3, settings={"staleness": 0.5, "partition": "1:1"},
              config_version=1)  # fmt: skip
    found = like(call)
    assert found["staleness"] == 0.5
    assert any("those in force at its end" in note for note in found["like"]["notes"])
    assert like(call, "--set", "schedule.staleness=2")["staleness"] == 2.0


@pytest.mark.parametrize(
    ("columns", "groups", "arguments", "told"),
    [
        ({}, 3, ("--like", "other"), f"--like: run 'other' is not known; the newest are: {RUN}"),
        ({"profile": None}, 3, ("--like", RUN), f"--like: run {RUN} has not measured a whole profile"),
        ({"profile": PROFILE | {"noise": 7}}, 3, ("--like", RUN), "noise: must be a number from 0 to 1, got 7"),
        ({}, 0, ("--like", RUN), f"--like: run {RUN} has no recorded groups"),
        ({}, 3, ("job1.yaml", "--like", RUN), "job1.yaml: algorithm.group_size: must be 2 to play that run again"),
        ({}, 3, ("--like", RUN, "--set", "sed=1"), f"run {RUN}: sed: unknown key 'sed'; did you mean 'seed'?"),
    ],
)
def test_a_past_run_that_cannot_be_played_again_is_bad_input(
    call: Call, data: DataDir, columns: dict[str, Any], groups: int, arguments: tuple[str, ...], told: str
) -> None:
    store_run(data, load_job(Path("job.yaml")), groups=groups, **columns)
    code, out, err = call("simulate", *arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1


def test_a_calibrations_name_is_one_that_a_job_may_have() -> None:
    job = parse_job("name: " + "x" * 64)
    name = next(setting for setting in calibrate.settings_of(job, 3) if setting.startswith("name="))
    assert len(name.removeprefix("name=")) == 64
