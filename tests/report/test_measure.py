"""What the report adds to its runs, and that a comparison that fails costs no other one. Nothing is started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from storage.reader import TelemetryReader
from storage.records import RunRow, StepRow
from tests.report import measure
from tests.report.trimming import Document


class FakeReader:
    """Two devices, four steps of 10 s from 100 s on; kind_seconds is a share of the window."""

    def __init__(self, pools: tuple[str | None, str | None] = ("rollout", "train")) -> None:
        self.pools = pools

    def steps(self, run_id: str) -> list[StepRow]:
        return [
            StepRow(
                run_id=run_id,
                step=step,
                t_start=100.0 + 10 * step,
                t_end=110.0 + 10 * step,
                groups=1,
                prompt_tokens=1,
                response_tokens=1,
            )
            for step in range(4)
        ]

    def devices(self, run_id: str) -> list[Any]:
        return [SimpleNamespace(device=device, pool=pool) for device, pool in enumerate(self.pools)]

    def kind_seconds(self, run_id: str, t0: float, t1: float) -> dict[int, dict[str, float]]:
        seconds = t1 - t0
        return {
            0: {"rollout": 0.8 * seconds, "weight_sync": 0.1 * seconds, "idle_staleness_cap": 0.1 * seconds},
            1: {"train": 0.5 * seconds, "idle_waiting_for_groups": 0.5 * seconds},
        }


def busy(reader: FakeReader, **fields: Any) -> Document:
    known: dict[str, Any] = {"run_id": "run", "staleness": 1.0, "training_at": 96.0, "measured_until": 140.0}
    row = RunRow(**(known | fields))
    return measure._busy(cast(TelemetryReader, reader), row)


def test_busy_seconds_of_a_step_are_those_without_idle_of_the_whole_run_and_of_its_steady_part() -> None:
    found = busy(FakeReader())["busy"]
    # 44 s over four steps; at staleness 1 the first and the last one are left out
    assert found["whole_run"] == pytest.approx({"steps": 4, "step_s": 11.0, "rollout_s": 9.9, "train_s": 5.5})
    assert found["steady"] == pytest.approx({"steps": 2, "step_s": 10.0, "rollout_s": 9.0, "train_s": 5.0})


def test_a_run_without_pools_or_without_a_steady_part_has_no_busy_stages() -> None:
    assert busy(FakeReader((None, None))) == {}
    assert busy(FakeReader(), staleness=2.0) == {}


def test_what_ended_is_kept_in_its_order_though_another_one_failed() -> None:
    def fail() -> Document:
        raise RuntimeError("bidirl bench jobs/balanced.yaml ended with code 2")

    kept: list[list[Document]] = []
    with pytest.raises(RuntimeError, match="balanced"):
        measure._all([lambda: {"name": "a"}, fail, lambda: {"name": "c"}], kept.append, at_once=2)
    assert kept[-1] == [{"name": "a"}, {"name": "c"}]


def test_the_planner_is_asked_for_both_arms_that_the_report_plans() -> None:
    assert {measure._planned(arm) for arm in ("no_borrow", "bidirectional")} <= set(measure.SPLITS)
