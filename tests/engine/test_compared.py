"""What a comparison came to: pairs, the better baseline, the best static split, the work bound, and honest gaps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.config import dump_job, parse_job
from engine.config.comparison_parts import part_of
from planner import work
from planner.compared import DIRECTIONS, ENDED, Part, document
from storage import words
from storage.records import RunRow
from tests.engine.comparisons import make_part, make_plan, make_result

LABELS = ("no_borrow", "no_borrow:stream", "bidirectional")


def made(plan: dict[str, Any], *parts: Part) -> dict[str, Any]:
    """The document as JSON gives it."""
    found: dict[str, Any] = json.loads(json.dumps(document("bench-1", plan, parts), allow_nan=False))
    return found


def three_repeats(*, lent: tuple[float | None, ...] = (132.0, 144.0, 156.0), **overrides: Any) -> list[Part]:
    """Whole batch 100, streaming 120, and `lent` tokens/s in the three repeats."""
    parts = []
    for repeat in (1, 2, 3):
        parts += [make_part("no_borrow", repeat, 100.0), make_part("no_borrow:stream", repeat, 120.0)]
        value = lent[repeat - 1]
        problem = None if value else "failed: a worker died"
        state = "finished" if value else "failed"
        parts.append(make_part("bidirectional", repeat, value, problem=problem, state=state, **overrides))
    return parts


# -- ratios -----------------------------------------------------------------------------------------------------------


def test_ratios_are_told_over_each_baseline_the_better_one_and_the_best_other_arm() -> None:
    found = made(make_plan(*LABELS), *three_repeats())
    over = found["ratios"]["bidirectional"]["over"]
    # 1.1, 1.2 and 1.3: tests/planner/test_comparison.py has the interval by hand
    better = over["better_baseline"]
    assert (better["of"], better["pairs"], better["reason"]) == ("no_borrow:stream", 3, None)
    assert (better["mean"], better["low"], better["high"]) == pytest.approx((1.197216, 0.972825, 1.473364), abs=1e-5)
    assert better["per_repeat"] == pytest.approx([1.1, 1.2, 1.3])
    assert over["no_borrow:stream"] == better == over["best_other_arm"]
    assert over["no_borrow"]["mean"] == pytest.approx(1.2 * better["mean"])
    of_baseline = found["ratios"]["no_borrow:stream"]["over"]
    assert (of_baseline["best_other_arm"]["of"], of_baseline["no_borrow"]["mean"]) == (
        "bidirectional",
        pytest.approx(1.2),
    )
    assert (of_baseline["better_baseline"]["mean"], of_baseline["better_baseline"]["low"]) == (1.0, None)
    assert (found["complete"], found["runs_planned"], found["runs_counted"], found["runs_failed"]) == (True, 9, 9, 0)


def test_the_better_baseline_may_be_the_one_with_a_whole_batch() -> None:
    parts = [make_part("no_borrow", 1, 130.0), make_part("no_borrow:stream", 1, 120.0), make_part("bidirectional", 1)]
    found = made(make_plan(*LABELS, repeats=1), *parts)
    assert found["cells"][0]["better_baseline"] == "no_borrow"
    ratio = found["ratios"]["bidirectional"]["over"]["better_baseline"]
    assert (ratio["mean"], ratio["low"], ratio["high"]) == (pytest.approx(100 / 130), None, None)


def test_the_best_other_arm_is_another_arm_and_not_another_way_to_run_it() -> None:
    plan = make_plan(*LABELS, "bidirectional:whole_batch", "opportunistic", repeats=1)
    parts = [make_part(label, 1, speed) for label, speed in zip(plan["labels"], (90, 95, 150, 140, 110), strict=True)]
    over = made(plan, *parts)["ratios"]
    assert over["bidirectional"]["over"]["best_other_arm"]["of"] == "opportunistic"
    assert over["no_borrow"]["over"]["best_other_arm"]["of"] == "bidirectional"


def test_a_failed_run_is_shown_counted_and_its_pair_is_null_with_the_reason() -> None:
    found = made(make_plan(*LABELS), *three_repeats(lent=(132.0, None, 156.0)))
    assert (found["complete"], found["runs_counted"], found["runs_failed"]) == (False, 8, 1)
    assert [run["not_counted"] for run in found["runs"] if run["not_counted"]] == ["failed: a worker died"]
    figures = found["ratios"]["bidirectional"]
    assert (figures["counted"], figures["not_counted"]) == (2, 1)
    ratio = figures["over"]["better_baseline"]
    assert ratio["per_repeat"] == [pytest.approx(1.1), None, pytest.approx(1.3)]
    assert (ratio["pairs"], ratio["reason"]) == (2, "repeat 2: bidirectional failed: a worker died")


def test_a_configuration_that_always_failed_has_no_ratio_and_says_why() -> None:
    found = made(make_plan(*LABELS), *three_repeats(lent=(None, None, None)))
    figures = found["ratios"]["bidirectional"]
    ratio = figures["over"]["better_baseline"]
    assert (ratio["mean"], ratio["low"], ratio["pairs"]) == (None, None, 0)
    assert ratio["reason"].startswith("repeat 1: bidirectional failed: a worker died; repeat 2:")
    assert (figures["throughput_tokens_per_s"], figures["idle_fraction"], figures["partition"]) == (None, None, None)


def test_a_comparison_cut_short_tells_what_is_there() -> None:
    found = made(make_plan(*LABELS), *three_repeats()[:4], make_part("no_borrow:stream", 2, None, problem="running"))
    ratio = found["ratios"]["bidirectional"]["over"]["no_borrow"]
    assert ratio["per_repeat"] == [pytest.approx(1.32), None, None]
    assert ratio["reason"].split("; ") == [
        "repeat 2: bidirectional did not run",
        "repeat 3: bidirectional did not run",
        "repeat 3: no_borrow did not run",
    ]
    assert (found["complete"], found["runs_planned"]) == (False, 9)


def test_without_a_baseline_there_is_nothing_to_compare_with() -> None:
    parts = [
        make_part("no_borrow", 1, None, problem="failed", state="failed"),
        make_part("no_borrow:stream", 1, None, problem="failed", state="failed"),
        make_part("bidirectional", 1),
    ]
    found = made(make_plan(*LABELS, repeats=1), *parts)
    ratio = found["ratios"]["bidirectional"]["over"]["better_baseline"]
    assert (ratio["of"], ratio["mean"], ratio["reason"]) == (None, None, "nothing to compare with ran to its end")
    itself = found["ratios"]["no_borrow"]["over"]["no_borrow"]
    assert (itself["mean"], itself["reason"]) == (None, "nothing to compare with ran to its end")
    assert (found["best_static"]["label"], found["best_static"]["throughput_tokens_per_s"]) == (None, None)
    assert found["theory"]["ratio"] is found["theory"]["limit"] is None


# -- figures ----------------------------------------------------------------------------------------------------------


def test_figures_are_means_with_the_smallest_and_the_largest() -> None:
    parts = [make_part("bidirectional", r, 100.0 * r, idle={"fraction": 0.1 * r}, step_s=[r, 3.0 * r]) for r in (1, 2)]
    figures = made(make_plan(*LABELS, repeats=2), *parts)["ratios"]["bidirectional"]
    assert figures["throughput_tokens_per_s"] == {
        "mean": pytest.approx(100 * 2**0.5),
        "min": 100,
        "max": 200,
        "count": 2,
    }
    assert figures["idle_fraction"] == {"mean": pytest.approx(0.15), "min": 0.1, "max": 0.2, "count": 2}
    assert figures["step_s"] == {"mean": 3.0, "min": 2.0, "max": 4.0, "count": 2}
    leases = figures["leases"]["rollout_on_train"]
    assert {name: leases[name]["mean"] for name in leases} == {"admitted": 6, "refused": 2, "unused": 1}
    assert (figures["switch"]["out_s"]["mean"], figures["switch"]["grad_s"]) == (0.02, None)


def test_the_bound_is_the_least_work_per_token_of_any_configuration_over_its_runs_that_count() -> None:
    parts = [
        make_part("no_borrow", 1, 100.0, rollout_s=9.0, train_s=6.0),
        make_part("no_borrow:stream", 1, 110.0, rollout_s=7.0, train_s=5.0),
        make_part("bidirectional", 1, None, rollout_s=1.0, train_s=1.0, problem="stopped", state="stopped"),
    ]
    found = made(make_plan(*LABELS, repeats=1), *parts)
    assert found["bound"] == {
        "device_s_per_token": pytest.approx(0.012),
        "label": "no_borrow:stream",
        "staleness": parts[1].staleness,
    }
    # a machine that was quick once is no bound: the mean of both runs is 0.016
    slow = make_part("no_borrow:stream", 2, 80.0, rollout_s=12.0, train_s=8.0)
    again = made(make_plan(*LABELS, repeats=2), *parts, slow)
    assert again["bound"]["device_s_per_token"] == pytest.approx(0.015)
    assert again["bound"]["label"] == "no_borrow"
    # two devices at 0.012 device-seconds a token make at most 166.7 tokens/s
    assert found["ratios"]["no_borrow:stream"]["bound_ratio"]["mean"] == pytest.approx(110 / (2 / 0.012))
    assert [run["bound_ratio"] for run in found["runs"]] == [pytest.approx(0.6), pytest.approx(0.66), None]


def test_the_theory_is_that_of_the_better_baseline() -> None:
    parts = [
        make_part("no_borrow", 1, 100.0, rollout_s=30.0, train_s=1.0),
        make_part("no_borrow:stream", 1, 110.0, rollout_s=9.0, train_s=6.0),
    ]
    theory = made(make_plan(*LABELS, repeats=1), *parts)["theory"]
    # x = 1.5: 2 x 1.5 / 2.5 = 1.2
    assert (theory["ratio"], theory["larger"], theory["limit_at_1_1"]) == pytest.approx((1.5, "rollout", 1.2))
    assert (theory["partition"], theory["limit"]) == ("1:1", pytest.approx(1.2))


def test_runs_whose_work_is_not_known_have_no_bound_and_no_theory() -> None:
    found = made(make_plan(*LABELS, repeats=1), make_part("no_borrow", 1, work=dict(work.UNKNOWN)))
    assert found["bound"] == {"device_s_per_token": None, "label": None, "staleness": None}
    assert (found["runs"][0]["bound_ratio"], found["theory"]["ratio"]) == (None, None)


# -- best static split ------------------------------------------------------------------------------------------------


def test_the_best_static_split_is_the_fastest_no_borrow_at_any_split() -> None:
    labels = (*LABELS, "no_borrow@12:4", "no_borrow:stream@12:4")
    plan = make_plan(*labels, repeats=1, partition="8:8", split={"chosen_by": "planner", "why": "it says so"})
    parts = [make_part(label, 1, speed) for label, speed in zip(labels, (100, 110, 130, 125, 120), strict=True)]
    found = made(plan, *parts)["best_static"]
    assert (found["label"], found["consume"], found["chosen_by"]) == ("no_borrow@12:4", "whole_batch", "planner")
    assert (found["throughput_tokens_per_s"], found["run_ids"]) == (pytest.approx(125), ["no_borrow@12:4-1-1"])
    assert found["ratios"]["bidirectional"]["mean"] == pytest.approx(130 / 125)
    assert found["ratios"]["no_borrow@12:4"]["mean"] == 1.0


def test_with_one_split_the_best_static_one_is_the_better_baseline() -> None:
    found = made(make_plan(*LABELS), *three_repeats())
    assert (found["best_static"]["label"], found["best_static"]["chosen_by"]) == ("no_borrow:stream", "only_split")
    assert (
        found["best_static"]["ratios"]["bidirectional"] == (found["ratios"]["bidirectional"]["over"]["better_baseline"])
    )


# -- cells ------------------------------------------------------------------------------------------------------------


def test_every_staleness_is_a_cell_of_its_own_and_colocated_stands_in_each_with_the_same_runs() -> None:
    plan = make_plan(*LABELS, "colocated", repeats=1, staleness=[0.0, 1.0])
    parts = [make_part("colocated", 1, 150.0)]
    for staleness, speeds in ((0.0, (80, 90, 120)), (1.0, (110, 100, 140))):
        parts += [make_part(label, 1, v, staleness=staleness) for label, v in zip(LABELS, speeds, strict=True)]
    found = made(plan, *parts)
    assert found["runs_planned"] == found["runs_counted"] == 7
    first, second = found["cells"]
    assert (first["better_baseline"], second["better_baseline"]) == ("no_borrow:stream", "no_borrow")
    assert first["ratios"]["bidirectional"]["over"]["better_baseline"]["mean"] == pytest.approx(120 / 90)
    assert second["ratios"]["bidirectional"]["over"]["better_baseline"]["mean"] == pytest.approx(140 / 110)
    for cell, baseline in ((first, 90), (second, 110)):
        assert cell["ratios"]["colocated"]["over"]["better_baseline"]["mean"] == pytest.approx(150 / baseline)
        assert cell["ratios"]["bidirectional"]["over"]["best_other_arm"]["of"] == "colocated"
    assert (found["ratios"], found["best_static"]) == (first["ratios"], first["best_static"])


# -- which runs count -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "result", "problem"),
    [
        ({}, {}, None),
        ({}, {"state": "failed", "error": "a worker died"}, "failed: a worker died"),
        ({}, {"state": "stopped"}, "stopped"),
        ({}, {"state": "running", "throughput_tokens_per_s": 3.0}, "running"),
        ({"config_version": 1}, {}, "it was changed while it ran"),
        ({}, {"throughput_tokens_per_s": None}, "it had too few steps for a throughput"),
    ],
)
def test_only_a_run_that_ended_as_it_was_asked_for_counts(
    columns: dict[str, Any], result: dict[str, Any], problem: str | None
) -> None:
    job = parse_job("schedule: {staleness: 0.5}\ndevices: {partition: '3:1'}")
    row = RunRow(run_id="r", job=dump_job(job), comparison="c", comparison_label="no_borrow", comparison_repeat=2)
    row = RunRow(**({name: getattr(row, name) for name in RunRow.__dataclass_fields__} | columns))
    part = part_of(row, job, make_result(**result))
    assert (part.label, part.repeat, part.staleness, part.devices, part.problem) == ("no_borrow", 2, 0.5, 4, problem)


def test_the_words_that_a_comparison_goes_by_are_those_that_are_stored() -> None:
    assert (set(ENDED), set(DIRECTIONS)) == (set(words.TERMINAL), set(words.DIRECTIONS))
