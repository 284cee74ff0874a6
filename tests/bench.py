"""The figures that the documentation and notes quote, measured anew: `make bench`; --help names its sizes.

Prints one line a figure. Nothing here passes or fails: a busy machine changes wall times, so look at the ratios.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.policy import brute_force
from tests.simulator import random_schedules, speed

ROOT = Path(__file__).resolve().parents[1]

RUN_LIMIT_S = 1200
"""Longest wait for one demo run, its warm start included."""


def demo(seed: int, data_dir: str) -> dict[str, Any]:
    """The result of `bidirl run jobs/demo.yaml --json` with another seed."""
    command = [str(Path(sys.executable).parent / "bidirl"), "run", "jobs/demo.yaml", "--json", "--set", f"seed={seed}"]
    done = subprocess.run(
        [*command, "--data-dir", data_dir], cwd=ROOT, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=True
    )
    return json.loads(done.stdout)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def print_demo(seed: int, result: dict[str, Any]) -> None:
    rewards, idle, ledger = result["reward"]["per_step"], result["idle"], result["ledger"]
    control = [entry["accuracy"] for entry in result["eval_control"]]
    print(f"demo seed {seed}: reward of the first and last 10 steps {mean(rewards[:10]):.3f} {mean(rewards[-10:]):.3f}")
    print(f"  held-out greedy {result['eval'][0]['accuracy']:.3f} -> {result['eval'][-1]['accuracy']:.3f}")
    print(f"  made to start with <think> {control[0]:.3f} -> {control[-1]:.3f}")
    print(f"  wall {result['wall_s']:.1f} s, of it {result['warm_up_s']:.1f} s until training began")
    print(f"  {result['throughput_tokens_per_s']:,.0f} tokens/s, idle {idle['fraction']:.1%} {idle['by_cause']}")
    print(f"  ledger gap {ledger['max_gap_fraction']:.4%}, CPU over busy {ledger['cpu_over_busy']:.3f}, over idle")
    print(f"    {ledger['cpu_over_idle']:.3f}, other threads {ledger['other_cpu_over_wall']:.3f} of wall time")
    print(f"  weight publish {1000 * result['publish_s']:.1f} ms (median)")
    engine = result["engine"]
    print(f"  engine {engine['cpu_fraction']:.2%} of the cores' time, Ray {engine['ray_fraction']:.2%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[611, 612, 613])
    parser.add_argument("--schedules", type=int, default=20_000)
    parser.add_argument("--simulated", type=int, default=5_000)
    options = parser.parse_args()
    print(f"staleness rules by brute force: {json.dumps(brute_force.run(options.schedules))}", flush=True)
    print(f"simulated runs at random: {json.dumps(random_schedules.run(options.simulated))}", flush=True)
    if options.simulated:
        print(f"simulator: {json.dumps(speed.measure(32, 100, 0.0))}", flush=True)
        print(f"simulator: {json.dumps(speed.measure(1024, 100, 0.25))}", flush=True)
    with tempfile.TemporaryDirectory() as data_dir:
        for seed in options.seeds:
            print_demo(seed, demo(seed, data_dir))


if __name__ == "__main__":
    main()
