"""Records with everything filled in, so that a test names only what it is about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from storage.records import DecisionRow, GroupRow, LeaseRow, Span, StateRow, StepRow

T0 = 1_700_000_000.0
"""A time like those that are stored; floats are as coarse here as they are in life."""

RUN = "run-1"

WORDS = (
    ("rollout", "primary", None),
    ("train", "auxiliary", None),
    ("optimizer", None, None),
    ("idle", None, "staleness_cap"),
    ("idle", "primary", "no_work"),
)


def make_span(start: float = 0.0, seconds: float = 1.0, **overrides: Any) -> Span:
    """A span that starts `start` seconds after T0."""
    t0 = T0 + start
    fields: dict[str, Any] = {"run_id": RUN, "device": 0, "t0": t0, "t1": t0 + seconds, "kind": "optimizer"}
    return Span(**(fields | overrides))


def make_step(**overrides: Any) -> StepRow:
    fields: dict[str, Any] = {
        "run_id": RUN,
        "step": 1,
        "t_start": T0,
        "t_end": T0 + 2,
        "groups": 4,
        "prompt_tokens": 100,
        "response_tokens": 200,
    }
    return StepRow(**(fields | overrides))


def make_group(**overrides: Any) -> GroupRow:
    fields: dict[str, Any] = {
        "run_id": RUN,
        "group_id": 1,
        "epoch": 0,
        "item": 7,
        "state": "consumed",
        "version": 3,
        "bound": 1.0,
        "started_at": T0,
        "finished_at": T0 + 1,
        "prompt": "2 + 2 =",
    }
    return GroupRow(**(fields | overrides))


def make_decision(**overrides: Any) -> DecisionRow:
    fields: dict[str, Any] = {
        "run_id": RUN,
        "id": 1,
        "at": T0,
        "step": 1,
        "action": "refuse",
        "direction": "rollout_on_train",
        "reason": "It would win 0.4 s and cost 1.1 s.",
    }
    return DecisionRow(**(fields | overrides))


def make_lease(**overrides: Any) -> LeaseRow:
    fields: dict[str, Any] = {
        "run_id": RUN,
        "lease": 1,
        "direction": "rollout_on_train",
        "block": 1,
        "devices": [2, 3],
        "state": "granted",
        "reason": "It wins 2.0 s and costs 1.1 s.",
        "granted_at": T0,
    }
    return LeaseRow(**(fields | overrides))


def make_state(**overrides: Any) -> StateRow:
    fields: dict[str, Any] = {"run_id": RUN, "seq": 0, "at": T0, "data": b"blob"}
    return StateRow(**(fields | overrides))


def chain(lengths: Iterable[float], device: int = 0, start: float = 0.0, run_id: str = RUN) -> list[Span]:
    """A gapless sequence of spans of one device with the words going round."""
    spans, edge = [], T0 + start
    for i, length in enumerate(lengths):
        kind, role, cause = WORDS[i % len(WORDS)]
        spans.append(Span(run_id=run_id, device=device, t0=edge, t1=edge + length, kind=kind, role=role, cause=cause))
        edge = spans[-1].t1
    return spans


def seconds_of(
    spans: Iterable[Span], t0: float = -float("inf"), t1: float = float("inf")
) -> dict[int, dict[str, float]]:
    """Device -> column -> seconds inside [t0, t1), the plain way."""
    out: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for span in spans:
        if (inside := min(span.t1, t1) - max(span.t0, t0)) > 0:
            out[span.device][span.column] += inside
    return {device: dict(columns) for device, columns in out.items()}
