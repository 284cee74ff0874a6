"""What `plan` and `simulate` print for people: partitions best first, and a simulated run in a few lines."""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.table import Table

from engine.cli.like import Compared
from engine.cli.show import console
from engine.config import Job
from engine.config.planning import Planned
from planner.partitions import Candidate
from planner.stage_model import StageModel

FEASIBLE_ROWS = 12
"""Feasible splits shown: the best ones are what is chosen from."""

INFEASIBLE_ROWS = 6
"""Infeasible splits shown: their reasons repeat."""


def plan(job: Job, planned: Planned) -> None:
    """The splits as a table, best first, the infeasible ones with their reason at the end; rates in groups/s."""
    found, devices = planned.plan, job.devices
    grid = Table("rollout:train", "replicas", "rollout/s", "train/s", "step", "idle", "borrowing", "")
    for column in grid.columns[1:7]:
        column.justify = "right"
    feasible = [each for each in found.candidates if each.feasible]
    infeasible = [each for each in found.candidates if not each.feasible]
    shown = feasible[:FEASIBLE_ROWS]
    if found.best_borrowing is not None and found.best_borrowing not in shown:
        shown = [*shown[:-1], found.best_borrowing]
    for each in shown:
        grid.add_row(*_row(each), _verdict(each, found.best, found.best_borrowing))
    for each in infeasible[:INFEASIBLE_ROWS]:
        grid.add_row(_split(each), *["-"] * 6, f"no: {each.reason}")
    print(
        f"{job.name}: {planned.devices} devices, replicas of {devices.rollout_replica_size} (rollout) and "
        f"{devices.train_replica_size} (train), {job.algorithm.prompts_per_step} groups a step, arm {job.schedule.arm}"
    )
    known = planned.known
    source = "given" if known.profile.models is not None else f"fitted to the {known.source}"
    print(
        f"seconds of Q groups on d replicas, {source}: rollout {_model(planned.models.rollout)}, "
        f"train {_model(planned.models.train)}"
    )
    console().print(grid)
    left = max(0, len(feasible) - FEASIBLE_ROWS), max(0, len(infeasible) - INFEASIBLE_ROWS)
    if any(left):
        print(f"and {left[0]} more feasible and {left[1]} more infeasible splits; --json lists them all")
    for note in planned.notes:
        print(note)
    if found.best is None:
        print("No split of these devices is feasible.")


def _split(each: Candidate) -> str:
    return f"{each.rollout_devices}:{each.train_devices}"


def _row(each: Candidate) -> list[str]:
    return [
        _split(each),
        f"{each.rollout_replicas} + {each.train_replicas}",
        _number(each.rate_rollout, ".3f"),
        _number(each.rate_train, ".3f"),
        _seconds(each.step_s),
        _number(each.idle_fraction, ".0%"),
        _seconds(each.borrowing_step_s),
    ]


def _verdict(each: Candidate, best: Candidate | None, best_borrowing: Candidate | None) -> str:
    names = [name for name, which in (("best", best), ("best with borrowing", best_borrowing)) if each == which]
    return ", ".join(names)


def _model(model: StageModel) -> str:
    return f"{_short(model.a, '.1f')} + {_short(model.b, '.2f')} Q/d"


def _short(value: float, spec: str) -> str:
    """Three digits where a fixed number of decimals would leave nothing: a step on cores takes tenths of a second."""
    return f"{value:.3g}" if value < 1 else f"{value:{spec}}"


def simulation(job: Job, result: dict[str, Any], past: Compared | None = None) -> None:
    """A simulated run's result as a table that says that no device ran; with a past run, beside what that measured."""
    table = Table(
        title=f"{result['name']}: SIMULATED on a virtual clock, no device ran",
        show_header=False,
        title_justify="left",
    )
    for name, value in _lines(job, result):
        table.add_row(name, value)
    console().print(table)
    if past is not None:
        console().print(_beside(past, result))
        for note in past.notes:
            print(f"note: {note}")


def _beside(past: Compared, result: dict[str, Any]) -> Table:
    """The forecast in measured tokens/s, and how far the model is off on this run."""
    table = Table("tokens/s", "", title=f"beside run {past.run_id}, {past.steps} steps", title_justify="left")
    table.add_row("measured, as it was", _number(past.measured_tokens_per_s, ",.0f"))
    error = "" if past.model_error is None else f", {past.model_error:+.1%}: the model's error on this run"
    table.add_row("replayed, as it was, SIMULATED", _number(past.replayed_tokens_per_s, ",.0f") + error)
    table.add_row("replayed, as asked for, SIMULATED", _number(result["throughput_tokens_per_s"], ",.0f"))
    band = past.expected_tokens_per_s
    told = "-" if band is None else f"{band.middle:,.0f}, {band.low:,.0f} to {band.high:,.0f}"
    table.add_row("expected as asked for", told)
    return table


def _lines(job: Job, result: dict[str, Any]) -> list[tuple[str, str]]:
    pools, idle, leases = result["partition"], result["idle"], result["leases"]
    return [
        ("arm", f"{result['arm']}, {result['consume']}, staleness {result['staleness']:g}"),
        ("speeds and costs", result["source"]),
        ("partition, rollout:train", _pools(job, pools)),
        (
            "steps",
            f"{result['steps']} of {job.algorithm.prompts_per_step} groups, {result['wall_s']:,.0f} virtual seconds",
        ),
        ("step, median", f"{_short(median(result['step_s']), '.1f')} s"),
        ("throughput", _number(result["throughput_tokens_per_s"], ",.0f", " tokens/s")),
        ("of the work bound", _number(result["bound_ratio"], ".1%")),
        ("rollout and training, share of device time", _number(result["utilisation"], ".1%")),
        ("idle share of device time", _number(idle["fraction"], ".1%")),
        *((f"  {cause}", _number(share, ".1%")) for cause, share in idle["by_cause"].items()),
        (
            "  structural / residual",
            f"{_number(idle['structural_fraction'], '.1%')} / {_number(idle['residual_fraction'], '.1%')}",
        ),
        *((f"leases {direction}", _leases(counts)) for direction, counts in leases.items()),
        ("lag, largest", _number(result["lag"]["max"], "d")),
    ]


def _pools(job: Job, pools: dict[str, int] | None) -> str:
    if pools is None:
        return f"none: every one of {job.device_count} devices has both roles"
    return f"{pools['rollout']}:{pools['train']} of {pools['rollout'] + pools['train']} devices"


def _leases(counts: dict[str, Any]) -> str:
    refused = "refusals not recorded" if counts["refused"] is None else f"{counts['refused']} refused"
    return f"{counts['admitted']} admitted, {counts['delivered']} delivered {counts['groups']:.0f} groups, {refused}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{_short(value, '.1f')} s"


def _number(value: float | None, spec: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{spec}}{unit}"
