"""vLLM against our own decoding, on one core: the same groups, the same tokens, in turns of one process.

    python -m tests.bench_vllm FOLDER [--batches 8,16,32] [--tokens 64] [--rounds 3]

CPU-seconds, since a core is what both get; tokens per CPU-second by batch, their ratio, and what new weights cost.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.config import SamplingConfig
from engine.learning.rollouter import Rollouter
from engine.learning.sequences import GroupRequest
from engine.learning.slot_rollouter import RolloutSettings
from engine.learning.transformers_rollouter import TransformersRollouter
from engine.learning.vllm.making import make_vllm_rollouter
from engine.learning.weights import flatten

GROUP = 4
LOADS = 5


def tokens_per_cpu_s(rollouter: Rollouter, batch: int, first: int) -> tuple[float, int]:
    """Of groups that fill the batch, from their prompts to their last tokens."""
    for place in range(batch // GROUP):
        number = first + place
        rollouter.add(GroupRequest(group_id=number, epoch=0, position=number, item=number, bound=1.0))
    tokens, begin = 0, time.process_time()
    while rollouter.active_groups:
        tokens += sum(group.response_tokens for group in rollouter.step())
    return tokens / (time.process_time() - begin), tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batches", default="8,16,32")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    batches = [int(text) for text in given.batches.split(",")]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(given.folder)
    model = AutoModelForCausalLM.from_pretrained(given.folder, dtype=torch.float32)
    vector = flatten(model)
    settings = RolloutSettings(
        prompt_of=lambda item: (
            f"Anna has {item % 89 + 3} apples and buys {item % 7 + 2} more. How many are there? Think."
        ),
        seed=0,
        group_size=GROUP,
        sampling=SamplingConfig(max_response_tokens=given.tokens),
        slots=max(batches),
    )
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as cache:
        vllm = make_vllm_rollouter(model, tokenizer, settings, cache_dir=Path(cache))
    print(f"vLLM's start, import included: {time.process_time() - begin:.1f} CPU-s")
    both: dict[str, Rollouter] = {"transformers": TransformersRollouter(model, tokenizer, settings), "vllm": vllm}
    for name, rollouter in both.items():
        took = []
        for version in range(LOADS):
            begin = time.process_time()
            rollouter.load(vector, version)
            took.append(time.process_time() - begin)
        print(f"{name}: new weights ({vector.nbytes / 1e6:.0f} MB) {statistics.median(took):.3f} CPU-s")
        tokens_per_cpu_s(rollouter, GROUP, 10**6)
    number = 0
    for batch in batches:
        rates: dict[str, list[float]] = {name: [] for name in both}
        for _ in range(given.rounds):
            for name, rollouter in both.items():
                rate, tokens = tokens_per_cpu_s(rollouter, batch, number)
                rates[name].append(rate)
            number += batch
        middle = {name: statistics.median(values) for name, values in rates.items()}
        ratio = middle["vllm"] / middle["transformers"]
        print(f"batch {batch}, {tokens} tokens a round: vllm / transformers {ratio:.2f}; tokens per CPU-s:")
        for name, values in rates.items():
            print(f"    {name:<12} {middle[name]:6.1f} ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()
