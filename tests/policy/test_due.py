"""Evaluations and checkpoints of a version."""

from __future__ import annotations

from typing import Any

import pytest

from planner.policy.due import due_work


@pytest.mark.parametrize(
    ("version", "changes", "due"),
    [
        pytest.param(0, {"first": True}, {"held_out", "control"}, id="before the first step: nothing to keep yet"),
        pytest.param(7, {}, set(), id="between"),
        pytest.param(20, {}, {"held_out"}, id="every 20 steps"),
        pytest.param(50, {}, {"checkpoint"}, id="every 50 steps"),
        pytest.param(100, {}, {"held_out", "checkpoint"}, id="both"),
        pytest.param(101, {"last": True}, {"held_out", "control", "checkpoint"}, id="after the last step"),
        pytest.param(50, {"first": True}, {"held_out", "control"}, id="where a resumed run begins its folder exists"),
        pytest.param(100, {"eval_every": 0, "checkpoint_every": 0}, set(), id="only at the ends"),
        pytest.param(101, {"last": True, "eval_every": None}, {"checkpoint"}, id="without evaluation"),
        pytest.param(101, {"last": True, "control": False}, {"held_out", "checkpoint"}, id="without control"),
    ],
)
def test_what_is_due_at_a_version(version: int, changes: dict[str, Any], due: set[str]) -> None:
    usual = {"first": False, "last": False, "eval_every": 20, "control": True, "checkpoint_every": 50}
    assert due_work(version, **(usual | changes)) == due
