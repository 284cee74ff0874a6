"""The decision ledger: a row with its reason for every decision about a lease, and states that can be asked again."""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from planner.policy import actions as act
from planner.replay import KIND, decode, encode, replay
from storage import words
from tests.engine.random_runs import LENDING
from tests.engine.simulated import Physics
from tests.engine.simulated_run import SimulatedRun, make_job


def lending_run(folder: Path, arm: str, *, staleness: float = 1, record: bool = True, seed: int = 0) -> SimulatedRun:
    """One in which the arm lends: rollouts are slow, or training where that is all that it lends for."""
    slow = {"chunk_s": 0.5, "group_s": 0.2} if arm == "train_on_rollout" else {"chunk_s": 0.05, "group_s": 2.0}
    job = make_job(
        algorithm={"steps": 8, "prompts_per_step": 8},
        schedule={"arm": arm, "staleness": staleness, "record_states": record, "max_chunk_groups": 2},
        devices={"partition": "2:2", "rollout_slots": 4},
        task={"items": 500},
    )
    return SimulatedRun(job, folder, physics=Physics(switch_s=0.02, **slow), seed=seed)


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("arm", LENDING)
def test_the_policy_asked_again_decides_the_same_from_every_state_of_a_run(
    arm: str, staleness: float, tmp_path: Path
) -> None:
    run = lending_run(tmp_path, arm, staleness=staleness)
    run.play()
    count, differences = replay(row.data for row in run.recorder.kept)
    assert differences == []
    assert count == len(run.recorder.kept) > 50
    assert [row.seq for row in run.recorder.kept] == list(range(count))
    assert run.recorder.leases, "no device was lent"


def test_every_state_and_action_of_a_run_comes_back_exactly(tmp_path: Path) -> None:
    kinds: Counter[str] = Counter()
    for arm in LENDING:
        run = lending_run(tmp_path / arm, arm)
        run.play()
        for row in run.recorder.kept:
            state, now, actions = decode(row.data)
            assert now == row.at
            assert encode(state, now, actions) == row.data
            again = decode(encode(state, now, actions))
            assert again[0] == state
            assert repr(again[2]) == repr(actions)
            kinds.update(type(action).__name__ for action in actions)
    assert set(kinds) >= {"Lend", "EndLease", "Refuse", "ResumeGroups", "FinishStep", "TrainChunk", "StartGroups"}


def test_a_decision_that_the_policy_would_not_take_again_is_told(tmp_path: Path) -> None:
    run = lending_run(tmp_path, "bidirectional")
    run.play()
    kept = [row.data for row in run.recorder.kept]
    state, now, actions = decode(kept[3])
    kept[3] = encode(state, now, ())
    count, differences = replay(kept)
    assert count == len(kept)
    assert [(entry.place, entry.now, entry.stored) for entry in differences] == [(3, now, ())]
    assert differences[0].again == actions


def test_there_is_a_row_with_its_numbers_for_every_decision_about_a_lease(tmp_path: Path) -> None:
    run = lending_run(tmp_path, "bidirectional")
    run.play()
    rows = run.recorder.decided
    leases = {row.lease: row for row in run.recorder.leases}
    assert {row.action for row in rows} <= set(words.DECISIONS)
    lends = [row for row in rows if row.action == "lend"]
    assert [row.lease for row in lends] == sorted(leases)
    for row in lends:
        lease = leases[row.lease]
        assert (row.direction, row.block, row.at) == (lease.direction, lease.block, lease.granted_at)
        assert (row.gain_s, row.cost_s, row.reason) == (lease.gain_s, lease.cost_s, lease.reason)
    for row in rows:
        assert row.inputs.keys() >= {"version", "finished", "in_flight", "rollouters", "trainers", "group_s", "train_s"}
        assert row.step == row.inputs["version"] + 1
        if row.action in ("end", "revoke"):
            assert leases[row.lease].end_reason == row.reason
    refused = [row for row in rows if row.action == "refuse"]
    assert all(row.lease is None and row.block is None and row.cost_s is not None for row in refused)
    json.dumps([row.inputs for row in rows], allow_nan=False)


def test_only_states_behind_a_decision_about_a_lease_are_kept_unless_asked_for(tmp_path: Path) -> None:
    every, few = (lending_run(tmp_path / str(record), "bidirectional", record=record) for record in (True, False))
    every.play()
    few.play()
    about = (act.Lend, act.EndLease, act.Refuse)
    moments = [row.at for row in few.recorder.kept]
    assert all(any(isinstance(action, about) for action in decode(row.data)[2]) for row in few.recorder.kept)
    assert sorted({row.at for row in few.recorder.decided}) == sorted(set(moments))
    assert 0 < len(moments) < len(every.recorder.kept) / 2


def test_greedy_borrowing_predicts_nothing_and_says_so(tmp_path: Path) -> None:
    run = lending_run(tmp_path, "opportunistic")
    run.play()
    lends = [row for row in run.recorder.decided if row.action == "lend"]
    assert lends
    assert all(row.gain_s is None and row.cost_s is not None for row in lends)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    run = lending_run(tmp_path_factory.mktemp("run"), "bidirectional")
    run.play(until=lambda: run.book.step.version == 3)
    return run.recorder.kept[-1].data


def altered(data: bytes, change: Any) -> bytes:
    document = json.loads(zlib.decompress(data))
    return zlib.compress(json.dumps(change(document)).encode())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(lambda d: {"state": d["state"], "actions": []}, "no stored decision", id="no time"),
        pytest.param(lambda d: d | {"now": None}, "no stored decision", id="a time that is none"),
        pytest.param(lambda d: {"now": 1.0, "actions": []}, "no stored decision", id="no state"),
        pytest.param(lambda d: [d], "no stored decision", id="a list"),
        pytest.param(lambda d: d | {"actions": 3}, "no stored decision", id="no actions"),
        pytest.param(lambda d: d | {"state": d["actions"]}, "must hold a State, got tuple", id="no State"),
        pytest.param(lambda d: d | {"state": d["state"] | {KIND: "Car"}}, "does not know", id="an unknown kind"),
        pytest.param(lambda d: d | {"state": d["state"] | {"wheels": 4}}, "no stored decision", id="a field too many"),
        pytest.param(lambda d: d | {"state": {KIND: "State"}}, "no stored decision", id="fields missing"),
        pytest.param(lambda d: d | {"state": {"arm": "x"}}, "no stored decision", id="no kind"),
    ],
)
def test_what_is_no_stored_decision_is_refused(change: Any, told: str, stored: bytes) -> None:
    with pytest.raises(ValueError, match=told):
        decode(altered(stored, change))


@pytest.mark.parametrize("data", [b"", b"text", zlib.compress(b"{"), zlib.compress(b"\xff\xfe")], ids=repr)
def test_bytes_that_hold_nothing_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        decode(data)


def test_damaged_bytes_are_refused_or_are_the_same_decision(stored: bytes) -> None:
    rng, whole = random.Random(5), decode(stored)
    for _ in range(300):
        place = rng.randrange(len(stored))
        damaged = stored[:place] + bytes([stored[place] ^ (1 << rng.randrange(8))]) + stored[place + 1 :]
        try:
            found = decode(damaged[: rng.randrange(place, len(damaged) + 1)])
        except ValueError:
            continue
        assert repr(found) == repr(whole)
