"""Storms of commands against real engines, engines killed between an answer and its effect, and how long commands take.

    python -m tests.e2e.steering --storm cpu --commands 250 --seed 1        (four oversubscribed workers)
    python -m tests.e2e.steering --storm emulated --commands 250 --seed 2   (sixteen emulated devices)
    python -m tests.e2e.steering --kills 20 --seed 3
    python -m tests.e2e.steering --latency

Each says what it did and ends with an AssertionError on the first thing that must not be.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from engine.config import Job, load_job, parse_job, settings_of
from planner.policy.staleness import Bound, step_violations
from storage.mailbox import Mailbox
from storage.records import Command
from storage.words import CHANGE_KINDS, TERMINAL
from tests.e2e.service import ROOT, EngineProcess, small_job, wait_for
from tests.engine.command_storms import DEVICES, NONSENSE, draw_command

CPU = (
    "eval.every_steps=5",
    "checkpoint.every_steps=10",
    "algorithm.prompts_per_step=8",
    "algorithm.lr_schedule=constant",
    "algorithm.steps=100000",
    "devices.oversubscribe=true",
    "devices.count=auto",
    "devices.partition=2:2",
)


def job_of(kind: str) -> Job:
    """A run that lasts as long as its storm."""
    if kind == "cpu":
        return small_job(*CPU)
    return load_job(
        ROOT / "jobs" / "emulated_16.yaml", ["devices.time_scale=0.01", "devices.partition=8:8", "algorithm.steps=5000"]
    )


def drawn(rng: random.Random, kind: str) -> tuple[str, dict[str, Any]]:
    """A command for a run of this kind: the splits of sixteen devices are in blocks of the replica size."""
    command, payload = draw_command(rng)
    if command == "partition" and kind == "emulated" and (command, payload) not in NONSENSE:
        return command, {"partition": rng.choice(("4:12", "8:8", "12:4"))}
    return command, payload


def storm(kind: str, commands: int, seed: int) -> Counter[str]:
    """A run under random commands; then what the database and the mailbox say of it."""
    rng, counts = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        engine = EngineProcess(Path(folder) / "var")
        try:
            run_id = engine.launch(job_of(kind))
            engine.wait_state(run_id, "running")
            ids = [_send(engine, rng, run_id, kind, counts) for _ in range(commands)]
            engine.send("resume", {}, run_id)
            last = engine.send("policy", {"lend_cap": 3}, run_id)
            engine.answer(last, "applied", "rejected")
            wait_for("what is under way", lambda: not _open(engine, run_id), seconds=120.0)
            engine.answer(engine.send("stop", {"mode": "drain"}, run_id), "applied")
            engine.wait_state(run_id, "stopped")
            _check(engine, run_id, ids, counts)
        finally:
            engine.stop()
    return counts


def _send(engine: EngineProcess, rng: random.Random, run_id: str, kind: str, counts: Counter[str]) -> int:
    command, payload = drawn(rng, kind)
    version = engine.run(run_id).config_version or 0
    expected = rng.choice((None, None, version, version - 1))
    key = f"{time.time()} {rng.random()}"
    with Mailbox(engine.data.control_db) as mailbox:
        ids = {
            mailbox.send(command, payload, run_id, who="storm", idem_key=key, expected_config_version=expected)
            for _ in range(rng.choice((1, 1, 2)))
        }
    assert len(ids) == 1
    counts["commands"] += 1
    time.sleep(rng.choice((0.0, 0.0, 0.1, 0.4, 1.0)))
    state = engine.run(run_id)
    assert state.state not in TERMINAL, f"{state.state}: {state.error}"
    return ids.pop()


def _open(engine: EngineProcess, run_id: str) -> list[Command]:
    with Mailbox(engine.data.control_db) as mailbox:
        return [*mailbox.list(run_id, state="pending"), *mailbox.list(run_id, state="accepted")]


def _check(engine: EngineProcess, run_id: str, ids: list[int], counts: Counter[str]) -> None:
    row = engine.run(run_id)
    expected, history = settings_of(parse_job(row.job)), []
    with Mailbox(engine.data.control_db) as mailbox:
        commands = sorted(mailbox.list(run_id, limit=100_000), key=lambda command: command.id)
    for command in commands:
        counts[command.state] += 1
        assert command.state not in ("pending", "accepted"), f"command {command.id} was never answered"
        if command.state not in ("applied", "superseded"):
            continue
        if command.kind in CHANGE_KINDS:
            history.append({name: expected[name] for name in command.payload})
            expected |= command.payload
        elif command.kind == "undo":
            expected |= history.pop()
    assert row.settings == expected, f"{row.settings} is not {expected}"
    with engine.reader() as reader:
        groups = reader.groups(run_id, limit=1_000_000)
        steps = reader.steps(run_id)
        pools = [device.pool for device in reader.devices(run_id)]
        counts["leases"] = len(reader.leases(run_id))
    rollout = int(expected["partition"].split(":")[0])
    assert pools == ["rollout"] * rollout + ["train"] * (len(pools) - rollout)
    consumed: dict[int, list[Any]] = {}
    for group in groups:
        if group.state == "consumed":
            consumed.setdefault(group.step or 0, []).append(group)
    assert sorted(consumed) == [step.step for step in steps]
    places = [(group.epoch, group.item) for found in consumed.values() for group in found]
    assert len(places) == len(set(places)), "a group was trained twice"
    size = parse_job(row.job).algorithm.prompts_per_step
    for number, found in consumed.items():
        assert len(found) == size, f"step {number} has {len(found)} groups"
        taken = [(group.version, Bound(staleness=group.bound, prompts_per_step=size)) for group in found]
        assert step_violations(taken, number - 1) == [], f"step {number}"
    assert row.ledger is not None
    counts["steps"], counts["max gap ppm"] = len(steps), round(1e6 * row.ledger["max_gap_fraction"])
    counts["moved devices"] = sum(len((command.result or {}).get("moved", ())) for command in commands)


def kills(count: int, seed: int) -> Counter[str]:
    """The engine is killed right after it accepted a command; what the next one says of it, and what goes on."""
    rng, counts = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        engine = EngineProcess(Path(folder) / "var")
        try:
            run_id = engine.launch(small_job(*CPU, "schedule.staleness=2", "checkpoint.every_steps=1"))
            for number in range(count):
                engine.wait_steps(run_id, 2)
                before = _governing(engine, run_id)
                kind, payload = rng.choice(
                    (
                        ("staleness", {"staleness": rng.choice((0.5, 1.0, 1.5, 2.0, 3.0))}),
                        ("partition", {"partition": rng.choice(("1:3", "2:2", "3:1"))}),
                        ("policy", {"lend_cap": number + 1}),
                    )
                )
                if all(before[name] == value for name, value in payload.items()):
                    kind, payload = "policy", {"lend_cap": number + 1}
                command = engine.send(kind, payload, run_id)
                wait_for("an answer", lambda command=command: engine.command(command).state != "pending")
                time.sleep(rng.choice((0.0, 0.0, 0.05, 0.3)))
                engine.kill()
                engine.start()
                engine.wait_state(run_id, "interrupted")
                answer = engine.command(command)
                assert answer.state in ("applied", "rejected"), f"{kind} {payload}: {answer.state}"
                run_id = engine.launch(None, resume=run_id)
                after = _governing(engine, run_id)
                wanted = before | payload if answer.state == "applied" else before
                assert after == wanted, f"{kind} {payload} is {answer.state}: {after} instead of {wanted}"
                counts["kills"] += 1
                counts[f"{kind} {answer.state}"] += 1
                print(f"kill {number + 1}: {kind} {payload} {answer.state}", flush=True)
            engine.answer(engine.send("stop", {}, run_id), "applied")
        finally:
            engine.stop()
    return counts


def _governing(engine: EngineProcess, run_id: str) -> dict[str, Any]:
    row = engine.run(run_id)
    return dict(row.settings or settings_of(parse_job(row.job)))


def latency(kind: str) -> dict[str, list[float]]:
    """Seconds from sending to applied, by command, on a run of this kind."""
    changes: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "arm": [("policy", {"arm": arm}) for arm in ("no_borrow", "opportunistic", "bidirectional") * 4],
        "direction": [("policy", {"train_on_rollout": on}) for on in (False, True) * 5],
        "partition": [
            ("partition", {"partition": split})
            for split in (("1:3", "3:1", "2:2") if kind == "cpu" else ("4:12", "12:4", "8:8")) * 3
        ],
        "staleness": [("staleness", {"staleness": s}) for s in (0.5, 2.0, 1.0) * 2],
    }
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        engine = EngineProcess(Path(folder) / "var")
        try:
            run_id = engine.launch(job_of(kind))
            engine.wait_steps(run_id, 4)
            for name, commands in changes.items():
                for command, payload in commands:
                    answer = engine.answer(engine.send(command, payload, run_id), "applied", "rejected")
                    assert answer.state == "applied", answer.answer
                    assert answer.applied_at is not None
                    found.setdefault(name, []).append(answer.applied_at - answer.created_at)
            engine.answer(engine.send("stop", {}, run_id), "applied")
            step_s = [step.t_end - step.t_start for step in engine.reader().steps(run_id)]
            found["a step takes"] = step_s
        finally:
            engine.stop()
    return found


def main() -> None:
    """See the file's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storm", choices=("cpu", "emulated"))
    parser.add_argument("--commands", type=int, default=250)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--latency", choices=("cpu", "emulated"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.storm:
        print(dict(sorted(storm(options.storm, options.commands, options.seed).items())))
    if options.kills:
        print(dict(sorted(kills(options.kills, options.seed).items())))
    if options.latency:
        for name, seconds in latency(options.latency).items():
            print(f"{name}: {len(seconds)} times, median {median(seconds):.3f} s, most {max(seconds):.3f} s")


if __name__ == "__main__":
    assert DEVICES == 4
    main()
