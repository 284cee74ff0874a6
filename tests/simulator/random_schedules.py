"""Random simulated runs against what must hold in every run: arms, pools, lengths, switch costs and faults at random.

    python -m tests.simulator.random_schedules --schedules 5000

Each schedule draws an arm, s (0 to 4, fractions too), B (4 to 24), replica sizes (1:1, 1:2, 2:1, 2:4), both pools,
lengths with tails of up to ten times the median, few slots, noise, switch costs from nothing to more than a step,
stage-time models that are off by up to a factor of three, changes of `bidirectional` as a random subset, directions
switched off, excluded groups, dying devices, leases taken back by an operator, and decisions that come late. Findings:

- deadlock: nothing is left to happen and the run is not over
- no end: decisions without end at one moment, or far more than the run has events
- fault: the simulator cannot apply a decision, or its books do not add up after it
- violation: what `invariants.problems` says of the finished run
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from typing import Any

from planner.policy.improvements import ALL, IMPROVEMENTS, PAPER, Improvements
from planner.policy.state import Estimates
from planner.profile import Lengths, Profile, RolloutSpeed, SwitchCosts, TrainSpeed
from planner.profile_models import full_load_group_s, mean_response_tokens
from planner.simulator.estimates import longest_tokens
from planner.simulator.setup import Failure, Setup
from planner.stage_model import StageModel
from tests.simulator.builders import ARMS, OURS
from tests.simulator.invariants import Watched, problems

STALENESSES = (0, 0, 0.05, 0.25, 0.5, 0.5, 0.75, 0.9, 1, 1, 1, 1.5, 1.9, 2, 2, 2.3, 3, 3.75, 4)
"""Whole values and fractions on both sides of each of them; 0.05 is less than one group of a step."""

REPLICA_SIZES = ((1, 1), (1, 2), (2, 1), (2, 4))
"""(rollout, train) devices of a replica."""

LENGTHS = tuple(
    Lengths(median=100.0, max=longest, sigma_group=sigma, sigma_response=sigma, drift=drift, linear_drift=growth)
    for longest, sigma, drift, growth in (
        (150, 0.0, 0.0, 0.0),
        (300, 0.3, 0.1, 0.0),
        (400, 0.5, 0.0, 0.5),
        (1000, 0.5, 0.1, 0.0),
        (1000, 0.8, 0.0, 0.0),
        (1000, 0.9, 0.3, -0.5),
    )
)
"""From equal lengths, where everything happens at once, to heavy tails; few, because their tables take milliseconds."""

SHARES_OF_A_STEP = (0.0, 0.0, 0.01, 0.05, 0.2, 0.2, 0.5, 1.5, 30.0)
"""Costs of a switch and of an optimizer step, as shares of the time that a balanced step takes."""


def random_setup(seed: int) -> Setup:
    """The run of this seed."""
    rng = random.Random(seed)
    rollout_size, train_size = rng.choice(REPLICA_SIZES)
    block = max(rollout_size, train_size)
    rollout_devices, train_devices = block * rng.randint(1, 5), block * rng.randint(1, 4)
    if rng.random() < 0.1:  # pools that cannot host each other's replicas
        rollout_devices += rollout_size
        train_devices += train_size
    group_size = rng.choice((1, 2, 4))
    prompts = rng.randint(4, 24)
    lengths = rng.choice(LENGTHS)
    slots = group_size * rng.randint(1, 6) + rng.randint(0, group_size - 1)
    half = rng.choice((1.0, 4.0, 16.0))
    # a rollout replica makes 100 tokens/s when it is full; the trainer is slower or faster than its share by up to 4
    tokens = prompts * group_size * mean_response_tokens(lengths)
    rollout_s = tokens / 100.0 / (rollout_devices // rollout_size)
    train_s = rollout_s * 4 ** rng.uniform(-1, 1)
    max_chunk = rng.randint(1, min(prompts, 8))
    prompt_tokens = rng.choice((0.0, 20.0))
    train_tokens = tokens + prompts * group_size * prompt_tokens

    def share() -> float:
        return rng.choice(SHARES_OF_A_STEP) * max(rollout_s, train_s)

    profile = Profile(
        rollout=RolloutSpeed(
            slots=slots,
            tokens_per_s=100.0 * (slots + half) / slots,
            half_batch=half,
            resume_tokens=rng.choice((0.0, 10.0, 200.0)),
        ),
        train=TrainSpeed(
            tokens_per_s=train_tokens / train_s / (train_devices // train_size),
            chunk_s=rng.choice((0.0, 0.1, 1.0)),
            max_chunk_groups=max_chunk,
        ),
        optimizer_s=min(share(), rollout_s),
        weight_sync_s=min(share(), rollout_s),
        rollout_on_train=SwitchCosts(in_s=share(), out_s=share()),
        train_on_rollout=SwitchCosts(in_s=share(), out_s=share(), grad_s=min(share(), rollout_s)),
        response_tokens=lengths,
        prompt_tokens=prompt_tokens,
        noise=rng.choice((0.0, 0.0, 0.03, 0.3)),
    )
    steps = rng.randint(3, 6)
    expected_s = (steps + 1) * max(rollout_s, train_s)
    blocks = (rollout_devices + train_devices) // block
    arm = rng.choice((*ARMS, "bidirectional", "bidirectional"))
    return Setup(
        profile=profile,
        arm=arm,
        streaming=(arm in OURS) if rng.random() < 0.7 else rng.random() < 0.5,
        staleness=rng.choice(STALENESSES),
        rollout_devices=rollout_devices,
        train_devices=train_devices,
        rollout_replica_size=rollout_size,
        train_replica_size=train_size,
        prompts_per_step=prompts,
        group_size=group_size,
        steps=steps,
        seed=seed,
        improvements=_improvements(rng),
        rollout_on_train=rng.random() < 0.85,
        train_on_rollout=rng.random() < 0.85,
        length_hint=rng.choice((None, None, 0.5, 1.0)),
        exclusion_rate=rng.choice((0.0, 0.0, 0.05, 0.3)),
        failures=tuple(
            Failure(
                at=rng.uniform(0, expected_s),
                block=rng.randrange(blocks),
                back_after_s=rng.choice((0.0, 0.1, 1.0, 3.0)) * max(rollout_s, train_s),
            )
            for _ in range(rng.choice((0, 0, 0, 1, 2, 4)))
            if rollout_devices % block == 0 and train_devices % block == 0
        ),
        revoke_at=tuple(rng.uniform(0, expected_s) for _ in range(rng.choice((0, 0, 0, 1, 3, 10)))),
        decide_every_s=rng.choice((0.0, 0.0, 0.0, 0.02, 0.2)) * rollout_s,
        chunks_ahead=rng.choice((1, 1, 2)),
    )


def _improvements(rng: random.Random) -> Improvements:
    drawn = rng.random()
    if drawn < 0.4:
        return ALL
    if drawn < 0.6:
        return ALL.without(rng.choice(IMPROVEMENTS))
    if drawn < 0.7:
        return PAPER
    return Improvements(**{name: rng.random() < 0.5 for name in IMPROVEMENTS})


def random_estimates(setup: Setup) -> Estimates:
    """What the policy believes: the physics, off by up to a factor of three either way in each figure."""
    rng = random.Random(setup.seed + 1)
    profile, group_size = setup.profile, setup.group_size
    spread = rng.choice((1.0, 1.2, 3.0))

    def off() -> float:
        return spread ** rng.uniform(-1, 1)

    rollout, train = profile.rollout, profile.train
    group_s = full_load_group_s(profile, group_size)
    tokens = group_size * (mean_response_tokens(profile.response_tokens) + profile.prompt_tokens)
    latency_s = longest_tokens(profile.response_tokens, group_size)
    latency_s *= (rollout.slots + rollout.half_batch) / rollout.tokens_per_s
    costs = {}
    for name in ("rollout_on_train", "train_on_rollout"):
        true: SwitchCosts = getattr(profile, name)
        costs[name] = SwitchCosts(in_s=true.in_s * off(), out_s=true.out_s * off(), grad_s=true.grad_s * off())
    return Estimates(
        rollout=StageModel(a=latency_s * off() * rng.choice((0.0, 1.0)), b=group_s * off()),
        train=StageModel(a=train.chunk_s * off(), b=tokens / train.tokens_per_s * off()),
        full_load_group_s=group_s * off(),
        group_latency_s=latency_s * off(),
        slot_groups=max(1, rollout.slots // group_size),
        half_groups=rollout.half_batch / group_size,
        optimizer_s=profile.optimizer_s,
        sync_s=profile.weight_sync_s,
        **costs,
    )


def play(setup: Setup) -> tuple[str, str | None, Counter[str]]:
    """(kind of finding or nothing, what was found, what the run exercised)."""
    simulator = Watched(setup, random_estimates(setup), keep_actions=True)
    found: list[str] = []
    kind = ""
    try:
        found = problems(setup, simulator.run())
        kind = "violation" if found else ""
    except AssertionError as fault:
        kind, found = "fault", [str(fault)]
    except RuntimeError as fault:
        kind, found = "deadlock" if "deadlock" in str(fault) else "no end", [str(fault)]
    except (KeyError, IndexError, ValueError, ZeroDivisionError, StopIteration) as fault:
        kind, found = "fault", [f"{type(fault).__name__}: {fault}"]
    trace = simulator.trace
    counts = Counter(
        steps=len(trace.steps),
        groups_started=simulator.world.started,
        groups_excluded=len(trace.excluded),
        leases=len(trace.leases),
        leases_of_trainers=sum(lease.direction == "train_on_rollout" for lease in trace.leases),
        leases_taken_back=sum(lease.end_reason == "an operator did" for lease in trace.leases),
        leases_that_died=sum(lease.end_reason == "its devices died" for lease in trace.leases),
        decisions=trace.decisions,
    )
    return kind, "; ".join(found[:3]) or None, counts


def run(schedules: int, *, first_seed: int = 0, stop_at: int = 5) -> dict[str, Any]:
    """Play the schedules of seeds first_seed.. and count; stops after `stop_at` findings, which it lists with seeds."""
    counts: Counter[str] = Counter(dict.fromkeys(("deadlock", "no end", "fault", "violation"), 0))
    findings: list[str] = []
    began = time.perf_counter()
    for seed in range(first_seed, first_seed + schedules):
        setup = random_setup(seed)
        kind, found, exercised = play(setup)
        counts["schedules"] += 1
        counts[f"schedules_{setup.arm}"] += 1
        counts["schedules_with_failures"] += bool(setup.failures)
        counts += exercised
        if kind:
            counts[kind] += 1
            findings.append(f"seed {seed} ({setup.arm}, s={setup.staleness:g}): {kind}: {found}")
            if len(findings) >= stop_at:
                break
    return {**counts, "findings": findings, "seconds": round(time.perf_counter() - began, 1)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=5_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--stop-at", type=int, default=5)
    arguments = parser.parse_args()
    result = run(arguments.schedules, first_seed=arguments.first_seed, stop_at=arguments.stop_at)
    print(json.dumps(result, indent=1))
    raise SystemExit(1 if result["findings"] else 0)
