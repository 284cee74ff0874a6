"""Runs what the report is about and says what came of it, as docs/measured keeps it.

    real, improvements   bidirl bench, one after the other, each with an engine of its own: they need the cores
    emulated             one engine, several bidirl bench at a time: emulated devices only wait
    scale                one bidirl run

Every wait has a deadline. A comparison that fails does not take the others with it: they are handed on as they end, and
the failure is raised when all have. An engine that was started here is ended here, by its own process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path

from engine import simulation
from engine.cli import client
from engine.config import load_job, parse_job, planning
from planner.policy.improvements import DEFAULT, IMPROVEMENTS
from planner.throughput import steady
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import RunRow
from storage.words import POOLS
from tests.report import trimming
from tests.report.trimming import Document

ROOT = Path(__file__).resolve().parents[2]
BIDIRL = Path(sys.executable).parent / "bidirl"

JOBS = ("rollout_heavy", "balanced", "train_heavy")
HEAVY = ("rollout_heavy", "train_heavy")
SPLITS = ("4:12", "8:8", "12:4")
"""All that 16 devices allow with trainers of 4."""

REAL_ARMS = "no_borrow,no_borrow:stream,colocated,bidirectional_paper,bidirectional"
EMULATED_ARMS = (
    "no_borrow,no_borrow:stream,opportunistic,bidirectional_paper,rollout_on_train,train_on_rollout,bidirectional,"
    "colocated"
)
LARGER_ARMS = "no_borrow,no_borrow:stream,bidirectional_paper,bidirectional"
STALENESS_GROUPS = ("0,0.5", "1,2", "4")
"""Two comparisons of about the same length for each split."""

IMPROVEMENT_REPEATS = 2
"""The fewest that have an interval at all; a dozen configurations with more would take a night."""

EMULATED_STEPS = 12
"""Of them 4 count at staleness 4, the largest."""

AT_ONCE = 6
"""Emulated comparisons at a time: with more, one engine on two cores begins to come late."""

SCALE_SETTINGS = (
    "algorithm.steps=4",
    "devices.count=256",
    "devices.partition=128:128",
    "algorithm.prompts_per_step=1024",
    "devices.time_scale=0.2",
)

BENCH_LIMIT_S = 6 * 3600.0
"""Longest wait for one comparison: some thirty runs of minutes each."""

RUN_LIMIT_S = 1800.0
"""Longest wait for the run at scale: four steps of half a minute and a start."""

Task = Callable[[], Document]
Keep = Callable[[Document], None]
"""Stores a section, as far as it has come."""

More = Callable[[TelemetryReader, RunRow], Document]
"""What telemetry adds to a run of a comparison."""


def real(data: DataDir, keep: Keep, *, repeats: int) -> None:
    """The shipped jobs on this machine's cores."""
    words = ["--arms", REAL_ARMS, "--staleness", "0,1", "--repeats", str(repeats)]
    tasks = [partial(bench, data, f"jobs/{job}.yaml", words, more=_busy) for job in JOBS]
    _all(tasks, lambda found: keep(_section(found)))


def improvements(data: DataDir, keep: Keep) -> None:
    """Each improvement of `bidirectional` that is on, taken away."""
    labels = [f"bidirectional-{name}" for name in IMPROVEMENTS if getattr(DEFAULT, name)]
    arms = ",".join(["bidirectional", "bidirectional:whole_batch", *labels])
    words = ["--arms", arms, "--staleness", "1", "--repeats", str(IMPROVEMENT_REPEATS)]
    tasks = [partial(bench, data, f"jobs/{job}.yaml", words) for job in HEAVY]
    _all(tasks, lambda found: keep(_section(found)))


def emulated(data: DataDir, keep: Keep) -> None:
    """Every arm on emulated devices, what the simulator says to the same jobs, and what the planner chose."""
    tasks = [
        _emulated(data, "jobs/emulated_16.yaml", EMULATED_ARMS, split, staleness)
        for staleness in STALENESS_GROUPS
        for split in SPLITS
    ]
    tasks.append(_emulated(data, "jobs/emulated_32.yaml", LARGER_ARMS, "16:16", "1"))
    planned = {arm: _planned(arm) for arm in ("no_borrow", "bidirectional")}
    with client.engine(data):
        _all(tasks, lambda found: keep(_section(found) | {"planned": planned}), at_once=AT_ONCE)


def scale(data: DataDir, keep: Keep) -> None:
    """One run with hundreds of emulated devices: does the engine keep up?"""
    words = ["run", "jobs/emulated_16.yaml", *_settings(SCALE_SETTINGS)]
    result = _bidirl(data, words, RUN_LIMIT_S)
    with TelemetryReader(data.telemetry_db) as reader:
        row = reader.engine()
    assert row is not None, f"no engine has written to {data.telemetry_db}"
    keep(
        {
            **_about(),
            "command": _told(words),
            "devices": load_job(ROOT / "jobs/emulated_16.yaml", list(SCALE_SETTINGS)).device_count,
            "run": trimming.run(result),
            "engine": {"spans_dropped": row.spans_dropped, "rows_written": row.rows_written},
        }
    )


# -- commands ---------------------------------------------------------------------------------------------------------


def bench(data: DataDir, job: str, words: Sequence[str], *, more: More | None = None) -> Document:
    """One comparison in short. Raises RuntimeError when the command has no document to give."""
    command = ["bench", job, *words]
    document = _bidirl(data, command, BENCH_LIMIT_S)
    added: dict[str, Document] = {}
    if more is not None:
        with TelemetryReader(data.telemetry_db) as reader:
            for row in reader.comparison(document["comparison"]):
                if row.state == "finished":
                    added[row.run_id] = more(reader, row)
    return trimming.comparison(document, command=_told(command), more=added)


def _bidirl(data: DataDir, words: Sequence[str], limit_s: float) -> Document:
    """The JSON that a command prints; a comparison with failed runs has one too, and says which they are."""
    print(f"{time.strftime('%H:%M:%S')} {_told(words)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [str(BIDIRL), *words, "--json", "--data-dir", str(data.root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=limit_s,
        check=False,
    )
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"{_told(words)} ended with code {done.returncode}; its last lines are above")
    document: Document = json.loads(done.stdout)
    return document


def _told(words: Iterable[str]) -> str:
    return " ".join(["bidirl", *words])


def _settings(values: Iterable[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def _emulated(data: DataDir, job: str, arms: str, split: str, staleness: str) -> Task:
    """One split, and none of the baselines at another one."""
    settings = _settings([f"algorithm.steps={EMULATED_STEPS}", f"devices.partition={split}"])
    words = [*settings, "--arms", arms, "--staleness", staleness, "--splits", split, "--repeats", "1"]
    return partial(bench, data, job, words, more=_simulated)


def _all(tasks: Sequence[Task], keep: Callable[[list[Document]], None], *, at_once: int = 1) -> None:
    """Do all of them, keeping what is there whenever one ends; in the order of `tasks`. Raises RuntimeError at the end
    for those that failed."""
    found: dict[int, Document] = {}
    failures: list[str] = []
    with ThreadPoolExecutor(at_once) as pool:
        places = {pool.submit(task): place for place, task in enumerate(tasks)}
        for future in as_completed(places):
            try:
                found[places[future]] = future.result()
            except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
                failures.append(str(error))
                continue
            keep([found[place] for place in sorted(found)])
    if failures:
        raise RuntimeError("; ".join(failures))


# -- what telemetry and the planner add -------------------------------------------------------------------------------


def _busy(reader: TelemetryReader, run: RunRow) -> Document:
    """Seconds a step that a device of each pool was busy, beside the step's own: of the whole run, and of its steady
    part, as its throughput counts it. Nothing for an arm without pools."""
    steps = reader.steps(run.run_id)
    counted = steady(steps, run.staleness or 0.0)
    pools = {device.device: device.pool for device in reader.devices(run.run_id)}
    if None in pools.values() or not counted or run.training_at is None or run.measured_until is None:
        return {}
    windows = {
        "whole_run": (run.training_at, run.measured_until, len(steps)),
        "steady": (counted[0].t_start, counted[-1].t_end, len(counted)),
    }
    return {"busy": {name: _stages(reader, run.run_id, pools, *window) for name, window in windows.items()}}


def _stages(
    reader: TelemetryReader, run_id: str, pools: dict[int, str | None], begin: float, end: float, steps: int
) -> Document:
    seconds = reader.kind_seconds(run_id, begin, end)
    found: Document = {"steps": steps, "step_s": (end - begin) / steps}
    for pool in POOLS:
        devices = [device for device, where in pools.items() if where == pool]
        busy = sum(
            s for device in devices for column, s in seconds.get(device, {}).items() if not column.startswith("idle_")
        )
        found[f"{pool}_s"] = busy / len(devices) / steps
    return found


def _simulated(_: TelemetryReader, run: RunRow) -> Document:
    """What the simulator makes of the very job that this run was."""
    result = simulation.simulate(parse_job(run.job, source=run.run_id), source=run.run_id)
    return {
        "simulated": {
            "throughput_tokens_per_s": result["throughput_tokens_per_s"],
            "idle": {name: result["idle"][name] for name in ("fraction", "by_cause")},
        }
    }


def _planned(arm: str) -> str | None:
    """The split that the planner would take for an arm at staleness 1."""
    job = load_job(ROOT / "jobs/emulated_16.yaml", [f"schedule.arm={arm}", "schedule.staleness=1"])
    planned = planning.plan_job(job)
    best = planned.plan.best_borrowing if planned.borrows else planned.plan.best
    return f"{best.rollout_devices}:{best.train_devices}" if best is not None else None


def _section(comparisons: list[Document]) -> Document:
    return {**_about(), "comparisons": comparisons}


def _about() -> Document:
    """When, of what source, and on what."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
    }


@cache
def _commit() -> str:
    """As it was before the first section was stored, which is a change of the source too."""
    git = ["git", "describe", "--always", "--dirty"]
    told = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False).stdout.strip()
    return told or "unknown"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
