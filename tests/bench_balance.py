"""How a job's work divides between the stages: `python -m tests.bench_balance JOB.yaml`; --help names its sizes.

The job's own rollouter and trainer take turns in this process, on one thread, as on two cores that lend nothing: each
has a clock that its CPU seconds move, and whose clock is behind goes on. So the rollouter meets the staleness limit,
half-empty batches and new weights as it would live, and a busy machine shows less. Nothing here passes or fails.
A live worker spends more than is measured here, most on short waves of many sequences: a live run has the last word.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from engine.allowed_paths import roots as roots_of
from engine.config import Job, load_job
from engine.learning.data_order import DataOrder
from engine.learning.model_source import load_model
from engine.learning.rewards.judge import Judge, total
from engine.learning.rewards.reward import Question
from engine.learning.rewards.spec import reward_spec
from engine.learning.sequences import FinishedGroup, GroupRequest
from engine.learning.slot_rollouter import RolloutSettings
from engine.learning.stats import ChunkStats
from engine.learning.tasks import Task, make_task
from engine.learning.torch_trainer import TorchTrainer
from engine.learning.transformers_rollouter import TransformersRollouter
from engine.learning.weights import Vector, parameter_count
from storage.paths import DataDir

LATENCY_S = 0.03
"""The worker's COALESCE_S, the engine's tick and the way back."""

ROUND_TRIP_S = 0.005
"""The same where nothing is waited for."""

PERCENTILES = (50, 90, 99)

Result = TypeVar("Result")


@dataclass(slots=True)
class Step:
    """What one optimizer step took."""

    groups: Sequence[FinishedGroup]
    stats: ChunkStats
    rollout_s: float
    """CPU seconds of generating and scoring since the step before."""
    chunks_s: list[float]
    """CPU seconds of each chunk."""
    optimizer_s: float
    ended_at: float
    """Seconds of the two clocks since the first token."""

    @property
    def train_s(self) -> float:
        """CPU seconds of its chunks."""
        return sum(self.chunks_s)


@dataclass(slots=True)
class TwoCores:
    """One rollouter and one trainer of a job, each with a clock of its own."""

    job: Job
    task: Task
    judge: Judge
    weights: Mapping[str, float]
    rollouter: TransformersRollouter
    trainer: TorchTrainer
    order: DataOrder
    latency_s: float
    """From a group's end to the next one in its slots; a rollouter that holds nothing waits only for `ROUND_TRIP_S`."""
    rollout_at: float = 0.0
    train_at: float = 0.0
    started: int = 0
    rollout_s: float = 0.0
    waiting: list[tuple[float, FinishedGroup]] = field(default_factory=list)
    """Finished groups and when they were."""
    published: deque[tuple[float, int, Vector]] = field(default_factory=deque)
    """Weights that the rollouter has not loaded yet."""
    told_at: float = 0.0
    """When slots that became free are filled again."""
    token_steps: list[tuple[float, int]] = field(default_factory=list)
    """CPU seconds and sequences of each token step."""

    def run(self, steps: int) -> list[Step]:
        return [self._step() for _ in range(steps)]

    def _step(self) -> Step:
        needed = self.job.algorithm.prompts_per_step
        while len(self.waiting) < needed or self.rollout_at < self._ready_at(needed):
            if not self._generate():
                break
        begin = self._ready_at(needed)
        ordered = sorted(self.waiting, key=lambda entry: (entry[1].version, entry[0]))
        groups, self.waiting = [group for _, group in ordered[:needed]], ordered[needed:]
        stats, chunks_s = ChunkStats(), []
        size = self.job.schedule.max_chunk_groups
        for first in range(0, needed, size):
            done, seconds = _timed(partial(self.trainer.accumulate, groups[first : first + size]))
            stats += done
            chunks_s.append(seconds)
        ended, optimizer_s = _timed(self.trainer.finish_step)
        self.train_at = begin + sum(chunks_s) + optimizer_s
        self.published.append((self.train_at, ended.version, self.trainer.vector()))
        rollout_s, self.rollout_s = self.rollout_s, 0.0
        return Step(
            groups=groups,
            stats=stats,
            rollout_s=rollout_s,
            chunks_s=chunks_s,
            optimizer_s=optimizer_s,
            ended_at=self.train_at,
        )

    def _ready_at(self, needed: int) -> float:
        """When the trainer can begin its next step with the groups that it waits with."""
        if len(self.waiting) < needed:
            return math.inf
        return max(self.train_at, sorted(at for at, _ in self.waiting)[needed - 1])

    def _generate(self) -> bool:
        """One token for every sequence; False where the rollouter can do nothing until the trainer has published."""
        self._load()
        self._add()
        if not self.rollouter.active_groups:
            if not self.published:
                return False
            self.rollout_at = max(self.rollout_at, self.published[0][0])
            return True
        sequences, told = self.rollouter.active_sequences, self.told_at <= self.rollout_at
        finished, seconds = _timed(self._token)
        self.token_steps.append((seconds, sequences))
        self.rollout_at += seconds
        self.rollout_s += seconds
        self.waiting += [(self.rollout_at, group) for group in finished]
        if finished and told:
            self.told_at = self.rollout_at + self.latency_s
        return True

    def _load(self) -> None:
        """The newest weights, at once where the job continues its groups under new ones."""
        while self.published and self.published[0][0] <= self.rollout_at:
            if self.rollouter.active_groups and not self.job.schedule.in_flight_resolved:
                return
            _, version, vector = self.published.popleft()
            self.rollouter.load(vector, version)

    def _add(self) -> None:
        """As many groups as have room and may be started (design section 4)."""
        per_step = self.job.algorithm.prompts_per_step
        bound = self.job.schedule.staleness_resolved
        limit = (self.rollouter.version + 1) * per_step + math.floor(bound * per_step + 1e-9)
        if not self.rollouter.active_groups and self.started:
            self.rollout_at += min(ROUND_TRIP_S, self.latency_s)
        elif self.rollout_at < self.told_at:
            return
        while self.started < limit and self.rollouter.free_slots() >= self.job.algorithm.group_size:
            epoch, position, item = self.order.item_at(self.started)
            request = GroupRequest(group_id=self.started, epoch=epoch, position=position, item=item, bound=bound)
            _, seconds = _timed(partial(self.rollouter.add, request))
            self.rollout_at += seconds
            self.rollout_s += seconds
            self.started += 1

    def _token(self) -> list[FinishedGroup]:
        return [self._scored(group) for group in self.rollouter.step()]

    def _scored(self, group: FinishedGroup) -> FinishedGroup:
        question = Question(item=group.item, prompt=group.prompt, entry=self.task.entry(group.item))
        values = [self.judge(question, response.text) for response in group.responses]
        return group.with_rewards([total(given, self.weights) for given in values])


def _timed(action: Callable[[], Result]) -> tuple[Result, float]:
    """What it returns, and the CPU seconds it took."""
    begin = time.process_time()
    result = action()
    return result, time.process_time() - begin


def make(job: Job, cache_dir: Path, latency_s: float) -> TwoCores:
    """The stages of a job with its warm-started model, which is made where the cache has none."""
    roots = roots_of(base_dir=Path.cwd(), data_root=cache_dir)
    task, spec = make_task(job, roots=roots), reward_spec(job.task, roots=roots)

    load = partial(load_model, job.model, task=task, task_config=job.task, seed=job.seed, cache_dir=cache_dir)
    loaded, seconds = _timed(load)
    parameters = parameter_count(loaded.model)
    print(f"model of {parameters:,} parameters; warm start or its cache {seconds:.1f} CPU-s", flush=True)
    rollouter = TransformersRollouter(
        loaded.model,
        loaded.tokenizer,
        RolloutSettings(
            prompt_of=task.prompt,
            seed=job.seed,
            group_size=job.algorithm.group_size,
            sampling=job.sampling,
            slots=job.devices.rollout_slots,
        ),
    )
    trainer = TorchTrainer(
        load().model,
        loaded.tokenizer,
        job.algorithm,
        temperature=job.sampling.temperature,
        max_response_tokens=job.sampling.max_response_tokens,
    )
    order = DataOrder(size=task.size, seed=job.seed, shuffle=job.task.shuffle, epochs=job.task.epochs)
    return TwoCores(
        job=job,
        task=task,
        judge=Judge(spec),
        weights=spec.weights,
        rollouter=rollouter,
        trainer=trainer,
        order=order,
        latency_s=latency_s,
    )


def show(cores: TwoCores, steps: Sequence[Step], dropped: int) -> None:
    """Means over the steps after the first `dropped` ones."""
    kept, number = steps[dropped:], len(steps) - dropped
    stats = ChunkStats()
    for step in kept:
        stats += step.stats
    rollout, train = sum(step.rollout_s for step in kept), sum(step.train_s for step in kept)
    optimizer = 1000 * sum(step.optimizer_s for step in kept) / number
    length = (steps[-1].ended_at - steps[dropped - 1].ended_at) / number
    x = max(rollout / train, train / rollout)
    print(f"{cores.job.name}: x = {x:.2f}, rollout / train = {rollout / train:.3f}, in CPU-s over {number} steps")
    print(f"  a step: rollout {rollout / number:.3f}, train {train / number:.3f} CPU-s, optimizer {optimizer:.1f} ms")
    print(f"  a step of two cores that lend nothing: {length:.2f} s, staleness {cores.job.schedule.staleness_resolved}")
    print(f"  rollout / train step by step: {' '.join(f'{step.rollout_s / step.train_s:.2f}' for step in steps)}")
    carried, reward = 1 - stats.no_signal / stats.groups, stats.reward_sum / stats.responses
    print(f"  groups with signal {carried:.1%}, reward {reward:.3f}")
    print(f"  reward step by step: {' '.join(f'{s.stats.reward_sum / s.stats.responses:.2f}' for s in steps)}")
    show_lengths(steps, dropped)
    tokens = stats.prompt_tokens + stats.response_tokens
    print(f"  tokens a step {tokens / number:,.0f}, of them responses {stats.response_tokens / number:,.0f}")
    rates = f"response tokens per rollout CPU-s {stats.response_tokens / rollout:,.0f}"
    print(f"  {rates}, tokens per train CPU-s {tokens / train:,.0f}")
    chunks = [1000 * seconds for step in kept for seconds in step.chunks_s]
    print(f"  a chunk: median {np.median(chunks):.0f}, p90 {np.percentile(chunks, 90):.0f} ms")
    seconds, sequences = (np.array(column) for column in zip(*cores.token_steps, strict=True))
    print(f"  a token step: median {1000 * np.median(seconds):.1f} ms, sequences {sequences.mean():.0f} on average")


def show_lengths(steps: Sequence[Step], dropped: int) -> None:
    """Of responses, of each group's longest one, and of prompts."""
    groups = [group for step in steps[dropped:] for group in step.groups]
    lengths = np.array([[len(response.tokens) for response in group.responses] for group in groups])
    capped = np.mean([response.finished_by == "length" for group in groups for response in group.responses])
    print(f"  response tokens: {_spread(lengths.ravel())}; {capped:.2%} cut at the limit")
    print(f"  longest of a group: {_spread(lengths.max(axis=1))}")
    print(f"  prompt tokens: {_spread(np.array([len(group.prompt_tokens) for group in groups]))}")
    means = [np.mean([len(response.tokens) for group in step.groups for response in group.responses]) for step in steps]
    print(f"  response tokens step by step: {' '.join(f'{mean:.1f}' for mean in means)}")


def _spread(values: np.ndarray) -> str:
    percentiles = ", ".join(f"p{p} {np.percentile(values, p):.0f}" for p in PERCENTILES)
    return f"mean {values.mean():.1f}, {percentiles}, max {values.max()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY.PATH=VALUE", help="as for bidirl run")
    parser.add_argument("--steps", type=int, default=6, help="steps that are measured")
    parser.add_argument("--drop", type=int, default=2, help="steps before them, while the pipeline fills")
    parser.add_argument("--latency-ms", type=float, default=1000 * LATENCY_S, help="until a free slot is filled again")
    parser.add_argument("--data-dir", help="whose cache holds the warm start; as for bidirl run")
    options = parser.parse_args()
    if options.steps < 1 or options.drop < 1:
        parser.error(f"--steps and --drop must be at least 1, got {options.steps} and {options.drop}")
    torch.set_num_threads(1)
    job = load_job(options.job, options.set)
    cores = make(job, DataDir.from_env(options.data_dir).cache, options.latency_ms / 1000)
    show(cores, cores.run(options.drop + options.steps), options.drop)


if __name__ == "__main__":
    main()
