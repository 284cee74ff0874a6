"""`bidirl bench` against an engine that runs at once whatever is launched: what is launched, told and left behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine import launching
from engine.cli import calibrate, client, follow
from engine.cli.main import main
from engine.config import Job, parse_job
from engine.config.profile import from_profile
from storage.paths import DataDir
from storage.writer import TelemetryWriter
from tests.engine.comparisons import make_result
from tests.planner.profiles import BASE
from tests.storage.builders import T0

JOB = "name: small\nseed: 5\nschedule: {arm: bidirectional}\ndevices: {partition: '1:1'}"
PROFILE = json.dumps(from_profile(BASE).model_dump(mode="json"))
FOUR = f"name: four\ndevices: {{partition: '2:2', oversubscribe: true}}\nprofile: {PROFILE}"

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "four.yaml").write_text(FOUR)
    monkeypatch.chdir(tmp_path)
    return DataDir.from_env()


@pytest.fixture
def call(data: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bidirl", "bench", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        text = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, text.out, text.err

    return run


@dataclass
class Engine:
    """Runs at once whatever is launched; `ends`: how the n-th run (from 0) ends; `sessions`: how often it started."""

    launched: list[tuple[dict[str, Any], Job]] = field(default_factory=list)
    sessions: int = 0
    ends: dict[int, dict[str, Any]] = field(default_factory=dict)
    calibrated: list[str] = field(default_factory=list)
    calibration: str = "works"

    def session(self, folder: DataDir) -> Iterator[None]:
        self.sessions += 1
        yield None

    def launch(self, folder: DataDir, text: str, *, base_dir: Path, comparison: dict[str, Any]) -> str:
        number, job = len(self.launched), parse_job(text)
        self.launched.append((comparison, job))
        launch = launching.Launch(
            job=job, base_dir=base_dir, parent_run_id=None, start_step=0, comparison=json.loads(json.dumps(comparison))
        )
        run_id, label = f"run-{number}", str(comparison["label"])
        partition = {"rollout": job.partition.rollout, "train": job.partition.train} if job.partition else None
        result = make_result(
            label,
            run_id=run_id,
            name=job.name,
            seed=job.seed,
            kind=job.devices.kind,
            partition=partition,
            comparison={"id": comparison["id"], "label": label, "repeat": comparison["repeat"]},
            throughput_tokens_per_s={"no_borrow": 100.0, "bidirectional": 130.0}.get(label, 110.0)
            + comparison["repeat"],
        )
        result |= self.ends.get(number, {})
        writer = TelemetryWriter(folder.telemetry_db)
        columns = launching.columns(launch) | {"state": result["state"], "error": result["error"], "result": result}
        writer.run(run_id, created_at=T0 + number, **columns)
        writer.close()
        return run_id

    def calibrate(self, folder: DataDir, job: Job, *, base_dir: Path, quiet: bool) -> calibrate.Calibrated:
        self.calibrated.append(job.name)
        if self.calibration == "fails":
            raise client.EngineFailed("run x measured no whole profile")
        return calibrate.Calibrated(result={}, stopped=self.calibration == "stopped", calibration=None, path=None)

    def follow(self, folder: DataDir, run_id: str, *, quiet: bool, owner: None) -> tuple[dict[str, Any], bool]:
        end = self.ends.get(int(run_id.removeprefix("run-")), {})
        if end.get("state") == "interrupted":
            raise client.EngineFailed("the engine ended with code 1; see engine.log")
        return client.result(folder, run_id), end.get("state") == "stopped"


@pytest.fixture
def engine(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(client, "engine", contextmanager(made.session))
    monkeypatch.setattr(client, "launch", made.launch)
    monkeypatch.setattr(follow, "follow", made.follow)
    monkeypatch.setattr(calibrate, "calibrate", made.calibrate)
    return made


# -- what runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "how", "code", "calibrated", "runs"),
    [
        ((), "works", 0, 1, 3),
        ((), "fails", 0, 1, 3),
        ((), "stopped", 130, 1, 0),
        (("--no-calibrate",), "works", 0, 0, 3),
        (("--arms", "bidirektional"), "works", 2, 0, 0),
    ],
    ids=["measured first", "measured in vain", "stopped", "not asked for", "nothing before bad input"],
)
def test_a_job_that_was_never_measured_is_measured_first(
    arguments: tuple[str, ...], how: str, code: int, calibrated: int, runs: int, call: Call, engine: Engine
) -> None:
    engine.calibration = how
    assert call("job.yaml", "--repeats", "1", *arguments)[0] == code
    assert (len(engine.calibrated), len(engine.launched)) == (calibrated, runs)


def test_a_job_with_a_profile_is_not_measured_first(call: Call, engine: Engine) -> None:
    assert call("four.yaml", "--repeats", "1")[0] == 0
    assert engine.calibrated == []


def test_the_arms_run_interleaved_in_one_engine_on_the_same_work(call: Call, engine: Engine) -> None:
    code, out, _ = call("job.yaml", "--arms", "bidirectional", "--repeats", "3", "--json")
    assert (code, engine.sessions) == (0, 1)
    parts = [(part["repeat"], part["label"]) for part, _ in engine.launched]
    first = ["no_borrow", "no_borrow:stream", "bidirectional"]
    moved = [first, first[1:] + first[:1], first[2:] + first[:2]]
    assert parts == [(repeat, label) for repeat, order in enumerate(moved, start=1) for label in order]
    assert {job.seed for _, job in engine.launched} == {5}
    jobs = {str(part["label"]): job.schedule for part, job in engine.launched}
    assert {label: (each.arm, each.consume) for label, each in jobs.items()} == {
        "no_borrow": ("no_borrow", "whole_batch"),
        "no_borrow:stream": ("no_borrow", "stream"),
        "bidirectional": ("bidirectional", "stream"),
    }
    document = json.loads(out)
    assert {part["id"] for part, _ in engine.launched} == {document["comparison"]}
    assert [run["run_id"] for run in document["runs"]] == [f"run-{i}" for i in range(9)]
    ratio = document["ratios"]["bidirectional"]["over"]["better_baseline"]
    assert (ratio["of"], ratio["per_repeat"]) == (
        "no_borrow:stream",
        pytest.approx([131 / 111, 132 / 112, 133 / 113]),
    )
    assert ratio["low"] < ratio["mean"] < ratio["high"]
    assert (document["best_static"]["chosen_by"], document["best_static"]["partition"]) == (
        "only_split",
        {"rollout": 1, "train": 1},
    )


def test_two_values_of_staleness_are_two_cells_and_colocated_runs_once(call: Call, engine: Engine) -> None:
    code, out, _ = call("job.yaml", "--arms", "colocated", "--staleness", "0,1", "--repeats", "1", "--json")
    assert code == 0
    assert [(str(part["label"]), job.schedule.staleness) for part, job in engine.launched] == [
        ("no_borrow", 0),
        ("no_borrow:stream", 0),
        ("colocated", 0),
        ("no_borrow", 1),
        ("no_borrow:stream", 1),
    ]
    cells = json.loads(out)["cells"]
    assert [cell["staleness"] for cell in cells] == [0, 1]
    assert [cell["ratios"]["colocated"]["counted"] for cell in cells] == [1, 1]


def test_the_planners_best_split_is_measured_beside_the_jobs_own(call: Call, engine: Engine) -> None:
    code, out, _ = call("four.yaml", "--arms", "no_borrow", "--repeats", "1", "--json")
    assert code == 0
    best = json.loads(out)["best_static"]
    assert (best["chosen_by"], best["why"]) == (
        "planner",
        "the planner's best without borrowing is 3:1, measured beside the job's 2:2",
    )
    assert [(str(part["label"]), str(job.partition)) for part, job in engine.launched] == [
        ("no_borrow:stream", "2:2"),
        ("no_borrow", "2:2"),
        ("no_borrow@3:1", "3:1"),
        ("no_borrow:stream@3:1", "3:1"),
    ]


def test_splits_that_are_asked_for_are_run_instead_of_planned(call: Call, engine: Engine) -> None:
    code, out, _ = call("four.yaml", "--arms", "no_borrow", "--splits", "1:3,2:2,3:1", "--repeats", "1", "--json")
    assert code == 0
    assert [str(part["label"]) for part, _ in engine.launched] == [
        "no_borrow:stream",
        "no_borrow",
        "no_borrow@1:3",
        "no_borrow:stream@1:3",
        "no_borrow@3:1",
        "no_borrow:stream@3:1",
    ]
    assert json.loads(out)["best_static"]["chosen_by"] == "measured"


def test_without_a_profile_or_calibration_the_best_static_split_is_the_jobs_own_and_says_so(
    call: Call, engine: Engine
) -> None:
    code, out, _ = call("four.yaml", "--set", "profile=null", "--arms", "no_borrow", "--repeats", "1")
    assert code == 0
    assert "best static split: 2:2, stream, 111 tokens/s (the job's own: there is no profile or calibration" in out
    assert {str(job.partition) for _, job in engine.launched} == {"2:2"}


# -- how it ends ------------------------------------------------------------------------------------------------------


def test_a_failed_run_is_told_the_rest_goes_on_and_the_exit_code_is_1(call: Call, engine: Engine) -> None:
    engine.ends[2] = {"state": "failed", "error": "a worker died", "throughput_tokens_per_s": None}
    code, out, err = call("job.yaml", "--repeats", "2")
    assert (code, len(engine.launched)) == (1, 6)
    assert "bidirl: run run-2 failed: a worker died" in err
    assert "not counted: run-2 (bidirectional, repeat 1): failed: a worker died" in out
    assert "5 of 6 runs count" in out


def test_ctrl_c_stops_the_run_and_tells_what_is_there(call: Call, engine: Engine) -> None:
    engine.ends[4] = {"state": "stopped", "throughput_tokens_per_s": None}
    code, out, _ = call("job.yaml", "--json")
    assert (code, len(engine.launched)) == (130, 5)
    document = json.loads(out)
    assert (document["runs_counted"], document["runs_planned"], document["complete"]) == (4, 9, False)
    assert document["ratios"]["bidirectional"]["over"]["better_baseline"]["pairs"] == 1


def test_an_engine_that_goes_away_ends_it_with_what_is_there(call: Call, engine: Engine) -> None:
    engine.ends[3] = {"state": "interrupted", "throughput_tokens_per_s": None}
    code, out, err = call("job.yaml", "--json")
    assert (code, json.loads(out)["runs_counted"]) == (1, 3)
    assert err.endswith("bidirl: the engine ended with code 1; see engine.log\n")


def test_an_engine_that_never_ran_anything_is_one_line(
    call: Call, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> str:
        raise client.EngineFailed("the engine gave no answer to command 1 within 30 s")

    monkeypatch.setattr(client, "launch", refuse)
    code, out, err = call("job.yaml", "--json")
    assert (code, out) == (1, "")
    assert err.endswith("bidirl: the engine gave no answer to command 1 within 30 s\n")


# -- what is told -----------------------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_configuration_and_says_what_could_be_won(call: Call, engine: Engine) -> None:
    code, out, err = call("job.yaml")
    assert code == 0
    assert "[9/9] repeat 3:" in err
    lines = [[cell.strip() for cell in line.strip("│\n").split("│")] for line in out.splitlines() if "│" in line]
    assert lines[-2:] == [
        ["bidirectional", "132", "1.179 [1.175, 1.183]", "1.179 [1.175, 1.183]", "2 s", "25.0%", "99.0%", "12/2/4"],
        ["", "131..133", "", "no_borrow:stream", "", "", "98.2%..99.8%", ""],
    ]
    assert next(line for line in lines if line[0] == "no_borrow:stream")[2] == "the baseline"
    assert "work ratio x = 1.50, rollout the larger: on a 1:1 split lending can win at most 2x/(1+x) = 1.200" in out
    assert "best static split: 1:1, stream, 112 tokens/s (two devices can be split in one way only)" in out
    assert "EMULATED" not in out


def test_one_repeat_says_that_it_has_no_interval(call: Call, engine: Engine) -> None:
    _, out, _ = call("job.yaml", "--repeats", "1")
    assert "one repeat has no interval" in out
    assert "[" not in out.replace("[95%]", "")


def test_a_stored_comparison_is_told_again_without_running(call: Call, engine: Engine) -> None:
    _, out, _ = call("job.yaml", "--json")
    comparison = json.loads(out)["comparison"]
    code, again, err = call("--show", comparison, "--json")
    assert (code, err, json.loads(again)) == (0, "", json.loads(out))
    assert len(engine.launched) == 9
    assert comparison in call("--show", comparison)[1]


def test_a_comparison_of_emulated_devices_says_so(call: Call, engine: Engine) -> None:
    for number in range(3):
        engine.ends[number] = {"kind": "emulated"}
    _, out, _ = call("job.yaml", "--repeats", "1")
    assert ": EMULATED, job small" in out
    assert "EMULATED, staleness 1" in out


def test_runs_of_a_comparison_are_marked_in_the_list(
    call: Call, engine: Engine, data: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = call("job.yaml", "--repeats", "1", "--json")
    monkeypatch.setattr(sys, "argv", ["bidirl", "runs", "list"])
    monkeypatch.setattr(client, "results", lambda folder: [])
    with pytest.raises(SystemExit):
        main()
    assert "comparison" not in capsys.readouterr().out
    rows = [make_full(run) for run in json.loads(out)["runs"]]
    monkeypatch.setattr(client, "results", lambda folder: rows)
    with pytest.raises(SystemExit):
        main()
    listed = capsys.readouterr().out
    assert f"{json.loads(out)['comparison']} #1 no_borrow:stream" in " ".join(listed.split())


def make_full(result: dict[str, Any]) -> dict[str, Any]:
    """What the list shows besides."""
    return {"staleness": 1.0, "steps": 3, "start_step": 0, "reward": {"last": None}, **result}


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "JOB.yaml is required unless --show names a comparison"),
        ("job.yaml --arms bidirektional", "--arms: arm must be one of no_borrow, colocated,"),
        ("job.yaml --arms no_borrow:fast", "--arms: after ':' comes stream or whole_batch, got 'fast'"),
        ("job.yaml --arms no_borrow@2:2", "--arms: a partition of 2 devices is needed, as the job's 1:1, got '2:2'"),
        ("job.yaml --splits 2:2", "--splits: a partition of 2 devices is needed"),
        ("job.yaml --staleness 1,x", "--staleness: must be numbers from 0 to 16 such as 0,0.5,1, got 'x'"),
        ("job.yaml --repeats 0", "Invalid value for '--repeats'"),
        ("job.yaml --show bench-1", "--show prints what was stored: leave JOB.yaml and --set away"),
        ("job.yaml --set sed=1", "job.yaml: sed: unknown key 'sed'; did you mean 'seed'?"),
        (
            "job.yaml --set algorithm.correction=none --set schedule.staleness=0 --staleness 1",
            "job.yaml as no_borrow: schedule.staleness 1.0 with algorithm.correction 'none'",
        ),
        ("--show bench-1", "no telemetry yet"),
    ],
)
def test_bad_input_is_one_line_exit_code_2_and_nothing_started(
    arguments: str, told: str, call: Call, data: DataDir, engine: Engine
) -> None:
    code, out, err = call(*arguments.split())
    assert (code, out, engine.sessions) == (2, "", 0)
    assert told in err
    assert len(err.splitlines()) == 1
    assert not data.root.exists()


def test_an_unknown_comparison_is_named_with_those_that_are_known(call: Call, engine: Engine) -> None:
    _, out, _ = call("job.yaml", "--repeats", "1", "--json")
    code, _, err = call("--show", "bench-nobody")
    known = json.loads(out)["comparison"]
    assert (code, err) == (
        2,
        f"bidirl: --show: comparison 'bench-nobody' is not known; the newest are: {known}\n",
    )
