"""Rows of the Runs page: what each run is, where it stands, what it lost. Pure but for `figures_of`, which reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.clock import PageClock
from app.key_figures import idle_fraction, idle_seconds, tokens_per_s, total
from app.modelled import pace_of
from app.status import RUN_STATUS
from storage.liveness import effective_state
from storage.reader import TelemetryReader
from storage.records import EngineRow, RunRow
from storage.words import TERMINAL

SPARK_POINTS = 60
"""Points of the reward line in a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a run's telemetry says about it; None where it cannot be known yet."""

    idle: float | None
    """Share of device time, 0 to 1."""
    sums: dict[str, float]
    """Rollup column -> device-seconds since the first possible rollout."""
    lost_s: float | None
    """Idle device-seconds."""
    tokens_per_s: float | None
    """Steady throughput."""
    rewards: tuple[float, ...]
    """Mean reward of steps, oldest first."""


def figures_of(reader: TelemetryReader, run: RunRow, now: float) -> Figures:
    """Read and sum. A run counts from its first possible rollout to its last step, or to now."""
    steps = reader.steps(run.run_id)
    until = (run.measured_until if run.state in TERMINAL else None) or run.ended_at or now
    sums: dict[str, float] = {}
    if run.training_at is not None and until > run.training_at:
        sums = total(reader.kind_seconds(run.run_id, run.training_at, until))
    share = idle_fraction(sums)
    return Figures(
        idle=share,
        sums=sums,
        lost_s=None if share is None else idle_seconds(sums),
        tokens_per_s=tokens_per_s(steps, run.staleness or 0.0),
        rewards=sampled([s.reward_mean for s in steps if s.reward_mean is not None]),
    )


def sampled(values: list[float], points: int = SPARK_POINTS) -> tuple[float, ...]:
    """At most `points` values: means of consecutive ones."""
    size = -(-len(values) // points) or 1
    chunks = [values[i : i + size] for i in range(0, len(values), size)]
    return tuple(sum(chunk) / len(chunk) for chunk in chunks)


def row(run: RunRow, state: str, figures: Figures, clock: PageClock) -> dict[str, Any]:
    """One row of the table; time and speed of emulated devices are modelled."""
    pace = pace_of(run)
    done = (run.start_step or 0) + (run.steps or 0)
    return {
        "run": run.run_id,
        "kind": run.kind if run.kind in ("cpu", "cuda") else run.kind.upper(),
        "name": run.name,
        "state": RUN_STATUS[state].word.split(" ·")[0].lower(),
        "arm": run.arm,
        "staleness": run.staleness,
        "partition": run.partition or "–",
        "steps": f"{done} / {run.steps_target}" if run.steps_target is not None else str(done),
        "idle": None if figures.idle is None else figures.idle * 100,
        "lost device-h": None if figures.lost_s is None else pace.seconds(figures.lost_s) / 3600,
        "tokens/s": None if figures.tokens_per_s is None else pace.rate(figures.tokens_per_s),
        "reward": None if pace.emulated else list(figures.rewards),
        "comparison": compared(run).removeprefix("comparison "),
        "created": clock.moment(run.created_at) if run.created_at is not None else "",
        "who": run.who or "",
    }


def state_of(run: RunRow, engine: EngineRow | None, now: float) -> str:
    """What a run's stored state means now."""
    beat, life = (engine.beat_at, engine.engine_id) if engine else (None, None)
    return effective_state(run.state, beat, now, run.engine_id, life)


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
