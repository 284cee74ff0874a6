"""What needs an operator's attention: one card a finding, each with a number and the next step. Pure.

The figures are exact sums of the ledger; a finding below its threshold is silent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.clock import PageClock, duration
from app.numbers import RECENT_STEPS, Sums, total
from storage.records import DeviceRow, EngineRow, RunRow, StepRow

SHARE_WORTH_A_CARD = 0.05
"""A twentieth of a pool's time: less than that is within the noise of one step."""

NO_SIGNAL_SHARE = 0.5
"""When half of the groups teach nothing, half of the rollout work is lost."""

CAPPED_SHARE = 0.05
"""More than a twentieth of the tokens at the cap of the importance weights: the correction no longer corrects."""

LEDGER_GAP = 0.005
"""Spans of a device add up to its wall time within 0.5% (design.md section 8)."""

LEDGER_CPU = (0.85, 1.02)
"""CPU seconds over busy-span seconds of a cpu device (design.md section 8)."""

LEDGER_IDLE_CPU = 0.05
"""CPU seconds over idle-span seconds stay below this on a cpu device (design.md section 8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One finding."""

    key: str
    """Stable name."""
    tone: str
    """error, warning or info."""
    icon: str
    """A Material symbol."""
    title: str
    """What, with its number."""
    text: str
    """Where it comes from and what to do next."""


def attention(
    run: RunRow,
    *,
    state: str,
    engine: EngineRow | None,
    devices: Sequence[DeviceRow],
    recent: Mapping[int, Sums],
    steps: Sequence[StepRow],
    clock: PageClock,
) -> list[Card]:
    """Cards, the most urgent first. recent: per device, sums of the last minutes. state: the effective state."""
    cards = [*_ended(run, state, steps, clock), *_data(run, engine)]
    if state in ("running", "paused", "pausing"):
        cards += _waiting(run, devices, recent)
        cards += _learning(steps)
    return cards


def _ended(run: RunRow, state: str, steps: Sequence[StepRow], clock: PageClock) -> list[Card]:
    last = f"Last good step {steps[-1].step} at {clock.time(steps[-1].t_end)}. " if steps else "No step was completed. "
    if state == "failed":
        cause = run.error or "the engine gave no cause"
        return [
            Card(
                key="failed",
                tone="error",
                icon="error",
                title=f"The run failed: {cause}",
                text=f"{last}Mend the cause, then resume it from its last checkpoint on the Runs page.",
            )
        ]
    if state == "interrupted":
        return [
            Card(
                key="interrupted",
                tone="error",
                icon="link_off",
                title="The run was interrupted: its engine ended",
                text=f"{last}Resume it from its last checkpoint on the Runs page.",
            )
        ]
    return []


def _data(run: RunRow, engine: EngineRow | None) -> list[Card]:
    cards = []
    problems = ledger_problems(run.ledger, cpu_devices=run.kind == "cpu")
    if problems:
        cards.append(
            Card(
                key="ledger",
                tone="error",
                icon="rule",
                title=f"Ledger check failed: {problems[0]}",
                text="Shares of time of this run are wrong by up to that much; see Ledger below.",
            )
        )
    if run.excluded:
        groups = sum(run.excluded.values())
        reasons = ", ".join(f"{reason.replace('_', ' ')} {n}" for reason, n in sorted(run.excluded.items()))
        cards.append(
            Card(
                key="excluded",
                tone="warning",
                icon="filter_alt_off",
                title=f"{groups} groups excluded",
                text=f"{reasons}. They were never trained on; look at them under Samples, state excluded.",
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
    cards = []
    held = _share(pools["rollout"], "idle_staleness_cap")
    if held >= SHARE_WORTH_A_CARD and run.staleness is not None:
        more = math.floor(run.staleness) + 1
        cards.append(
            Card(
                key="staleness_cap",
                tone="warning",
                icon="hourglass_top",
                title=f"The staleness cap holds rollout devices {held:.0%} of the last 5 min",
                text=f"Training is the slower stage. Raise staleness from {run.staleness:g} to {more} in "
                "Control, or give the TrainPool a device more.",
            )
        )
    starved = _share(pools["train"], "idle_waiting_for_groups")
    if starved >= SHARE_WORTH_A_CARD:
        cards.append(
            Card(
                key="waiting_for_groups",
                tone="warning",
                icon="input",
                title=f"Trainers wait for groups {starved:.0%} of the last 5 min",
                text="Rollout is the slower stage. Give the RollPool a device more, shorten the responses, "
                "or let the trainer stream (schedule.consume).",
            )
        )
    pending = _share(total(recent), "idle_weights_pending")
    if pending >= SHARE_WORTH_A_CARD:
        cards.append(
            Card(
                key="weights_pending",
                tone="warning",
                icon="sync_problem",
                title=f"Devices wait for weights {pending:.0%} of the last 5 min",
                text="Publishing is slow for this model. In-flight updates or a staleness of 1 hide it.",
            )
        )
    barrier = _share(total(recent), "idle_step_barrier")
    if barrier >= SHARE_WORTH_A_CARD:
        cards.append(
            Card(
                key="step_barrier",
                tone="info",
                icon="sync_lock",
                title=f"Devices wait for each other {barrier:.0%} of the last 5 min",
                text="A step ends with its slowest device. Separate pools with staleness above 0 overlap the stages.",
            )
        )
    return cards


def _learning(steps: Sequence[StepRow]) -> list[Card]:
    last = steps[-RECENT_STEPS:]
    groups = sum(s.groups for s in last)
    silent = sum(s.no_signal for s in last)
    cards = []
    if groups and silent / groups >= NO_SIGNAL_SHARE:
        cards.append(
            Card(
                key="no_signal",
                tone="warning",
                icon="signal_disconnected",
                title=f"{silent / groups:.0%} of groups carried no signal",
                text=f"All rewards of a group were equal, {silent} of {groups} groups in the last {len(last)} "
                "steps. The task is too easy or too hard by now: change it, or raise the group size.",
            )
        )
    capped = [c for s in last if isinstance(c := s.metrics.get("capped_share"), int | float)]
    if capped and (mean := sum(capped) / len(capped)) >= CAPPED_SHARE:
        cards.append(
            Card(
                key="capped",
                tone="warning",
                icon="vertical_align_top",
                title=f"{mean:.0%} of tokens at the importance cap",
                text="Rollouter and trainer disagree more than the correction can mend. Lower staleness.",
            )
        )
    return cards


def _share(sums: Sums, column: str) -> float:
    known = math.fsum(sums.values())
    return sums.get(column, 0.0) / known if known > 0 else 0.0


def ledger_problems(ledger: Mapping[str, object] | None, *, cpu_devices: bool) -> list[str]:
    """What the check at the end of a run found wrong, in sentences; nothing for a run without a check."""
    if ledger is None:
        return []
    found = []
    gap = ledger.get("max_gap_fraction")
    if isinstance(gap, int | float) and gap > LEDGER_GAP:
        found.append(f"{gap:.2%} of a device's time has no span, allowed {LEDGER_GAP:.1%}")
    cpu = ledger.get("cpu_over_busy")
    low, high = LEDGER_CPU
    if cpu_devices and isinstance(cpu, int | float) and not low <= cpu <= high:
        found.append(f"CPU over busy time is {cpu:.2f}, allowed {low} to {high}")
    idle = ledger.get("cpu_over_idle")
    if cpu_devices and isinstance(idle, int | float) and idle >= LEDGER_IDLE_CPU:
        found.append(f"CPU over idle time is {idle:.1%}, allowed below {LEDGER_IDLE_CPU:.0%}")
    return found


def silence(engine: EngineRow | None, now: float) -> str:
    """How long the engine has been silent: "12 s", or "" without an engine."""
    return duration(max(0.0, now - engine.beat_at)) if engine is not None and engine.beat_at is not None else ""
