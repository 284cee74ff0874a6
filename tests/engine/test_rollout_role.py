"""How a device's rollouter cuts its generation into stretches that are timed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.config import Job
from engine.worker import messages as msg
from engine.worker import rollout_role
from engine.worker.rollout_role import RolloutRole


class Rollouter:
    """Makes one token for each of four sequences at a step, and never ends."""

    version, active_groups, active_sequences = 0, 1, 4

    def __init__(self, clock: list[float], token_s: float) -> None:
        self._clock, self._token_s = clock, token_s

    def step(self) -> list[Any]:
        self._clock[0] += self._token_s
        return []


def units(token_s: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> list[msg.DecodeUnit]:
    clock, seen = [0.0], []
    monkeypatch.setattr(rollout_role.time, "perf_counter", lambda: clock[0])
    worker = SimpleNamespace(
        spec=SimpleNamespace(job=Job()),
        ledger=SimpleNamespace(enter=lambda *args, **kwargs: None),
        timed=seen.append,
        room=lambda **kwargs: None,
        rollout_load=None,
    )
    role = RolloutRole(worker, Rollouter(clock, token_s), task=None, scoring=None)
    for _ in range(steps):
        role.step()
    return seen


@pytest.mark.parametrize(
    ("token_s", "steps_of_each"),
    # a quarter of a second, but never fewer token steps than tell anything: a large model takes a second for each
    [(0.01, 25), (0.03, 9), (1.0, 8)],
    ids=["a tiny model", "a small one", "a large one"],
)
def test_a_stretch_lasts_long_enough_to_be_measured_and_has_steps_enough_to_count(
    token_s: float, steps_of_each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = units(token_s, 60, monkeypatch)
    assert found
    assert {unit.steps for unit in found} <= {steps_of_each, steps_of_each + 1}  # sums of floats may fall just short
    assert all(unit.steps >= msg.UNIT_STEPS for unit in found)
    assert all(unit.seconds == pytest.approx(unit.steps * token_s) for unit in found)
