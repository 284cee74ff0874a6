"""How fast the simulator and one decision are: regime B of the scheduling study, scaled up.

    python -m tests.simulator.speed --devices 32 --steps 100
    python -m tests.simulator.speed --devices 1024 --steps 100 --decide-every 0.25

CPU-seconds of the run, and milliseconds of `decide` alone. At 1,024 devices decisions come at most every quarter of a
virtual second, as an engine's ticks do; at 32 at every decision point.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

from planner.policy.actions import Action
from planner.policy.decide import decide
from planner.policy.state import State
from planner.simulator import regimes, simulator


def measure(devices: int, steps: int, decide_every_s: float, arm: str = "bidirectional") -> dict[str, Any]:
    """One run's figures."""
    base = regimes.setup_of("B", arm=arm, streaming=True, steps=steps)
    scale = devices // base.devices
    setup = replace(
        base,
        rollout_devices=base.rollout_devices * scale,
        train_devices=base.train_devices * scale,
        prompts_per_step=base.prompts_per_step * scale,
        decide_every_s=decide_every_s,
    )
    taken_s: list[float] = []

    def timed(state: State, now: float) -> list[Action]:
        began = time.thread_time()
        actions = decide(state, now)
        taken_s.append(time.thread_time() - began)
        return actions

    before, simulator.decide = simulator.decide, timed  # type: ignore[attr-defined]
    try:
        began = time.process_time()
        trace = simulator.Simulator(setup).run()
        cpu_s = time.process_time() - began
    finally:
        simulator.decide = before  # type: ignore[attr-defined]
    taken_s.sort()
    return {
        "devices": setup.devices,
        "steps": steps,
        "arm": arm,
        "cpu_s": round(cpu_s, 2),
        "events": trace.events,
        "decisions": len(taken_s),
        "leases": len(trace.leases),
        "decide_ms": {
            "mean": round(1000 * sum(taken_s) / len(taken_s), 3),
            "p99": round(1000 * taken_s[int(0.99 * len(taken_s))], 3),
            "max": round(1000 * taken_s[-1], 3),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--decide-every", type=float, default=0.0)
    parser.add_argument("--arm", default="bidirectional")
    options = parser.parse_args()
    print(json.dumps(measure(options.devices, options.steps, options.decide_every, options.arm)))


if __name__ == "__main__":
    main()
