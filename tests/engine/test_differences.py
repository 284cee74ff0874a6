"""In which settings runs differ, with what operators changed on the way."""

from __future__ import annotations

import pytest

from engine.config import dump_job, parse_job
from engine.config.differences import Settings, differing, flat, settings_of_run
from engine.config.steering import settings_of


def job(*settings: str) -> str:
    return dump_job(parse_job("devices: {count: 16, partition: '8:8', kind: emulated}", list(settings)))


def keys(*runs: Settings) -> dict[str, tuple[str, ...]]:
    return {each.key: each.told for each in differing(runs)}


def test_equal_jobs_differ_in_nothing() -> None:
    assert keys(settings_of_run(job(), None), settings_of_run(job(), None)) == {}


def test_only_what_differs_is_told_with_its_path() -> None:
    found = keys(settings_of_run(job(), None), settings_of_run(job("schedule.staleness=0.5", "seed=3"), None))
    assert found == {"seed": ("0", "3"), "schedule.staleness": ("1", "0.5")}


def test_a_change_on_the_way_is_a_difference_and_tells_both_values() -> None:
    changed = settings_of(parse_job(job())) | {"staleness": 0.5, "partition": "12:4"}
    changed_run = settings_of_run(job(), changed)
    found = {each.key: each for each in differing([settings_of_run(job(), None), changed_run])}
    assert found["schedule.staleness"].told == ("1", "1 → 0.5")
    assert found["schedule.staleness"].values == (1.0, 0.5)
    assert set(found) == {"schedule.staleness", "devices.partition.rollout", "devices.partition.train"}


def test_a_run_changed_to_what_another_was_launched_with_still_differs_from_it() -> None:
    changed = settings_of(parse_job(job())) | {"staleness": 0.5}
    found = keys(settings_of_run(job("schedule.staleness=0.5"), None), settings_of_run(job(), changed))
    assert found == {"schedule.staleness": ("0.5", "1 → 0.5")}


def test_a_job_of_another_version_is_compared_as_it_stands() -> None:
    found = keys(
        settings_of_run("name: a\nold: {key: 1, flag: true}", None), settings_of_run("name: b\nold: {key: 1}", None)
    )
    assert found == {"name": ("a", "b"), "old.flag": ("true", "–")}


@pytest.mark.parametrize("text", ["", "name: [", "- 1", "just text"])
def test_a_text_that_is_no_job_has_no_settings(text: str) -> None:
    assert settings_of_run(text, {"staleness": 1.0}).changed == {}
    assert keys(settings_of_run(text, None), settings_of_run(text, None)) == {}


def test_nested_keys_become_dotted_and_empty_mappings_stay_values() -> None:
    assert flat({"a": {"b": 1, "c": {}}, "d": [1, {"e": 2}]}) == {"a.b": 1, "a.c": {}, "d": [1, {"e": 2}]}
