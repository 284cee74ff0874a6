"""Rewards on real workers with the tiny model: what is excluded, what is given back, and that nobody is held up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.worker import messages as msg
from engine.worker.rollout_role import GIVE_BACK_S
from tests.engine.hot_switch_rig import GROUP_SIZE, PATIENCE_S, Worker, make_job, make_request
from tests.tiny_models import tiny_folder

REWARDS = """
import time
from pathlib import Path

HERE = Path(__file__).parent

def length(*, prompt, response, answer, fields):
    while (HERE / "hold").exists():
        time.sleep(0.01)
    if (HERE / "fail").exists():
        raise KeyError("no such thing")
    return len(response) / 10

def one(*, prompt, response, answer, fields):
    return 1

def big(*, prompt, response, answer, fields):
    return 1e308
"""

DEADLINE_S = 3.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    (tmp_path / "rewards.py").write_text(REWARDS, encoding="utf-8")
    made: list[Worker] = []

    def make(device: int, *, dynamic_sampling: bool = False, **task: Any) -> Worker:
        """Device 0 generates, 1 trains; each has its role alone."""
        algorithm = {"dynamic_sampling": dynamic_sampling}
        task = {"reward": "python:rewards:length", "reward_deadline_s": DEADLINE_S} | task
        made.append(
            Worker(device, tmp_path, make_job(task=task, algorithm=algorithm, devices={"partition": "1:1"}), both=False)
        )
        return made[-1]

    yield make
    (tmp_path / "hold").unlink(missing_ok=True)
    for worker in made:
        worker.close()


Start = Callable[..., Worker]


@pytest.fixture
def vector(start: Start) -> np.ndarray:
    ready = start(1).next(msg.Ready)
    assert ready.handle is not None
    return ready.handle


def ready_with(worker: Worker, vector: np.ndarray) -> Worker:
    worker.next(msg.Ready)
    worker.send(msg.LoadWeights(version=0, handle=vector))
    worker.next(msg.WeightsLoaded)
    return worker


def test_a_groups_responses_have_what_the_function_gives(start: Start, vector: np.ndarray) -> None:
    worker = ready_with(start(0), vector)
    for group in worker.generate(make_request(0), make_request(1)):
        assert [r.reward for r in group.responses] == [len(r.text) / 10 for r in group.responses]
        assert all(r.parts is None for r in group.responses)


def test_several_rewards_are_summed_by_weight_and_told_apart(start: Start, vector: np.ndarray) -> None:
    rewards = [{"name": "python:rewards:length", "weight": 2}, {"name": "python:rewards:one", "weight": -1}]
    worker = ready_with(start(0, rewards=rewards), vector)
    worker.send(msg.Generate(requests=(make_request(0),)))
    sealed = worker.next(msg.GroupScored).group
    for response in sealed.responses:
        parts = {"python:rewards:length": len(response["text"]) / 10, "python:rewards:one": 1.0}
        assert response["parts"] == parts
        assert response["reward"] == 2 * parts["python:rewards:length"] - 1
    assert sealed.open().responses[0].parts == sealed.responses[0]["parts"]


def test_a_group_without_a_reward_is_excluded_with_its_reason_and_never_scored(
    start: Start, vector: np.ndarray, tmp_path: Path
) -> None:
    worker = ready_with(start(0), vector)
    (tmp_path / "fail").touch()
    worker.send(msg.Generate(requests=(make_request(0), make_request(1))))
    excluded = [worker.next(msg.GroupExcluded) for _ in range(2)]
    assert {event.group.group_id for event in excluded} == {0, 1}
    assert {event.reason for event in excluded} == {"reward_failed"}
    assert "python:rewards:length failed on item" in excluded[0].detail
    assert "KeyError: 'no such thing'" in excluded[0].detail
    assert all(r["reward"] is None for event in excluded for r in event.group.responses)
    assert not any(isinstance(event, msg.GroupScored) for event in worker.events)
    (tmp_path / "fail").unlink()
    assert len(worker.generate(make_request(2))) == 1


def test_a_reward_that_hangs_costs_its_group_and_the_wait_for_it_is_idle_time(
    start: Start, vector: np.ndarray, tmp_path: Path
) -> None:
    worker = ready_with(start(0), vector)
    (tmp_path / "hold").touch()
    began = time.monotonic()
    worker.send(msg.Generate(requests=(make_request(0),)))
    excluded = worker.next(msg.GroupExcluded)
    assert (excluded.reason, excluded.group.group_id) == ("reward_timeout", 0)
    assert DEADLINE_S <= time.monotonic() - began < DEADLINE_S + PATIENCE_S / 2
    (tmp_path / "hold").unlink()
    assert len(worker.generate(make_request(1))) == 1
    waits = [span for span in worker.spans if span.ref == msg.REWARDS]
    assert {span.kind for span in waits} == {"idle"}
    assert sum(span.t1 - span.t0 for span in waits) > 0.8 * DEADLINE_S


def test_groups_that_wait_for_rewards_are_given_back_whole_and_scored_elsewhere(
    start: Start, vector: np.ndarray, tmp_path: Path
) -> None:
    worker = ready_with(start(0), vector)
    expected = worker.generate(make_request(0))[0]
    (tmp_path / "hold").touch()
    worker.send(msg.Generate(requests=(make_request(0),)))
    until = time.monotonic() + PATIENCE_S
    while not worker.roles.rollout._unscored:
        assert time.monotonic() < until, "the group did not come to its end"
        time.sleep(0.01)
    began = time.monotonic()
    worker.send(msg.AbortGroups())
    (group,) = worker.next(msg.GroupsAborted).groups
    assert time.monotonic() - began < GIVE_BACK_S + 0.5 * PATIENCE_S
    assert len(group.partial) == GROUP_SIZE
    assert all(partial.finished_by for partial in group.partial)
    (tmp_path / "hold").unlink()
    again = worker.generate(group.request())[0]
    assert [r.tokens.tolist() for r in again.responses] == [r.tokens.tolist() for r in expected.responses]
    assert [r.reward for r in again.responses] == [r.reward for r in expected.responses]


@pytest.mark.parametrize("sampling", [True, False])
def test_a_group_whose_answers_all_earn_the_same_is_replaced_only_where_the_job_asks_for_that(
    sampling: bool, start: Start, vector: np.ndarray
) -> None:
    worker = ready_with(start(0, reward="python:rewards:one", dynamic_sampling=sampling), vector)
    worker.send(msg.Generate(requests=(make_request(0),)))
    if not sampling:
        assert worker.next(msg.GroupScored).group.reward_mean == 1.0
        return
    excluded = worker.next(msg.GroupExcluded)
    assert (excluded.reason, excluded.detail) == ("no_signal", "all of its answers earn 1")
    assert (excluded.group.reward_mean, excluded.group.data) == (1.0, b"")


def test_an_evaluation_leaves_out_what_could_not_be_scored_and_counts_it(start: Start, tmp_path: Path) -> None:
    worker = start(1, reward="python:rewards:one")
    worker.next(msg.Ready)
    worker.send(msg.Evaluate(step=0, name="held_out", prefix="", part=0, parts=1))
    done = worker.next(msg.EvalDone)
    assert (done.correct, done.items, done.failed) == (2.0, 2, 0)
    failing = start(1)
    failing.next(msg.Ready)
    (tmp_path / "fail").touch()
    failing.send(msg.Evaluate(step=0, name="held_out", prefix="", part=0, parts=1))
    done = failing.next(msg.EvalDone)
    assert (done.correct, done.items, done.failed) == (0.0, 0, 2)


@pytest.fixture
def long_rows(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Sections of a job of byte-wise prompts, two of which do not fit 96 positions: an item's and a held-out one's."""
    tiny_folder(tmp_path / "model", max_position_embeddings=96)
    for name, questions in (("train", ["1+1?", "x" * 200, "2+2?"]), ("test", ["y" * 300, "3+3?"])):
        rows = [{"question": question, "answer": "4"} for question in questions]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return {
        "model": {"source": "model", "prompt_template": "plain"},
        "task": {"source": "jsonl:train.jsonl", "held_out": "jsonl:test.jsonl", "items": 3, "reward": "exact"},
    }


@pytest.mark.parametrize("lent", [False, True], ids=["at home", "under a lease"])
def test_a_group_whose_prompt_is_too_long_is_excluded_by_itself_with_its_row(
    lent: bool, long_rows: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    job = make_job(**long_rows, devices={"partition": "1:1"})
    workers = [Worker(1, tmp_path, job)]
    try:
        handle = workers[0].next(msg.Ready).handle
        if not lent:
            workers.append(Worker(0, tmp_path, job, both=False))
        worker = workers[-1]
        if lent:
            worker.begin_lease(1, msg.Weights(version=0, handle=handle))
        else:
            ready_with(worker, handle)
        requests = tuple(make_request(number, item=number % 3) for number in range(5))
        worker.send(msg.Generate(requests=(*requests[:2], requests[4])))  # the last one is too long, as the second
        excluded = [worker.next(msg.GroupExcluded) for _ in range(2)]
        assert [(event.group.group_id, event.reason) for event in excluded] == [
            (1, "prompt_too_long"),
            (4, "prompt_too_long"),
        ]
        told = "jsonl:train.jsonl, line 2: the prompt has 200 tokens; with responses of up to 24 the model holds"
        assert excluded[0].detail.startswith(told)
        sealed = excluded[0].group
        assert (sealed.prompt, sealed.responses, sealed.reward_mean, sealed.version) == ("x" * 200, (), None, 0)
        assert worker.next(msg.GroupScored).group.group_id == 0
        assert [group.group_id for group in worker.generate(requests[2])] == [2]
        rollouter = worker.roles.rollout._rollouter
        assert (rollouter.active_groups, rollouter.free_slots()) == (0, 4 * GROUP_SIZE)
        assert worker.roles.rollout.load_now() == msg.RolloutLoad(added=4, active=0)
        if lent:
            worker.end_lease(1, 1)
            worker.next(msg.LeaseReleased)
            assert not worker.next(msg.GroupsAborted).groups
    finally:
        for one in workers:
            one.close()


def test_a_held_out_item_that_is_too_long_is_a_failed_one_and_named_once(
    long_rows: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    worker = Worker(1, tmp_path, make_job(**long_rows, devices={"partition": "1:1"}), both=False)
    try:
        worker.next(msg.Ready)
        for step in range(2):
            worker.send(msg.Evaluate(step=step, name="held_out", prefix="", part=0, parts=1))
            done = worker.next(msg.EvalDone)
            assert (done.correct, done.items, done.failed) == (0.0, 1, 1)
        logs = [event.text for event in worker.events if isinstance(event, msg.Log) and "held-out" in event.text]
        assert len(logs) == 1
        assert logs[0].startswith("A held-out item cannot be asked: jsonl:test.jsonl, line 1: the prompt has 300 to")
    finally:
        worker.close()


def test_a_reward_that_is_too_large_costs_its_group_and_no_step(
    start: Start, vector: np.ndarray, tmp_path: Path
) -> None:
    worker = ready_with(start(0, reward="python:rewards:big"), vector)
    worker.send(msg.Generate(requests=(make_request(0),)))
    excluded = worker.next(msg.GroupExcluded)
    assert excluded.reason == "reward_too_large"
    assert "it gave 1e+308; allowed: from -1,000,000,000 to 1,000,000,000" in excluded.detail


def test_rewards_that_do_not_load_fail_the_worker_before_it_is_ready(start: Start, tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text("import not_there\ndef length(**fields): return 1", encoding="utf-8")
    worker = start(0)
    while not any(isinstance(event, msg.Failed) for event in worker.events):
        worker._poll()
    failed = next(event for event in worker.events if isinstance(event, msg.Failed))
    assert "python:rewards:length) do not load: ModuleNotFoundError: No module named 'not_there'" in failed.error
    assert not any(isinstance(event, msg.Ready) for event in worker.events)
