from __future__ import annotations

import pickle

import numpy as np
import pytest

from engine.learning.deterministic_rollouter import DeterministicRollouter
from engine.learning.sequences import FinishedGroup, Partial
from engine.learning.weights import flatten, nbytes_of
from tests.learning.builders import MODEL_KINDS, finish, make_model, make_request, make_rollouter, prompt_of

GROUPS = 5


def make_deterministic(model=None, **overrides) -> DeterministicRollouter:
    rollouter = make_rollouter(model, kind=DeterministicRollouter, **overrides)
    assert isinstance(rollouter, DeterministicRollouter)
    return rollouter


def answers(group: FinishedGroup) -> list[tuple]:
    """All that must be bitwise the same."""
    return [
        (response.tokens.tobytes(), response.logprobs.tobytes(), response.versions, response.finished_by)
        for response in group.responses
    ]


def alone(group_id: int, **settings) -> list[tuple]:
    rollouter = make_deterministic(**settings)
    rollouter.add(make_request(group_id))
    return answers(finish(rollouter)[group_id])


def resume(source, target, group_id: int) -> None:
    target.add(pickle.loads(pickle.dumps(source.abort([group_id])[0])).request())


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [3, 0, 4, 2, 1]], ids=["in order", "in another order"])
@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_company_and_order_do_not_change_a_bit_of_a_group(kind, order):
    rollouter = make_deterministic(make_model(kind))
    groups = {}
    for group_id in order:
        rollouter.add(make_request(group_id))
        groups |= {group.group_id: group for group in rollouter.step()}
    groups |= finish(rollouter)
    for group_id in range(GROUPS):
        assert answers(groups[group_id]) == alone(group_id, model=make_model(kind))


@pytest.mark.parametrize("top_p", [1.0, 0.8])
@pytest.mark.parametrize("steps", [0, 1, 6, 13])
@pytest.mark.parametrize("kind", ["untied, shared keys", "sliding window"])
def test_a_group_continued_elsewhere_is_bitwise_the_uninterrupted_one(kind, steps, top_p):
    first = make_deterministic(make_model(kind), top_p=top_p)
    for group_id in range(GROUPS):
        first.add(make_request(group_id))
    groups = {}
    for _ in range(steps):
        groups |= {group.group_id: group for group in first.step()}
    second = make_deterministic(make_model(kind), top_p=top_p)
    second.add(make_request(100))
    for group_id in sorted(set(range(GROUPS)) - set(groups), reverse=True):
        resume(first, second, group_id)
    assert first.active_sequences == 0
    groups |= finish(second)
    for group_id in range(GROUPS):
        assert answers(groups[group_id]) == alone(group_id, model=make_model(kind), top_p=top_p)


def test_the_cases_hold_responses_that_end_before_and_after_every_interruption():
    lengths = [len(tokens) // 4 for group_id in range(GROUPS) for tokens, *_ in alone(group_id)]
    assert min(lengths) <= 6 < 13 < max(lengths)


def test_a_group_interrupted_again_and_again_loses_nothing_also_while_it_replays():
    rollouter, held = make_deterministic(), make_request(1)
    for steps in (3, 2, 5, 1, 9):  # 2 and 1 are shorter than the prefix to replay
        rollouter.add(held)
        for _ in range(steps):
            rollouter.step()
        partial = rollouter.abort()[0]
        for before, after in zip(held.partial, partial.partial, strict=False):
            assert after.tokens[: len(before.tokens)].tobytes() == before.tokens.tobytes()
            assert after.logprobs[: len(before.logprobs)].tobytes() == before.logprobs.tobytes()
        assert partial.tokens >= sum(len(prefix.tokens) for prefix in held.partial)
        assert partial.started_at == 100.0
        held, rollouter = partial.request(), make_deterministic()
    rollouter.add(held)
    assert answers(finish(rollouter)[1]) == alone(1)


def test_abort_during_a_replay_gives_back_the_whole_recorded_prefix():
    first, second = make_deterministic(), make_deterministic()
    first.add(make_request(0))
    for _ in range(6):
        first.step()
    taken = first.abort()[0]
    second.add(taken.request())
    second.step()
    again = second.abort([0])[0]
    assert pickle.dumps(again) == pickle.dumps(taken)
    assert (second.active_groups, second.active_sequences, second.step()) == (0, 0, [])


def test_a_response_that_ended_holds_no_slot_while_it_is_replayed():
    first = make_deterministic()
    first.add(make_request(1))
    while first.active_sequences == 4:
        first.step()
    growing = first.active_sequences
    second = make_deterministic(slots=4)
    resume(first, second, 1)
    assert second.active_sequences == growing < 4
    second.step()
    assert second.free_slots() == 4 - growing
    assert answers(finish(second)[1]) == alone(1)


def test_replayed_tokens_keep_their_versions_and_new_ones_carry_the_loaded_one():
    first, second = make_deterministic(version=2), make_deterministic(version=3)
    first.add(make_request(0))
    for _ in range(4):
        first.step()
    resume(first, second, 0)
    group = finish(second)[0]
    longest = max(group.responses, key=lambda response: len(response.tokens))
    assert longest.versions == ((2, 4), (3, len(longest.tokens) - 4))
    assert group.version == 2


def test_tokens_are_those_of_the_ordinary_rollouter():
    rollouter = make_rollouter()
    for group_id in range(GROUPS):
        rollouter.add(make_request(group_id))
    for group_id, group in finish(rollouter).items():
        for response, (tokens, logprobs, versions, finished_by) in zip(group.responses, alone(group_id), strict=True):
            assert (response.tokens.tobytes(), response.versions) == (tokens, versions)
            assert response.finished_by == finished_by
            assert np.allclose(response.logprobs, np.frombuffer(logprobs, dtype=np.float32), atol=1e-5)


def test_a_prefix_of_an_ordinary_rollouter_is_continued_too():
    first, second = make_rollouter(), make_deterministic()
    first.add(make_request(0))
    for _ in range(5):
        first.step()
    resume(first, second, 0)
    tokens = [response.tokens.tobytes() for response in finish(second)[0].responses]
    assert tokens == [tokens for tokens, *_ in alone(0)]


def test_other_weights_and_evaluation_work_as_in_the_parent():
    one, other = make_deterministic(), make_rollouter()
    one.add(make_request(0))
    one.step()
    for rollouter in (one, other):
        rollouter.load(flatten(make_model(seed=9)), 4)
    prompts = [prompt_of(item) for item in range(6)]
    assert one.greedy(prompts, "1+") == other.greedy(prompts, "1+")
    assert one.sampled(prompts) == other.sampled(prompts)
    assert (one.version, one.active_groups) == (4, 1)
    assert one.nbytes == other.nbytes == nbytes_of(make_model())


def test_a_group_whose_responses_have_all_ended_finishes_at_once():
    first, second = make_rollouter(), make_deterministic()
    first.add(make_request(0))
    group = finish(first)[0]
    prefixes = tuple(
        Partial(tokens=r.tokens, logprobs=r.logprobs, versions=r.versions, finished_by=r.finished_by)
        for r in group.responses
    )
    second.add(make_request(0, partial=prefixes, started_at=50.0))
    (done,) = second.step()
    assert answers(done) == answers(group)
    assert (done.started_at, second.active_groups) == (50.0, 0)
