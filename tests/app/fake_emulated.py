"""Test data only: writes a plausible run of emulated devices through storage's own writer, in wall time as engines do.

Rollout replicas of one device, train replicas of four; every second time that a block of four waits, it is lent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.config import dump_job, parse_job
from storage.records import DeviceRow, DeviceState, LeaseRow, LogRow, Span, StepRow
from storage.writer import TelemetryWriter
from tests.app.fake_lending import decisions_about, make_lease, numbered
from tests.app.fake_run import ENGINE, NOW

REPLICA = 4
"""Devices of a train replica, and of a block that is lent."""

STEP_S = 2.4
"""Two minutes of the devices that are stood for, at a time scale of 0.02."""

JOB_FILE = Path(__file__).parents[2] / "jobs" / "emulated_16.yaml"

Piece = tuple[float, str, str | None, str | None]
"""Share of a step, kind, role, cause."""


def write_emulated(
    writer: TelemetryWriter,
    run_id: str = "emulated_16-0001",
    *,
    now: float = NOW,
    steps: int = 30,
    state: str = "running",
    pools: tuple[int, int] = (8, 8),
    seed: int = 0,
    **fields: Any,
) -> None:
    """A run whose last step ended just before `now`; it learns nothing and so tells of nothing learnt."""
    rng = random.Random(seed)
    devices = sum(pools)
    start = now - steps * STEP_S - 0.1
    ended = state in ("finished", "stopped", "failed", "interrupted")
    settings = [f"devices.count={devices}", f"devices.partition={pools[0]}:{pools[1]}", f"name=emulated_{devices}"]
    values: dict[str, Any] = {
        "name": f"emulated_{devices}",
        "kind": "emulated",
        "time_scale": 0.02,
        "state": state,
        "arm": "bidirectional",
        "consume": "stream",
        "staleness": 1.0,
        "partition": f"{pools[0]}:{pools[1]}",
        "seed": seed,
        "job": dump_job(parse_job(JOB_FILE.read_text(encoding="utf-8"), settings)),
        "base_dir": ".",
        "who": "ana",
        "engine_id": ENGINE,
        "created_at": start - 2,
        "started_at": start - 1,
        "training_at": start,
        "steps_target": 40,
        "start_step": 0,
        "steps": steps,
        "config_version": 0,
        "measured_until": now - 0.1,
        "buffer_groups": 31,
        "in_flight_groups": 52,
        "ended_at": now if ended else None,
    }
    writer.run(run_id, **{**values, **fields})
    homes = ["rollout"] * pools[0] + ["train"] * pools[1]
    writer.devices(
        run_id, [DeviceRow(device=d, node=f"emulated node {d // 32}", pool=home) for d, home in enumerate(homes)]
    )
    leases: list[LeaseRow] = []
    for first in range(0, devices, REPLICA):
        block = tuple(range(first, first + REPLICA))
        writer.spans([Span(run_id=run_id, device=d, t0=start - 1, t1=start, kind="startup") for d in block])
        for step in range(1, steps + 1):
            leases += _write_step(writer, run_id, block, homes[first], step, start + (step - 1) * STEP_S, rng)
    leases = numbered(leases)
    writer.leases(leases)
    writer.decisions(decisions_about(leases))
    if not ended:
        writer.device_states(
            run_id,
            [
                DeviceState(
                    device=d, kind=home, role="primary", version=steps, step=steps + 1, since=now - 0.1, seen_at=now
                )
                for d, home in enumerate(homes)
            ],
        )
    for step in range(1, steps + 1):
        writer.step(_step(run_id, step, start + step * STEP_S, rng))
    writer.log(LogRow(run_id=run_id, at=start - 1, level="info", text=f"{devices} emulated devices started"))


def _write_step(
    writer: TelemetryWriter, run_id: str, block: Sequence[int], home: str, step: int, t0: float, rng: random.Random
) -> list[LeaseRow]:
    lent = rng.random() < 0.5
    pieces = list(_pieces(home, lent, rng))
    # a train replica's devices do everything together, rollout replicas are of one device
    together = home == "train" or lent
    for device in block:
        mine = pieces if together else list(_pieces(home, False, rng))
        writer.spans(list(_spans(run_id, device, mine, step, t0)))
    if not lent:
        return []
    edges = [t0 + STEP_S * sum(piece[0] for piece in pieces[:n]) for n in range(len(pieces) + 1)]
    at = next(n for n, piece in enumerate(pieces) if piece[1] == "switch_in")
    gain = rng.uniform(-0.1, 0.4)
    lease = make_lease(
        run_id=run_id,
        direction="train_on_rollout" if home == "rollout" else "rollout_on_train",
        block=block[0],
        devices=list(block),
        reason=f"12 groups are missing for step {step}: lending block {block[0]} wins 410 ms and costs 266 ms.",
        gain_s=0.41,
        cost_s=0.266,
        granted_at=edges[at],
        ready_at=edges[at + 1],
        working_at=edges[at + 1],
        ended_at=edges[at + 2],
        released_at=edges[at + 3],
        groups=3.5,
        chunks=2 if home == "rollout" else 0,
        tokens=84_000,
        in_s=edges[at + 1] - edges[at],
        out_s=edges[at + 3] - edges[at + 2],
        measured_gain_s=gain,
        regret_s=max(0.0, -gain),
    )
    return [replace(lease, grad_s=0.024 if home == "rollout" else None)]


def _pieces(home: str, lent: bool, rng: random.Random) -> Iterator[Piece]:
    """Of one step, which they fill."""
    waits = rng.uniform(0.2, 0.4) if lent else rng.uniform(0.05, 0.3)
    around = 0.05
    yield (around, "weight_sync" if home == "rollout" else "optimizer", None, None)
    yield (1 - around - waits, home, "primary", None)
    if lent:
        yield (0.06, "switch_in", "auxiliary", None)
        yield (waits - 0.11, "train" if home == "rollout" else "rollout", "auxiliary", None)
        yield (0.05, "switch_out", "auxiliary", None)
    else:
        yield (waits, "idle", None, "staleness_cap" if home == "rollout" else "waiting_for_groups")


def _spans(run_id: str, device: int, pieces: Sequence[Piece], step: int, t0: float) -> Iterator[Span]:
    for share, kind, role, cause in pieces:
        t1 = t0 + share * STEP_S
        yield Span(
            run_id=run_id, device=device, t0=t0, t1=t1, kind=kind, role=role, cause=cause, step=step, version=step - 1
        )
        t0 = t1


def _step(run_id: str, step: int, end: float, rng: random.Random) -> StepRow:
    return StepRow(
        run_id=run_id,
        step=step,
        t_start=end - STEP_S,
        t_end=end,
        groups=60,
        prompt_tokens=60 * 8 * 400,
        response_tokens=60 * 8 * rng.randint(680, 720),
        response_len_mean=700.0,
        lag_max=1 if step > 1 else 0,
        lag={0: 20, 1: 40} if step > 1 else {0: 60},
        # no rewards, so all of a group's are equal
        no_signal=60,
        staleness=1.0,
        metrics={"trained_tokens": 60 * 8 * 700, "merge_s": 0.0, "snapshot_s": 0.0},
    )
