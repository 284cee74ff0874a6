"""From `--arms` to the runs of a comparison: labels, baselines, cells, the order of each repeat, the job of a run."""

from __future__ import annotations

from collections import Counter

import pytest

from engine import comparing
from engine.comparing import configurations, order, settings_of
from engine.config import ARMS, Partition, apply_settings, check_job, parse_job
from planner.configurations import Configuration, Trial, planned_runs, trials

ONE = Partition(rollout=1, train=1)
EIGHT = Partition(rollout=8, train=8)


def labels(arms: str, own: Partition = ONE, splits: tuple[str, ...] = ()) -> list[str]:
    return [each.label for each in configurations(arms, own=own, splits=splits)]


# -- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arm", "consume", "partition", "label"),
    [
        ("no_borrow", "no_borrow", "whole_batch", None, "no_borrow"),
        ("no_borrow:stream", "no_borrow", "stream", None, "no_borrow:stream"),
        ("no_borrow:whole_batch", "no_borrow", "whole_batch", None, "no_borrow"),
        ("bidirectional", "bidirectional", "stream", None, "bidirectional"),
        ("bidirectional:stream", "bidirectional", "stream", None, "bidirectional"),
        ("bidirectional:whole_batch", "bidirectional", "whole_batch", None, "bidirectional:whole_batch"),
        (" opportunistic@04:12 ", "opportunistic", "whole_batch", "4:12", "opportunistic@4:12"),
        ("no_borrow:stream@8:8", "no_borrow", "stream", "8:8", "no_borrow:stream@8:8"),
        ("colocated", "colocated", "whole_batch", None, "colocated"),
        ("bidirectional-keep_lease", "bidirectional", "stream", None, "bidirectional-keep_lease"),
        (
            "bidirectional-keep_lease-block_leases:whole_batch@4:12",
            "bidirectional",
            "whole_batch",
            "4:12",
            "bidirectional-block_leases-keep_lease:whole_batch@4:12",
        ),
    ],
)
def test_a_label_names_what_does_not_follow_from_the_arm(
    text: str, arm: str, consume: str, partition: str | None, label: str
) -> None:
    found = Configuration.parse(text)
    assert (found.arm, found.consume, found.partition, found.label) == (arm, consume, partition, label)
    assert Configuration.parse(found.label) == found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no_borow", f"--arms: arm must be one of {', '.join(ARMS)}, got 'no_borow' in 'no_borow'; write ARM"),
        ("", "--arms: arm must be one of"),
        ("no_borrow:streaming", "--arms: after ':' comes stream or whole_batch, got 'streaming' in"),
        ("no_borrow:", "--arms: after ':' comes stream or whole_batch, got '' in 'no_borrow:'"),
        ("no_borrow@8", "--arms: a partition is ROLLOUT:TRAIN, both at least 1, such as 12:4, got '8'"),
        ("no_borrow@0:2", "--arms: a partition is ROLLOUT:TRAIN, both at least 1, such as 12:4, got '0:2'"),
        ("no_borrow@8:8:stream", "--arms: a partition is ROLLOUT:TRAIN"),
        ("colocated@1:1", "--arms: colocated has no pools, so no partition and no streaming, got 'colocated@1:1'"),
        ("bidirectional-keep", "--arms: after '-' comes an improvement (outlook_gate, block_leases,"),
        ("no_borrow-keep_lease", "--arms: after '-' comes an improvement (outlook_gate, block_leases,"),
        ("colocated:stream", "--arms: colocated has no pools, so no partition and no streaming"),
    ],
)
def test_a_label_that_is_none_is_named_with_its_place_and_what_is_allowed(text: str, told: str) -> None:
    with pytest.raises(ValueError, match="--arms") as caught:
        Configuration.parse(text)
    assert str(caught.value).startswith(told)


# -- configurations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arms", "expected"),
    [
        ("bidirectional", ["no_borrow", "no_borrow:stream", "bidirectional"]),
        ("no_borrow,bidirectional", ["no_borrow:stream", "no_borrow", "bidirectional"]),
        ("bidirectional,no_borrow:stream", ["no_borrow", "bidirectional", "no_borrow:stream"]),
        ("no_borrow,no_borrow:whole_batch,no_borrow@1:1", ["no_borrow:stream", "no_borrow"]),
        (",".join(comparing.DEFAULT_ARMS), list(comparing.DEFAULT_ARMS)),
    ],
)
def test_both_baselines_are_always_there_and_nothing_twice(arms: str, expected: list[str]) -> None:
    assert labels(arms) == expected


def test_other_splits_are_measured_with_both_ways_to_consume() -> None:
    assert labels("bidirectional@4:12", EIGHT, ("8:8", "12:4")) == [
        "no_borrow",
        "no_borrow:stream",
        "bidirectional@4:12",
        "no_borrow@12:4",
        "no_borrow:stream@12:4",
    ]


@pytest.mark.parametrize(
    ("arms", "splits", "told"),
    [
        ("no_borrow@3:3", (), "--arms: a partition of 16 devices is needed, as the job's 8:8, got '3:3'"),
        ("no_borrow", ("3:3",), "--splits: a partition of 16 devices is needed, as the job's 8:8, got '3:3'"),
    ],
)
def test_a_split_of_another_number_of_devices_is_no_fair_comparison(
    arms: str, splits: tuple[str, ...], told: str
) -> None:
    with pytest.raises(ValueError, match="a partition of 16 devices") as caught:
        configurations(arms, own=EIGHT, splits=splits)
    assert str(caught.value) == told


def test_lists_of_values_are_read_once_each() -> None:
    assert comparing.parse_staleness("0,0.5, 1,0") == (0.0, 0.5, 1.0)
    assert comparing.parse_splits("4:12,12:4, 4:12") == ("4:12", "12:4")


@pytest.mark.parametrize("text", ["", "x", "0,-1", "17", "nan", "0,,1"])
def test_a_staleness_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"--staleness: must be numbers from 0 to 16 such as 0,0\.5,1, got"):
        comparing.parse_staleness(text)


# -- trials and their order -------------------------------------------------------------------------------------------


def test_every_configuration_runs_in_every_cell_and_colocated_once() -> None:
    found = trials(configurations("colocated,bidirectional", own=ONE), (0.5, 1.0))
    assert Counter((each.configuration.label, each.staleness) for each in found) == Counter(
        [
            ("colocated", 0.0),
            *((label, s) for label in ("no_borrow", "no_borrow:stream", "bidirectional") for s in (0.5, 1.0)),
        ]
    )


def test_at_staleness_zero_colocated_is_still_one_run() -> None:
    assert len(trials(configurations("colocated", own=ONE), (0.0, 1.0))) == 5


@pytest.mark.parametrize("arms", ["bidirectional", "bidirectional,opportunistic,colocated"])
def test_over_as_many_repeats_as_trials_each_has_every_place_once(arms: str) -> None:
    found = trials(configurations(arms, own=ONE), (1.0,))
    places = Counter(
        (trial.configuration.label, place)
        for repeat in range(1, len(found) + 1)
        for place, trial in enumerate(order(found, repeat))
    )
    assert set(places.values()) == {1}
    assert len(places) == len(found) ** 2


def test_the_first_repeat_runs_in_the_given_order_and_the_next_is_moved_on_by_one() -> None:
    found = trials(configurations("bidirectional", own=ONE), (1.0,))
    assert order(found, 1) == found
    assert order(found, 2) == (*found[1:], found[0])
    assert order(found, len(found) + 1) == found


def test_a_plan_knows_how_many_runs_it_means() -> None:
    found = configurations("colocated,bidirectional", own=ONE)
    plan = comparing.plan_of(found, staleness=(0.5, 1.0), repeats=3, own=ONE, split={"chosen_by": "job", "why": "x"})
    # three with pools in two cells, colocated once: 7 a repeat
    assert planned_runs(plan) == 21
    assert plan["labels"] == ["no_borrow", "no_borrow:stream", "colocated", "bidirectional"]


# -- the job of a trial -----------------------------------------------------------------------------------------------

JOB = (
    "seed: 7\nschedule: {arm: bidirectional, staleness: 2, consume: stream, in_flight_updates: true,"
    " improvements: {keep_lease: false}}\ndevices: {partition: '8:8'}"
)


@pytest.mark.parametrize(
    ("label", "staleness", "consume", "partition", "in_flight", "improvements"),
    [
        ("no_borrow", 2.0, "whole_batch", "8:8", True, {}),
        ("no_borrow:stream", 0.1, "stream", "8:8", True, {}),
        ("bidirectional", 0.0, "stream", "8:8", False, {"keep_lease": False}),
        ("opportunistic@4:12", 1.0, "whole_batch", "4:12", True, {}),
        ("colocated", 0.0, "whole_batch", "None", False, {}),
    ],
)
def test_the_job_of_a_trial_differs_in_its_schedule_and_split_alone(
    label: str, staleness: float, consume: str, partition: str, in_flight: bool, improvements: dict[str, bool]
) -> None:
    trial = Trial(configuration=Configuration.parse(label), staleness=staleness)
    job = parse_job(JOB, settings_of(trial, EIGHT))
    assert (job.schedule.arm, job.schedule.consume_resolved) == (trial.configuration.arm, consume)
    assert (job.schedule.staleness_resolved, job.schedule.in_flight_resolved) == (staleness, in_flight)
    assert (str(job.partition), job.device_count, job.schedule.improvements) == (partition, 16, improvements)
    assert (job.seed, job.algorithm) == (7, parse_job(JOB).algorithm)


def test_a_configuration_without_an_improvement_is_the_job_without_it() -> None:
    trial = Trial(configuration=Configuration.parse("bidirectional-keep_lease-cheap_return"), staleness=1.0)
    job = apply_settings({}, settings_of(trial, ONE))
    assert job["schedule"]["improvements"] == {"cheap_return": False, "keep_lease": False}
    assert not check_job(job).schedule.improvements_resolved.keep_lease
