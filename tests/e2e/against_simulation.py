"""How close the simulator comes to real runs of every arm on this machine: calibrate once, then compare throughputs.

`python -m tests.e2e.against_simulation`; prints a table, judges nothing: a busy machine changes the real side.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]

ARMS = (
    "no_borrow",
    "colocated",
    "opportunistic",
    "bidirectional_paper",
    "rollout_on_train",
    "train_on_rollout",
    "bidirectional",
)

SPEED_ONLY = (
    "eval.items=0",
    "checkpoint.every_steps=0",
    "algorithm.learning_rate=1e-6",
    "algorithm.lr_schedule=constant",
    "algorithm.lr_warmup_steps=0",
)
"""A model that hardly learns keeps its lengths, so that runs can be compared."""

LIMIT_S = 600


def bidirl(data: str, *words: str) -> dict[str, Any]:
    """The JSON document of a command. Raises RuntimeError with its last line when it fails."""
    command = [str(Path(sys.executable).parent / "bidirl"), *words, "--json"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, env=os.environ | {"BIDIRL_DATA_DIR": data}
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip().splitlines()[-1:]}")
    document: dict[str, Any] = YAML(typ="safe", pure=True).load(done.stdout)
    return document


def settings(*values: str) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", default="jobs/demo.yaml")
    parser.add_argument("--arms", nargs="*", default=ARMS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--calibration-steps", type=int, default=30)
    parser.add_argument("--data-dir")
    parser.add_argument("--set", dest="more", nargs="*", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        data = options.data_dir or temporary
        common = [*SPEED_ONLY, *options.more]
        measured = bidirl(data, "calibrate", options.job, "--steps", str(options.calibration_steps), *settings(*common))
        print(f"calibration: model error {measured['model_error']}", flush=True)
        real: dict[str, list[float]] = {arm: [] for arm in options.arms}
        for repeat in range(options.repeats):
            for arm in options.arms:
                words = settings(*common, *of_arm(arm), f"algorithm.steps={options.steps}", f"seed={repeat}")
                result = bidirl(data, "run", options.job, *words)
                real[arm].append(result["throughput_tokens_per_s"])
        for arm in options.arms:
            words = settings(*common, *of_arm(arm), f"algorithm.steps={options.steps}")
            simulated = bidirl(data, "simulate", options.job, *words)["throughput_tokens_per_s"]
            middle = median(real[arm])
            runs = " ".join(f"{value:,.0f}" for value in sorted(real[arm]))
            print(f"{arm:20} real {middle:9,.0f} ({runs}) simulated {simulated:9,.0f} {simulated / middle - 1:+.1%}")


def of_arm(arm: str) -> list[str]:
    return [f"schedule.arm={arm}", *(["devices.partition=auto"] if arm == "colocated" else [])]


if __name__ == "__main__":
    main()
