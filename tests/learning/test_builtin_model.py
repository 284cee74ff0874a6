from __future__ import annotations

import pytest
import torch

from engine.config import SizeConfig, TaskConfig
from engine.learning.builtin_model import bare_answer, build_model, build_tokenizer, check_task, worked_answer
from engine.learning.prompts import decode_response, encode_continuation, encode_prompt
from engine.learning.tasks import ReasoningGymTask
from engine.learning.weights import flatten, parameter_count


def make_task(**overrides) -> ReasoningGymTask:
    fields = {"params": {"min_terms": 3, "max_terms": 5, "min_digits": 1, "max_digits": 1}, "items": 200}
    return ReasoningGymTask(TaskConfig(**(fields | overrides)), seed=1, held_out_items=5)


def test_the_model_has_the_size_it_is_known_for():
    tokenizer = build_tokenizer()
    assert len(tokenizer) == 409
    assert parameter_count(build_model(tokenizer, seed=0)) == 261_600


def test_the_size_is_what_the_job_says():
    tokenizer = build_tokenizer()
    size = SizeConfig(hidden=16, layers=3, heads=2, feed_forward=24)
    # embedding 416 x 16, tied; a layer: 4 x 16^2 of attention, 3 x 16 x 24 of feed-forward, two norms; one norm more
    assert parameter_count(build_model(tokenizer, seed=0, size=size)) == 416 * 16 + 3 * (1024 + 1152 + 32) + 16
    assert (
        flatten(build_model(tokenizer, seed=1, size=SizeConfig())).tobytes()
        == flatten(build_model(tokenizer, seed=1)).tobytes()
    )


def test_weights_come_from_the_seed_and_leave_the_random_state_alone():
    tokenizer = build_tokenizer()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one = flatten(build_model(tokenizer, seed=1))
    assert torch.equal(torch.rand(3), expected)
    assert one.tobytes() == flatten(build_model(tokenizer, seed=1)).tobytes()
    assert one.tobytes() != flatten(build_model(tokenizer, seed=2)).tobytes()


def test_prompts_and_answers_survive_the_tokenizer():
    tokenizer, task = build_tokenizer(), make_task()
    for item in range(task.size):
        entry = task.entry(item)
        prompt = encode_prompt(tokenizer, entry["question"])
        assert (prompt[0], len(prompt)) == (1, 2 + 2 * entry["metadata"]["num_terms"])
        for text in (bare_answer(entry), worked_answer(entry)):
            tokens = encode_continuation(tokenizer, text)
            assert decode_response(tokenizer, tokens, [2]) == text
            assert len(tokens) <= 22


def test_a_worked_answer_gives_running_totals_from_the_last_term():
    entry = {"answer": "3", "metadata": {"expression": "4 - 1 - 7 + 7"}}
    assert worked_answer(entry) == "<think> + 7=7 - 7=0 - 1=-1 + 4=3<answer>3"
    assert bare_answer(entry) == "<answer>3"


def test_worked_answers_are_right():
    task = make_task()
    for item in range(task.size):
        entry = task.entry(item)
        text = worked_answer(entry)
        assert text.endswith(f"={entry['answer']}<answer>{entry['answer']}")


@pytest.mark.parametrize(
    ("overrides", "match"),
    [
        ({"source": "reasoning_gym:spell_backward", "params": {}}, "cannot read the prompt 'Spell"),
        ({"source": "reasoning_gym:lcm", "params": {}}, "cannot read the prompt"),
    ],
)
def test_tasks_that_it_cannot_read_are_refused(overrides, match):
    with pytest.raises(ValueError, match=match + r".*allowed: task.source reasoning_gym:chain_sum"):
        check_task(make_task(**overrides), build_tokenizer(), needs_worked=False)
    check_task(make_task(), build_tokenizer(), needs_worked=True)
