"""The Control page's way to the planner: what a change is expected to do, and what changes did. It draws nothing.

Changes that were sent together are measured together, and a pause between two steps ends what may be compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.apart import APART, Busy, Tell, TooLong
from app.clock import count
from app.modelled import REAL, Pace
from app.palette import CAUSE_LABELS
from engine.config.whatif import INTERRUPTIONS, changes_settings, step_times
from planner.effects import Change, Effect, effect, windows
from planner.whatif import Band, Lately, Prediction, Work, predict
from storage.records import Command, RunRow, StepRow

TOGETHER_S = 2.0
"""Changes of one operator that were sent so close to each other are one change to a run: no step lies between them."""

CAUSES_TOLD, LEAST_MOVED = 2, 0.005
"""Causes of idle time that an effect names: those that moved most, and by half a percentage point."""

LONGEST_S, WAIT_S, LOOK_S = 60.0, 20.0, 0.1
"""Seconds that the simulated runs of a review may take, that another reader's may hold them up before, and between two
looks whether they are over."""

Shares = Mapping[str, float]
"""Cause of idle time -> share of device time."""


def _predict(tell: Tell, work: Work, before: Mapping[str, Any], after: Mapping[str, Any], now: Lately) -> Prediction:
    return predict(work, before, after, now)


def predict_apart(work: Work, before: Mapping[str, Any], after: Mapping[str, Any], now: Lately) -> Prediction:
    """`planner.whatif.predict` in the process for long computations; why there is no prediction where that takes too
    long, or works for another reader."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            return APART.run(_predict, LONGEST_S, lambda _: None, work, before, after, now)
        except Busy as error:
            if time.monotonic() > until:
                return Prediction(why_not=f"{error}, for more than {WAIT_S:g} s: review again", now=now)
            time.sleep(LOOK_S)
        except TooLong as error:
            return Prediction(why_not=f"{error} to play the run with and without the change", now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an applied change did, or why that cannot be said."""

    text: str
    """One sentence."""
    effect: Effect | None = None
    """None where `text` says why not; in the seconds that are stored."""
    with_others: tuple[int, ...] = ()
    """Commands that were sent together with it, so that they share the effect."""


def expected_effect(prediction: Prediction, pace: Pace = REAL) -> str:
    """A prediction in one sentence, as the log keeps it beside what was measured later."""
    now, rate = prediction.now, prediction.tokens_per_s
    if prediction.why_not is not None or now is None or now.tokens_per_s is None or rate is None:
        return f"not predicted: {prediction.why_not or 'nothing is measured yet'}"
    parts = [
        f"tokens/s{pace.unit} {count(now.tokens_per_s)} → {count(rate.middle)} ({band_text(rate)})",
        f"idle {sum(now.idle.values()):.1%} → {sum(prediction.idle.values()):.1%}",
    ]
    if now.lag is not None and prediction.lag is not None:
        parts.append(f"mean lag {now.lag:.2f} → {prediction.lag:.2f}")
    return ", ".join(parts)


def percent(ratio: float) -> str:
    """ "+4.8 %", "−12 %"."""
    change = (ratio - 1) * 100
    digits = 0 if abs(change) >= 10 else 1
    return f"{'−' if round(change, digits) < 0 else '+'}{abs(change):.{digits}f} %"


def model_error(prediction: Prediction) -> str:
    """How far the model is off on this run, in a sentence."""
    if prediction.model_error is None:
        return ""
    off = prediction.model_error
    side = "more" if off > 0 else "less"
    return (
        f"With the settings as they are the model says {abs(off):.1%} {side} than this run reaches; the band is wider "
        "by that."
    )


def fit_errors(run: RunRow) -> str:
    """How far the run's own forecasts of stage times are off; "" before there are any."""
    told = []
    for stage in ("rollout", "train"):
        found = (run.model_error or {}).get(stage)
        if isinstance(found, dict) and isinstance(found.get("median"), int | float):
            told.append(f"{stage} {found['median']:.1%} (90 % of them within {found['p90']:.1%})")
    return f"Its forecasts of stage times are off by a median of {' and '.join(told)}." if told else ""


def causes(prediction: Prediction, shown: int = 6) -> list[tuple[str, float, float]]:
    """(cause, share now, share expected), the largest first. Causes below a tenth of a percent are left out."""
    now: Mapping[str, float] = prediction.now.idle if prediction.now is not None else {}
    found = [(cause, now.get(cause, 0.0), prediction.idle.get(cause, 0.0)) for cause in CAUSE_LABELS]
    kept = [row for row in found if max(row[1:]) >= 0.001]
    return sorted(kept, key=lambda row: -max(row[1:]))[:shown]


def band_text(band: Band) -> str:
    """ "5.1 k to 6.0 k"."""
    return f"{count(band.low)} to {count(band.high)}"


def measured(
    steps: Sequence[StepRow],
    commands: Sequence[Command],
    pace: Pace = REAL,
    *,
    idle: Callable[[float, float], Shares] | None = None,
) -> dict[int, Measured]:
    """Command -> what it did, for every applied change of the settings; `commands` in any order.

    idle: the shares between two moments, unix seconds; None leaves them out.
    """
    batches = _batches([c for c in commands if changes_settings(c) or _interrupts(c)])
    times, changes = step_times(steps), _changes(batches)
    result: dict[int, Measured] = {}
    for place, batch in enumerate(batches):
        if _interrupts(batch[0]):
            continue
        found = windows(times, changes, place)
        one, two = (None, None) if idle is None or found.spans is None else (idle(*span) for span in found.spans)
        did = effect(found, before_idle=one, after_idle=two)
        text = f"not measured: {found.why_not}" if did is None else effect_text(did, pace)
        for command in batch:
            others = tuple(c.id for c in batch if c.id != command.id)
            result[command.id] = Measured(text=text, effect=did, with_others=others)
    return result


def effect_text(did: Effect, pace: Pace = REAL) -> str:
    """What was measured, in a sentence."""
    before, after = pace.rate(did.before_tokens_per_s), pace.rate(did.after_tokens_per_s)
    rates = f"tokens/s{pace.unit} {count(before)} → {count(after)}"
    band = f"{percent(did.ratio)} ({percent(did.low)} to {percent(did.high)})"
    lag = ""
    if did.before_lag is not None and did.after_lag is not None:
        lag = f", mean lag {did.before_lag:.2f} → {did.after_lag:.2f}"
    return f"{rates}, {band}{_idle_text(did)}{lag}, {did.steps} steps on each side"


def _idle_text(did: Effect) -> str:
    """ ", idle 8.7% → 4.1% (staleness cap 4.9% → 0.2%)"; "" where it was not summed."""
    before, after = did.before_idle, did.after_idle
    if not before and not after:
        return ""
    moves = {cause: after.get(cause, 0.0) - before.get(cause, 0.0) for cause in CAUSE_LABELS}
    most = sorted((c for c in moves if abs(moves[c]) >= LEAST_MOVED), key=lambda c: -abs(moves[c]))[:CAUSES_TOLD]
    causes = ", ".join(f"{CAUSE_LABELS[c]} {before.get(c, 0.0):.1%} → {after.get(c, 0.0):.1%}" for c in most)
    total = f", idle {sum(before.values()):.1%} → {sum(after.values()):.1%}"
    return f"{total} ({causes})" if causes else total


def _interrupts(command: Command) -> bool:
    return command.kind in INTERRUPTIONS and command.state == "applied" and command.effective_step is not None


def _batches(commands: Sequence[Command]) -> list[list[Command]]:
    """In the order of sending, those that were sent together in one list."""
    batches: list[list[Command]] = []
    for command in sorted(commands, key=lambda c: c.id):
        last = batches[-1][-1] if batches else None
        if (
            last is not None
            and not _interrupts(command)
            and not _interrupts(last)
            and last.who == command.who
            and command.created_at - last.created_at <= TOGETHER_S
        ):
            batches[-1].append(command)
        else:
            batches.append([command])
    return batches


def _changes(batches: Sequence[Sequence[Command]]) -> list[Change]:
    """One change a batch: sent with its first command, effective with its last. An interruption keeps the staleness."""
    changes: list[Change] = []
    for batch in batches:
        settings: list[Mapping[str, Any]] = [(c.result or {}).get("settings") or {} for c in batch]
        known = [float(s["staleness"]) for s in settings if s.get("staleness") is not None]
        changes.append(
            Change(
                sent_at=batch[0].created_at,
                effective_step=max(c.effective_step or 0 for c in batch),
                staleness=known[-1] if known else changes[-1].staleness if changes else 0.0,
            )
        )
    return changes


def neighbours(found: Measured) -> str:
    """ "with 14 and 15", "" for a change that was sent alone."""
    return f"with {' and '.join(map(str, found.with_others))}" if found.with_others else ""
