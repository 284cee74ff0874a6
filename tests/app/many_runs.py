"""Test data only: a folder of thousands of runs, most of them over with a stored result, as a year leaves behind."""

from __future__ import annotations

import random
from typing import Any

from engine.config import dump_job, parse_job
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.words import DIRECTIONS
from tests.app.fake_run import ENGINE, JOB, NOW, open_writer, write_engine, write_run

ARMS = ("no_borrow", "bidirectional", "opportunistic", "bidirectional_paper")


def make_final(run_id: str, rng: random.Random, *, steps: int = 100, **overrides: Any) -> dict[str, Any]:
    """A stored result with every field that a real one has, at its real size."""
    idle = rng.uniform(0.05, 0.6)
    fields: dict[str, Any] = {
        "run_id": run_id,
        "name": "demo",
        "kind": "cpu",
        "state": "finished",
        "error": None,
        "arm": rng.choice(ARMS),
        "consume": "stream",
        "staleness": rng.choice((0.0, 0.5, 1.0, 2.0)),
        "partition": {"rollout": 1, "train": 1},
        "seed": 0,
        "steps": steps,
        "start_step": 0,
        "parent_run_id": None,
        "comparison": None,
        "wall_s": steps * 4.0,
        "warm_up_s": 8.0,
        "tokens": steps * 640,
        "throughput_tokens_per_s": rng.uniform(100, 300),
        "step_s": [rng.uniform(3, 5) for _ in range(steps)],
        "reward": {"first": 0.2, "last": 0.8, "per_step": [rng.uniform(0.2, 0.8) for _ in range(steps)]},
        "eval": [{"step": step, "accuracy": rng.random(), "items": 128} for step in range(0, steps, 10)],
        "eval_control": [],
        "lag": {"max": 1, "histogram": {"0": 300, "1": 500}, "max_share_last": 0.6},
        "excluded": {},
        "idle": {
            "fraction": idle,
            "by_cause": {"staleness_cap": idle * 0.7, "waiting_for_groups": idle * 0.3},
            "structural_fraction": idle * 0.4,
            "residual_fraction": idle * 0.6,
            "device_s": steps * 8.0,
        },
        "ledger": {"ok": True, "max_gap_fraction": 1e-6, "cpu_over_busy": 0.97},
        "leases": {direction: {"admitted": 3, "refused": 1, "delivered": 2} for direction in DIRECTIONS},
        "switch": {"in_s": 0.1, "out_s": 0.1, "grad_s": None},
        "publish_s": 0.01,
        "engine": None,
        "work": {"rollout_s_per_1000_tokens": 5.0, "train_s_per_1000_tokens": 4.0, "ratio": 1.25, "larger": "rollout"},
        "bound_ratio": 0.7,
        "utilisation": 1 - idle,
        "model_error": {stage: {"median": 0.03, "p90": 0.06} for stage in ("rollout", "train")},
        "deaths": 0,
        "params_sha256": "0" * 64,
        "time_scale": None,
    }
    return fields | overrides


def write_many(
    folder: DataDir, count: int, *, now: float = NOW, steps: int = 100, interrupted: int = 0, live: int = 0
) -> None:
    """`count` runs, newest last: of them the last `live` go on, and `interrupted` before them have no result."""
    rng = random.Random(count)
    writer = open_writer(folder, now)
    write_engine(writer, now=now)
    job = dump_job(parse_job(JOB))
    for number in range(count - interrupted - live):
        run_id = f"demo-{number:05d}-ab{number % 97:02d}"
        began = now - 7200 - (count - number) * 600
        final = make_final(run_id, rng, steps=steps)
        writer.run(
            run_id,
            name=f"demo {number % 7}",
            kind="cpu",
            state="finished",
            arm=final["arm"],
            consume="stream",
            staleness=final["staleness"],
            partition="1:1",
            seed=0,
            job=job,
            base_dir=".",
            who=("ana", "ben", "cleo")[number % 3],
            engine_id=ENGINE,
            created_at=began,
            started_at=began + 2,
            training_at=began + 10,
            ended_at=began + 10 + steps * 4.0,
            measured_until=began + 10 + steps * 4.0,
            steps_target=steps,
            start_step=0,
            steps=steps,
            config_version=0,
            comparison=f"bench-{number // 60}" if number % 4 == 0 else None,
            comparison_label="no_borrow" if number % 4 == 0 else None,
            comparison_repeat=1 + number % 3 if number % 4 == 0 else None,
            result=final,
        )
    for number in range(interrupted):
        write_run(writer, f"cut-{number:04d}", now=now - 3600, state="interrupted", steps=20, seed=number)
    for number in range(live):
        write_run(writer, f"live-{number:02d}", now=now, steps=20, seed=number)
    writer.close()
    with Mailbox(folder.control_db) as mailbox:
        for number in range(0, count, 10):
            mailbox.add_tag(
                f"demo-{number:05d}-ab{number % 97:02d}", ("good", "baseline", "tail")[number % 3], who="ana"
            )
