from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from engine.learning.prompts import PromptRefused, encode_prompt
from engine.learning.sequences import FinishedGroup
from engine.learning.weights import flatten
from tests.learning.builders import EOS, finish, make_model, make_request, make_rollouter, make_tokenizer, prompt_of


def assert_same_answers(actual: FinishedGroup, expected: FinishedGroup) -> None:
    for one, other in zip(actual.responses, expected.responses, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        assert np.allclose(one.logprobs, other.logprobs, atol=1e-5)
        assert (one.text, one.finished_by) == (other.text, other.finished_by)


def alone(group_id: int, **settings) -> FinishedGroup:
    rollouter = make_rollouter(**settings)
    rollouter.add(make_request(group_id))
    return finish(rollouter)[group_id]


def test_a_group_comes_back_with_all_that_training_needs():
    group = alone(3)
    assert (group.group_id, group.position, group.item, group.bound, group.version) == (3, 3, 3, 1.0, 0)
    assert group.prompt == prompt_of(3)
    assert group.prompt_tokens.tolist() == encode_prompt(make_tokenizer(), prompt_of(3)).tolist()
    assert (group.started_at, group.finished_at, len(group.responses)) == (100.0, 100.0, 4)
    for response in group.responses:
        assert response.tokens.dtype == np.int32
        assert response.logprobs.dtype == np.float32
        assert len(response.tokens) == len(response.logprobs) == sum(count for _, count in response.versions)
        assert response.reward is None
        assert EOS not in response.tokens[:-1]
        assert (response.tokens[-1] == EOS) == (response.finished_by == "eos")
        assert len(response.tokens) == 20 or response.finished_by == "eos"
    assert pickle.loads(pickle.dumps(group)).responses[0].tokens.tolist() == group.responses[0].tokens.tolist()
    assert {response.finished_by for g in range(6) for response in alone(g).responses} == {"eos", "length"}


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_late_joins_and_company_do_not_change_a_group(top_p):
    rollouter = make_rollouter(top_p=top_p)
    groups, waiting = {}, list(range(12))
    for step in range(1000):
        if waiting and step % 3 == 0 and rollouter.free_slots() >= 4:
            rollouter.add(make_request(waiting.pop(0)))
        groups |= {group.group_id: group for group in rollouter.step()}
        if len(groups) == 12:
            break
    for group_id in range(12):
        assert_same_answers(groups[group_id], alone(group_id, top_p=top_p))


def test_a_response_that_ends_frees_its_slot_at_once():
    rollouter = make_rollouter(slots=4)
    rollouter.add(make_request(0))
    assert (rollouter.free_slots(), rollouter.active_sequences, rollouter.active_groups) == (0, 4, 1)
    lengths = sorted(len(response.tokens) for response in alone(0).responses)
    for step in range(1, lengths[-1]):
        assert rollouter.step() == []
        assert rollouter.active_sequences == sum(length > step for length in lengths)
    assert len(rollouter.step()) == 1
    assert (rollouter.free_slots(), rollouter.active_groups, rollouter.step()) == (4, 0, [])


@pytest.mark.parametrize("steps", [0, 1, 5, 12])
@pytest.mark.parametrize("fresh", [True, False], ids=["on another replica", "on the same one"])
def test_a_resumed_prefix_gives_the_tokens_of_an_uninterrupted_answer(steps, fresh):
    rollouter = make_rollouter()
    for group_id in range(3):
        rollouter.add(make_request(group_id))
    groups = {}
    for _ in range(steps):
        groups |= {group.group_id: group for group in rollouter.step()}
    partials = pickle.loads(pickle.dumps(rollouter.abort()))
    assert rollouter.active_groups == rollouter.active_sequences == 0
    assert all((partial.version is None) == (steps == 0) for partial in partials)
    assert all((partial.started_at is None) == (steps == 0) for partial in partials)
    target = make_rollouter() if fresh else rollouter
    for partial in partials:
        target.add(partial.request())
    groups |= finish(target)
    for group_id in range(3):
        assert_same_answers(groups[group_id], alone(group_id))


def test_abort_returns_prefixes_of_the_chosen_groups_and_leaves_the_others():
    rollouter = make_rollouter()
    for group_id in range(3):
        rollouter.add(make_request(group_id))
    for _ in range(4):
        rollouter.step()
    rollouter.add(make_request(7))
    one, seven = rollouter.abort([1, 7])
    assert (one.group_id, one.version, one.started_at, one.bound) == (1, 0, 100.0, 1.0)
    for partial, response in zip(one.partial, alone(1).responses, strict=True):
        assert partial.tokens.tolist() == response.tokens[:4].tolist()
        assert partial.finished_by == (response.finished_by if len(response.tokens) <= 4 else None)
        assert sum(count for _, count in partial.versions) == len(partial.tokens)
    assert (seven.partial, seven.version, seven.tokens) == ((), None, 0)
    left = finish(rollouter)
    assert set(left) == {0, 2}
    for group_id in left:
        assert_same_answers(left[group_id], alone(group_id))


def test_weights_changed_in_flight_are_recorded_per_token_and_the_group_keeps_its_oldest_version():
    other = flatten(make_model(seed=9))
    rollouter = make_rollouter(version=4)
    rollouter.add(make_request(0))
    for _ in range(3):
        rollouter.step()
    rollouter.load(other, 6)
    rollouter.add(make_request(1))
    groups = finish(rollouter)
    assert (groups[0].version, groups[1].version, rollouter.version) == (4, 6, 6)
    ranges = {len(response.tokens): response.versions for response in groups[0].responses if len(response.tokens) > 3}
    assert ranges
    assert all(versions == ((4, 3), (6, length - 3)) for length, versions in ranges.items())
    assert_same_answers(groups[1], alone(1, model=make_model(seed=9)))


def test_versions_survive_being_resumed_elsewhere():
    rollouter = make_rollouter(version=2)
    rollouter.add(make_request(0))
    rollouter.step()
    rollouter.load(flatten(make_model()), 3)
    rollouter.step()
    target = make_rollouter(version=5)
    target.add(rollouter.abort()[0].request())
    group = finish(target)[0]
    assert group.version == 2
    longest = max(group.responses, key=lambda response: len(response.tokens))
    assert longest.versions == ((2, 1), (3, 1), (5, len(longest.tokens) - 2))


@pytest.mark.parametrize(
    ("prepare", "request_", "error", "match"),
    [
        ({}, make_request(0, partial=()), RuntimeError, "group 0 is held already"),
        ({"slots": 7}, make_request(1), RuntimeError, "group 1 needs 4 of 7 slots, free: 3"),
        ({"model": make_model(positions=25)}, make_request(3), PromptRefused, "holds prompts of up to 5"),
    ],
    ids=["held already", "no slots", "prompt too long"],
)
def test_a_group_that_cannot_be_taken_is_refused(prepare, request_, error, match):
    rollouter = make_rollouter(**prepare)
    rollouter.add(make_request(0))
    with pytest.raises(error, match=match):
        rollouter.add(request_)
    assert (rollouter.active_groups, rollouter.active_sequences) == (1, 4)


@pytest.mark.parametrize("kind", ["tied", "learned positions"])
def test_a_group_whose_prompt_is_too_long_leaves_no_trace(kind):
    prompts = {1: "1" * 6, 2: "1" * 5}  # one token more for <bos>: 26 positions hold prompts of 6
    rollouter = make_rollouter(make_model(kind, positions=26), prompt_of=lambda item: prompts.get(item, "1"))
    rollouter.add(make_request(0))
    with pytest.raises(
        PromptRefused, match="the prompt has 7 tokens; with responses of up to 20 the model holds"
    ) as told:
        rollouter.add(make_request(1))
    assert pickle.loads(pickle.dumps(told.value)).reason == "prompt_too_long"
    assert (rollouter.active_groups, rollouter.free_slots()) == (1, 28)
    rollouter.add(make_request(2))
    assert sorted(finish(rollouter)) == [0, 2]
    assert rollouter.free_slots() == 32


@pytest.mark.parametrize("kind", ["tied", "learned positions"])
@pytest.mark.parametrize("way", ["greedy", "sampled"])
def test_a_question_that_is_too_long_is_refused_before_any_is_answered_and_told_beforehand(kind, way):
    rollouter = make_rollouter(make_model(kind, positions=30))
    answer = getattr(rollouter, way)
    assert rollouter.refusal("1" * 9) is None
    assert all(text.startswith("1+") for text in answer(["1" * 7, "2"], "1+"))
    for prompt, prefix, told in (
        ("1" * 10, "", "the prompt has 11 tokens"),
        ("1" * 8, "1+", "20 after a start of 2 the"),
    ):
        refused = rollouter.refusal(prompt, prefix)
        assert refused is not None
        assert told in str(refused)
        with pytest.raises(PromptRefused, match=told):
            answer(["2", prompt], prefix)


def test_a_prompt_that_the_chat_template_fails_on_is_refused_by_another_word():
    rollouter = make_rollouter()
    rollouter._tokenizer.chat_template = "{{ raise_exception('no such turn') }}"
    refused = rollouter.refusal("1")
    assert refused is not None
    assert (refused.reason, "no such turn" in str(refused)) == ("prompt_not_encoded", True)


def test_settings_that_can_never_work_are_refused():
    with pytest.raises(ValueError, match="3 slots cannot hold one group of 4"):
        make_rollouter(slots=3)
    with pytest.raises(ValueError, match=r"max_response_tokens 20 leaves no room .* 20 positions; allowed: up to 19"):
        make_rollouter(make_model(positions=20))
    with pytest.raises(KeyError, match=r"groups \[4\] are not held"):
        make_rollouter().abort([4])


def test_greedy_answers_are_the_likeliest_tokens_and_leave_running_groups_alone():
    model, tokenizer = make_model(), make_tokenizer()
    rollouter = make_rollouter(copy.deepcopy(model), slots=5)
    rollouter.add(make_request(0))
    rollouter.step()
    prompts = [prompt_of(item) for item in range(12)]
    texts = rollouter.greedy(prompts, "1+")
    for prompt, text in zip(prompts, texts, strict=True):
        ids = encode_prompt(tokenizer, prompt + "1+").tolist()
        start = len(ids)
        while len(ids) - start < 20 and ids[-1] != EOS:
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        assert text == "1+" + tokenizer.decode([token for token in ids[start:] if token != EOS])
    assert_same_answers(finish(rollouter)[0], alone(0))


def test_sampled_answers_depend_on_the_stream_and_not_on_the_cut():
    rollouter, prompts = make_rollouter(slots=5), [prompt_of(3)] * 9
    together = rollouter.sampled(prompts)
    assert len(set(together)) > 1
    assert together == [*rollouter.sampled(prompts[:4]), *rollouter.sampled(prompts[4:], first=4)]
