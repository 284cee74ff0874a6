"""What `calibrate` prints for people: the measured profile in a few lines, and as YAML to paste into a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from engine import profiles
from engine.cli.show import console
from engine.config.calibrations import Calibration
from engine.config.profile import RolloutProfile, TrainProfile


def calibration(found: Calibration, path: Path) -> None:
    """What was measured, how far to trust it, where it is kept."""
    table = Table(title=f"calibration by run {found.run_id}", show_header=False, title_justify="left")
    for name, value in _lines(found):
        table.add_row(name, value)
    table.add_row("stored in", str(path))
    console().print(table)
    print(f"# measured by run {found.run_id}, {found.at}")
    print(profiles.dump({"profile": profiles.document_of(found.profile)}), end="")


def _lines(found: Calibration) -> list[tuple[str, str]]:
    profile, lengths = found.profile, found.profile.response_tokens
    to_rollout, to_train = profile.switch.rollout_on_train, profile.switch.train_on_rollout
    return [
        ("rollout replica", _rollout(profile.rollout)),
        ("train replica", _train(profile.train)),
        ("optimizer, weight sync", f"{_s(profile.optimizer_s)}, {_s(profile.weight_sync_s)}"),
        ("switch rollout_on_train", f"{_s(to_rollout.in_s)} in, {_s(to_rollout.out_s)} out"),
        (
            "switch train_on_rollout",
            f"{_s(to_train.in_s)} in, {_s(to_train.out_s)} out, {_s(to_train.grad_s)} to merge",
        ),
        ("prompt tokens", f"{profile.prompt_tokens:,.0f}"),
        ("response tokens", f"{lengths.median:,.0f} in the median, {lengths.max:,} at most"),
        *((f"model error, {stage}", _error(error)) for stage, error in found.model_error.items()),
    ]


def _rollout(speed: RolloutProfile) -> str:
    full = speed.slots * speed.tokens_per_s / (speed.slots + speed.half_batch)
    return (
        f"{full:,.0f} tokens/s with all {speed.slots} slots in use, half of {speed.tokens_per_s:,.0f} with "
        f"{speed.half_batch:,.1f}; starting costs {speed.start_tokens:,.1f} tokens, resuming {speed.resume_tokens:,.1f}"
    )


def _train(speed: TrainProfile) -> str:
    return (
        f"{speed.tokens_per_s:,.0f} tokens/s and {_s(speed.chunk_s)} a chunk of up to {speed.max_chunk_groups} groups"
    )


def _s(seconds: float) -> str:
    return f"{seconds:.3g} s"


def _error(error: dict[str, Any] | None) -> str:
    if not error or error.get("median") is None:
        return "-"
    return f"{error['median']:.1%} in the median, {error['p90']:.1%} at the 90th percentile"
