"""The result of a run: the fields that people script against (`bidirl run`, `runs show`, `runs list`, `bench`).

Built from telemetry alone, at any time of a run's life; a figure that cannot be known yet is None, never 0.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from planner import work
from planner.bubbles import measured_bubbles
from planner.policy.staleness import Bound
from planner.throughput import throughput
from storage import words
from storage.liveness import effective_state
from storage.reader import TelemetryReader
from storage.records import RunRow, StepRow

Seconds = Mapping[int, Mapping[str, float]]
"""Device -> rollup column -> seconds."""

MOST_OF_OWN_WORK = 2.0
"""A steady rate is at most what all devices make at the run's own cost of a token, but for a first step that is slower
than the others; steps that seem to be this many times faster say nothing of the run."""


def build(
    reader: TelemetryReader,
    run: RunRow,
    *,
    now: float | None = None,
    bound_s_per_token: float | None = None,
    **final: Any,
) -> dict[str, Any]:
    """The result fields of a run; `final` overrides what the database does not say yet (state, ledger, ...).

    `bound_s_per_token`: the least device-seconds per token of other runs of this job; its own may be less. A stored
    result keeps the ratio that it has.
    """
    if run.result is not None:
        # a run that was imported may be called otherwise here
        return {**run.result, "run_id": run.run_id}
    now = time.time() if now is None else now
    engine = reader.engine()
    state = effective_state(
        run.state, engine.beat_at if engine else None, now, run.engine_id, engine.engine_id if engine else None
    )
    steps = reader.steps(run.run_id)
    if state == "interrupted" and run.ended_at is None and engine is not None and engine.beat_at is not None:
        now = min(now, engine.beat_at)  # nothing of it lives on after its engine
    window = _window(run, now, final.get("ended_at"))
    seconds = reader.kind_seconds(run.run_id, *window) if window else {}
    ledger = final.get("ledger") or run.ledger or {}
    pools = {device.device: device.pool for device in reader.devices(run.run_id)}
    tokens = sum(step.prompt_tokens + step.response_tokens for step in steps) if steps else None
    done = work.work_of(seconds, tokens)
    reached = _throughput(run, steps, devices=len(pools), own=work.device_s_per_token(done))
    least = min(filter(None, (work.device_s_per_token(done), bound_s_per_token)), default=None)
    fields: dict[str, Any] = {
        "run_id": run.run_id,
        "name": run.name,
        "kind": run.kind,
        "state": final.get("state", state),
        "error": final.get("error", run.error),
        "arm": run.arm,
        "consume": run.consume,
        "staleness": run.staleness,
        "partition": _partition(run.partition),
        "seed": run.seed,
        "steps": run.steps or 0,
        "start_step": run.start_step or 0,
        "parent_run_id": run.parent_run_id,
        "comparison": _comparison(run),
        "wall_s": _wall(run, now, final.get("ended_at")),
        "warm_up_s": run.training_at - run.started_at if run.training_at and run.started_at else None,
        "tokens": tokens,
        "throughput_tokens_per_s": reached,
        "step_s": [step.t_end - step.t_start for step in steps],
        "reward": _reward(steps),
        "eval": _evals(reader, run, "held_out"),
        "eval_control": _evals(reader, run, "control"),
        "lag": _lag(steps),
        "excluded": run.excluded,
        "idle": _idle(seconds, steps, pools),
        "ledger": {
            "ok": ledger.get("ok"),
            "problems": ledger.get("problems"),
            "max_gap_fraction": ledger.get("max_gap_fraction"),
            "cpu_over_busy": ledger.get("cpu_over_busy"),
            "cpu_over_idle": ledger.get("cpu_over_idle"),
            "other_cpu_over_wall": ledger.get("other_cpu_over_wall"),
        },
        "leases": reader.lease_counts(run.run_id),
        "switch": _switch(reader, run, now),
        "publish_s": _publish(steps),
        "engine": final.get("engine"),
        "work": done,
        "bound_ratio": work.bound_ratio(reached, len(pools), least),
        "utilisation": _utilisation(seconds),
        "model_error": _model_error(final.get("model_error", run.model_error)),
        "deaths": run.deaths or 0,
        "params_sha256": final.get("params_sha256", run.params_sha256),
        "time_scale": run.time_scale,
    }
    return fields if run.time_scale is None else _modelled(fields, run.time_scale)


def _modelled(fields: dict[str, Any], time_scale: float) -> dict[str, Any]:
    """Of an emulated run: all times and speeds in the seconds that its devices stand for, not in those it took here."""

    def seconds(value: float | None) -> float | None:
        return None if value is None else value / time_scale

    rate = fields["throughput_tokens_per_s"]
    return fields | {
        "wall_s": seconds(fields["wall_s"]),
        "warm_up_s": seconds(fields["warm_up_s"]),
        "throughput_tokens_per_s": None if rate is None else rate * time_scale,
        "step_s": [value / time_scale for value in fields["step_s"]],
        "switch": {name: seconds(value) for name, value in fields["switch"].items()},
        "work": work.scaled(fields["work"], 1 / time_scale),
        "idle": {**fields["idle"], "device_s": seconds(fields["idle"]["device_s"])},
        "publish_s": seconds(fields["publish_s"]),
    }


def _window(run: RunRow, now: float, ended_at: float | None) -> tuple[float, float] | None:
    """Idle time counts from the first possible rollout to the last step."""
    if run.training_at is None:
        return None
    until = run.measured_until or ended_at or run.ended_at or now
    return (run.training_at, until) if until > run.training_at else None


def _wall(run: RunRow, now: float, ended_at: float | None) -> float | None:
    if run.started_at is None:
        return None
    return (ended_at or run.ended_at or now) - run.started_at


def _comparison(run: RunRow) -> dict[str, Any] | None:
    if run.comparison is None:
        return None
    return {"id": run.comparison, "label": run.comparison_label, "repeat": run.comparison_repeat}


def _partition(text: str | None) -> dict[str, int] | None:
    if text is None:
        return None
    rollout, train = text.split(":")
    return {"rollout": int(rollout), "train": int(train)}


def _throughput(run: RunRow, steps: Sequence[StepRow], *, devices: int, own: float | None) -> float | None:
    """None where the steps that count are too few to be a rate: `own`, device-seconds per token of the whole run, says
    that its devices cannot do so many, so the steps consumed what was generated, or needed no training, before them."""
    timed = [(step.prompt_tokens + step.response_tokens, step.t_end - step.t_start) for step in steps]
    rate = throughput(timed, run.staleness or 0.0)
    ratio = work.bound_ratio(rate, devices, own)
    return None if ratio is not None and ratio > MOST_OF_OWN_WORK else rate


def _reward(steps: Sequence[StepRow]) -> dict[str, Any]:
    rewards = [step.reward_mean for step in steps]
    return {"first": rewards[0] if rewards else None, "last": rewards[-1] if rewards else None, "per_step": rewards}


def _evals(reader: TelemetryReader, run: RunRow, name: str) -> list[dict[str, Any]]:
    return [
        {"step": row.step, "accuracy": row.accuracy, "items": row.items, "failed": row.failed}
        for row in reader.evals(run.run_id)
        if row.name == name
    ]


def _lag(steps: Sequence[StepRow]) -> dict[str, Any]:
    """`max_share_last`: the largest share of a step's groups that had the last lag its staleness allows (k + 1)."""
    histogram: dict[str, int] = {}
    share: float | None = None
    for step in steps:
        for lag, groups in step.lag.items():
            histogram[str(lag)] = histogram.get(str(lag), 0) + groups
        last = Bound(staleness=step.staleness or 0.0, prompts_per_step=step.groups).k + 1
        share = max(share or 0.0, step.lag.get(last, 0) / step.groups)
    lags = [step.lag_max for step in steps if step.lag_max is not None]
    return {"max": max(lags, default=None), "histogram": dict(sorted(histogram.items())), "max_share_last": share}


def _idle(seconds: Seconds, steps: Sequence[StepRow], pools: Mapping[int, str | None]) -> dict[str, Any]:
    """Shares of the known device time, and `device_s`, that time itself in device-seconds."""
    total = sum(sum(columns.values()) for columns in seconds.values())
    if total <= 0:
        unknown = dict.fromkeys(("fraction", "structural_fraction", "residual_fraction", "device_s"))
        return {**unknown, "by_cause": {}}
    by_cause = {
        cause: sum(columns.get(f"idle_{cause}", 0.0) for columns in seconds.values()) / total
        for cause in words.IDLE_CAUSES
    }
    fraction = min(1.0, sum(by_cause.values()))
    parts = measured_bubbles(seconds, pools, groups=sum(step.groups for step in steps), idle_fraction=fraction)
    return {
        "fraction": fraction,
        "by_cause": {cause: share for cause, share in by_cause.items() if share > 0},
        "structural_fraction": parts.structural if parts else None,
        "residual_fraction": parts.residual if parts else None,
        "device_s": total,
    }


def _switch(reader: TelemetryReader, run: RunRow, now: float) -> dict[str, float | None]:
    """Medians: of the leases' measured costs, or without pools of the spans in which devices changed their role."""
    found: dict[str, list[float]] = {"in_s": [], "out_s": [], "grad_s": []}
    if run.partition is not None:
        for lease in reader.leases(run.run_id):
            for name, values in found.items():
                value = getattr(lease, name)
                if value is not None:
                    values.append(value)
    elif run.started_at is not None:
        kinds = {"switch_in": "in_s", "switch_out": "out_s", "grad_merge": "grad_s"}
        for span in reader.spans(run.run_id, run.started_at, run.ended_at or now):
            if span.kind in kinds:
                found[kinds[span.kind]].append(span.seconds)
    return {name: median(values) if values else None for name, values in found.items()}


def _model_error(stored: Mapping[str, Any] | None) -> dict[str, dict[str, float | None]]:
    """Relative errors of the stage-time models on units that each was predicted before it was entered."""
    return {
        stage: {name: ((stored or {}).get(stage) or {}).get(name) for name in ("median", "p90")}
        for stage in ("rollout", "train")
    }


def _publish(steps: Sequence[StepRow]) -> float | None:
    """Median seconds of copying the weights out and in (without waiting for a token to end)."""
    values = [step.metrics["publish_s"] for step in steps if "publish_s" in step.metrics]
    return median(values) if values else None


def _utilisation(seconds: Seconds) -> float | None:
    total = sum(sum(columns.values()) for columns in seconds.values())
    useful = sum(columns.get(name, 0.0) for columns in seconds.values() for name in words.USEFUL_COLUMNS)
    return useful / total if total > 0 else None
