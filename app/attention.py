"""What needs an operator's attention: one card a finding, each with a number and the next step. Pure.

The figures are exact sums of the ledger; a finding below its threshold is silent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from app.attention_learning import no_signal_or_capped, reward_fell
from app.attention_lending import guard_off, leases_lost_time
from app.card import Card
from app.clock import PageClock, duration
from app.key_figures import Sums, total
from app.markup import literal
from app.modelled import is_emulated
from storage.records import DeviceRow, EngineRow, LeaseOutcome, RunRow, StepRow
from storage.words import TERMINAL

SHARE_WORTH_A_CARD = 0.05
"""A twentieth of a pool's time: less than that is within the noise of one step."""

DISTRUST = "Do not trust this run's shares of time before you know why"
"""Behind every failed check of a ledger."""

TURNS_RATIO = 2.0
"""Below this ratio of their waits neither stage is the slower one: the pools wait for each other's bursts."""


def attention(
    run: RunRow,
    *,
    state: str,
    engine: EngineRow | None,
    devices: Sequence[DeviceRow],
    recent: Mapping[int, Sums],
    steps: Sequence[StepRow],
    outcomes: Mapping[str, LeaseOutcome],
    clock: PageClock,
) -> list[Card]:
    """Cards, the most urgent first. recent: per device, sums of the last minutes. state: the effective state. outcomes:
    per direction, what its leases came to."""
    cards = [*_ended(run, state, engine, steps, clock), *_data(run, engine if state not in TERMINAL else None)]
    if state in ("running", "paused", "pausing"):
        cards += _waiting(run, devices, recent)
        cards += guard_off(run)
        cards += [] if is_emulated(run) else no_signal_or_capped(steps)
    return cards + leases_lost_time(run, outcomes) + ([] if is_emulated(run) else reward_fell(steps))


def _ended(run: RunRow, state: str, engine: EngineRow | None, steps: Sequence[StepRow], clock: PageClock) -> list[Card]:
    last = f"Last good step {steps[-1].step} at {clock.time(steps[-1].t_end)}. " if steps else "No step was completed. "
    again = "resume it from its last checkpoint on the Runs page."
    if not steps and run.parent_run_id is None:
        again = "launch it again."
    elif is_emulated(run):
        again = "launch it again: emulated devices keep no checkpoint."
    if state == "failed":
        cause = run.error or "the engine gave no cause"
        return [
            Card(
                key="failed",
                tone="error",
                icon="error",
                title=f"The run failed: {cause}",
                text=f"{last}Mend the cause, then {again}",
            )
        ]
    if state == "interrupted":
        silent = engine is not None and engine.engine_id == run.engine_id
        return [
            Card(
                key="interrupted",
                tone="error",
                icon="link_off",
                title=f"The run was interrupted: its engine {'does not answer' if silent else 'ended'}",
                text=f"{last}{again[0].upper()}{again[1:]}",
            )
        ]
    return []


def _data(run: RunRow, engine: EngineRow | None) -> list[Card]:
    cards = []
    problems = ledger_problems(run.ledger)
    if problems:
        cards.append(
            Card(
                key="ledger",
                tone="error",
                icon="rule",
                title=f"Ledger check failed: {problems[0]}",
                text=f"{DISTRUST}; all of the check is below.",
            )
        )
    if run.excluded:
        groups = sum(run.excluded.values())
        failed = groups - run.excluded.get("no_signal", 0)
        reasons = ", ".join(f"{reason.replace('_', ' ')} {n}" for reason, n in sorted(run.excluded.items()))
        cards.append(
            Card(
                key="excluded",
                tone="warning" if failed else "info",  # those without signal the job asked to have replaced
                icon="filter_alt_off",
                title=f"{groups} groups excluded",
                text=f"{reasons}. They were never trained on"
                + (
                    ". The worker log says more."
                    if is_emulated(run)
                    else "; look at them under Samples, state excluded."
                ),
            )
        )
    if engine is not None and engine.spans_dropped:
        cards.append(
            Card(
                key="dropped",
                tone="warning",
                icon="database_off",
                title=f"{engine.spans_dropped:,} raw spans dropped",
                text="The disk was too slow for a while. Sums and shares stay exact; close-up views lack "
                "these spans. Move the data folder to a faster disk.",
            )
        )
    return cards


def _waiting(run: RunRow, devices: Sequence[DeviceRow], recent: Mapping[int, Sums]) -> list[Card]:
    pools = {pool: total(recent, {d.device for d in devices if d.pool == pool}) for pool in ("rollout", "train")}
    held = _share(pools["rollout"], "idle_staleness_cap")
    starved = _share(pools["train"], "idle_waiting_for_groups")
    cards = _pools(run, held, starved)
    everybody = total(recent)
    pending = _share(everybody, "idle_weights_pending")
    if pending >= SHARE_WORTH_A_CARD:
        cards.append(
            Card(
                key="weights_pending",
                tone="warning",
                icon="sync_problem",
                title=f"Waiting for weights: {pending:.0%} of the last 5 min",
                text="Publishing is slow for this model. In-flight updates or a staleness of 1 hide it.",
            )
        )
    barrier = _share(everybody, "idle_step_barrier")
    if barrier >= SHARE_WORTH_A_CARD:
        cards.append(
            Card(
                key="step_barrier",
                tone="info",
                icon="sync_lock",
                title=f"Waiting at the step barrier: {barrier:.0%} of the last 5 min",
                text="A step ends with its slowest device. Separate pools with staleness above 0 overlap the stages.",
            )
        )
    return cards


def _pools(run: RunRow, held: float, starved: float) -> list[Card]:
    """The pools' waits: held is the share of the RollPool at the staleness cap, starved that of the TrainPool without
    groups. One card, for the larger one or for both."""
    staleness = run.staleness or 0.0
    more = f"Raise staleness from {staleness:g} to {math.floor(staleness) + 1} in Control"
    if min(held, starved) >= SHARE_WORTH_A_CARD and max(held, starved) < TURNS_RATIO * min(held, starved):
        return [
            Card(
                key="pools_take_turns",
                tone="warning",
                icon="swap_vert",
                title=f"The pools wait for each other: rollout {held:.0%}, training {starved:.0%} of the last 5 min",
                text=f"Neither stage is the slower one. {more}, so that bursts overlap.",
            )
        ]
    if held >= max(SHARE_WORTH_A_CARD, starved):
        return [
            Card(
                key="staleness_cap",
                tone="warning",
                icon="hourglass_top",
                title=f"Rollout held by the staleness cap: {held:.0%} of the last 5 min",
                text=f"Training is the slower stage. {more} to ride out bursts; for good, "
                f"{_a_device_more(run, 'train')}.",
            )
        ]
    if starved >= SHARE_WORTH_A_CARD:
        return [
            Card(
                key="waiting_for_groups",
                tone="warning",
                icon="input",
                title=f"Trainers wait for groups: {starved:.0%} of the last 5 min",
                text=f"Rollout is the slower stage: {_a_device_more(run, 'rollout')}. Or launch with shorter "
                "responses, or let the trainer stream (schedule.consume).",
            )
        ]
    return []


def _a_device_more(run: RunRow, pool: str) -> str:
    """How a pool gets another device: from the other pool while that keeps one, else by launching anew."""
    rollout, _, train = (run.partition or "").partition(":")
    name, giving = ("RollPool", train) if pool == "rollout" else ("TrainPool", rollout)
    if giving.isdecimal() and int(giving) > 1:
        return f"move a device to the {name} in Control"
    return f"launch with a device more in the {name}"


def _share(sums: Sums, column: str) -> float:
    known = math.fsum(sums.values())
    return sums.get(column, 0.0) / known if known > 0 else 0.0


def ledger_problems(ledger: Mapping[str, object] | None) -> list[str]:
    """What the check at the end of a run found wrong, in the engine's sentences; nothing for a run without a check."""
    if ledger is None or ledger.get("ok"):
        return []
    found = ledger.get("problems")
    return [str(problem) for problem in found] if isinstance(found, list) and found else ["the engine gave no detail"]


def ledger_told(ledger: Mapping[str, object] | None) -> str:
    """Wherever figures of a run whose check failed are judged; "" for any other run."""
    problems = ledger_problems(ledger)
    if not problems:
        return ""
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"**Ledger check failed** · {literal(problems[0])}{more}. {DISTRUST}; the Live page has all of the check."


def silence(engine: EngineRow | None, now: float) -> str:
    """How long the engine has been silent: "12 s", or "" without an engine."""
    return duration(max(0.0, now - engine.beat_at)) if engine is not None and engine.beat_at is not None else ""
