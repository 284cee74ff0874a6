"""One decision in words: what was decided, what was expected of it, and what came of it. Pure.

The policy's own reason is shown beside this, as it gave it; a figure that is not known is left out or a dash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.clock import DASH, PageClock, duration
from app.decision_rows import seconds
from app.lending import DIRECTION_WORDS, delivered, device_list, measured_cost_s
from app.modelled import Pace
from storage.records import DecisionRow, LeaseRow

INPUTS = {
    "version": "version of the weights that the step is trained at",
    "taken": "groups that the step has taken",
    "queued": "of these, groups that wait for a trainer",
    "trained": "of these, groups that are trained",
    "finished": "finished groups that no step has taken",
    "in_flight": "groups being generated",
    "returned": "unfinished groups that came back and wait to be continued",
    "rollouters": "rollout replicas at work, auxiliary ones included",
    "trainers": "trainer replicas at work, auxiliary ones included",
    "started": "groups started over the run, excluded ones not counted",
    "start_cap": "groups that staleness allows to be started by now",
    "group_s": "time for a group on a fully loaded rollout replica",
    "train_s": "time to train one group on one trainer replica",
    "latency_s": "time from a group's first token to its last",
    "optimizer_s": "time of an optimizer step",
    "sync_s": "time until rollouters hold new weights",
}
"""Name of an input -> what it is."""

PHASES = {
    "told": "until the worker was told",
    "waited": "until the worker was told",
    "drain": "finishing what it was at",
    "ship": "shipping what it had",
    "fetch": "fetching weights",
    "load": "loading weights",
    "build": "building the role",
    "restore": "restoring the optimizer's state",
    "chunk": "the chunk under way (not a cost)",
}
"""Name of a phase of a change of role -> what it is."""

WINDOW_S = 10.0
"""Of the timeline around a moment, to either side: the pools' work before and after it."""

EMULATED_WINDOW_S = 100.0
"""The same of emulated devices, modelled: they stand for big ones, whose steps take minutes."""

MARGIN = 0.3
"""Of the timeline around a lease, to either side, in lengths of the lease."""

ENDED = {
    "policy": "The policy ended it",
    "unused": "The policy ended it, since it had found nothing to do",
    "revoked": "It was revoked",
    "died": "Its worker died",
    "run_ended": "The run ended",
}
"""One of `words.LEASE_ENDS` -> the beginning of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One line of predicted against measured."""

    name: str
    """What is compared."""
    predicted: str
    """Seconds, or a dash."""
    measured: str
    """Seconds, or a dash."""
    bad: bool = False
    """Whether it lost time."""


def told(decision: DecisionRow, lease: LeaseRow | None, pace: Pace, clock: PageClock) -> str:
    """A few sentences, plain text. Gains and costs are modelled already."""
    where = _devices(decision, lease)
    at = f"At {clock.time(decision.at)}, while step {decision.step} was being filled,"
    if decision.action == "refuse":
        sentences = [f"{at} lending was refused ({DIRECTION_WORDS[decision.direction]}, {where})."]
        sentences += _expected("It would have won", "and cost", decision, pace)
        return " ".join(sentences)
    number = f"lease {decision.lease}" if decision.lease is not None else "a lease"
    if decision.action == "lend":
        verb = "were" if lease is not None and len(lease.devices) > 1 else "was"
        sentences = [f"{at} {where} {verb} lent as {number}: {DIRECTION_WORDS[decision.direction]}."]
        sentences += _expected("It was expected to win", "and to cost", decision, pace)
    else:
        word = "ended" if decision.action == "end" else "revoked"
        sentences = [f"{at} {number} of {where} was {word} ({DIRECTION_WORDS[decision.direction]})."]
        if lease is not None:
            sentences += _expected("It had been expected to win", "and to cost", lease, pace)
    return " ".join([*sentences, *_outcome(lease, pace)])


def _devices(decision: DecisionRow, lease: LeaseRow | None) -> str:
    devices = lease.devices if lease is not None else []
    if devices:
        return f"device{'s' if len(devices) > 1 else ''} {device_list(devices)}"
    return f"block {decision.block}" if decision.block is not None else "no block in particular"


def _expected(win: str, cost: str, of: DecisionRow | LeaseRow, pace: Pace) -> list[str]:
    if of.gain_s is None and of.cost_s is None:
        return ["Nothing was predicted."]
    return [f"{win} {_s(of.gain_s)} {cost} {_s(of.cost_s)}{pace.unit}."]


def _outcome(lease: LeaseRow | None, pace: Pace) -> list[str]:
    """What came of a lease."""
    if lease is None:
        return []
    if lease.state != "released":
        return [f"The lease is {lease.state} and has delivered {delivered(lease)}."]
    away = duration(pace.seconds(max(0.0, (lease.released_at or lease.granted_at) - lease.granted_at)))
    sentences = [f"The devices were home again after {away}{pace.unit}, and had delivered {delivered(lease)}."]
    cost, gain = measured_cost_s(lease), lease.measured_gain_s
    if cost is not None:
        sentences.append(f"Switching cost {_s(cost)}.")
    if gain is None:
        sentences.append("What it won cannot be told.")
    else:
        verdict = f"won {_s(gain)}" if gain >= 0 else f"lost {_s(-gain)}"
        sentences.append(f"Costs deducted, it {verdict}.")
    return sentences


def _s(value: float | None) -> str:
    return DASH if value is None else f"{seconds(value)} s"


def compared(lease: LeaseRow | None, decision: DecisionRow) -> list[Compared]:
    """Predicted beside measured; of a refusal only what was predicted. Costs and gains are modelled already."""
    of = lease or decision
    net = None if of.gain_s is None or of.cost_s is None else of.gain_s - of.cost_s
    measured, cost = (None, None) if lease is None else (lease.measured_gain_s, measured_cost_s(lease))
    gross = None if measured is None or cost is None else measured + cost
    return [
        Compared(name="gain, costs not deducted", predicted=_s(of.gain_s), measured=_s(gross)),
        Compared(name="cost of switching", predicted=_s(of.cost_s), measured=_s(cost)),
        Compared(
            name="gain, costs deducted",
            predicted=_s(net),
            measured=_s(measured),
            bad=measured is not None and measured < 0,
        ),
        Compared(name="regret", predicted="", measured=_s(None if lease is None else lease.regret_s)),
    ]


def inputs(decision: DecisionRow, pace: Pace) -> list[tuple[str, str, str]]:
    """(name, what it is, value) of every number that the decision was made on, seconds modelled."""
    rows = []
    for name, value in decision.inputs.items():
        what = INPUTS.get(name, name.replace("_", " "))
        if value is None:
            shown = DASH
        elif isinstance(value, bool) or not isinstance(value, int | float):
            shown = str(value)
        elif name.endswith("_s"):
            shown = f"{_exact(pace.seconds(value))} s{pace.unit}"
        else:
            shown = f"{value:,}"
        rows.append((name, what, shown))
    return rows


def _exact(value: float) -> str:
    """Milliseconds matter to a decision that was taken on them."""
    return f"{value:.4g}" if abs(value) < 100 else f"{value:,.1f}"


def life(lease: LeaseRow, clock: PageClock, pace: Pace) -> list[tuple[str, str, str]]:
    """(what, when, after the grant) of each turn of a lease that has come."""
    turns = (
        ("granted", lease.granted_at),
        ("prepared", lease.ready_at),
        ("first useful work", lease.working_at),
        ("decided to end", lease.ended_at),
        ("home role at work again", lease.released_at),
    )
    return [
        (what, clock.time(at), "" if at == lease.granted_at else f"+{_s(pace.seconds(at - lease.granted_at))}")
        for what, at in turns
        if at is not None
    ]


def phases(lease: LeaseRow, pace: Pace) -> list[tuple[str, str, str]]:
    """(way, what it was spent on, seconds) of the changes of role, in their order."""
    ways = {"in": "in", "out": "out"}
    rows = []
    for name, value in lease.phases.items():
        way, _, phase = name.partition("_")
        if way not in ways or not phase:
            way, phase = "", name
        rows.append((way, PHASES.get(phase, phase.replace("_", " ")), f"{_exact(pace.seconds(value))} s"))
    return rows


def ending(lease: LeaseRow) -> str:
    """Who ended it and why, or nothing while it goes on."""
    if lease.ended_by is None:
        return ""
    reason = (lease.end_reason or "").strip()
    return f"{ENDED[lease.ended_by]}{f': {reason}' if reason else ''}"


def around(decision: DecisionRow, lease: LeaseRow | None, pace: Pace) -> tuple[float, float]:
    """Window of the timeline, unix seconds, that shows what the decision was about."""
    half = max(1.0, EMULATED_WINDOW_S * pace.scale) if pace.scale is not None else WINDOW_S
    if lease is None:
        return decision.at - half, decision.at + half
    begin, end = lease.granted_at, max(lease.released_at or decision.at, decision.at)
    room = max(half / 5, MARGIN * (end - begin))
    return begin - room, end + room


def others(decision: DecisionRow, of_lease: Sequence[DecisionRow]) -> list[tuple[int, str]]:
    """(id, label) of the other decisions about the same lease, oldest first."""
    words = {"lend": "its grant", "end": "its end", "revoke": "its revocation", "refuse": "its refusal"}
    return [(row.id, words[row.action]) for row in sorted(of_lease, key=lambda r: r.id) if row.id != decision.id]
