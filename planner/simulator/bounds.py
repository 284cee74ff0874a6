"""What no schedule can beat: all devices always busy at their most efficient, and switches that cost nothing."""

from __future__ import annotations

from planner.simulator.setup import Setup
from planner.simulator.workload import Workload


def work_device_s(setup: Setup, workload: Workload, places: tuple[int, ...]) -> float:
    """Device-seconds that these groups need at least: rollout with full slots, training in chunks of the largest size.

    Without optimizer, weight sync and switches.
    """
    rollout, train = setup.profile.rollout, setup.profile.train
    tokens = sum(sum(workload.group(place)) for place in places)
    prompts = len(places) * setup.group_size * setup.profile.prompt_tokens
    work = tokens + len(places) * setup.group_size * rollout.start_tokens
    rollout_s = work * (rollout.slots + rollout.half_batch) / (rollout.tokens_per_s * rollout.slots)
    train_s = (tokens + prompts) / train.tokens_per_s + train.chunk_s * len(places) / train.max_chunk_groups
    return rollout_s * setup.rollout_replica_size + train_s * setup.train_replica_size


def fluid_throughput(setup: Setup) -> float:
    """Tokens per second over the whole run, if every device were always busy with useful work."""
    workload = Workload.of(setup)
    places = tuple(range(setup.steps * setup.prompts_per_step))
    tokens = sum(sum(workload.group(place)) for place in places)
    tokens += round(len(places) * setup.group_size * setup.profile.prompt_tokens)
    return tokens * setup.devices / work_device_s(setup, workload, places)
