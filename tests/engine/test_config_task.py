"""What a job file may say of its task, beyond what needs its files."""

from __future__ import annotations

import pytest

from engine.config import JobError, dump_job, parse_job


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("source: 'jsonl:'", "task.source: must be reasoning_gym:DATASET"),
        ("source: 'jsonl:d'", "task.reward: scorer comes with the data sets of reasoning_gym, and the source is"),
        ("source: 'jsonl:d', reward: exactly", "task.reward: must be scorer, exact, math_verify or python:"),
        ("source: 'jsonl:d', reward: 'python:a b:c'", "task.reward: must be"),
        ("source: 'jsonl:d', reward: 'python:../a:c'", "task.reward: must be"),
        ("source: 'jsonl:d', reward: exact, params: {a: 1}", "task.params: have no meaning for source 'jsonl:d'"),
        ("source: 'hf:d', reward: exact, params: {a: b}", "task.params: must be one of name, split, revision, got 'a'"),
        ("source: 'hf:d', reward: exact, params: {split: 3}", "task.params: split must be text, got 3"),
        (
            "source: 'jsonl:d', reward: exact, held_out: d",
            "task.held_out: must be jsonl:PATH, parquet:PATH, hf:N",
        ),
        ("held_out: 'jsonl:d'", "task.held_out: has no meaning for source 'reasoning_gym:chain_sum'"),
        ("prompt_field: x", "task.prompt_field: has no meaning for source"),
        ("prompt_template: '{promt}'", "task.prompt_template: must hold {prompt} once, where the prompt goes"),
        ("prompt_template: '{prompt} {prompt}'", "task.prompt_template: must hold {prompt} once"),
        (
            "source: 'jsonl:d', reward: exact, prompt_field: answer",
            "task: prompt_field and answer_field are both",
        ),
        (
            "rewards: [{name: exact}, {name: exact}]",
            "task.rewards: each reward may be named once, twice there",
        ),
        ("rewards: [{name: exact, weight: 0}]", "task.rewards: all weights are 0"),
        ("rewards: [{name: exactly}]", "task.rewards: must be scorer, exact"),
        ("rewards: [{name: exact, wieght: 1}]", "task.rewards.0.wieght: unknown key 'wieght'; did you mean 'weight'?"),
        ("rewards: [{name: exact, weight: .inf}]", "task.rewards.0.weight: must be a finite number, got inf"),
        ("rewards: [exact]", "task.rewards.0: must be a mapping of keys (name, weight), got 'exact'"),
        ("source: 'jsonl:d', rewards: [{name: scorer}]", "task.rewards: scorer comes with"),
        ("reward_deadline_s: 0", "task.reward_deadline_s: must be a number above 0, at most 600, got 0"),
    ],
)
def test_a_task_that_cannot_be_is_refused_at_its_place(task: str, told: str) -> None:
    with pytest.raises(JobError) as caught:
        parse_job(f"task: {{{task}}}")
    assert f"job: {told}" in str(caught.value)


def test_a_list_of_rewards_takes_the_place_of_the_single_one_and_survives_being_stored() -> None:
    job = parse_job(
        "task: {source: 'jsonl:d', rewards: [{name: math_verify, weight: 2}, {name: 'python:rewards:short'}]}"
    )
    assert [(r.name, r.weight) for r in job.task.scored_by] == [("math_verify", 2.0), ("python:rewards:short", 1.0)]
    assert parse_job(dump_job(job)) == job


def test_a_single_reward_weighs_one_and_the_data_sets_own_scorer_has_two_names() -> None:
    for name in ("scorer", "reasoning_gym"):
        job = parse_job(f"task: {{reward: {name}}}")
        assert [(r.name, r.weight) for r in job.task.scored_by] == [("scorer", 1.0)]


def test_how_many_items_a_file_has_is_not_known_before_it_is_read() -> None:
    job = parse_job("task: {source: 'jsonl:d', reward: exact, epochs: 1}")
    assert job.task.items is None
    with pytest.raises(JobError, match=r"needs more prompts than task.epochs 1 x task.items 10"):
        parse_job("task: {source: 'jsonl:d', reward: exact, epochs: 1, items: 10}")
