"""GENERATED telemetry, for measuring pages: big runs and many runs in seconds, with rollups that equal their spans.

Everything is a function of a `Recipe`, its seed included, and says GENERATED in its names. Raw spans go in by bulk
inserts, for a million of them through the writer take minutes; `tests.e2e.generated_live` goes on with the same recipe
through the real writer. Nothing here was measured on any device.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from engine import results
from engine.config import dump_job, parse_job
from storage import rollups, words
from storage.batch import SPAN_SQL
from storage.codec import encode
from storage.database import connect_for_writing, immediate
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import DecisionRow, DeviceRow, DeviceState, GroupRow, LeaseRow, StepRow
from storage.rollup_store import STORE_BIN
from storage.rollups import NUM_COLUMNS
from storage.writer import TelemetryWriter
from tests.app.fake_commands import Asked, write_commands
from tests.app.fake_lending import decisions_about, make_lease

ENGINE = "GENERATED-engine"
JOB_FILE = Path(__file__).parents[2] / "jobs" / "emulated_16.yaml"

Piece = tuple[str, str | None, str | None, float]
"""Kind, role, cause, and its length against the mean."""

PATTERNS: dict[str, tuple[Piece, ...]] = {
    "rollout": (
        ("rollout", "primary", None, 2.4),
        ("rollout", "primary", None, 1.7),
        ("scoring", None, None, 0.3),
        ("idle", None, "staleness_cap", 0.9),
        ("rollout", "primary", None, 2.0),
        ("switch_in", None, None, 0.3),
        ("train", "auxiliary", None, 1.0),
        ("switch_out", None, None, 0.2),
        ("weight_sync", None, None, 0.3),
        ("idle", None, "weights_pending", 0.2),
    ),
    "train": (
        ("train", "primary", None, 2.2),
        ("idle", None, "waiting_for_groups", 0.8),
        ("train", "primary", None, 1.9),
        ("optimizer", None, None, 0.4),
        ("switch_in", None, None, 0.3),
        ("rollout", "auxiliary", None, 1.4),
        ("switch_out", None, None, 0.2),
        ("idle", None, "waiting_for_groups", 1.3),
    ),
}
"""What a device of a pool does again and again."""

JITTERS = 4099
"""Lengths drawn once and used round robin, a prime so that devices do not fall into step."""

CHUNK_CELLS = 8_000_000
"""Cells of rollups that are made at a time: 64 MB."""

NODE_SIZES = (16, 24, 32)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run: what any device does at any time is a function of it."""

    run_id: str
    """Also in the name of the run."""
    devices: int
    """Three quarters of them are the RollPool."""
    mean_s: float
    """Mean length of a span, seconds."""
    start: float
    """First span, unix seconds."""
    seed: int = 0
    """Of the lengths, the nodes and what steps report."""
    step_s: float = 6.0
    """Time from one step to the next."""

    @property
    def rollout(self) -> int:
        """Devices of the RollPool."""
        return self.devices * 3 // 4

    def pool(self, device: int) -> str:
        """Home pool of a device."""
        return "rollout" if device < self.rollout else "train"

    @cached_property
    def _jitter(self) -> np.ndarray:
        drawn = np.random.default_rng(self.seed).uniform(0.4, 1.6, JITTERS)
        return drawn / drawn.mean()

    def lengths(self, device: int, first: int, count: int) -> np.ndarray:
        """float64 [count]: seconds of a device's spans from number `first` on."""
        number = np.arange(first, first + count)
        shape = np.array([piece[3] for piece in PATTERNS[self.pool(device)]])
        return (
            self.mean_s * (shape / shape.mean())[number % len(shape)] * self._jitter[(number + 131 * device) % JITTERS]
        )

    def edges(self, device: int, until: float) -> np.ndarray:
        """float64 [n + 1]: start of a device's first span, and the ends of those that end by `until`."""
        guess = int((until - self.start) / self.mean_s * 1.3) + 3 * len(PATTERNS["rollout"])
        ends = self.start + np.cumsum(self.lengths(device, 0, guess))
        assert ends[-1] > until, "too few lengths were drawn"
        return np.concatenate([[self.start], ends[ends <= until]])

    def piece(self, device: int, number: int) -> Piece:
        """What a device's span `number` is."""
        pattern = PATTERNS[self.pool(device)]
        return pattern[number % len(pattern)]

    def step_at(self, at: float) -> int:
        """Number of the step that is being made."""
        return 1 + int((at - self.start) / self.step_s)


def sized(run_id: str, devices: int, spans: int, *, hours: float, now: float, seed: int = 0) -> Recipe:
    """The recipe of a run with about so many spans in the hours before `now`."""
    seconds = hours * 3600
    return Recipe(run_id=run_id, devices=devices, mean_s=seconds * devices / spans, start=now - seconds, seed=seed)


def span_arrays(recipe: Recipe, until: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """t0, t1 (unix seconds), device and number of every span that ended by `until`, device by device in time."""
    starts, ends, devices, numbers = [], [], [], []
    for device in range(recipe.devices):
        edges = recipe.edges(device, until)
        starts.append(edges[:-1])
        ends.append(edges[1:])
        devices.append(np.full(len(edges) - 1, device))
        numbers.append(np.arange(len(edges) - 1))
    return tuple(np.concatenate(parts) for parts in (starts, ends, devices, numbers))  # type: ignore[return-value]


def cells_of(recipe: Recipe, devices: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """int64 [n]: the rollup cell of each span."""
    column = {
        pool: np.array([words.column_index(kind, role, cause) for kind, role, cause, _ in pattern])
        for pool, pattern in PATTERNS.items()
    }
    rollout, train = (column[pool][numbers % len(column[pool])] for pool in ("rollout", "train"))
    return devices * NUM_COLUMNS + np.where(devices < recipe.rollout, rollout, train)


def rollup_rows(
    recipe: Recipe, until: float, resolutions: Sequence[int] = words.RESOLUTIONS_S
) -> Iterator[tuple[str, int, int, int, bytes]]:
    """Rows of `rollups`, from the same spans and by the same arithmetic as the writer's."""
    t0, t1, devices, numbers = span_arrays(recipe, until)
    bins, cells, ms = rollups.cut(t0, t1, cells_of(recipe, devices, numbers), rollups.FINEST_S)
    width = recipe.devices * NUM_COLUMNS
    whole = rollups.round_cumulatively(cells, ms, np.zeros(width))
    order = np.argsort(bins, kind="stable")
    bins, cells, whole = bins[order], cells[order], whole[order]
    for res in resolutions:
        coarse = bins * rollups.FINEST_S // res
        per_chunk = max(1, CHUNK_CELLS // width)
        for low in range(int(coarse[0]), int(coarse[-1]) + 1, per_chunk):
            a, b = np.searchsorted(coarse, [low, low + per_chunk])
            if a == b:
                continue
            flat = (coarse[a:b] - low) * width + cells[a:b]
            sums = np.bincount(flat, weights=whole[a:b], minlength=per_chunk * width).reshape(per_chunk, width)
            for number in np.unique(coarse[a:b]).tolist():
                yield recipe.run_id, res, number, words.COLUMNS_VERSION, rollups.encode(sums[number - low])


def span_rows(recipe: Recipe, until: float) -> Iterator[tuple[Any, ...]]:
    """Rows of `spans`, each as the record's fields are, in the order of the primary key, which is the fastest."""
    t0, t1, devices, numbers = span_arrays(recipe, until)
    order = np.lexsort((devices, t0))
    steps = 1 + ((t0 - recipe.start) // recipe.step_s).astype(int)
    for i in order.tolist():
        device, start, end, step = int(devices[i]), float(t0[i]), float(t1[i]), int(steps[i])
        kind, role, cause, _ = recipe.piece(device, int(numbers[i]))
        cpu = None if kind == "idle" else (end - start) * 0.97
        yield recipe.run_id, device, start, end, kind, role, cause, step - 1, step, cpu, None


def open_states(recipe: Recipe, now: float) -> list[DeviceState]:
    """What each device is doing at `now`."""
    states = []
    for device in range(recipe.devices):
        edges = recipe.edges(device, now)
        kind, role, cause, _ = recipe.piece(device, len(edges) - 1)
        step = recipe.step_at(float(edges[-1]))
        states.append(
            DeviceState(
                device=device, kind=kind, role=role, cause=cause, version=step - 1, step=step,
                since=float(edges[-1]), seen_at=now,
            )
        )  # fmt: skip
    return states


def device_rows(recipe: Recipe) -> list[DeviceRow]:
    """Devices on nodes of 16 to 32."""
    rng, rows, node = random.Random(recipe.seed), [], 0
    while len(rows) < recipe.devices:
        for _ in range(min(rng.choice(NODE_SIZES), recipe.devices - len(rows))):
            device = len(rows)
            rows.append(DeviceRow(device=device, node=f"GENERATED-node-{node:02d}", pool=recipe.pool(device)))
        node += 1
    return rows


def step_row(recipe: Recipe, step: int) -> StepRow:
    """A step that ended `step_s` after the one before."""
    rng = random.Random(recipe.seed * 1_000_003 + step)
    end, done = recipe.start + step * recipe.step_s, 1 - 0.99**step
    return StepRow(
        run_id=recipe.run_id, step=step, t_start=end - recipe.step_s * 0.8, t_end=end, groups=60,
        prompt_tokens=60 * 8 * 400, response_tokens=60 * 8 * 700, lag_max=1, lag={0: 25, 1: 35}, staleness=1.0,
        reward_mean=0.2 + 0.6 * done + rng.uniform(-0.05, 0.05), loss=0.02 * (1 - done) + rng.uniform(-0.004, 0.004),
        grad_norm=0.6, entropy=0.5 + 0.3 * (1 - done), response_len_mean=700 + 90 * done + rng.uniform(-9, 9),
        no_signal=rng.randint(0, 9), metrics={"mismatch_kl": 0.002 + rng.uniform(0, 0.001), "capped_share": 0.001},
    )  # fmt: skip


def group_rows(recipe: Recipe, steps: Iterable[int], per_step: int = 4) -> Iterator[GroupRow]:
    """A few of each step's groups, with texts."""
    for step in steps:
        end = recipe.start + step * recipe.step_s
        for index in range(per_step):
            yield GroupRow(
                run_id=recipe.run_id, group_id=step * 100 + index, epoch=0, item=step * 60 + index, state="consumed",
                step=step, version=max(0, step - 2), lag=min(1, step - 1), bound=1.0, device=index, reward_mean=0.5,
                started_at=end - 9, finished_at=end - 3, prompt=f"GENERATED prompt {index} of step {step}",
                responses=[{"text": f"GENERATED answer {i}", "reward": float(i % 2), "tokens": 700} for i in range(8)],
            )  # fmt: skip


def leases_of(recipe: Recipe, until: float, count: int) -> tuple[list[LeaseRow], list[DecisionRow]]:
    """So many leases spread over the run, each with its decisions."""
    rng, apart = random.Random(recipe.seed + 1), (until - recipe.start) / max(count, 1)
    leases = []
    for number in range(1, count + 1):
        at, first = recipe.start + (number - 1) * apart, rng.randrange(0, recipe.devices - 3, 4)
        trains, gain = recipe.pool(first) == "rollout", rng.uniform(-0.3, 0.9)
        leases.append(
            make_lease(
                run_id=recipe.run_id, lease=number, block=first // 4, devices=list(range(first, first + 4)),
                direction="train_on_rollout" if trains else "rollout_on_train", granted_at=at,
                ready_at=at + 0.2, working_at=at + 0.3, ended_at=at + 2.0, released_at=at + 2.3,
                reason=f"GENERATED: 12 groups are missing for step {recipe.step_at(at)}: lending wins {gain:.2f} s.",
                grad_s=0.04 if trains else None, chunks=2 if trains else 0, measured_gain_s=gain,
                regret_s=max(0.0, -gain),
            )
        )  # fmt: skip
    return leases, decisions_about(leases)


def run_fields(recipe: Recipe, now: float, **fields: Any) -> dict[str, Any]:
    """What `TelemetryWriter.run` is told of a run that goes on."""
    split = f"{recipe.rollout}:{recipe.devices - recipe.rollout}"
    settings = [f"devices.count={recipe.devices}", f"devices.partition={split}", "algorithm.steps=100000"]
    job = dump_job(parse_job(JOB_FILE.read_text(encoding="utf-8"), [*settings, "name=GENERATED"]))
    return {
        "name": f"GENERATED {recipe.devices} devices", "kind": "simulated", "state": "running",
        "arm": "bidirectional", "consume": "stream", "staleness": 1.0, "partition": split, "seed": recipe.seed,
        "job": job, "base_dir": ".", "who": "generator", "engine_id": ENGINE, "created_at": recipe.start - 2,
        "started_at": recipe.start - 1, "training_at": recipe.start, "steps_target": 100_000, "start_step": 0,
        "steps": recipe.step_at(now) - 1, "config_version": 0, "buffer_groups": 31, "in_flight_groups": 52, **fields,
    }  # fmt: skip


def write_live(folder: DataDir, recipe: Recipe, now: float, *, leases: int = 2000, commands: int = 12) -> int:
    """A run that goes on at `now`; returns its raw spans. The engine's heartbeat is `now`."""
    writer = TelemetryWriter(folder.telemetry_db, clock=lambda: now)
    steps = range(1, recipe.step_at(now))
    writer.engine(ENGINE, pid=1, host="GENERATED", started_at=recipe.start - 10, beat_at=now, state="ready", cores=2)
    writer.run(recipe.run_id, **run_fields(recipe, now))
    writer.devices(recipe.run_id, device_rows(recipe))
    writer.device_states(recipe.run_id, open_states(recipe, now))
    for step in steps:
        writer.step(step_row(recipe, step))
    writer.groups(list(group_rows(recipe, steps)))
    lent, decided = leases_of(recipe, now, leases)
    writer.leases(lent)
    writer.decisions(decided)
    writer.close()
    apart = (now - recipe.start) / (commands + 1)
    asked = [
        Asked(kind="staleness", payload={"staleness": 1.0 + i % 2}, at=recipe.start + (i + 1) * apart, step=1 + i * 9)
        for i in range(commands)
    ]
    write_commands(folder, recipe.run_id, asked, {"staleness": 1.0})
    connection = connect_for_writing(folder.telemetry_db)
    with immediate(connection):
        spans = connection.executemany(SPAN_SQL, span_rows(recipe, now)).rowcount
        connection.executemany(STORE_BIN, rollup_rows(recipe, now))
    connection.close()
    return spans


def write_finished(
    folder: DataDir, count: int, now: float, *, devices: int = 16, steps: int = 40, seed: int = 0
) -> None:
    """So many runs that are over, a quarter of an hour each and one after the other, of which retention has left the
    60 s rollups; each with its result."""
    seconds, step_s = 900.0, 900.0 / steps
    recipes = [
        Recipe(
            run_id=f"GENERATED-{number:05d}", devices=devices, mean_s=4.0, seed=number, step_s=step_s,
            start=now - (count - number + 1) * (seconds + 60),
        )
        for number in range(1, count + 1)
    ]  # fmt: skip
    arms = ("no_borrow", "bidirectional", "bidirectional_paper", "opportunistic")
    writer = TelemetryWriter(folder.telemetry_db, clock=lambda: now, max_queue_rows=10_000_000)
    for number, recipe in enumerate(recipes):
        end = recipe.start + seconds
        state = ("finished", "finished", "finished", "stopped", "failed")[number % 5]
        told = {"state": state, "ended_at": end + 1, "measured_until": end, "steps": steps, "steps_target": steps}
        told |= {"arm": arms[number % 4], "error": "GENERATED failure" if state == "failed" else None}
        writer.run(recipe.run_id, **run_fields(recipe, end, **told))
        writer.devices(recipe.run_id, device_rows(recipe))
        for step in range(1, steps + 1):
            writer.step(step_row(recipe, step))
        if number % 100 == 99:
            writer.flush(60)
    writer.close(60)
    connection = connect_for_writing(folder.telemetry_db)
    with immediate(connection):
        for recipe in recipes:
            end = recipe.start + seconds
            connection.executemany(STORE_BIN, rollup_rows(recipe, end, words.RESOLUTIONS_S[-1:]))
            connection.execute(
                "INSERT OR REPLACE INTO raw_missing (run_id, reason, t0, t1, spans) VALUES (?, 'retention', ?, ?, 1)",
                [recipe.run_id, recipe.start, end + 60],
            )
    _store_results(folder, connection, [recipe.run_id for recipe in recipes], now)
    connection.close()


def _store_results(folder: DataDir, connection: sqlite3.Connection, run_ids: Sequence[str], now: float) -> None:
    """Each run's result, as the engine builds it when a run ends."""
    with TelemetryReader(folder.telemetry_db) as reader:
        runs = [run for run_id in run_ids if (run := reader.run(run_id)) is not None]
        built = [(encode(results.build(reader, run, now=now)), run.run_id) for run in runs]
    with immediate(connection):
        connection.executemany("UPDATE runs SET result_json = ? WHERE run_id = ?", built)
