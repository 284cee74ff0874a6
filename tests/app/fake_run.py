"""Test data only: writes a plausible run of two pools through storage's own writer. Nothing here trains anything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.config import dump_job, parse_job
from storage.paths import DataDir
from storage.records import DeviceRow, DeviceState, EvalRow, GroupRow, LeaseRow, LogRow, Span, StepRow
from storage.writer import TelemetryWriter
from tests.app.fake_lending import decisions_about, lend, numbered

ENGINE = "engine-1"
NOW = 1_790_000_000.0
JOB = """
name: demo
algorithm: {group_size: 4, prompts_per_step: 8, steps: 60, learning_rate: 6e-4}
sampling: {max_response_tokens: 24}
schedule: {arm: no_borrow, staleness: 1.0}
devices: {count: 2, partition: "1:1"}
"""


def write_engine(writer: TelemetryWriter, *, now: float = NOW, beat_age_s: float = 0.5, **fields: Any) -> None:
    """The current engine life, last heard `beat_age_s` before `now`."""
    values = {
        "pid": 1,
        "host": "here",
        "started_at": now - 4000,
        "beat_at": now - beat_age_s,
        "state": "ready",
        "version": "0.1.0",
        "cores": 2,
        "spans_dropped": 0,
        "queue_depth": 0,
        "flush_lag_s": 0.2,
    }
    writer.engine(ENGINE, **{**values, **fields})


def write_run(
    writer: TelemetryWriter,
    run_id: str = "demo-0001",
    *,
    now: float = NOW,
    steps: int = 30,
    step_s: float = 4.0,
    state: str = "running",
    pools: tuple[int, int] = (1, 1),
    seed: int = 0,
    spans: bool = True,
    lending: bool = False,
    **fields: Any,
) -> None:
    """A run whose last step ended just before `now`, with everything that an engine reports about one. lending: half
    of its idle time is lent."""
    rng = random.Random(seed)
    devices = sum(pools)
    start = now - steps * step_s - 1.0
    ended = state in ("finished", "stopped", "failed", "interrupted")
    job = parse_job(JOB)
    values: dict[str, Any] = {
        "name": "demo",
        "kind": "cpu",
        "state": state,
        "arm": "no_borrow",
        "consume": "whole_batch",
        "staleness": 1.0,
        "partition": f"{pools[0]}:{pools[1]}",
        "seed": seed,
        "job": dump_job(job),
        "base_dir": ".",
        "who": "ana",
        "engine_id": ENGINE,
        "created_at": start - 40,
        "started_at": start - 38,
        "training_at": start,
        "steps_target": 60,
        "start_step": 0,
        "steps": steps,
        "config_version": 1,
        "measured_until": now - 1.0,
        "buffer_groups": 5,
        "in_flight_groups": 6,
        "ended_at": now if ended else None,
    }
    writer.run(run_id, **{**values, **fields})
    writer.devices(
        run_id,
        [
            DeviceRow(device=d, node=f"node{d // 8}", pool="rollout" if d < pools[0] else "train", core=d, pid=100 + d)
            for d in range(devices)
        ],
    )
    if spans:
        leases: list[LeaseRow] = []
        for device in range(devices):
            lived = list(_spans(run_id, device, device < pools[0], start, steps, step_s, rng))
            if lending:
                lived, lent = lend(lived, rng)
                leases += lent
            writer.spans(lived)
        leases = numbered(leases)
        writer.leases(leases)
        writer.decisions(decisions_about(leases))
        if not ended:
            writer.device_states(run_id, [_open(d, d < pools[0], now, steps) for d in range(devices)])
    for step in range(1, steps + 1):
        end = start + step * step_s
        writer.step(_step(run_id, step, end - step_s * 0.8, end, steps, rng))
        writer.groups([_group(run_id, step, i, end, rng) for i in range(3)])
        if step % 10 == 0 or step == 1:
            done = step / max(steps, 1)
            writer.eval(
                EvalRow(run_id=run_id, step=step, name="held_out", accuracy=0.1 + 0.7 * done, items=128, at=end)
            )
            writer.eval(
                EvalRow(run_id=run_id, step=step, name="control", accuracy=0.4 + 0.45 * done, items=128, at=end)
            )
    writer.log(LogRow(run_id=run_id, at=start - 38, level="info", text="workers started on cores 0 and 1"))
    writer.log(LogRow(run_id=run_id, at=start, level="info", device=0, text="loaded version 0 in 8 ms"))
    writer.log(LogRow(run_id=run_id, at=start + 9, level="warning", device=1, text="step 2 waited 1.1 s for groups"))


def _spans(
    run_id: str, device: int, rollout: bool, start: float, steps: int, step_s: float, rng: random.Random
) -> Iterator[Span]:
    def piece(t0: float, seconds: float, kind: str, cause: str | None = None, step: int | None = None) -> Span:
        role = "primary" if kind in ("rollout", "train") else None
        return Span(
            run_id=run_id,
            device=device,
            t0=t0,
            t1=t0 + seconds,
            kind=kind,
            role=role,
            cause=cause,
            step=step,
            version=(step or 1) - 1,
            cpu_s=None if kind == "idle" else seconds * 0.97,
        )

    yield piece(start - 38, 38.0, "startup")
    for step in range(1, steps + 1):
        t0 = start + (step - 1) * step_s
        held = step_s * rng.uniform(0.05, 0.25)
        if rollout:
            parts = [
                (step_s * 0.02, "weight_sync", None),
                (step_s * 0.06, "scoring", None),
                (held, "idle", "staleness_cap"),
            ]
            work = "rollout"
        else:
            parts = [(step_s * 0.05, "optimizer", None), (held, "idle", "waiting_for_groups")]
            work = "train"
        if step % 10 == 0:
            parts.append((step_s * 0.1, "evaluate" if rollout else "checkpoint", None))
        parts.append((step_s - sum(p[0] for p in parts), work, None))
        rng.shuffle(parts)
        for seconds, kind, cause in parts:
            yield piece(t0, seconds, kind, cause, step)
            t0 += seconds


def _open(device: int, rollout: bool, now: float, steps: int) -> DeviceState:
    kind = "rollout" if rollout else "train"
    return DeviceState(
        device=device, kind=kind, role="primary", version=steps, step=steps + 1, since=now - 1.0, seen_at=now - 0.2
    )


def _step(run_id: str, step: int, t_start: float, t_end: float, steps: int, rng: random.Random) -> StepRow:
    done = step / max(steps, 1)
    return StepRow(
        run_id=run_id,
        step=step,
        t_start=t_start,
        t_end=t_end,
        groups=8,
        prompt_tokens=8 * 4 * 11,
        response_tokens=8 * 4 * 9,
        reward_mean=min(1.0, 0.2 + 0.6 * done + rng.uniform(-0.05, 0.05)),
        loss=0.02 * (1 - done) + rng.uniform(-0.004, 0.004),
        grad_norm=0.6,
        entropy=0.5,
        response_len_mean=5 + 9 * done + rng.uniform(-0.4, 0.4),
        lag_max=1 if step > 1 else 0,
        lag={0: 3, 1: 5} if step > 1 else {0: 8},
        no_signal=rng.randint(0, 3),
        staleness=1.0,
        metrics={
            "mismatch_kl": 0.002 + rng.uniform(0, 0.001),
            "capped_share": 0.001,
            "clip_share": 0.0,
            "ess": 0.93,
            "learning_rate": 6e-4,
            "publish_s": 0.01,
            "by_lag": {str(lag): _part(groups, 1 + lag) for lag, groups in ((0, 3), (1, 5)) if step > 1 or lag == 0},
            # every fourth step has no auxiliary trainer
            "by_role": {"primary": _part(5, 1), **({"auxiliary": _part(3, 1.5)} if step % 4 else {})},
        },
    )


def _part(groups: int, times: float) -> dict[str, float]:
    """What correcting for older weights took for a part of a step's groups."""
    return {
        "groups": groups, "mismatch_kl": 0.002 * times, "clip_share": 0.0, "capped_share": 0.001 * times,
        "ess": 1 - 0.05 * times,
    }  # fmt: skip


def _group(run_id: str, step: int, index: int, end: float, rng: random.Random) -> GroupRow:
    a, b, c = (rng.randint(1, 9) for _ in range(3))
    excluded = step % 15 == 0 and index == 0
    texts = [
        f"<think> {a + b} {a + b + c} <answer> {a + b + c}",
        f"<answer> {a + b - c}",
        f"<answer> {a + b + c}",
        f"<think> {a} <answer> {c}",
    ]
    rewards = [1.0, 0.0, 1.0, 0.0]
    return GroupRow(
        run_id=run_id,
        group_id=step * 10 + index,
        epoch=0,
        item=step * 8 + index,
        state="excluded" if excluded else "consumed",
        reason="reward_failed" if excluded else None,
        step=None if excluded else step,
        version=max(0, step - 2),
        lag=None if excluded else min(1, step - 1),
        bound=1.0,
        device=0,
        reward_mean=None if excluded else 0.5,
        started_at=end - 4,
        finished_at=end - 2,
        prompt=f"Work this out: {a} + {b} + {c} =",
        responses=[
            {"text": t, "reward": None if excluded else r, "tokens": 4 + 3 * i, "versions": [[max(0, step - 2), 4]]}
            for i, (t, r) in enumerate(zip(texts, rewards, strict=True))
        ],
    )


def open_writer(folder: DataDir, now: float) -> TelemetryWriter:
    """A writer for which it is `now`, or retention would delete what was written as of another time."""
    return TelemetryWriter(folder.telemetry_db, clock=lambda: now)


def write_folder(root: Path, *, now: float = NOW, beat_age_s: float = 0.5, **run: Any) -> DataDir:
    """A data folder with one engine and one run."""
    folder = DataDir(root)
    writer = open_writer(folder, now)
    write_engine(writer, now=now, beat_age_s=beat_age_s)
    write_run(writer, now=now, **run)
    writer.close()
    return folder
