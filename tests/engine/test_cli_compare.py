"""`bidirl runs compare`: the first run is the baseline, and what cannot be compared is said in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.cli.main import main
from engine.config import dump_job, parse_job
from storage.paths import DataDir
from storage.writer import TelemetryWriter
from tests.storage.builders import T0

Call = Callable[..., tuple[int, str, str]]


def result(run_id: str, rate: float, **overrides: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "run_id": run_id,
        "throughput_tokens_per_s": rate,
        "idle": {"fraction": 0.2, "by_cause": {"no_work": 0.2}, "device_s": 3600.0},
        "time_scale": None,
    }
    return fields | overrides


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    data = DataDir(tmp_path)
    writer = TelemetryWriter(data.telemetry_db, clock=lambda: T0)
    job = "devices: {kind: emulated, count: 16, partition: '8:8'}"
    for number, (run_id, rate) in enumerate((("base", 100.0), ("faster", 125.0))):
        text = dump_job(parse_job(job, [f"seed={number}"]))
        scale = 0.02 if number else None
        told = result(run_id, rate, time_scale=scale)
        writer.run(run_id, name="demo", state="finished", created_at=T0 + number, job=text, result=told)
    writer.run("bare", name="demo", state="failed", created_at=T0 + 9, job=dump_job(parse_job(job)))
    writer.close()

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bidirl", "runs", "compare", *arguments, "--data-dir", str(tmp_path)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, told.out, told.err

    return run


def test_figures_are_told_with_their_ratio_to_the_first_run(call: Call) -> None:
    code, out, err = call("base", "faster")
    assert (code, err) == (0, "")
    line = next(line for line in out.splitlines() if "throughput" in line)
    assert ("100" in line, "125 (1.250x)" in line) == (True, True)
    assert "20.0% (same)" in next(line for line in out.splitlines() if "idle share" in line)
    assert "seed" in out
    assert "EMULATED, 50 times faster" in out


def test_as_json_it_is_one_document(call: Call) -> None:
    code, out, _ = call("faster", "base", "bare", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["runs"], found["baseline"]) == (["faster", "base", "bare"], "faster")
    assert found["settings"] == {"seed": {"faster": 1, "base": 0, "bare": 0}}
    assert found["figures"]["throughput_tokens_per_s"] == {"faster": 125.0, "base": 100.0, "bare": None}
    assert found["ratios"]["throughput_tokens_per_s"] == {"faster": 1.0, "base": 0.8, "bare": None}
    assert found["figures"]["lost_device_hours"]["base"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("base",), "RUN: at least two runs are needed to compare, got 1"),
        (("base", "base"), "RUN: 'base' is named twice"),
        (("base", "nowhere"), "RUN: 'nowhere' is not known; the newest are: bare, faster, base"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_exit_code_2(arguments: tuple[str, ...], said: str, call: Call) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
