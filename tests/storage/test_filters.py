"""Decisions and groups that a page asks for: conditions narrow and add up, pages neither skip nor repeat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.filters import SORTS, DecisionFilter, GroupFilter, joined
from storage.reader import TelemetryReader
from storage.records import LeaseVerdict
from storage.writer import TelemetryWriter
from tests.storage.builders import RUN, T0, make_decision, make_group, make_lease

DECISIONS = [
    make_decision(id=1, at=T0, step=1, block=4),
    make_decision(id=2, at=T0 + 10, step=2, action="lend", lease=1, reason="12 groups are MISSING."),
    make_decision(id=3, at=T0 + 20, step=2, action="end", lease=1, direction="train_on_rollout"),
    make_decision(id=4, at=T0 + 30, step=3, action="lend", lease=2),
    make_decision(id=5, at=T0 + 40, step=5, action="revoke", lease=2, reason="An operator's 50%_ override."),
]

REWARDS = (0.5, 1.0, 0.0, 0.25)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TelemetryReader]:
    writer = TelemetryWriter(tmp_path_factory.mktemp("filters") / "telemetry.db", clock=lambda: T0)
    writer.run(RUN, created_at=T0)
    writer.decisions([*DECISIONS, make_decision(run_id="another", id=1, action="lend", lease=1)])
    writer.leases(
        [
            make_lease(lease=1, devices=[4, 5], granted_at=T0 + 10, gain_s=2.0, cost_s=0.5, measured_gain_s=-0.25),
            make_lease(lease=2, devices=[6], granted_at=T0 + 5, measured_gain_s=1.5, regret_s=0.0),
            make_lease(lease=3, granted_at=T0 + 6),
            make_lease(run_id="another", measured_gain_s=9.0),
        ]
    )
    writer.groups(
        [
            make_group(
                group_id=number,
                step=number,
                lag=number % 2,
                device=number,
                reward_mean=reward,
                responses=[
                    {"text": "a", "reward": reward},
                    {"text": "b", "reward": reward if number < 2 else 1 - reward},
                ],
            )
            for number, reward in enumerate(REWARDS)
        ]
        + [make_group(group_id=9, state="excluded", reason="reward_failed", reward_mean=None, device=1)]
        + [make_group(group_id=8, run_id="another", step=1)]
    )
    writer.close()
    reader = TelemetryReader(writer.path)
    yield reader
    reader.close()


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        pytest.param({}, [5, 4, 3, 2, 1], id="all, newest first"),
        pytest.param({"action": "lend"}, [4, 2], id="action"),
        pytest.param({"direction": "train_on_rollout"}, [3], id="direction"),
        pytest.param({"device": 5}, [3, 2], id="a device that its lease lent"),
        pytest.param({"device": 4}, [3, 2, 1], id="and, without a lease, the block that it is about"),
        pytest.param({"steps": (2, 3)}, [4, 3, 2], id="steps, both ends included"),
        pytest.param({"steps": (3, None)}, [5, 4], id="from a step on"),
        pytest.param({"times": (T0 + 10, T0 + 30)}, [3, 2], id="times, until is not included"),
        pytest.param({"lease": 2}, [5, 4], id="lease"),
        pytest.param({"text": "missing"}, [2], id="text, case ignored"),
        pytest.param({"text": "50%_"}, [5], id="text is not a pattern"),
        pytest.param({"text": "%"}, [5], id="nor is a single sign"),
        pytest.param({"lost_time": True}, [3, 2], id="those that lost time"),
        pytest.param({"action": "lend", "lost_time": True}, [2], id="conditions add up"),
        pytest.param({"action": "lend", "steps": (7, None)}, [], id="none"),
    ],
)
def test_decisions_are_narrowed(reader: TelemetryReader, wanted: dict[str, Any], ids: list[int]) -> None:
    asked = DecisionFilter(**wanted)
    assert [row.id for row in reader.decisions_where(RUN, asked, limit=9)] == ids
    assert reader.count_decisions(RUN, asked) == len(ids)


@given(
    limit=st.integers(1, 6),
    wanted=st.sampled_from([{}, {"action": "lend"}, {"device": 4}, {"lost_time": True}, {"text": "an operator"}]),
)
def test_pages_neither_skip_nor_repeat_a_decision(reader: TelemetryReader, limit: int, wanted: dict[str, Any]) -> None:
    asked = DecisionFilter(**wanted)
    whole = [row.id for row in reader.decisions_where(RUN, asked, limit=9)]
    down: list[int] = []
    while page := reader.decisions_where(RUN, asked, limit=limit, before=down[-1] if down else None):
        down += [row.id for row in page]
    up: list[int] = []
    while page := reader.decisions_where(RUN, asked, limit=limit, after=up[0] if up else 0):
        up = [row.id for row in page] + up
    assert down == up == whole


def test_a_decision_is_found_by_its_number(reader: TelemetryReader) -> None:
    assert reader.decision(RUN, 4) == DECISIONS[3]
    assert reader.decision(RUN, 77) is None


def test_what_a_lease_and_a_moment_led_to_is_found_by_an_index(reader: TelemetryReader) -> None:
    for asked in (DecisionFilter(lease=2), DecisionFilter(times=(T0, T0 + 1))):
        condition, values = joined(asked.conditions(RUN))
        plan = reader._query(
            f"EXPLAIN QUERY PLAN SELECT * FROM decisions WHERE {condition} ORDER BY {asked.order}", *values
        )
        assert "USING" in plan[0][-1]
        assert "INDEX" in plan[0][-1]
        assert "AND" in plan[0][-1], f"narrowed by more than the run: {plan[0][-1]}"


def test_verdicts_are_of_measured_leases_in_the_order_of_grants(reader: TelemetryReader) -> None:
    known = {"direction": "rollout_on_train"}
    won, lost = reader.lease_verdicts(RUN)
    assert won == LeaseVerdict(
        **known, lease=2, granted_at=T0 + 5, gain_s=None, cost_s=None, measured_gain_s=1.5, regret_s=0.0
    )
    # a regret that was not stored is what the lease lost
    assert lost == LeaseVerdict(
        **known, lease=1, granted_at=T0 + 10, gain_s=2.0, cost_s=0.5, measured_gain_s=-0.25, regret_s=0.25
    )
    assert (won.predicted_s, lost.predicted_s) == (None, 1.5)


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        pytest.param({}, [9, 3, 2, 1, 0], id="all, newest first"),
        pytest.param({"rewards": (0.25, 0.5)}, [3, 0], id="rewards, both ends included"),
        pytest.param({"rewards": (None, 0.0)}, [2], id="a failed reward is not a low one"),
        pytest.param({"lag": 1}, [3, 1], id="lag"),
        pytest.param({"devices": frozenset({1, 2})}, [9, 2, 1], id="devices"),
        pytest.param({"devices": frozenset()}, [], id="none of no devices"),
        # 0 and 1 have equal rewards; group 3 has 0.25 and 0.75
        pytest.param({"no_signal": True}, [1, 0], id="without signal"),
        pytest.param({"sort": "highest reward"}, [1, 0, 3, 2, 9], id="best first, unknown last"),
        pytest.param({"sort": "lowest reward"}, [2, 3, 0, 1, 9], id="worst first, unknown last"),
        pytest.param({"state": "consumed", "rewards": (0.5, None), "search": "B"}, [1, 0], id="conditions add up"),
    ],
)
def test_groups_are_narrowed_and_sorted(reader: TelemetryReader, wanted: dict[str, Any], ids: list[int]) -> None:
    assert [row.group_id for row in reader.groups_where(RUN, GroupFilter(**wanted), 9)] == ids
    assert [row.group_id for row in reader.groups_where(RUN, GroupFilter(**wanted), 2, 1)] == ids[1:3]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        pytest.param(lambda: DecisionFilter(action="borrow"), "action of a decision must be one of", id="action"),
        pytest.param(lambda: DecisionFilter(direction="up"), "direction of a decision must be one of", id="direction"),
        pytest.param(
            lambda: DecisionFilter(steps=(3, 2)), "steps of decisions must not run backwards, got 3", id="steps"
        ),
        pytest.param(lambda: GroupFilter(state="lost"), "state of a group must be one of", id="state"),
        pytest.param(
            lambda: GroupFilter(sort="random"), f"order of groups must be one of {next(iter(SORTS))}", id="sort"
        ),
        pytest.param(lambda: GroupFilter(rewards=(1, 0)), "rewards of groups must not run backwards", id="rewards"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(make: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()
