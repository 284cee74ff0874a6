"""A stored run as a part of its comparison, for the command line and the page. Pure."""

from __future__ import annotations

from typing import Any

from engine.config.job import Job
from planner.compared import Part, problem_of
from storage.records import RunRow


def part_of(row: RunRow, job: Job, result: dict[str, Any]) -> Part:
    """`job`: as it was launched; `result`: its result fields. The run must be part of a comparison."""
    assert row.comparison_label is not None, f"run {row.run_id} is no part of a comparison"
    assert row.comparison_repeat is not None, f"run {row.run_id} has no repeat"
    return Part(
        label=row.comparison_label,
        repeat=row.comparison_repeat,
        staleness=job.schedule.staleness_resolved,
        devices=job.device_count,
        result=result,
        problem=problem_of(result, changed=bool(row.config_version)),
    )
