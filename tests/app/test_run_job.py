"""What pages say of a run's job, and that they say nothing of one that cannot be read."""

from __future__ import annotations

import pytest

from app.run_job import held_out_told


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("task: {reward: scorer}", ""),
        ("task: {source: 'jsonl:d', reward: math_verify}", ""),
        ("task: {reward: 'python:rw:good'}", "held-out accuracy: share of answers that python:rw:good gives 1 or more"),
        (
            "task: {rewards: [{name: scorer}, {name: 'python:rw:good', weight: 2}]}",
            "held-out accuracy: share of answers that scorer gives 1 or more",
        ),
        ("eval: {items: 0}\ntask: {reward: 'python:rw:good'}", ""),
        ("written: for another version", ""),
    ],
)
def test_an_accuracy_that_could_be_taken_for_something_else_says_what_it_counts(job: str, told: str) -> None:
    assert held_out_told(job) == told
