from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import TaskConfig
from engine.learning.data_order import DataOrder
from engine.learning.tasks import ReasoningGymTask

SUMS = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}


def make_task(*, seed: int = 1, held_out_items: int = 20, **overrides) -> ReasoningGymTask:
    fields = {"source": "reasoning_gym:chain_sum", "params": SUMS, "answer_after": "<answer>", "items": 500}
    return ReasoningGymTask(TaskConfig(**(fields | overrides)), seed=seed, held_out_items=held_out_items)


@pytest.mark.parametrize("held_out_items", [0, 20, 400])
def test_no_training_item_has_the_question_of_a_held_out_one(held_out_items):
    task = make_task(held_out_items=held_out_items)
    held_out = {task.prompt(-1 - index) for index in range(task.held_out)}
    assert (task.size, task.held_out, len(held_out)) == (500, held_out_items, held_out_items)
    assert not held_out & {task.prompt(item) for item in range(task.size)}


def test_items_come_from_the_seed_and_held_out_ones_do_not():
    one, same, other = make_task(seed=1), make_task(seed=1), make_task(seed=2)
    prompts = [[task.prompt(item) for item in range(50)] for task in (one, same, other)]
    assert prompts[0] == prompts[1] != prompts[2]
    assert [one.prompt(-1 - i) for i in range(20)] == [other.prompt(-1 - i) for i in range(20)]


def test_an_item_does_not_depend_on_how_many_are_asked_for_first():
    task, other = make_task(), make_task()
    backwards = [other.prompt(item) for item in reversed(range(30))]
    assert [task.prompt(item) for item in range(30)] == backwards[::-1]


def test_the_prompt_template_is_what_is_asked_and_changes_no_item():
    plain, within = make_task(), make_task(prompt_template="Q: {prompt} A:")
    assert within.prompt(0) == f"Q: {plain.prompt(0)} A:"
    assert within.entry(-1) == plain.entry(-1)


@pytest.mark.parametrize(
    ("overrides", "match"),
    [
        ({"source": "reasoning_gym:chain_sums"}, "unknown data set 'chain_sums'; .*chain_sum"),
        ({"source": "reasoning_gym:zzzz"}, "unknown data set 'zzzz'; .*countdown"),
        ({"params": {"terms": 3}}, "task.params: .*'terms'.* its parameters: .*max_terms"),
        ({"params": {"min_terms": 9}}, "max_terms must be >= min_terms"),
        (
            {"params": {"size": 3, "seed": 4}},
            r"task.params: size \(from task.items\), seed \(from seed\) are given by",
        ),
        (
            {"params": {"min_terms": "abc"}},
            "min_terms of data set 'chain_sum' must be a number, got 'abc'",
        ),
        ({"params": {"allow_negation": 1}}, "allow_negation of data set 'chain_sum' must be true or false, got 1"),
        (
            {"source": "reasoning_gym:spell_backward", "params": {"min_word_len": 90, "max_word_len": 95}},
            "refuses them",
        ),
        (
            {"params": SUMS | {"max_terms": 2}, "held_out_items": 10_000},
            "only 200 different .*allowed: .* 100",
        ),
        ({"params": SUMS | {"max_terms": 2}, "held_out_items": 190}, "eval.items 190 hold out .* of 64 questions"),
    ],
    ids=[
        "near miss",
        "unknown",
        "unknown parameter",
        "refused value",
        "reserved",
        "text",
        "kind",
        "at the first item",
        "too few at all",
        "none left",
    ],
)
def test_a_task_that_cannot_be_made_is_refused_by_name(overrides, match):
    with pytest.raises(ValueError, match=match):
        make_task(**overrides)


def test_an_items_place_names_the_data_set_and_its_number():
    task = make_task()
    assert task.place(7) == "reasoning_gym:chain_sum, item 7"
    assert task.place(-3) == "reasoning_gym:chain_sum, held-out item 2"


def test_an_item_outside_of_the_task_is_an_index_error():
    with pytest.raises(IndexError, match="item 500 of a task of 500"):
        make_task().prompt(500)
    with pytest.raises(IndexError):
        make_task().prompt(-21)


@given(size=st.integers(1, 200), seed=st.integers(0, 2**31 - 1), shuffle=st.booleans())
def test_every_epoch_asks_for_every_item_once(size, seed, shuffle):
    order = DataOrder(size=size, seed=seed, shuffle=shuffle)
    for epoch in range(2):
        coordinates = [order.item_at(epoch * size + position) for position in range(size)]
        assert [(e, p) for e, p, _ in coordinates] == [(epoch, position) for position in range(size)]
        assert sorted(item for _, _, item in coordinates) == list(range(size))


def test_orders_differ_between_epochs_and_seeds_only():
    orders = [DataOrder(size=100, seed=seed).order(epoch).tolist() for seed in (1, 2) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert orders[0] == DataOrder(size=100, seed=1).order(0).tolist()
    assert np.array_equal(DataOrder(size=9, seed=1, shuffle=False).order(5), np.arange(9))


def test_the_items_end_after_the_last_epoch():
    order = DataOrder(size=10, seed=1, epochs=2)
    assert (order.groups, order.item_at(19)[:2]) == (20, (1, 9))
    with pytest.raises(IndexError, match=r"group 20: task.epochs 2 x 10 items hold 20"):
        order.item_at(20)
