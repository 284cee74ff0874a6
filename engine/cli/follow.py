"""Watching a run from a terminal: a progress bar on stderr, fed from telemetry like the page."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from engine.cli import client, show
from planner.throughput import throughput
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import RunRow
from storage.words import IDLE_CAUSES, TERMINAL

REFRESH_S = 0.5
"""How often the bar is drawn; reading costs a few milliseconds."""

RECENT_S = 30.0
"""Window of the idle share in the bar while a run goes on; once it has ended the bar says what the table says."""

RECENT_STEPS = 10
"""Steps that the time left is estimated from."""


def follow(
    data: DataDir, run_id: str, *, quiet: bool, owner: subprocess.Popen[bytes] | None
) -> tuple[dict[str, Any], bool]:
    """Wait for the run's end; returns its result and whether Ctrl-C stopped it. A second Ctrl-C leaves at once.

    `owner`: the engine process when it is ours; its death ends the wait.
    """
    console = Console(stderr=True, quiet=quiet)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[figures]}"),
        console=console,
        transient=False,
    )
    stopping = False
    with bar:
        task = bar.add_task(run_id, total=None, figures="queued")
        while True:
            try:
                with TelemetryReader(data.telemetry_db) as reader:
                    run = reader.run(run_id)
                    assert run is not None, f"run {run_id} is not in {data.telemetry_db}"
                    _draw(bar, task, reader, run)
                if run.state in TERMINAL and run.result is not None:
                    return run.result, stopping
                if run.state in TERMINAL:
                    return client.result(data, run_id), stopping
                if owner is not None and owner.poll() is not None:
                    raise client.EngineFailed(f"the engine ended with code {owner.returncode}; see {data.engine_log}")
                time.sleep(REFRESH_S)
            except KeyboardInterrupt:
                if stopping:
                    raise
                stopping = True
                print("Stopping after the running chunk; Ctrl-C again leaves at once.", file=sys.stderr)
                with Mailbox(data.control_db) as mailbox:
                    mailbox.send("stop", {}, run_id=run_id, who=client.who())


def _draw(bar: Progress, task: TaskID, reader: TelemetryReader, run: RunRow) -> None:
    if run.state in ("queued", "starting", "warming_up"):
        total = 100 if run.progress_fraction is not None else None
        done = round(100 * (run.progress_fraction or 0.0))
        bar.update(task, total=total, completed=done, figures=run.progress or run.state.replace("_", " "))
        return
    target = (run.steps_target or 0) - (run.start_step or 0)
    ended = run.state in TERMINAL and run.result is not None
    figures = _ended(run) if ended else _figures(reader, run, target, time.time())
    bar.update(task, total=target, completed=run.steps or 0, figures="  ".join(figures))


def _where(run: RunRow) -> list[str]:
    """Label, step, and the state where it is not the usual one."""
    label = [] if run.time_scale is None else ["EMULATED"]
    state = "" if run.state == "running" else f" {run.state}"
    return [*label, f"step {(run.start_step or 0) + (run.steps or 0)}/{run.steps_target}{state}"]


def _ended(run: RunRow) -> list[str]:
    """The figures of the whole run, as the table below the bar has them."""
    assert run.result is not None
    return [*_where(run), *show.key_figures(run.result)]


def _figures(reader: TelemetryReader, run: RunRow, target: int, now: float) -> list[str]:
    """The figures of the last steps and seconds."""
    recent = reader.steps(run.run_id, since=max(0, (run.steps or 0) + (run.start_step or 0) - RECENT_STEPS))
    parts = _where(run)
    if recent:
        rewards = [step.reward_mean for step in recent if step.reward_mean is not None]
        if run.time_scale is None:
            parts.append(f"reward {sum(rewards) / len(rewards):.3f}" if rewards else "reward -")
        seconds = [step.t_end - step.t_start for step in recent]
        tokens = [step.prompt_tokens + step.response_tokens for step in recent]
        rate = throughput([(0, 0), *zip(tokens, seconds, strict=True)], 0)
        modelled = rate * (run.time_scale or 1.0) if rate else None
        parts.append(f"{modelled:,.0f} tokens/s" if modelled else "- tokens/s")
        # after the last step nothing is left to do, and that is no idle time of the run
        until = now if (run.steps or 0) < target else run.measured_until or now
        begin = max(run.training_at or until, until - RECENT_S)
        idle = _idle_share(reader, run, begin, until)
        parts.append(f"idle {idle:.0%} (last {until - begin:.0f} s)" if idle is not None else "idle -")
        left = (target - (run.steps or 0)) * sum(seconds) / len(seconds)
        parts.append(f"{int(left // 60)}:{int(left % 60):02d} left")
    return parts


def _idle_share(reader: TelemetryReader, run: RunRow, begin: float, end: float) -> float | None:
    seconds = reader.kind_seconds(run.run_id, begin, end)
    total = sum(sum(columns.values()) for columns in seconds.values())
    idle = sum(columns.get(f"idle_{cause}", 0.0) for columns in seconds.values() for cause in IDLE_CAUSES)
    return idle / total if total else None
