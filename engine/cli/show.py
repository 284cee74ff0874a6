"""What the command line prints for people: the dry run, summaries, tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.config import Job, dump_job
from engine.config.model import unreplaced
from planner.policy.bound import Bound

MOST_PROBLEMS = 6
"""Of a ledger check that a table names: a run of many devices may have several of each."""

END_STEPS = 10
"""Steps at either end of a run whose rewards are averaged: one of them alone says little."""


def dry_run(job: Job) -> str:
    """The resolved job and what follows from it, as YAML with comments."""
    schedule, algorithm = job.schedule, job.algorithm
    partition = f"{job.partition} (rollout:train)" if job.partition else "none: every device has both roles"
    updates = "yes" if schedule.in_flight_resolved else "no"
    notes = [
        f"arm {schedule.arm}: {job.device_count} {job.devices.kind} devices, partition {partition}",
        f"staleness {schedule.staleness_resolved:g}, consume {schedule.consume_resolved}, in-flight updates {updates}",
        f"{algorithm.steps} steps of {algorithm.prompts_per_step} groups, {algorithm.group_size} responses each",
    ]
    bound = Bound(staleness=schedule.staleness_resolved, prompts_per_step=algorithm.prompts_per_step)
    if bound.staleness > 0 and bound.start_allowance == 0:
        notes.append(
            f"staleness {bound.staleness:g} allows no group of {algorithm.prompts_per_step} to be late: "
            "it is strictly on-policy"
        )
    if not job.emulated:
        notes += unreplaced(job.model, job.task)
    return dump_job(job) + "\n".join(f"# {note}" for note in notes)


def summary(result: dict[str, Any], *, judge: str | None = None) -> None:
    """The result as a table on stdout. judge: the reward that says which held-out answers are right, where that needs
    saying (`TaskConfig.named_judge`)."""
    title = f"{result['run_id']}: {result['state']}"
    if result.get("time_scale"):
        title += f"\n{emulated(result['time_scale'])}: times and speeds are those of the devices that it stands for"
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")  # a path in an error is wrapped, not cut
    for name, value in _rows(result, judge):
        table.add_row(Text(name), Text(value))
    console().print(table)


def key_figures(result: dict[str, Any]) -> list[str]:
    """Reward, speed and idle share of a whole run, for one line; the same figures as in its table."""
    learnt = [] if result.get("time_scale") else [f"reward {_reward_ends(result)[1][-1]}"]
    rate = result["throughput_tokens_per_s"]
    return [*learnt, f"{_number(rate, ',.0f')} tokens/s", f"idle {_number(result['idle']['fraction'], '.1%')}"]


def emulated(time_scale: float) -> str:
    """The label of whatever is told of emulated devices."""
    pace = 1 / time_scale
    faster = "" if pace == 1 else f", {pace:g} times faster" if pace > 1 else f", {time_scale:g} times slower"
    return f"EMULATED{faster}"


def console() -> Console:
    """As wide as the terminal; wide enough for every column where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def _rows(result: dict[str, Any], judge: str | None) -> list[tuple[str, str]]:
    idle = result["idle"]
    rows = [
        ("arm", f"{result['arm']}, {result['consume']}, staleness {_number(result['staleness'], 'g')}"),
        ("steps", str(result["steps"])),
        ("wall time", _seconds(result["wall_s"])),
        ("of it warm-up", _seconds(result["warm_up_s"])),
        ("throughput", _throughput(result)),
        *_learning(result, judge),
        ("of the work bound", _number(result.get("bound_ratio"), ".1%")),
        ("idle share of device time", _number(idle["fraction"], ".1%")),
        *((f"  {cause}", _number(share, ".1%")) for cause, share in idle["by_cause"].items()),
        ("lag, largest", _number(result["lag"]["max"], "d")),
        ("excluded groups", ", ".join(f"{n} {reason}" for reason, n in result["excluded"].items()) or "none"),
        ("weight publish, median", _milliseconds(result["publish_s"])),
        *_leases(result),
        ("ledger gap / CPU over busy", _ledger(result["ledger"])),
        *_ledger_problems(result["ledger"]),
    ]
    if result.get("deaths"):
        rows.append(("workers that died and were replaced", str(result["deaths"])))
    if result["error"]:
        rows.append(("error", result["error"]))
    return rows


def _learning(result: dict[str, Any], judge: str | None) -> list[tuple[str, str]]:
    """What was learnt; nothing of devices that learn nothing."""
    if result.get("time_scale"):
        return []
    right = f" (share of answers that {judge} gives 1 or more)" if judge else ""
    name, ends = _reward_ends(result)
    return [
        (name, " / ".join(ends)),
        *(
            (f"{name} accuracy, first / last", f"{_first_last(result[key])}{right * bool(result[key])}")
            for name, key in (("held-out", "eval"), ("control", "eval_control"))
        ),
    ]


def _reward_ends(result: dict[str, Any]) -> tuple[str, list[str]]:
    """Mean rewards of as many first as last steps, none of which is both, and what they are called. Only steps that
    have a reward count."""
    rewards = [reward for reward in result["reward"]["per_step"] if reward is not None]
    count = min(END_STEPS, len(rewards) // 2)
    if count == 0:
        return "reward, its one step" if rewards else "reward, first / last step", [_mean(rewards)]
    name = "reward, first / last step" if count == 1 else f"reward, first {count} / last {count} steps"
    return name, [_mean(rewards[:count]), _mean(rewards[-count:])]


def _leases(result: dict[str, Any]) -> list[tuple[str, str]]:
    """What was lent, and what lending went by; nothing for an arm that lends nothing."""
    rows: list[tuple[str, str]] = []
    for direction, counts in result["leases"].items():
        if any(counts.values()):
            told = f"{counts['admitted']} admitted, {counts['delivered']} delivered, {counts['refused']} refused"
            rows.append((f"leases {direction}", told))
    if rows:
        switch = result["switch"]
        costs = ", ".join(f"{name} {_milliseconds(switch[f'{name}_s'])}" for name in ("in", "out", "grad"))
        rows.append(("switch, medians", costs))
    for stage, error in result["model_error"].items():
        if error["median"] is not None:
            rows.append((f"model error {stage}, median / p90", f"{error['median']:.1%} / {error['p90']:.1%}"))
    return rows


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{1000 * value:.1f} ms"


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.3f}" if values else "-"


def _first_last(evals: Sequence[dict[str, Any]]) -> str:
    if not evals:
        return "-"
    ends = [evals[0], evals[-1]]
    told = " / ".join(f"{end['accuracy']:.3f}" for end in ends)
    failed = [end.get("failed") or 0 for end in ends]  # a result that an older version stored lacks it
    if not any(failed):
        return told
    parts = (f"{count} of {end['items'] + count}" for count, end in zip(failed, ends, strict=True))
    return f"{told}, without {' / '.join(parts)} items, which could not be asked or scored"


def _throughput(result: dict[str, Any]) -> str:
    rate = result["throughput_tokens_per_s"]
    return f"{rate:,.0f} tokens/s" if rate is not None else "- (too few steps for a rate)"


def _ledger(ledger: dict[str, Any]) -> str:
    if ledger["max_gap_fraction"] is None:
        return "-"
    verdict = "ok" if ledger["ok"] else "FAILED"
    return f"{ledger['max_gap_fraction']:.3%} / {_number(ledger['cpu_over_busy'], '.2f')} ({verdict})"


def _ledger_problems(ledger: dict[str, Any]) -> list[tuple[str, str]]:
    """The first problems, one a row under one name, and how many more there are."""
    found = ledger.get("problems") or ()  # a result that an older version stored lacks them
    told = list(found[:MOST_PROBLEMS])
    if len(found) > len(told):
        told.append(f"and {len(found) - len(told)} more, all of them in --json")
    return [("" if place else "  ledger", problem) for place, problem in enumerate(told)]


def table(results: Sequence[dict[str, Any]]) -> None:
    """Runs, one a row."""
    if not results:
        print("No runs yet. Start one with: bidirl run jobs/demo.yaml")
        return
    columns = ["state", "arm", "staleness", "partition", "steps", "reward last", "tokens/s", "idle"]
    # a result that an older version stored lacks the field
    parts = [result.get("comparison") for result in results]
    grid = Table()
    # a run's id is copied from here: in a narrow terminal the other columns give way
    grid.add_column("run", no_wrap=True, min_width=max(len(result["run_id"]) for result in results))
    for column in [*columns, *(["comparison"] if any(parts) else [])]:
        grid.add_column(column)
    for result, part in zip(results, parts, strict=True):
        partition = result["partition"]
        grid.add_row(
            result["run_id"],
            result["state"],
            result["arm"],
            _number(result["staleness"], "g"),
            f"{partition['rollout']}:{partition['train']}" if partition else "-",
            f"{result['start_step']} + {result['steps']}" if result["start_step"] else str(result["steps"]),
            _number(result["reward"]["last"], ".3f"),
            _number(result["throughput_tokens_per_s"], ",.0f"),
            _number(result["idle"]["fraction"], ".1%"),
            *([f"{part['id']} #{part['repeat']} {part['label']}" if part else ""] if any(parts) else []),
        )
    console().print(grid)


def doctor(findings: Sequence[dict[str, Any]]) -> None:
    """One line a finding."""
    marks = {"ok": "ok     ", "missing": "missing", "broken": "BROKEN "}
    for item in findings:
        print(f"{marks[item['state']]} {item['what']}: {item['found']}")
        if item["state"] != "ok" and item["get"]:
            print(f"        {item['get']}")
