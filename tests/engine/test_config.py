"""Job files: all that ship load, every bad one is explained in one line, and a resolved job reads back equal."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import (
    ARMS_AVAILABLE,
    Job,
    JobError,
    Partition,
    apply_settings,
    check_job,
    dump_job,
    load_job,
    parse_job,
)
from engine.config.job import ARMS_PLANNED

ROOT = Path(__file__).resolve().parents[2]
JOBS = sorted((ROOT / "jobs").glob("*.yaml"))

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
        pytest.param("seed: -1", "seed: input should be greater than or equal to 0, got -1", id="too small"),
        pytest.param(
            "seed: 99999999999", "seed: input should be less than 2147483648, got 99999999999", id="too large"
        ),
        pytest.param("seed: true", "seed: must be a number, got True", id="true is no integer"),
        pytest.param("schedule: {staleness: true}", "schedule.staleness: must be a number, got True", id="nor a float"),
        pytest.param("task: {epochs: true}", "task.epochs: must be a number, got True", id="nor an optional integer"),
        pytest.param(
            "algorithm: {steps: ten}",
            "algorithm.steps: input should be a valid integer, unable to parse string as an integer, got 'ten'",
            id="words",
        ),
        pytest.param(
            "algorithm: {learning_rate: .inf}",
            "algorithm.learning_rate: input should be a finite number, got inf",
            id="infinity",
        ),
        pytest.param(
            "schedule: {staleness: .nan}", "schedule.staleness: input should be a finite number, got nan", id="nan"
        ),
        pytest.param(
            "task: {params: {x: [1, .nan]}}",
            "task.params.x.1: input should be a finite number, got nan",
            id="nan inside a parameter of the data set",
        ),
        pytest.param(
            "algorithm: {betas: [0.9, 1.5]}", "algorithm.betas.1: input should be less than 1, got 1.5", id="beta"
        ),
        pytest.param("algorithm: {betas: [0.9]}", "algorithm.betas.1: is required", id="one beta"),
        pytest.param(
            "algorithm: {lr_schedule: cosine}",
            "algorithm.lr_schedule: must be one of constant, linear, got 'cosine'",
            id="a word that does not exist",
        ),
        pytest.param("algorithm: 3", "algorithm: must be a mapping of keys, got 3", id="no section"),
        pytest.param("algorithm:", "algorithm: must be a mapping of keys, got None", id="an empty section"),
        pytest.param(
            "schedule: {consume: later}",
            "schedule.consume: input should be 'stream' or 'whole_batch', got 'later'",
            id="consume",
        ),
        pytest.param(
            "schedule: {deterministic: true}",
            "schedule.deterministic: deterministic: true does not exist yet; allowed: false",
            id="not yet",
        ),
        pytest.param(
            "devices: {kind: cuda}", "devices.kind: device kind 'cuda' does not run yet; available: cpu", id="cuda"
        ),
        pytest.param("devices: {kind: tpu}", "devices.kind: must be one of cpu, got 'tpu'", id="tpu"),
        pytest.param("devices: {count: many}", "devices.count: must be \"auto\" or at least 1, got 'many'", id="count"),
        pytest.param("devices: {count: 0}", 'devices.count: must be "auto" or at least 1, got 0', id="no devices"),
        pytest.param("devices: {partition: 1-1}", f"devices.partition: {PARTITION}'1-1'", id="partition"),
        pytest.param("devices: {partition: [1, 1]}", f"devices.partition: {PARTITION}[1, 1]", id="partition as a list"),
        pytest.param(
            "devices: {partition: 0:1}",
            "devices.partition.rollout: input should be greater than or equal to 1, got 0",
            id="an empty pool",
        ),
        pytest.param("devices: {partition: {rollout: 1}}", "devices.partition.train: is required", id="one pool"),
        pytest.param(
            "%YAML 1.1\n---\ndevices: {partition: 1:1}",
            f"devices.partition: {PARTITION}61",
            id="a file that insists on 1.1",
        ),
        pytest.param(
            "model: {source: builtin:big}", "model.source: must be one of builtin:tiny, got 'builtin:big'", id="model"
        ),
        pytest.param(
            "task: {source: jsonl:data}",
            "task.source: must be reasoning_gym:DATASET, such as reasoning_gym:chain_sum, got 'jsonl:data'",
            id="task",
        ),
        pytest.param(
            "profile: {a: 1}",
            "profile is read by emulated and simulated devices, which do not exist yet; allowed: null",
            id="profile",
        ),
    ],
)
def test_a_bad_value_is_named_with_its_place_and_what_is_allowed(text: str, line: str) -> None:
    assert told(text) == f"job: {line}"


@pytest.mark.parametrize("arm", ARMS_PLANNED)
def test_an_arm_of_the_design_that_does_not_exist_yet_is_refused_by_name(arm: str) -> None:
    assert told(f"schedule: {{arm: {arm}}}") == (
        f"job: schedule.arm: arm {arm!r} does not exist yet; available: {', '.join(ARMS_AVAILABLE)}"
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
            "devices.partition '2:1' needs 3 devices, devices.count says 2",
            id="partition and count",
        ),
        pytest.param(
            "devices: {rollout_slots: 7}",
            "devices.rollout_slots 7 cannot hold one group of algorithm.group_size 8",
            id="no room for a group",
        ),
        pytest.param(
            "model: {warm_start: {steps: 5}}",
            "model.warm_start.worked_only_steps 460 is more than model.warm_start.steps 5",
            id="warm start",
        ),
        pytest.param(
            "task: {epochs: 1, items: 10}",
            "algorithm.steps 100 x prompts_per_step 16 needs more prompts than task.epochs 1 x task.items 10",
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


# -- files that are no jobs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            "a: [", "line 1, column 5: not YAML: expected the node content, but found '<stream end>'", id="open"
        ),
        pytest.param("name: a\nb: c: d", "line 2, column 5: not YAML: mapping values are not allowed here", id="colon"),
        pytest.param(
            "\tname: x", "line 1, column 1: not YAML: found character '\\t' that cannot start any token", id="tab"
        ),
        pytest.param(
            "seed: 1\nseed: 2",
            'line 2, column 1: not YAML: found duplicate key "seed" with value "2" (original value: "1")',
            id="twice",
        ),
        pytest.param("--- 1\n--- 2", "line 2, column 1: not YAML: but found another document", id="two documents"),
        pytest.param(
            "seed: !!python/object:os.system x",
            "line 1, column 7: not YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object:os.system'",
            id="an object",
        ),
        pytest.param("name: 2024-13-45", "not YAML: month must be in 1..12", id="a date that is none"),
        pytest.param("a: " + "[" * 900, "is nested too deeply for a job", id="nested"),
        pytest.param("algorithm: &a {steps: *a}", "is nested too deeply for a job", id="an anchor inside itself"),
        pytest.param("- a\n- b", "must be a mapping of keys, got list", id="a list"),
        pytest.param("just text", "must be a mapping of keys, got str", id="text"),
    ],
)
def test_a_text_that_is_no_job_is_explained(text: str, line: str) -> None:
    assert told(text) == f"job: {line}"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00name")
    (tmp_path / "large.yaml").write_text("# " + "x" * 1_000_000)
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    for name, text in {
        "missing.yaml": "no such file",
        ".": "cannot be read: [Errno 21] Is a directory",
        "binary.yaml": "cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        "large.yaml": "is larger than 1000000 bytes, so it is no job file",
        "loop.yaml": "cannot be read: [Errno 40] Too many levels of symbolic links",
    }.items():
        with pytest.raises(JobError) as caught:
            load_job(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: {text}")
        assert "\n" not in str(caught.value)


# -- --set ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "path", "value"),
    [
        pytest.param(["algorithm.steps=7"], "algorithm.steps", 7, id="a number"),
        pytest.param(["devices.partition=12:4"], "devices.partition", Partition(rollout=12, train=4), id="12:4"),
        pytest.param(["algorithm.learning_rate=3e-4"], "algorithm.learning_rate", 3e-4, id="3e-4"),
        pytest.param(["seed=1", "seed=2"], "seed", 2, id="the last one wins"),
        pytest.param(
            ["model.warm_start.steps=0", "model.warm_start.worked_only_steps=0"], "model.warm_start.steps", 0, id="deep"
        ),
        pytest.param(["schedule={arm: colocated}"], "schedule.arm", "colocated", id="a whole section"),
        pytest.param(["task.answer_after==>"], "task.answer_after", "=>", id="a value with an equals sign"),
        pytest.param(["task.params.max_terms=5"], "task.params", {"max_terms": 5}, id="a parameter of the data set"),
        pytest.param(["task.epochs=null"], "task.epochs", None, id="null"),
    ],
)
def test_set_changes_a_value_and_reads_it_as_yaml_1_2(values: list[str], path: str, value: object) -> None:
    found: Any = parse_job("algorithm: {steps: 3}", values)
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    ("value", "line"),
    [
        pytest.param("seed", "--set: must be key.path=value, got 'seed'", id="no equals sign"),
        pytest.param("=3", "--set: must be key.path=value, got '=3'", id="no key"),
        pytest.param(
            "seed=[1", "--set seed: line 1, column 3: not YAML: expected ',' or ']', but got '<stream end>'", id="yaml"
        ),
        pytest.param(
            "algorithm.steps.x=1", "--set: algorithm.steps.x: 'steps' is not a mapping but 3", id="through a value"
        ),
        pytest.param(
            "algorithm.stps=1", "job: algorithm.stps: unknown key 'stps'; did you mean 'steps'?", id="unknown"
        ),
        pytest.param("seed=", "job: seed: input should be a valid integer, got None", id="no value"),
    ],
)
def test_a_bad_set_is_explained(value: str, line: str) -> None:
    assert told("algorithm: {steps: 3}", [value]) == line


def test_set_leaves_the_document_it_was_given_alone() -> None:
    document = {"algorithm": {"steps": 3}}
    assert apply_settings(document, ["algorithm.steps=4", "seed=1"]) == {"algorithm": {"steps": 4}, "seed": 1}
    assert document == {"algorithm": {"steps": 3}}


# -- there and back ---------------------------------------------------------------------------------------------------

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12)
FLOATS = st.floats(min_value=1e-12, max_value=1e6)
SCALARS = st.integers(-(10**9), 10**9) | FLOATS | TEXTS | st.booleans()
PARAMS = st.dictionaries(TEXTS, SCALARS | st.lists(SCALARS, max_size=3), max_size=3)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    arm = draw(st.sampled_from(ARMS_AVAILABLE))
    count = draw(st.integers(2, 20))
    rollout = draw(st.integers(1, count - 1))
    pools = draw(
        st.sampled_from(["auto", f"{rollout}:{count - rollout}", {"rollout": rollout, "train": count - rollout}])
    )
    return {
        "name": draw(NAMES),
        "seed": draw(st.integers(0, 2**31 - 1)),
        "task": {"params": draw(PARAMS), "answer_after": draw(st.none() | TEXTS)},
        "eval": {"control_prefix": draw(st.none() | TEXTS), "items": draw(st.integers(0, 10))},
        "algorithm": {"learning_rate": draw(FLOATS), "betas": draw(st.tuples(*[st.floats(0, 0.999)] * 2))},
        "schedule": {
            "arm": arm,
            "staleness": draw(st.floats(0, 16)),
            "in_flight_updates": draw(st.sampled_from([None, False])),
        },
        "devices": {
            "partition": "auto" if arm == "colocated" else pools,
            "count": draw(st.sampled_from(["auto", count])),
        }
        if arm == "colocated" or pools == "auto"
        else {"partition": pools},
        "checkpoint": {"snapshot_max_bytes": draw(st.integers(0, 10**12))},
    }


@settings(max_examples=40, deadline=None)
@given(documents())
def test_a_resolved_job_reads_back_equal_as_yaml_and_can_be_json(document: dict[str, Any]) -> None:
    job = check_job(document)
    assert parse_job(dump_job(job)) == job
    assert check_job(json.loads(json.dumps(job.model_dump(mode="json"), allow_nan=False))) == job


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40) | st.from_regex(r"[a-z]{1,9}: [\[\]{}:,a-z0-9&*!|>'\" \n-]{0,20}", fullmatch=True))
def test_any_text_is_a_job_or_one_line(text: str) -> None:
    line = ""
    try:
        parse_job(text)
    except JobError as error:
        line = str(error)
    assert len(line.splitlines()) <= 1


def test_an_error_survives_pickling() -> None:
    error = JobError({"seed": "must be"}, source="file.yaml")
    again = pickle.loads(pickle.dumps(error))
    assert (again.problems, again.source, str(again)) == ({"seed": "must be"}, "file.yaml", "file.yaml: seed: must be")


def test_a_job_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Job().seed = 3  # type: ignore[misc]


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
