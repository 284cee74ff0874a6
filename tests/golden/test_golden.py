"""Every golden case whose function exists here, through the adapter; which functions those are is asserted too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.adapter import FUNCTIONS, evaluate

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("scheduler.json").read_text())["cases"]
OURS = [case for case in CASES if case["fn"] in FUNCTIONS]


def same(got: object, expected: object) -> bool:
    """Equal as JSON, floats to 1e-9."""
    if isinstance(expected, dict):
        return isinstance(got, dict) and got.keys() == expected.keys() and all(same(got[k], expected[k]) for k in got)
    if isinstance(expected, list):
        return isinstance(got, list | tuple) and len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        return got is expected or (isinstance(expected, str) and got == expected)
    return isinstance(got, int | float) and not isinstance(got, bool) and got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("case", OURS, ids=lambda case: f"{case['id']}-{case['fn']}")
def test_golden_case(case: dict[str, Any]) -> None:
    got = evaluate(case["fn"], case["inputs"])
    assert same(got, case["expected"]), f"got {got}, expected {case['expected']}: {case['why']}"


def test_exactly_these_functions_exist_and_each_has_cases() -> None:
    assert set(FUNCTIONS) == {
        "select_batch",
        "may_start",
        "throughput",
        "gate_r_on_t",
        "split_q",
        "drain_prefix",
        "gate_t_on_r",
        "joint_tail_split",
        "lazy_pull",
        "plan",
        "feasible_partitions",
        "fit",
    }
    assert {case["fn"] for case in OURS} == set(FUNCTIONS)
    assert len(OURS) == 39


def test_a_function_that_does_not_exist_yet_is_an_error_that_lists_those_that_do() -> None:
    with pytest.raises(KeyError, match=f"no golden function 'guess' here; there are {', '.join(sorted(FUNCTIONS))}"):
        evaluate("guess", {})


@pytest.mark.parametrize(
    ("got", "expected"),
    [(True, 1), (1, True), (0, None), (None, 0), ([1], [1, 2]), ({"a": 1}, {"a": 1, "b": 2}), (1.0 + 1e-8, 1.0)],
    ids=str,
)
def test_the_comparison_tells_apart_what_differs(got: object, expected: object) -> None:
    assert not same(got, expected)
