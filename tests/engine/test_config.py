"""Job files: all that ship load, and every bad value, unknown key or contradiction is explained in one line.

What is valid and cannot be run live yet is in `test_config_runnable.py`, the profile in `test_config_profile.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine.config import (
    ARMS,
    Job,
    JobError,
    Partition,
    check_job,
    dump_job,
    load_job,
    parse_job,
)
from planner.policy.improvements import IMPROVEMENTS

ROOT = Path(__file__).resolve().parents[2]
JOBS = sorted((ROOT / "jobs").glob("*.yaml"))

SECTION = (
    "must be a mapping of keys (group_size, prompts_per_step, steps, learning_rate, lr_schedule, lr_warmup_steps, ...)"
)
PARTITION = 'must be "auto" or "ROLLOUT:TRAIN" such as "12:4", got '


def told(text: str, set_values: list[str] | None = None) -> str:
    """The one line that explains what is wrong."""
    with pytest.raises(JobError) as caught:
        parse_job(text, set_values)
    line = str(caught.value)
    assert "\n" not in line
    return line


# -- good files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_every_job_that_ships_loads_and_resolves(path: Path) -> None:
    job = load_job(path)
    assert parse_job(dump_job(job)) == job


def test_the_demo_is_among_them() -> None:
    assert "demo.yaml" in [path.name for path in JOBS]


def test_an_empty_file_is_a_job_of_defaults() -> None:
    job = parse_job("")
    assert job == Job()
    assert (job.schedule.arm, job.schedule.staleness_resolved, str(job.partition)) == ("no_borrow", 1.0, "1:1")


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        pytest.param("devices: {partition: 12:4}", "devices.partition", Partition(rollout=12, train=4), id="12:4"),
        pytest.param("devices: {partition: 1:1}", "devices.partition", Partition(rollout=1, train=1), id="1:1"),
        pytest.param("algorithm: {learning_rate: 3e-4}", "algorithm.learning_rate", 3e-4, id="3e-4 is a number"),
        pytest.param("algorithm: {steps: 010}", "algorithm.steps", 10, id="010 is ten"),
        pytest.param("name: yes", "name", "yes", id="yes is text"),
        pytest.param("task: {answer_after: no}", "task.answer_after", "no", id="no is text"),
        pytest.param("checkpoint: {snapshot_max_bytes: 2e9}", "checkpoint.snapshot_max_bytes", 2 * 10**9, id="2e9"),
        pytest.param("schedule: {deterministic: true}", "schedule.deterministic", True, id="deterministic"),
    ],
)
def test_files_are_yaml_1_2(text: str, path: str, value: object) -> None:
    found: Any = parse_job(text)
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


# -- bad values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("seed: -1", "seed: must be a whole number from 0 to 2147483647, got -1", id="too small"),
        pytest.param(
            "seed: 99999999999", "seed: must be a whole number from 0 to 2147483647, got 99999999999", id="too large"
        ),
        pytest.param(
            "seed: true", "seed: must be a whole number from 0 to 2147483647, got true", id="true is no integer"
        ),
        pytest.param(
            "schedule: {staleness: true}",
            "schedule.staleness: must be a number from 0 to 16, got true",
            id="nor a float",
        ),
        pytest.param(
            "task: {epochs: true}",
            "task.epochs: must be a whole number of at least 1, or null, got true",
            id="nor an optional integer",
        ),
        pytest.param(
            "algorithm: {steps: ten}",
            "algorithm.steps: must be a whole number of at least 1, got 'ten'",
            id="words",
        ),
        pytest.param(
            "algorithm: {learning_rate: .inf}",
            "algorithm.learning_rate: must be a finite number above 0, got inf",
            id="infinity",
        ),
        pytest.param(
            "schedule: {staleness: .nan}", "schedule.staleness: must be a finite number from 0 to 16, got nan", id="nan"
        ),
        pytest.param(
            "task: {params: {x: [1, .nan]}}",
            "task.params.x.1: must be a finite number, text, true, false, or a list, got nan",
            id="nan inside a parameter of the data set",
        ),
        pytest.param(
            "algorithm: {betas: [0.9, 1.5]}", "algorithm.betas.1: must be a number from 0, below 1, got 1.5", id="beta"
        ),
        pytest.param(
            "algorithm: {betas: [0.9]}", "algorithm.betas.1: is required: a number from 0, below 1", id="one beta"
        ),
        pytest.param(
            "algorithm: {lr_schedule: cosine}",
            "algorithm.lr_schedule: must be one of constant, linear, got 'cosine'",
            id="a word that does not exist",
        ),
        pytest.param("algorithm: 3", f"algorithm: {SECTION}, got 3", id="no section"),
        pytest.param("algorithm:", f"algorithm: {SECTION}, got null", id="an empty section"),
        pytest.param(
            "schedule: {consume: later}",
            "schedule.consume: must be one of stream, whole_batch, or null, got 'later'",
            id="consume",
        ),
        pytest.param("devices: {kind: tpu}", "devices.kind: must be one of cpu, emulated, cuda, got 'tpu'", id="tpu"),
        pytest.param(
            "devices: {train_replica_size: 0}",
            "devices.train_replica_size: must be a whole number of at least 1, got 0",
            id="an empty replica",
        ),
        pytest.param(
            "devices: {count: many}",
            "devices.count: must be \"auto\" or a whole number of at least 1, got 'many'",
            id="count",
        ),
        pytest.param(
            "devices: {count: 0}",
            'devices.count: must be "auto" or a whole number of at least 1, got 0',
            id="no devices",
        ),
        pytest.param("devices: {partition: 1-1}", f"devices.partition: {PARTITION}'1-1'", id="partition"),
        pytest.param("devices: {partition: [1, 1]}", f"devices.partition: {PARTITION}a list", id="partition as a list"),
        pytest.param(
            "devices: {partition: 0:1}",
            "devices.partition.rollout: must be a whole number of at least 1, got 0",
            id="an empty pool",
        ),
        pytest.param(
            "devices: {partition: {rollout: 1}}",
            "devices.partition.train: is required: a whole number of at least 1",
            id="one pool",
        ),
        pytest.param(
            "%YAML 1.1\n---\ndevices: {partition: 1:1}",
            f"devices.partition: {PARTITION}61",
            id="a file that insists on 1.1",
        ),
        pytest.param(
            "model: {source: builtin:big}",
            "model.source: must be one of builtin:tiny, builtin:smollm2, got 'builtin:big'",
            id="model",
        ),
        pytest.param(
            "model: {size: {hidden: 100, heads: 8}}",
            "model.size: hidden 100 must be a multiple of twice the 8 heads",
            id="a head whose dimensions make no pairs",
        ),
        pytest.param(
            "model: {size: {layers: 0}}",
            "model.size.layers: must be a whole number of at least 1, got 0",
            id="a model without layers",
        ),
        pytest.param(
            "task: {source: csv:data}",
            "task.source: must be reasoning_gym:DATASET, such as reasoning_gym:chain_sum, or jsonl:PATH, parquet:PATH, "
            "hf:NAME, got 'csv:data'",
            id="task",
        ),
        pytest.param(
            "algorithm: {scale_rewards: true}",
            "algorithm.scale_rewards: must be one of group, none, or null, got true",
            id="true among words",
        ),
        pytest.param(
            "name: ../x",
            "name: must be 1 to 64 letters, digits, dots, underscores or hyphens, a letter or digit first, got '../x'",
            id="a name that is no folder's",
        ),
        pytest.param(
            "eval: {control_prefix: 1.5}",
            "eval.control_prefix: must be text or null, got 1.5; in quotes it is text",
            id="a number where a text belongs",
        ),
        pytest.param(
            'task: {prompt_template: {"Q": x}}',
            "task.prompt_template: must be text or null, got a mapping; in quotes it is text",
            id="a mapping where a text belongs",
        ),
        pytest.param(
            "devices: {partition: 3:2, count: 4}",
            "devices.partition '3:2' needs 5 devices, devices.count says 4; allowed: 1:3 to 3:1, or devices.count 5 or "
            "auto",
            id="a partition of other devices",
        ),
    ],
)
def test_a_bad_value_is_named_with_its_place_and_what_is_allowed(text: str, line: str) -> None:
    assert told(text) == f"job: {line}"


def test_an_arm_that_the_design_does_not_know_is_refused_with_those_it_knows() -> None:
    assert told("schedule: {arm: greedy}") == (f"job: schedule.arm: must be one of {', '.join(ARMS)}, got 'greedy'")


@pytest.mark.parametrize("arm", ARMS)
def test_consume_follows_the_arm_unless_it_is_set(arm: str) -> None:
    follows = parse_job(f"schedule: {{arm: {arm}}}").schedule.consume_resolved
    assert follows == ("stream" if arm == "bidirectional" else "whole_batch")
    assert parse_job(f"schedule: {{arm: {arm}, consume: whole_batch}}").schedule.consume_resolved == "whole_batch"


@pytest.mark.parametrize(
    ("names", "line"),
    [
        pytest.param(
            "{blok_leases: false}", "unknown improvement 'blok_leases'; did you mean 'block_leases'?", id="near"
        ),
        pytest.param(
            "{zzz: true}", f"unknown improvement 'zzz'; known improvements: {', '.join(sorted(IMPROVEMENTS))}", id="far"
        ),
        pytest.param(
            "{keep_leases: true, blok_leases: true}",
            "unknown improvement 'keep_leases'; did you mean 'keep_lease'?; unknown improvement 'blok_leases'; did you "
            "mean 'block_leases'?",
            id="two",
        ),
    ],
)
def test_an_unknown_improvement_is_named_with_the_nearest(names: str, line: str) -> None:
    assert told(f"schedule: {{improvements: {names}}}") == f"job: schedule.improvements: {line}"


def test_an_improvement_is_on_or_off() -> None:
    assert parse_job("schedule: {improvements: {keep_lease: false}}").schedule.improvements == {"keep_lease": False}
    assert told("schedule: {improvements: {keep_lease: 3}}").startswith(
        "job: schedule.improvements.keep_lease: must be true or false, got 3"
    )


def test_all_problems_are_named_at_once_each_under_its_path() -> None:
    with pytest.raises(JobError) as caught:
        parse_job("seed: -1\nalgorithm: {steps: 0, stps: 1}")
    assert list(caught.value.problems) == ["seed", "algorithm.steps", "algorithm.stps"]
    assert str(caught.value).count("; ") == 3


# -- unknown keys -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("algoritm: {}", "algoritm: unknown key 'algoritm'; did you mean 'algorithm'?", id="section"),
        pytest.param("algorithm: {stps: 1}", "algorithm.stps: unknown key 'stps'; did you mean 'steps'?", id="nested"),
        pytest.param(
            "model: {warm_start: {worked_onlysteps: 1}}",
            "model.warm_start.worked_onlysteps: unknown key 'worked_onlysteps'; did you mean 'worked_only_steps'?",
            id="nested twice",
        ),
        pytest.param(
            "devices: {partition: {rollout: 1, train: 1, trn: 1}}",
            "devices.partition.trn: unknown key 'trn'; did you mean 'train'?",
            id="inside a partition",
        ),
        pytest.param(
            "sampling: {zzz: 1}",
            "sampling.zzz: unknown key 'zzz'; known keys: max_response_tokens, temperature, top_p",
            id="none is near",
        ),
        pytest.param("1: 2", "1: keys should be strings, got 1", id="a number as a key"),
        pytest.param(
            '"sed\\n": 1', "'sed\\n': unknown key 'sed\\n'; did you mean 'seed'?", id="a key that would break the line"
        ),
    ],
)
def test_an_unknown_key_names_its_path_and_the_nearest_known_key(text: str, line: str) -> None:
    assert told(text) == f"job: {line}"


# -- keys that contradict each other ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            "algorithm: {correction: none}",
            "schedule.staleness 1.0 with algorithm.correction 'none' trains on stale samples as if they were fresh; "
            "use correction: tis, staleness: 0, or accept_uncorrected: true",
            id="uncorrected",
        ),
        pytest.param(
            "schedule: {staleness: 0, in_flight_updates: true}",
            "schedule.in_flight_updates true is impossible at staleness 0; allowed: false or null",
            id="in flight at 0",
        ),
        pytest.param(
            "schedule: {arm: colocated}\ndevices: {partition: 1:1}",
            "devices.partition '1:1' has no meaning for arm 'colocated', which has no pools; allowed: auto",
            id="colocated has no pools",
        ),
        pytest.param(
            "schedule: {arm: colocated, consume: stream}",
            "schedule.consume 'stream' has no meaning for arm 'colocated'; allowed: whole_batch",
            id="colocated does not stream",
        ),
        pytest.param(
            "devices: {count: 1}",
            "devices.count 1 leaves no device for one of the pools; allowed: at least 2",
            id="one device for two pools",
        ),
        pytest.param(
            "devices: {partition: 2:1, count: 2}",
            "devices.partition '2:1' needs 3 devices, devices.count says 2; allowed: 1:1, or devices.count 3 or auto",
            id="partition and count",
        ),
        pytest.param(
            "devices: {rollout_slots: 7}",
            "devices.rollout_slots 7 cannot hold one group of algorithm.group_size 8; allowed: at least as many",
            id="no room for a group",
        ),
        pytest.param(
            "model: {warm_start: {steps: 5}}",
            "model.warm_start.worked_only_steps 460 is more than model.warm_start.steps 5; allowed: at most as many",
            id="warm start",
        ),
        pytest.param(
            "model: {source: models/mine, size: {layers: 4}}",
            "model: size shapes builtin:tiny, and source 'models/mine' has its own; leave size out",
            id="the size of a folder's model",
        ),
        pytest.param(
            "task: {epochs: 1, items: 10}",
            "algorithm.steps 100 x prompts_per_step 16 needs more prompts than task.epochs 1 x task.items 10; allowed: "
            "at most 10 in all, or task.epochs null",
            id="too few prompts",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_named_together(text: str, line: str) -> None:
    assert told(text) == f"job: {line}"


@pytest.mark.parametrize(
    "text",
    [
        "algorithm: {correction: none, accept_uncorrected: true}",
        "algorithm: {correction: none}\nschedule: {staleness: 0}",
        "algorithm: {correction: none}\nschedule: {arm: colocated}",
        "schedule: {arm: colocated}\ndevices: {count: 1}",
        "schedule: {staleness: 0.01}",
        "devices: {partition: 2:1, count: 3}",
        "task: {epochs: 1, items: 1600}",
    ],
)
def test_what_looks_alike_and_is_possible_is_allowed(text: str) -> None:
    parse_job(text)


def test_colocated_is_on_policy_whatever_staleness_says() -> None:
    job = parse_job("schedule: {arm: colocated, staleness: 2}\ndevices: {count: 3}")
    assert (job.schedule.staleness_resolved, job.partition, job.device_count) == (0.0, None, 3)
    assert not job.schedule.in_flight_resolved


@pytest.mark.parametrize(("count", "partition"), [("auto", "1:1"), ("2", "1:1"), ("3", "2:1"), ("5", "3:2")])
def test_an_automatic_partition_halves_the_devices_the_odd_one_to_rollout(count: str, partition: str) -> None:
    assert str(parse_job(f"devices: {{count: {count}}}").partition) == partition


# -- the machine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partition", "oversubscribe", "cores", "message"),
    [
        pytest.param("1:1", False, 2, None, id="fits"),
        pytest.param(
            "2:1",
            False,
            2,
            "the job takes 3 devices and this machine has 2 cores; use fewer devices, or devices.oversubscribe: true "
            "for up to 8 workers without any claim about speed",
            id="too many",
        ),
        pytest.param("4:4", True, 2, None, id="four on a core"),
        pytest.param(
            "5:4", True, 2, "the job takes 9 devices; oversubscribed, this machine's 2 cores hold at most 8", id="nine"
        ),
    ],
)
def test_the_machine_must_hold_the_workers(
    partition: str, oversubscribe: bool, cores: int, message: str | None
) -> None:
    job = check_job({"devices": {"partition": partition, "oversubscribe": oversubscribe}})
    if message is None:
        job.check_machine(cores)
    else:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            job.check_machine(cores)
