"""Stands for the recorder of a run: keeps what it is told, writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.worker import messages as msg
from storage.records import DecisionRow, LeaseRow, StateRow


@dataclass
class RecordingRecorder:
    """Stands for `Recorder`: keeps what a run reports instead of writing rows."""

    run_id: str = "run"
    columns: dict[str, Any] = field(default_factory=dict)
    run_states: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    causes: dict[int, str | None] = field(default_factory=dict)
    steps: list[tuple[Any, Any]] = field(default_factory=list)
    excluded_groups: list[Any] = field(default_factory=list)
    evals: list[tuple[int, str]] = field(default_factory=list)
    leases: list[LeaseRow] = field(default_factory=list)
    """Rows of leases as they were written, one for each change."""
    decided: list[DecisionRow] = field(default_factory=list)
    kept: list[StateRow] = field(default_factory=list)
    """States that were kept with what was decided."""
    gaps: list[tuple[int, float]] = field(default_factory=list)

    behind: int = 0
    """How often `stored` is asked in vain after each receipt, as when the writer is slower than the run."""

    _asked: list[int] = field(default_factory=list)

    def receipt(self) -> int:
        self._asked.append(0)
        return len(self._asked) - 1

    def stored(self, receipt: int) -> bool:
        self._asked[receipt] += 1
        return self._asked[receipt] > self.behind

    def run(self, **columns: Any) -> None:
        self.columns |= columns
        if "state" in columns:
            self.run_states.append(columns["state"])

    def devices(self, rows: Sequence[Any]) -> None:
        pass

    def log(self, at: float, text: str, *, level: str = "info", device: int | None = None) -> None:
        self.logs.append(text)

    def idle_cause(self, device: int, now: float, cause: str | None) -> None:
        self.causes[device] = cause

    def delivery(self, device: int, delivery: msg.Delivery) -> None:
        pass

    def gap(self, device: int, until: float) -> None:
        self.gaps.append((device, until))

    def lease(self, row: LeaseRow) -> None:
        self.leases.append(row)

    def decisions(self, rows: Sequence[DecisionRow]) -> None:
        self.decided += rows

    def states(self, rows: Sequence[StateRow]) -> None:
        self.kept += rows

    def step(self, step: Any, row: Any) -> None:
        self.steps.append((step, row))

    def step_again(self, row: Any) -> None:
        pass

    def excluded(self, group: Any, reason: str) -> None:
        self.excluded_groups.append(group)

    def eval(self, *, step: int, name: str, accuracy: float, items: int, failed: int, at: float) -> None:
        self.evals.append((step, name))
