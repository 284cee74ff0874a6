"""A slice of the random simulated runs in every test run, and the proof that they notice when a rule is broken.

The full count is `python -m tests.simulator.random_schedules --schedules 5000`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planner.policy import pulls
from planner.simulator.account import Account
from planner.simulator.lending import Lending
from planner.simulator.replicas import Rollouter, Trainer
from planner.simulator.simulator import Simulator
from planner.simulator.world import World
from tests.simulator import random_schedules
from tests.simulator.builders import ARMS


def test_random_runs_neither_stop_nor_break_what_holds_for_every_run() -> None:
    result = random_schedules.run(150)
    assert result["findings"] == []
    assert result["schedules"] == 150
    assert all(result[f"schedules_{arm}"] >= 10 for arm in ARMS)
    assert result["schedules_with_failures"] > 40
    assert result["leases"] > 300
    assert min(result[name] for name in ("leases_of_trainers", "leases_taken_back", "groups_excluded")) > 20


def test_a_seed_is_a_run() -> None:
    first, second = random_schedules.run(20), random_schedules.run(20)
    assert first | {"seconds": 0} == second | {"seconds": 0}
    assert random_schedules.random_setup(7) == random_schedules.random_setup(7)
    assert random_schedules.random_setup(7) != random_schedules.random_setup(8)


def lose_prefixes(self: Rollouter, group_ids: tuple[int, ...], *, lost: bool = False) -> Any:
    return GIVE_BACK(self, group_ids[1:], lost=lost)


def keep_reading(self: Trainer) -> Any:
    self.view = None
    self.ready = True
    return PICTURE(self)


GIVE_BACK, PICTURE, START = Rollouter.give_back, Trainer.picture, pulls.may_start

BROKEN: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "a group is lost when a replica leaves": (Rollouter, "give_back", lose_prefixes),
    "the work of a trainer that died is forgotten": (Simulator, "lose_gradient", lambda self, trainer: None),
    "what a stopped chunk leaves is forgotten": (World, "requeue", lambda self, group_ids: None),
    "a lease that ends hands out new chunks": (Trainer, "picture", keep_reading),
    "switching takes no device time": (Lending, "_count", lambda self, entry: None),
    "nobody is ever idle": (Account, "ends", lambda self, device, now: None),
    "a group is started too many": (
        pulls,
        "may_start",
        lambda **given: START(**given | {"started": given["started"] - 1}),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken = BROKEN[name]
    monkeypatch.setattr(owner, attribute, broken)
    assert random_schedules.run(2000, stop_at=1)["findings"], f"2000 runs did not notice that {name}"
