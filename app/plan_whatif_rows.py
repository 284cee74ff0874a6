"""Rows of a replayed run: measured, as it was, and under each alternative; and the sentences that say how far to trust
them. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from app.clock import DASH, count
from app.figures.plan_replays import Replayed
from app.markup import literal
from app.modelled import pace_of
from app.plan_played import Figures
from app.plan_replay import AS_IS, Alternative, Past, error_of, expected
from engine.config import Job, consume_told
from planner.whatif import Band
from storage.records import RunRow

MEASURED_LABEL, AS_IS_LABEL = "measured, as it was", "replayed, as it was"


def partitions_of(run: RunRow, job: Job) -> list[str]:
    """Splits of the run's devices into whole replicas, its own among them; which arms they allow is said per row."""
    devices, rollout, train = job.device_count, job.devices.rollout_replica_size, job.devices.train_replica_size
    found = [f"{r}:{devices - r}" for r in range(rollout, devices, rollout) if (devices - r) % train == 0]
    return found if run.partition is None or run.partition in found else [run.partition, *found]


def staleness_of(typed: Sequence[str], most: float) -> tuple[list[float], str]:
    """The values, and what is wrong with one of them, one sentence."""
    found: list[float] = []
    for text in typed:
        try:
            value = float(text)
        except ValueError:
            return [], f"a staleness is a number from 0 to {most:g}, got {text!r}"
        if not (math.isfinite(value) and 0 <= value <= most):
            return [], f"a staleness is a number from 0 to {most:g}, got {text!r}"
        found.append(value)
    return found, ""


def rows(
    past: Past, others: Sequence[Alternative], known: Mapping[str, Figures], refused: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The measured row, the replay as it was, then every alternative in its order; figures not known are None."""
    as_is = known.get(AS_IS)
    found = [
        _row(MEASURED_LABEL, past.own, past.measured, None, "", ""),
        _row(AS_IS_LABEL, past.own, as_is, as_is, "", refused.get(AS_IS, "")),
    ]
    for other in others:
        band = expected(past, known, other.label)
        told = "" if band is None else f"{count(band.low)} to {count(band.high)}"
        found.append(_row(other.label, other, known.get(other.label), as_is, told, refused.get(other.label, "")))
    return found


def _row(
    name: str, settings: Alternative, found: Figures | None, as_is: Figures | None, band: str, why_not: str
) -> dict[str, Any]:
    figures = found or Figures()
    rate, base = figures.tokens_per_s, as_is.tokens_per_s if as_is is not None else None
    return {
        "settings": name,
        "arm": settings.arm,
        "rollout:train": settings.partition or DASH,
        "staleness": f"{settings.staleness:g}",
        "tokens/s": rate,
        "against as is, %": None if not rate or not base else (rate / base - 1) * 100,
        "expected tokens/s": band or DASH,
        "idle, %": _percent(figures.idle),
        "structural, %": _percent(figures.structural),
        "residual, %": _percent(figures.residual),
        "step, s": figures.step_s,
        "mean lag": figures.lag,
        "why not": why_not or figures.why_not,
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def drawn(past: Past, others: Sequence[Alternative], known: Mapping[str, Figures]) -> list[Replayed]:
    """The rows that have a throughput, for the chart."""
    named: list[tuple[str, Figures, bool, Band | None]] = [(MEASURED_LABEL, past.measured, True, None)]
    for label, key in ((AS_IS_LABEL, AS_IS), *((other.label, other.label) for other in others)):
        if (found := known.get(key)) is not None:
            named.append((label, found, False, None if key == AS_IS else expected(past, known, key)))
    return [
        Replayed(
            name=name,
            tokens_per_s=found.tokens_per_s,
            measured=is_measured,
            band=band,
            structural=found.structural,
            residual=found.idle if found.structural is None else found.residual,
        )
        for name, found, is_measured, band in named
        if found.tokens_per_s is not None
    ]


def twin(table: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The rows as the table beside the chart."""
    columns = [name for name in table[0] if name != "why not"]
    return {"columns": columns, "rows": [[_cell(row[name]) for name in columns] for row in table]}


def _cell(value: Any) -> Any:
    return f"{value:,.4g}" if isinstance(value, float) else value


def notes(past: Past, known: Mapping[str, Figures], others: Sequence[Alternative] = ()) -> list[str]:
    """What a reader must know to believe the rows, markdown."""
    pace = pace_of(past.run)
    told = [f"Run **{literal(past.run.run_id)}**{pace.badge}"]
    error = error_of(past, known)
    if error is not None:
        side = "more" if error > 0 else "less"
        told[0] += (
            f" · the model’s error on this run: replayed as it was it makes **{abs(error):.1%} {side}** tokens/s than "
            "measured; every expected band is as wide."
        )
    elif past.measured.tokens_per_s is None:
        told[0] += " · it has no steady throughput, so the model’s error on it is not known."
    some = "" if past.steps == past.made else f", the first of {past.made}"
    told.append(
        f"{past.steps} steps are compared{some}: the work of its {len(past.recorded.lengths):,} recorded groups."
    )
    if past.run.config_version:
        told.append(
            "Its settings were changed while it ran. The replay has those in force at its end, so that a part of the "
            "model’s error is that change."
        )
    for arm in dict.fromkeys(each.arm for each in others):
        if taken := consume_told(past.job, arm):
            told.append(literal(f"With {arm} {taken}."))
    return told
