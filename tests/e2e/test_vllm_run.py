"""A real run whose rollouts are vLLM's: both devices generate and train, one after the other's need."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from engine.config import Job, load_job
from tests.e2e.service import EngineProcess, wait_for
from tests.learning.tiny_folder import write_folder
from tests.needs_vllm import VLLM_TIMEOUT_S, needs_vllm

pytestmark = [pytest.mark.ray, needs_vllm, pytest.mark.timeout(VLLM_TIMEOUT_S)]

STEPS = 6

REWARD = """def letters(prompt, response, answer, fields):
    return sum(map(str.isalpha, response)) / (1 + len(response))
"""
"""Something in which a random model's answers differ."""


def vllm_job(root: Path, *settings: str) -> Job:
    """In the data folder: a job of a tiny Qwen3 with random weights, and the file of its reward."""
    folder = write_folder(root / "models" / "tiny-qwen3")
    (root / "letters.py").write_text(REWARD, encoding="utf-8")
    common = [
        f"model.source={folder}",
        "task.reward=python:letters:letters",
        "task.answer_after=null",
        f"algorithm.steps={STEPS}",
        "algorithm.prompts_per_step=4",
        "algorithm.group_size=4",
        "sampling.max_response_tokens=16",
        "devices.rollouter=vllm",
        "devices.rollout_slots=16",
        "schedule.arm=bidirectional",
        "schedule.staleness=1",
        "schedule.max_chunk_groups=2",
        "eval.every_steps=0",
        "eval.items=8",
        "eval.control_prefix=null",
        "checkpoint.every_steps=3",
    ]
    return load_job(Path(__file__).resolve().parents[2] / "jobs" / "demo.yaml", [*common, *settings])


def test_a_bidirectional_run_with_vllm_ends_with_a_closed_ledger_and_a_finite_loss(engine: EngineProcess):
    run_id = engine.launch(vllm_job(engine.data.root))
    wait_for("the run's end", lambda: engine.run(run_id).ended_at, seconds=VLLM_TIMEOUT_S - 60)
    row = engine.run(run_id)
    assert row.state == "finished", row.error
    result = row.result
    assert result is not None
    assert result["steps"] == STEPS
    assert result["ledger"]["max_gap_fraction"] <= 0.005
    assert result["lag"]["max"] <= 1
    with engine.reader() as reader:
        steps = reader.steps(run_id)
        groups = reader.groups(run_id, limit=10_000)
        logs = [entry.text for entry in reader.logs(run_id)]
    losses = [step.loss for step in steps]
    assert len(losses) == STEPS
    assert all(loss is not None and math.isfinite(loss) for loss in losses)
    # vLLM's log-probabilities are the trainer's: of groups of its own version nothing but rounding is left
    fresh = [step.metrics["mismatch_kl"] for step in steps if step.step == 1]
    assert all(value is not None and abs(value) < 1e-6 for value in fresh)
    assert {group.state for group in groups if group.step is not None} == {"consumed"}
    assert sum("generates with vLLM" in text for text in logs) == 2
