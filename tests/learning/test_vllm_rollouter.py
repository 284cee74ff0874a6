"""The vLLM rollouter's own part, over an engine that is no vLLM: the same model, one forward pass a token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from engine.config import SamplingConfig
from engine.learning.prompts import PromptRefused
from engine.learning.sequences import GroupRequest
from engine.learning.slot_rollouter import RolloutSettings
from engine.learning.vllm.installed import extra_for
from engine.learning.vllm.layout import Layout
from engine.learning.vllm.probe import Probe
from engine.learning.vllm.rollouter import MOST_EMPTY_STEPS, VllmRollouter
from engine.learning.vllm.step_engine import Generated, Pick
from engine.learning.weights import flatten
from tests.learning.builders import (
    EOS,
    finish,
    make_model,
    make_request,
    make_rollouter,
    make_tokenizer,
    prompt_of,
)


class FakeEngine:
    """Requests as vLLM has them. `held_back`: that many of the newest get no token; `says`: what it makes of tokens."""

    frees_memory, nbytes = True, 0

    def __init__(self, pick: Pick, model: PreTrainedModel) -> None:
        self.pick, self.model = pick, model
        self.requests: dict[str, tuple[list[int], int]] = {}
        self.salts: list[str] = []
        self.held_back, self.asleep, self.forgets = 0, False, False
        self.says = lambda generated: generated

    def add(self, key: str, tokens: Sequence[int], *, longest: int, salt: str) -> None:
        assert key not in self.requests
        self.requests[key] = (list(tokens), len(tokens) + longest)
        self.salts.append(salt)

    @torch.inference_mode()
    def step(self) -> list[Generated]:
        assert not self.asleep
        keys = list(self.requests)[: len(self.requests) - self.held_back]
        logits = [self.model(torch.tensor([self.requests[key][0]])).logits[0, -1] for key in keys]
        made = []
        for key, token in zip(keys, self.pick(keys, torch.stack(logits)).tolist(), strict=True):
            tokens, end = self.requests[key]
            tokens.append(token)
            done = token == EOS or len(tokens) == end
            if done:
                del self.requests[key]
            made.append(self.says(Generated(key=key, token=token, finished=done)))
        return made

    def abort(self, keys: Sequence[str]) -> None:
        for key in keys:
            del self.requests[key]

    def load(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        assert not self.asleep
        with torch.no_grad():
            for name, tensor in weights:
                self.model.get_parameter(name).copy_(tensor)

    def sleep(self) -> None:
        self.asleep = True

    def wake(self) -> None:
        self.asleep = False
        if self.forgets:
            torch.nn.init.zeros_(next(self.model.parameters()))


def make_vllm(model: PreTrainedModel | None = None, **overrides: Any) -> tuple[VllmRollouter, FakeEngine]:
    made: list[FakeEngine] = []
    model = model or make_model()

    def make_engine(pick: Pick) -> FakeEngine:
        made.append(FakeEngine(pick, model))
        return made[0]

    settings = {"prompt_of": prompt_of, "seed": 11, "group_size": 4, "slots": 32, "clock": lambda: 100.0} | overrides
    rollouter = VllmRollouter(
        make_engine,
        Layout.of(model),
        make_tokenizer(),
        RolloutSettings(sampling=SamplingConfig(max_response_tokens=20), **settings),
        end_tokens={EOS},
        longest_prompt=200,
    )
    return rollouter, made[0]


def assert_same(one: dict, other: dict) -> None:
    assert sorted(one) == sorted(other)
    for number, group in one.items():
        for mine, theirs in zip(group.responses, other[number].responses, strict=True):
            assert mine.tokens.tolist() == theirs.tokens.tolist()
            assert mine.versions == theirs.versions
            assert (mine.text, mine.finished_by) == (theirs.text, theirs.finished_by)
            np.testing.assert_allclose(mine.logprobs, theirs.logprobs, atol=1e-5)


def test_answers_and_log_probabilities_are_those_of_the_transformers_rollouter():
    ours, (vllm, _) = make_rollouter(), make_vllm()
    for rollouter in (ours, vllm):
        for number in range(4):
            rollouter.add(make_request(number))
    assert_same(finish(vllm), finish(ours))
    assert vllm.free_slots() == 32


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_an_aborted_group_keeps_its_tokens_and_goes_on_elsewhere_with_the_same_ones(steps):
    (first, engine), (second, _) = make_vllm(), make_vllm()
    for number in range(3):
        first.add(make_request(number))
    for _ in range(steps):
        first.step()
    taken = first.abort()
    assert engine.requests == {}
    assert first.active_sequences == 0
    assert sum(group.tokens for group in taken) > 0 or steps == 0
    for group in taken:
        second.add(group.request())
    whole = make_rollouter()
    for number in [group.group_id for group in taken]:
        whole.add(make_request(number))
    assert_same(finish(second), finish(whole))


def test_a_group_whose_responses_have_all_ended_is_handed_back_without_asking_the_engine():
    rollouter, engine = make_vllm()
    rollouter.add(make_request(0))
    [done] = finish(rollouter).values()
    engine.says = None  # it would be called
    rollouter.add(GroupRequest(**{**_fields(done), "partial": done.unscored().partial, "started_at": 5.0}))
    [again] = rollouter.step()
    assert [r.tokens.tolist() for r in again.responses] == [r.tokens.tolist() for r in done.responses]
    assert again.started_at == 5.0


def test_new_weights_in_flight_change_the_tokens_from_there_on_and_each_knows_its_version():
    newer = flatten(make_model(seed=5))
    ours, (vllm, engine) = make_rollouter(), make_vllm()
    for rollouter in (ours, vllm):
        rollouter.add(make_request(0))
        rollouter.step()
        rollouter.step()
        rollouter.load(newer, 1)
        rollouter.add(make_request(1))
    results = finish(vllm)
    assert results[0].version == 0
    assert results[0].responses[0].versions[0] == (0, 2)
    assert results[1].version == 1
    assert set(engine.salts[:4]) == {"version 0"}
    assert set(engine.salts[4:]) == {"version 1"}
    # the cached keys of our own rollouter are the old weights', the fake engine has no cache: only the new group agrees
    assert_same({1: results[1]}, {1: finish(ours)[1]})


def test_a_request_that_is_held_back_gets_its_own_tokens_later():
    rollouter, engine = make_vllm()
    rollouter.add(make_request(0))
    engine.held_back = 3
    rollouter.step()
    engine.held_back = 0
    whole = make_rollouter()
    whole.add(make_request(0))
    assert_same(finish(rollouter), finish(whole))


def test_a_group_of_which_nothing_was_generated_comes_back_as_new():
    rollouter, engine = make_vllm()
    rollouter.add(make_request(0))
    engine.held_back = 4
    engine.step = list
    rollouter.step()
    [group] = rollouter.abort()
    assert (group.version, group.partial, group.started_at) == (None, (), None)


@pytest.mark.parametrize("way", ["greedy", "sampled"])
def test_evaluation_answers_are_those_of_the_transformers_rollouter_and_leave_running_groups_alone(way):
    ours, (vllm, _) = make_rollouter(), make_vllm()
    vllm.add(make_request(3))
    vllm.step()
    prompts = [prompt_of(item) for item in range(40, 45)]
    assert getattr(vllm, way)(prompts, "1") == getattr(ours, way)(prompts, "1")
    ours.add(make_request(3))
    assert_same(finish(vllm), finish(ours))


def test_another_token_than_the_one_drawn_ends_the_rollouter_with_a_sentence():
    rollouter, engine = make_vllm()
    rollouter.add(make_request(0))
    engine.says = lambda made: Generated(key=made.key, token=(made.token + 1) % 16, finished=made.finished)
    with pytest.raises(RuntimeError, match="another token than the one drawn"):
        rollouter.step()


def test_a_response_that_the_engine_ends_early_is_noticed():
    rollouter, engine = make_vllm()
    rollouter.add(make_request(0))
    engine.says = lambda made: Generated(key=made.key, token=made.token, finished=True)
    with pytest.raises(RuntimeError, match="calls a response finished that is not"):
        finish(rollouter)


def test_a_rollouter_that_slept_is_woken_by_new_weights_and_answers_as_before():
    rollouter, engine = make_vllm()
    rollouter.sleep()
    assert engine.asleep
    rollouter.sleep()
    rollouter.load(flatten(make_model()), 1)
    assert not engine.asleep
    assert rollouter.greedy([prompt_of(1)]) == make_rollouter().greedy([prompt_of(1)])


def test_an_engine_that_never_goes_on_ends_the_worker_and_one_that_pauses_does_not():
    rollouter, engine = make_vllm()
    rollouter.add(make_request(0))
    step, engine.step = engine.step, list
    for _ in range(MOST_EMPTY_STEPS):
        rollouter.step()
    engine.step = step
    rollouter.step()
    engine.step = list
    for _ in range(MOST_EMPTY_STEPS):
        rollouter.step()
    with pytest.raises(RuntimeError, match=r"gave no token in 1000 steps, with 4 requests to go on with"):
        rollouter.step()


def test_weights_that_were_lost_in_sleep_are_noticed_when_it_wakes():
    rollouter, engine = make_vllm()
    rollouter.sleep()
    engine.forgets = True
    with pytest.raises(RuntimeError, match="woke with other weights than it slept with"):
        rollouter.wake()


def test_the_probe_is_computed_whole_whatever_prompts_were_computed_before():
    rollouter, engine = make_vllm()
    rollouter.add(make_request(0))
    finish(rollouter)
    begun = len(engine.salts)
    rollouter.sleep()
    rollouter.wake()
    before, after = engine.salts[begun:]
    assert len({before, after, *engine.salts[:begun]}) == 2 + 1


def test_rounding_of_bfloat16_is_no_loss_of_weights():
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 8
    rounded = logits.bfloat16()
    other = torch.where(torch.arange(1000) % 2 == 0, rounded * (1 + 2**-8), rounded).bfloat16()
    Probe(before=rounded.float().log_softmax(-1)).check(other.float().log_softmax(-1))
    with pytest.raises(RuntimeError, match="woke with other weights"):
        Probe(before=rounded.float().log_softmax(-1)).check(torch.full((1000,), float("nan")))


def test_the_build_for_gpus_is_not_asked_for_together_with_the_torch_of_the_cpus():
    assert "constraints.txt" in extra_for("cpu")
    assert extra_for("cuda") == 'pip install -e ".[vllm]"'


def test_a_prompt_that_is_too_long_leaves_nothing_with_vllm():
    rollouter, _ = make_vllm(prompt_of=lambda item: "1" * (200 if item == 1 else 3))
    rollouter.add(make_request(0))
    with pytest.raises(PromptRefused, match="the prompt has 201 tokens"):
        rollouter.add(make_request(1))
    with pytest.raises(PromptRefused, match="the prompt has 199 tokens; with responses of up to 20 after a start of 2"):
        rollouter.greedy(["1", "1" * 198], "1+")
    assert (rollouter.active_groups, rollouter.free_slots()) == (1, 28)
    assert not rollouter._questions
    assert sorted(finish(rollouter)) == [0]


def test_a_rollouter_with_groups_does_not_go_to_sleep():
    rollouter, _ = make_vllm()
    rollouter.add(make_request(0))
    with pytest.raises(RuntimeError, match="abort them before"):
        rollouter.sleep()


def test_a_vector_of_another_model_is_refused():
    layout = Layout.of(make_model())
    with pytest.raises(ValueError, match=r"weights of shape \(3,\) do not fit a model of"):
        layout.named(np.zeros(3, dtype=np.float32))
    with pytest.raises(ValueError, match="only float32"):
        layout.named(np.zeros(layout.parameters))


def test_a_vector_is_cut_where_the_weights_begin():
    model = make_model("untied, shared keys")
    named = dict(Layout.of(model).named(flatten(model)))
    assert named.keys() == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        assert torch.equal(named[name], parameter)


def _fields(group: Any) -> dict[str, Any]:
    return {name: getattr(group, name) for name in ("group_id", "epoch", "position", "item", "bound")}
