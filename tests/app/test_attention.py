"""Which findings become cards: a table of situations."""

from __future__ import annotations

from typing import Any

import pytest

from app.attention import attention
from app.clock import PageClock
from storage.records import DeviceRow, EngineRow, LeaseOutcome, RunRow, StepRow

DEVICES = [DeviceRow(device=0, node="n", pool="rollout"), DeviceRow(device=1, node="n", pool="train")]


OFF = "Off for 20 windows: the last 9 leases lost 0.31 s on average"


def lost(judged: int, lost: int, direction: str = "rollout_on_train") -> dict[str, LeaseOutcome]:
    return {direction: LeaseOutcome(in_out_median_s=0.5, judged=judged, paid_off=judged - lost, lost=lost)}


def make_step(**fields: Any) -> StepRow:
    values: dict[str, Any] = {
        "run_id": "r",
        "step": 7,
        "t_start": 0.0,
        "t_end": 60.0,
        "groups": 8,
        "prompt_tokens": 1,
        "response_tokens": 1,
    }
    return StepRow(**{**values, **fields})


def cards(
    *,
    run: dict[str, Any] | None = None,
    rollout: dict[str, float] | None = None,
    train: dict[str, float] | None = None,
    steps: list[StepRow] | None = None,
    engine: EngineRow | None = None,
    outcomes: dict[str, LeaseOutcome] | None = None,
) -> dict[str, str]:
    values: dict[str, Any] = {"run_id": "r", "state": "running", "kind": "cpu", "staleness": 1.0, "engine_id": "e"}
    row = RunRow(**{**values, **(run or {})})
    found = attention(
        row,
        state=row.state,
        engine=engine,
        devices=DEVICES,
        recent={0: rollout or {}, 1: train or {}},
        steps=steps or [],
        outcomes=outcomes or {},
        clock=PageClock(),
    )
    return {card.key: f"{card.title} | {card.text}" for card in found}


@pytest.mark.parametrize(
    ("given", "key", "says"),
    [
        ({"rollout": {"rollout": 90.0, "idle_staleness_cap": 10.0}}, "staleness_cap", "10% of the last 5 min"),
        ({"rollout": {"rollout": 90.0, "idle_staleness_cap": 10.0}}, "staleness_cap", "from 1 to 2"),
        ({"train": {"train": 80.0, "idle_waiting_for_groups": 20.0}}, "waiting_for_groups", "20%"),
        (
            {"train": {"train": 80.0, "idle_waiting_for_groups": 20.0}, "run": {"partition": "2:2"}},
            "waiting_for_groups",
            "move a device to the RollPool in Control",
        ),
        (
            {"train": {"train": 80.0, "idle_waiting_for_groups": 20.0}, "run": {"partition": "3:1"}},
            "waiting_for_groups",
            "launch with a device more in the RollPool",
        ),
        (
            {"rollout": {"rollout": 90.0, "idle_staleness_cap": 10.0}, "run": {"partition": "3:1"}},
            "staleness_cap",
            "move a device to the TrainPool in Control",
        ),
        (
            {
                "rollout": {"rollout": 90.0, "idle_staleness_cap": 10.0},
                "train": {"train": 85.0, "idle_waiting_for_groups": 15.0},
            },
            "pools_take_turns",
            "rollout 10%, training 15%",
        ),
        ({"train": {"train": 90.0, "idle_weights_pending": 10.0}}, "weights_pending", "10%"),
        ({"train": {"train": 90.0, "idle_step_barrier": 10.0}}, "step_barrier", "10%"),
        ({"steps": [make_step(no_signal=5)]}, "no_signal", "5 of 8 groups"),
        ({"steps": [make_step(metrics={"capped_share": 0.08})]}, "capped", "8% of tokens"),
        (
            {"steps": [make_step(step=i, reward_mean=0.4 if i <= 20 else 0.1) for i in range(1, 41)]},
            "reward_fell",
            "from 0.40 to 0.10 since step 20",
        ),
        (
            {"run": {"guards": {"train_on_rollout": OFF}}},
            "guard_train_on_rollout",
            "rollouter's devices train | " + OFF,
        ),
        (
            {"run": {"arm": "bidirectional", "guards": {"train_on_rollout": OFF}}},
            "guard_train_on_rollout",
            "switch train\\_on\\_rollout off in Control",
        ),
        (
            {"outcomes": lost(9, 4)},
            "lost_time_rollout_on_train",
            "4 of 9 measured leases lost time: trainer's devices generate",
        ),
        ({"outcomes": lost(9, 4)}, "lost_time_rollout_on_train", "switch rollout\\_on\\_train off in Control"),
        (
            {"outcomes": lost(9, 4), "run": {"state": "finished", "arm": "bidirectional"}},
            "lost_time_rollout_on_train",
            "launch with arm train_on_rollout, which lends only the other way",
        ),
        (
            {"outcomes": lost(9, 4), "run": {"state": "finished", "arm": "rollout_on_train"}},
            "lost_time_rollout_on_train",
            "launch with arm no_borrow, which lends nothing",
        ),
        ({"run": {"excluded": {"reward_failed": 3}}}, "excluded", "3 groups excluded"),
        ({"engine": EngineRow(engine_id="e", spans_dropped=1234)}, "dropped", "1,234 raw spans"),
        ({"run": {"state": "failed", "error": "device 1 died"}, "steps": [make_step()]}, "failed", "device 1 died"),
        ({"run": {"state": "failed", "error": "x"}, "steps": [make_step()]}, "failed", "Last good step 7 at 00:01:00"),
        ({"run": {"state": "interrupted"}}, "interrupted", "its engine ended"),
        ({"run": {"state": "interrupted"}, "engine": EngineRow(engine_id="e")}, "interrupted", "does not answer"),
        (
            {"run": {"state": "finished", "ledger": {"ok": False, "problems": ["device 1: 2% missing"]}}},
            "ledger",
            "device 1: 2% missing",
        ),
    ],
)
def test_a_finding_is_a_card_with_its_number(given: dict[str, Any], key: str, says: str) -> None:
    found = cards(**given)
    assert list(found) == [key]
    assert says in found[key]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"rollout": {"rollout": 96.0, "idle_staleness_cap": 4.0}},
        {"steps": [make_step(step=i, reward_mean=0.4 if i <= 20 else 0.38) for i in range(1, 41)]},
        {"steps": [make_step(no_signal=3, metrics={"capped_share": 0.01})]},
        {"run": {"state": "finished", "ledger": {"ok": True, "problems": []}}},
        {"run": {"state": "finished"}, "rollout": {"idle_staleness_cap": 10.0}},
        {"run": {"state": "finished"}, "engine": EngineRow(engine_id="e", spans_dropped=9)},
        {"outcomes": lost(9, 3)},
        {"outcomes": lost(3, 3)},
        {"run": {"state": "finished", "guards": {"train_on_rollout": OFF}}},
    ],
    ids=[
        "nothing",
        "below the threshold",
        "steady reward",
        "healthy learning",
        "checked",
        "over",
        "dropped by another run",
        "a third of the leases lost time",
        "too few leases to tell",
        "a guard of a run that is over",
    ],
)
def test_what_is_well_is_silent(given: dict[str, Any]) -> None:
    assert cards(**given) == {}


def test_the_slower_stage_alone_is_named_when_the_waits_differ_much() -> None:
    found = cards(
        rollout={"rollout": 90, "idle_staleness_cap": 10.0}, train={"train": 70, "idle_waiting_for_groups": 30.0}
    )
    assert list(found) == ["waiting_for_groups"]
