"""Rows of the Runs page: what each run is, where it stands, what it lost. Pure.

What a run lost is in its stored result or was summed once (`app/runs_sums.py`); a figure that is not known is a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from app.clock import PageClock
from app.modelled import pace_of
from app.status import RUN_STATUS
from storage.liveness import effective_state, is_silent
from storage.records import EngineRow, RunRow
from storage.words import TERMINAL

SPARK_POINTS = 40
"""Points of the reward line in a cell, which is about as many pixels wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is known of how a run went, in the seconds that its telemetry holds; None where it is not known (yet)."""

    idle: float | None = None
    """Share of device time, 0 to 1."""
    by_cause: Mapping[str, float] = field(default_factory=dict)
    """Cause -> share of device time; they add up to `idle`."""
    device_s: float | None = None
    """Device-seconds that the shares are of: known time from the first possible rollout to the last step."""
    structural: float | None = None
    """Share of device time that a better split would have saved."""
    residual: float | None = None
    """The rest of the idle share."""
    tokens_per_s: float | None = None
    """Steady throughput."""
    rewards: tuple[float, ...] = ()
    """Mean reward of steps, oldest first, thinned to `SPARK_POINTS`."""

    @property
    def lost_s(self) -> float | None:
        """Idle device-seconds."""
        return None if self.idle is None or self.device_s is None else self.idle * self.device_s


NOTHING = Figures()
"""Of a run that has not begun to train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A run as the table shows it."""

    run: RunRow
    """In short: without its job and its result."""
    state: str
    """What its stored state means now."""
    figures: Figures | None
    """None while they wait to be summed."""
    tags: tuple[str, ...] = ()
    """In alphabetical order."""
    note: str = ""
    """What somebody wrote about it."""


def sampled(values: Sequence[float], points: int = SPARK_POINTS) -> tuple[float, ...]:
    """At most `points` values: means of consecutive ones."""
    size = -(-len(values) // points) or 1
    chunks = [values[i : i + size] for i in range(0, len(values), size)]
    return tuple(sum(chunk) / len(chunk) for chunk in chunks)


def row(listed: Listed, clock: PageClock) -> dict[str, Any]:
    """One row of the table; time and speed of emulated devices are modelled."""
    run, figures, pace = listed.run, listed.figures or NOTHING, pace_of(listed.run)
    return {
        "run": run.run_id,
        "name": run.name,
        "state": RUN_STATUS[listed.state].word.split(" ·")[0].lower(),
        "arm": run.arm,
        "staleness": run.staleness,
        "partition": run.partition or "–",
        "kind": run.kind if run.kind in ("cpu", "cuda") else run.kind.upper(),
        "steps": (run.start_step or 0) + (run.steps or 0),
        "of": run.steps_target,
        "idle": None if figures.idle is None else figures.idle * 100,
        "lost device-h": None if figures.lost_s is None else pace.seconds(figures.lost_s) / 3600,
        "tokens/s": None if figures.tokens_per_s is None else pace.rate(figures.tokens_per_s),
        "reward": None if pace.emulated else list(figures.rewards),
        "who": run.who or "",
        "created": clock.moment(run.created_at) if run.created_at is not None else "",
        "tags": list(listed.tags),
        "note": listed.note,
        "comparison": compared(run).removeprefix("comparison "),
    }


_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "name", "state", "arm")),
        ("staleness", pa.float64()),
        ("partition", pa.string()),
        ("kind", pa.string()),
        ("steps", pa.int64()),
        ("of", pa.int64()),
        ("idle", pa.float64()),
        ("lost device-h", pa.float64()),
        ("tokens/s", pa.float64()),
        ("reward", pa.list_(pa.float32())),  # half the bytes, and no eye sees the eighth digit
        ("who", pa.string()),
        ("created", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("note", pa.string()),
        ("comparison", pa.string()),
    ]
)


def table(listed: Iterable[Listed], clock: PageClock) -> pa.Table:
    """All rows, in the form in which they travel to the browser."""
    return pa.Table.from_pylist([row(each, clock) for each in listed], schema=_SCHEMA)


def state_of(run: RunRow, engine: EngineRow | None, now: float) -> str:
    """What a run's stored state means now."""
    beat, life = (engine.beat_at, engine.engine_id) if engine else (None, None)
    return effective_state(run.state, beat, now, run.engine_id, life)


def engine_silent(run: RunRow, engine: EngineRow | None, now: float) -> bool:
    """Whether the engine of a run that goes on should be beating and is not."""
    return run.state not in TERMINAL and is_silent(engine.beat_at if engine else None, now)


def live_first(runs: Sequence[RunRow]) -> list[RunRow]:
    """Runs that go on before those that are over, else in their order."""
    return sorted(runs, key=lambda run: run.state in TERMINAL)


def compared(run: RunRow) -> str:
    """The part that a run has in a comparison: "comparison no_borrow:stream@8:8 #2"; empty for a run of its own."""
    if run.comparison is None:
        return ""
    repeat = "" if run.comparison_repeat is None else f" #{run.comparison_repeat}"
    return f"comparison {run.comparison_label or run.comparison}{repeat}"


def can_resume(state: str) -> bool:
    """Whether a run that is over left something to do."""
    return state in ("interrupted", "failed", "stopped")


def can_delete(state: str) -> bool:
    """Only what is over may be deleted; the engine checks again."""
    return state in TERMINAL
