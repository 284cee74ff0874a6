"""The result of a run at any time of its life: what cannot be known yet is None, and what can is exact."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine import results
from engine.cli import show
from storage import words
from storage.reader import TelemetryReader
from storage.records import DeviceRow, EvalRow, Span, StepRow
from storage.writer import TelemetryWriter
from tests.storage.builders import RUN, T0, make_span, make_step

FIELDS = {
    "run_id",
    "name",
    "kind",
    "state",
    "arm",
    "consume",
    "staleness",
    "partition",
    "seed",
    "steps",
    "wall_s",
    "tokens",
    "throughput_tokens_per_s",
    "step_s",
    "reward",
    "eval",
    "lag",
    "excluded",
    "idle",
    "ledger",
    "leases",
    "switch",
    "bound_ratio",
    "utilisation",
    "model_error",
    "params_sha256",
}
"""What people script against, as the contract names it."""

NEVER_NULL = {"run_id", "name", "kind", "state", "arm", "consume", "staleness", "partition", "seed"}
"""Known from the job, for a run with pools."""


class Store:
    """A telemetry database with one run on an engine that beats."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = TelemetryWriter(path, clock=lambda: T0 + 1000)
        self.writer.engine("life-1", started_at=T0 - 100, beat_at=T0 + 1000, state="ready")
        self.run(
            name="demo",
            kind="cpu",
            state="queued",
            arm="no_borrow",
            consume="whole_batch",
            staleness=1.0,
            partition="1:1",
            seed=0,
            job="{}",
            created_at=T0,
            engine_id="life-1",
        )

    def run(self, **columns: Any) -> None:
        self.writer.run(RUN, **columns)

    def build(self, *, now: float = T0 + 1000, **final: Any) -> dict[str, Any]:
        self.writer.flush()
        with TelemetryReader(self.path) as reader:
            run = reader.run(RUN)
            assert run is not None
            return results.build(reader, run, now=now, **final)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "telemetry.db")
    yield made
    made.writer.close()


def train(store: Store, *steps: dict[str, Any]) -> None:
    """The run has trained these steps of 10 s, of 4 groups and 300 tokens each unless told otherwise."""
    store.run(
        state="running", started_at=T0, training_at=T0 + 20, steps=len(steps), measured_until=T0 + 20 + 10 * len(steps)
    )
    for number, overrides in enumerate(steps):
        begin = T0 + 20 + 10 * number
        row: StepRow = make_step(**{"step": number + 1, "t_start": begin, "t_end": begin + 10, **overrides})
        store.writer.step(row)


def leaves(value: Any) -> list[Any]:
    """Everything inside dicts and lists."""
    if isinstance(value, dict | list):
        return [leaf for inner in (value.values() if isinstance(value, dict) else value) for leaf in leaves(inner)]
    return [value]


def test_a_queued_run_has_every_field_and_no_made_up_zero(store: Store) -> None:
    result = store.build()
    assert result.keys() >= FIELDS
    assert (result["state"], result["steps"], result["step_s"], result["eval"]) == ("queued", 0, [], [])
    assert (result["partition"], result["staleness"]) == ({"rollout": 1, "train": 1}, 1.0)
    assert all(result[name] is not None for name in NEVER_NULL)
    # counts of what has happened are zero; figures that cannot be known are not
    unknown = FIELDS - NEVER_NULL - {"steps", "leases", "excluded", "step_s", "eval"}
    assert {name: leaf for name in unknown for leaf in leaves(result[name]) if leaf is not None} == {}


@pytest.mark.parametrize("state", [state for state in words.RUN_STATES if state not in words.TERMINAL])
def test_the_fields_exist_in_every_state_of_a_living_run(state: str, store: Store) -> None:
    store.run(state=state)
    result = store.build()
    assert (result["state"], result.keys() >= FIELDS) == (state, True)


def test_a_run_whose_engine_is_silent_is_interrupted(store: Store) -> None:
    store.run(state="running", started_at=T0)
    assert store.build(now=T0 + 1005)["state"] == "running"
    assert store.build(now=T0 + 1011)["state"] == "interrupted"


def test_a_run_of_another_engine_life_is_interrupted(store: Store) -> None:
    store.run(state="running", started_at=T0)
    store.writer.engine("life-2", started_at=T0 + 900, beat_at=T0 + 1000, state="ready")
    assert store.build()["state"] == "interrupted"


def test_what_the_end_knows_better_wins(store: Store) -> None:
    store.run(state="running", started_at=T0)
    result = store.build(state="failed", error="the worker died", ended_at=T0 + 50, ledger={"ok": False})
    assert (result["state"], result["error"], result["wall_s"]) == ("failed", "the worker died", 50.0)
    assert result["ledger"]["ok"] is False
    assert result["ledger"]["max_gap_fraction"] is None


def test_a_stored_result_is_final(store: Store) -> None:
    store.run(state="finished", result={"run_id": RUN, "steps": 7})
    assert store.build() == {"run_id": RUN, "steps": 7}


def test_steps_give_tokens_time_reward_and_throughput(store: Store) -> None:
    train(store, *({"reward_mean": reward} for reward in (0.25, 0.5, None, 1.0)))
    result = store.build()
    assert (result["steps"], result["step_s"], result["tokens"]) == (4, [10.0] * 4, 4 * 300)
    assert result["reward"] == {"first": 0.25, "last": 1.0, "per_step": [0.25, 0.5, None, 1.0]}
    # s = 1 drops one step at the head and one at the tail: 2 x 300 tokens in 20 s
    assert result["throughput_tokens_per_s"] == pytest.approx(30.0)
    assert (result["warm_up_s"], result["wall_s"]) == (20.0, 1000.0)


def test_a_throughput_of_too_few_steps_is_not_known(store: Store) -> None:
    train(store, {}, {})
    assert store.build()["throughput_tokens_per_s"] is None


def test_a_throughput_that_the_devices_cannot_reach_is_not_known(store: Store) -> None:
    """Steps without signal end at once: their groups were generated while the one before them was trained."""
    store.writer.devices(RUN, [DeviceRow(device=d, node="local", pool=pool) for d, pool in enumerate(words.POOLS)])
    for device, kind in enumerate(("rollout", "train")):
        store.writer.spans(
            [Span(run_id=RUN, device=device, t0=T0 + 20, t1=T0 + 50, kind=kind, role="primary", cpu_s=None)]
        )
    # 60 device-seconds for 1200 tokens: 40 tokens/s at the most
    ends = [T0 + 20, T0 + 30, T0 + 34, T0 + 38, T0 + 60]
    train(store, *({"t_start": begin, "t_end": end} for begin, end in pairwise(ends)))
    assert store.build()["throughput_tokens_per_s"] == pytest.approx(600 / 8), "faster, but not out of all reason"
    ends = [T0 + 20, T0 + 49, T0 + 50, T0 + 50.1, T0 + 60]
    train(store, *({"t_start": begin, "t_end": end} for begin, end in pairwise(ends)))
    result = store.build()
    assert (result["throughput_tokens_per_s"], result["bound_ratio"]) == (None, None)


def test_the_printed_summary_says_why_a_check_failed_and_why_there_is_no_rate(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    train(store, {})
    show.summary(store.build(ledger={"ok": False, "problems": ["device 1: 2% missing"], "max_gap_fraction": 0.02}))
    told = capsys.readouterr().out
    assert "FAILED" in told
    assert "device 1: 2% missing" in told
    assert "- (too few steps for a rate)" in told


def test_lags_are_counted_over_the_run_and_the_last_one_as_a_share_of_its_step(store: Store) -> None:
    train(
        store,
        {"lag": {0: 4}, "lag_max": 0, "staleness": 0.5},
        {"lag": {0: 3, 1: 1}, "lag_max": 1, "staleness": 0.5},
        {"lag": {0: 2, 1: 2}, "lag_max": 1, "staleness": 0.5},
    )
    assert store.build()["lag"] == {"max": 1, "histogram": {"0": 9, "1": 3}, "max_share_last": 0.5}


def test_evaluations_are_listed_by_name_with_their_step(store: Store) -> None:
    for step, name, accuracy in ((0, "held_out", 0.125), (0, "control", 0.5), (20, "held_out", 0.75)):
        store.writer.eval(EvalRow(run_id=RUN, step=step, name=name, accuracy=accuracy, items=8, failed=0, at=T0))
    result = store.build()
    assert result["eval"] == [
        {"step": 0, "accuracy": 0.125, "items": 8, "failed": 0},
        {"step": 20, "accuracy": 0.75, "items": 8, "failed": 0},
    ]
    assert result["eval_control"] == [{"step": 0, "accuracy": 0.5, "items": 8, "failed": 0}]


def test_held_out_items_that_could_not_be_scored_stand_beside_the_share_of_the_others(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    for step, failed in ((0, 4), (20, 0)):
        row = EvalRow(run_id=RUN, step=step, name="held_out", accuracy=1.0, items=8 - failed, failed=failed, at=T0)
        store.writer.eval(row)
    result = store.build()
    assert [(each["items"], each["failed"]) for each in result["eval"]] == [(4, 4), (8, 0)]
    show.summary(result)
    assert "1.000 / 1.000, without 4 of 8 / 0 of 8 items" in capsys.readouterr().out


def test_a_publish_time_is_the_median_of_the_steps_that_have_one(store: Store) -> None:
    train(store, {"metrics": {"publish_s": 0.010}}, {"metrics": {}}, {"metrics": {"publish_s": 0.014}})
    assert store.build()["publish_s"] == pytest.approx(0.012)


def test_idle_time_counts_from_the_first_possible_rollout_to_the_last_step(store: Store) -> None:
    train(store, {}, {})  # from T0 + 20 to T0 + 40
    store.writer.devices(RUN, [DeviceRow(device=d, node="local", pool=pool) for d, pool in enumerate(words.POOLS)])
    common = {"run_id": RUN, "cpu_s": None}
    store.writer.spans(
        [
            Span(**common, device=0, t0=T0, t1=T0 + 20, kind="startup"),
            Span(**common, device=0, t0=T0 + 20, t1=T0 + 35, kind="rollout", role="primary"),
            Span(**common, device=0, t0=T0 + 35, t1=T0 + 40, kind="idle", cause="staleness_cap"),
            Span(**common, device=0, t0=T0 + 40, t1=T0 + 90, kind="idle", cause="no_work"),
            Span(**common, device=1, t0=T0, t1=T0 + 20, kind="idle", cause="weights_pending"),
            Span(**common, device=1, t0=T0 + 20, t1=T0 + 30, kind="idle", cause="waiting_for_groups"),
            Span(**common, device=1, t0=T0 + 30, t1=T0 + 40, kind="train", role="primary"),
            Span(**common, device=1, t0=T0 + 40, t1=T0 + 90, kind="idle", cause="no_work"),
        ]
    )
    result = store.build()
    idle = result["idle"]
    # 5 + 10 of 2 x 20 device-seconds
    assert idle["fraction"] == pytest.approx(15 / 40)
    assert idle["by_cause"] == pytest.approx({"staleness_cap": 5 / 40, "waiting_for_groups": 10 / 40})
    assert result["utilisation"] == pytest.approx(25 / 40)
    # 15 s of rollout and 10 s of training for 2 x 300 tokens
    assert result["work"] == {
        "rollout_s_per_1000_tokens": pytest.approx(25.0),
        "train_s_per_1000_tokens": pytest.approx(10 / 0.6),
        "ratio": pytest.approx(1.5),
        "larger": "rollout",
    }
    # 8 groups: the RollPool would make 8/15 a second, the TrainPool 8/10; it waits 1 - (8/15)/(8/10) = 1/3 of its time
    assert idle["structural_fraction"] == pytest.approx((1 / 3) / 2)
    assert idle["residual_fraction"] == pytest.approx(15 / 40 - 1 / 6)


def test_switch_times_are_medians_and_belong_to_runs_without_pools(store: Store) -> None:
    lengths = {"switch_in": (0.2, 0.4, 0.9), "switch_out": (0.1,)}
    edge = T0
    for kind, seconds in lengths.items():
        for length in seconds:
            store.writer.spans([Span(run_id=RUN, device=0, t0=edge, t1=edge + length, kind=kind)])
            edge += length
    store.run(state="running", started_at=T0)
    assert set(store.build()["switch"].values()) == {None}
    store.run(partition=None, arm="colocated")
    switch = store.build()["switch"]
    assert (switch["in_s"], switch["out_s"]) == (pytest.approx(0.4), pytest.approx(0.1))
    assert switch["grad_s"] is None
    assert store.build()["partition"] is None


def test_a_run_of_a_comparison_says_which_part_of_it_it_is(store: Store) -> None:
    assert store.build()["comparison"] is None
    store.run(comparison="bench-1", comparison_label="no_borrow:stream", comparison_repeat=2)
    assert store.build()["comparison"] == {"id": "bench-1", "label": "no_borrow:stream", "repeat": 2}


def test_a_ratio_to_the_bound_needs_a_bound(store: Store) -> None:
    train(store, *[{}] * 4)
    store.writer.devices(RUN, [DeviceRow(device=d, node="local", pool=pool) for d, pool in enumerate(words.POOLS)])
    assert store.build()["bound_ratio"] is None
    # 30 tokens/s, where two devices at 0.05 device-seconds a token would make 40
    assert store.build(bound_s_per_token=0.05)["bound_ratio"] == pytest.approx(0.75)


def test_the_bound_is_the_least_work_of_any_run_of_the_job_its_own_included(store: Store) -> None:
    train(store, *[{}] * 4)
    store.writer.devices(RUN, [DeviceRow(device=d, node="local", pool=pool) for d, pool in enumerate(words.POOLS)])
    for device, kind in enumerate(("rollout", "train")):
        span = Span(run_id=RUN, device=device, t0=T0 + 20, t1=T0 + 50, kind=kind, role="primary", cpu_s=None)
        store.writer.spans([span])
    # 60 device-seconds for 1200 tokens, where two devices made 30 tokens/s
    own = 60 / 1200
    assert store.build()["bound_ratio"] == pytest.approx(30 * own / 2)
    assert store.build(bound_s_per_token=2 * own)["bound_ratio"] == pytest.approx(30 * own / 2)
    assert store.build(bound_s_per_token=own / 2)["bound_ratio"] == pytest.approx(30 * own / 4)


def test_an_emulated_run_is_told_in_the_seconds_that_its_devices_stand_for(store: Store) -> None:
    train(store, *[{}] * 4)
    store.writer.devices(RUN, [DeviceRow(device=0, node="emulated node 0", pool="rollout")])
    store.writer.spans([make_span(20, 30, kind="rollout", role="primary")])
    here = store.build()
    store.run(kind="emulated", time_scale=0.1)
    there = store.build()
    assert (here["time_scale"], there["time_scale"]) == (None, 0.1)
    for name in ("wall_s", "warm_up_s"):
        assert there[name] == pytest.approx(10 * here[name])
    assert there["step_s"] == pytest.approx([10 * seconds for seconds in here["step_s"]])
    assert there["throughput_tokens_per_s"] == pytest.approx(here["throughput_tokens_per_s"] / 10)
    work, modelled = here["work"], there["work"]
    assert modelled["rollout_s_per_1000_tokens"] == pytest.approx(10 * work["rollout_s_per_1000_tokens"])
    for name in ("utilisation", "bound_ratio", "tokens", "lag"):
        assert there[name] == here[name]
    assert there["idle"] == here["idle"] | {"device_s": pytest.approx(300.0)}  # shares of 30 device-seconds here
