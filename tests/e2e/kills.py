"""Workers killed at random moments of a real run, most of them under a lease or with one out; and what must still hold.

`python -m tests.e2e.kills --kills 30` does many; the tests do a few.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from planner.policy.staleness import Bound, step_violations
from storage.records import DeviceRow, LeaseRow, RunRow
from storage.words import TERMINAL
from tests.e2e.service import EngineProcess, small_job, wait_for

BACK_S = 60.0
"""Longest wait for a killed worker's successor."""

SETUPS = (
    ("bidirectional", "1:1", 0),
    ("opportunistic", "2:2", 1),
    ("bidirectional_paper", "1:2", 0.5),
    ("bidirectional", "1:3", 0),
    ("opportunistic", "2:1", 0.5),
    ("bidirectional", "1:1", 0.5),
)
"""Arm, partition and staleness of each run in turn: all of them lend often."""

SETTINGS = (
    "eval.every_steps=0",
    "checkpoint.every_steps=10",
    "algorithm.prompts_per_step=8",
    "algorithm.lr_schedule=constant",
    "devices.oversubscribe=true",
    "devices.count=auto",
)


def victims(engine: EngineProcess, run_id: str, pool: str, *, lent: bool) -> list[DeviceRow]:
    """Living devices of a pool; `lent`: only those under a lease now."""
    with engine.reader() as reader:
        devices = [device for device in reader.devices(run_id) if device.pool == pool and device.pid]
        leases = reader.leases_open(run_id)
    out = {device for lease in leases for device in lease.devices}
    return [device for device in devices if alive(device) and (device.device in out or not lent)]


def alive(device: DeviceRow) -> bool:
    return device.pid is not None and Path(f"/proc/{device.pid}").exists()


def any_lease(engine: EngineProcess, run_id: str) -> LeaseRow | None:
    """A lease that is out now."""
    with engine.reader() as reader:
        return next(reversed(reader.leases_open(run_id)), None)


def kill_one(engine: EngineProcess, run_id: str, rng: random.Random) -> str | None:
    """Kill an auxiliary, or a primary while a lease is out; what it was. None when the run ended or lends nothing."""
    role = rng.choice(("auxiliary", "primary rollouter", "primary trainer"))
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        if engine.run(run_id).state in TERMINAL:
            return None
        lease = any_lease(engine, run_id)
        if lease is None:
            time.sleep(0.002)
            continue
        pool = {"primary rollouter": "rollout", "primary trainer": "train"}.get(role, rng.choice(("rollout", "train")))
        found = victims(engine, run_id, pool, lent=role == "auxiliary")
        if not found:
            time.sleep(0.002)
            continue
        victim = rng.choice(found)
        time.sleep(rng.random() * 0.05)
        os.kill(victim.pid or 0, signal.SIGKILL)
        return f"{role} (device {victim.device})"
    return None  # nothing is lent any more: a guard may hold the direction off


def check(engine: EngineProcess, row: RunRow, *, steps: int, prompts_per_step: int) -> None:
    """Committed history: every step has its groups, none twice, none out of bounds."""
    with engine.reader() as reader:
        groups = reader.groups(row.run_id, limit=100_000)
        leases, done = reader.leases(row.run_id), reader.steps(row.run_id)
    assert row.state == "finished", f"{row.state}: {row.error}"
    assert [step.step for step in done] == list(range(1, steps + 1))
    asked = collections.Counter((group.epoch, group.item) for group in groups)
    assert max(asked.values()) == 1, f"asked twice: {[key for key, times in asked.items() if times > 1]}"
    by_step: dict[int, list[Any]] = collections.defaultdict(list)
    for group in groups:
        if group.state == "consumed":
            by_step[group.step or 0].append(group)
    assert sorted(by_step) == list(range(1, steps + 1))
    for step, members in by_step.items():
        assert len(members) == prompts_per_step, f"step {step} has {len(members)} groups"
        bounds = [(g.version, Bound(staleness=g.bound, prompts_per_step=prompts_per_step)) for g in members]
        assert step_violations(bounds, step - 1) == []
        assert all(len(group.responses) == 4 for group in members)
    assert all(lease.state == "released" for lease in leases)
    assert (row.ledger or {}).get("max_gap_fraction", 1.0) <= 0.005, row.ledger


def run(engine: EngineProcess, *, kills: int, seed: int, steps: int, settings: tuple[str, ...]) -> dict[str, int]:
    """One run with so many kills; counts them by what was killed."""
    rng = random.Random(seed)
    job = small_job(*SETTINGS, *settings, f"algorithm.steps={steps}")
    run_id = engine.launch(job)
    engine.wait_steps(run_id, 4)
    killed: collections.Counter[str] = collections.Counter()
    for _ in range(kills):
        deaths = engine.run(run_id).deaths or 0
        what = kill_one(engine, run_id, rng)
        if what is None:
            break
        killed[what] += 1
        wait_for("the death to be seen", lambda seen=deaths: (engine.run(run_id).deaths or 0) > seen, seconds=BACK_S)
        before = engine.run(run_id).steps or 0
        wait_for("another step", lambda made=before: moved(engine, run_id, made), seconds=BACK_S)
    row = engine.wait_state(run_id, "finished")
    check(engine, row, steps=steps, prompts_per_step=8)
    with engine.reader() as reader:
        killed["leases that died"] = sum(lease.ended_by == "died" for lease in reader.leases(run_id))
    return dict(killed)


def moved(engine: EngineProcess, run_id: str, made: int) -> bool:
    row = engine.run(run_id)
    return (row.steps or 0) > made or row.state in TERMINAL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--per-run", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    total: collections.Counter[str] = collections.Counter()
    leases = 0
    with tempfile.TemporaryDirectory() as folder:
        engine = EngineProcess(Path(folder))
        try:
            place = 0
            while sum(total.values()) < options.kills and place < options.kills:
                arm, partition, staleness = SETUPS[place % len(SETUPS)]
                settings = (
                    f"schedule.arm={arm}",
                    f"devices.partition={partition}",
                    f"schedule.staleness={staleness}",
                )
                count = min(options.per_run, options.kills - sum(total.values()))
                killed = run(engine, kills=count, seed=options.seed + place, steps=60 * count, settings=settings)
                print(f"{' '.join(settings)}: {killed}", flush=True)
                died = killed.pop("leases that died")
                leases += died
                total.update(killed)
                place += 1
        finally:
            engine.stop()
    print(f"all: {sum(total.values())} kills, {leases} leases died with them: {dict(total)}")


if __name__ == "__main__":
    main()
