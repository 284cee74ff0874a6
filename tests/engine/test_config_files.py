"""Texts and files that are no jobs, `--set`, and jobs that go to a file and come back equal."""

from __future__ import annotations

import json
import pickle
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import (
    ARMS,
    Job,
    JobError,
    Partition,
    apply_settings,
    check_job,
    dump_job,
    load_job,
    parse_job,
)
from planner.policy.improvements import IMPROVEMENTS
from tests.engine.test_config import told

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
        pytest.param("seed=", "job: seed: must be a whole number from 0 to 2147483647, got null", id="no value"),
        pytest.param(
            "model.prompt_template=Q: {prompt} x",
            "--set model.prompt_template: line 1, column 13: not YAML: expected <block end>, but found '<scalar>'; in "
            "quotes it is text: --set 'model.prompt_template=\"Q: {prompt} x\"'",
            id="a text that is no YAML",
        ),
        pytest.param(
            "task.prompt_template=Q: {nope}",
            "job: task.prompt_template: must be text or null, got a mapping; in quotes it is text: --set "
            "'task.prompt_template=\"Q: {nope}\"'",
            id="a text that YAML reads as a mapping",
        ),
        pytest.param(
            "eval.control_prefix=1.50",
            "job: eval.control_prefix: must be text or null, got 1.5; in quotes it is text: --set "
            "'eval.control_prefix=\"1.50\"'",
            id="a text that YAML reads as a number",
        ),
    ],
)
def test_a_bad_set_is_explained(value: str, line: str) -> None:
    assert told("algorithm: {steps: 3}", [value]) == line


@pytest.mark.parametrize(
    "text", ["Q: {prompt} x", "[a'b\"c\\ {prompt}", "ümlaut: {prompt}\n\tA:", "$HOME `id` {prompt}: 3"]
)
def test_the_setting_that_a_message_proposes_is_the_text_that_was_meant(text: str) -> None:
    line = told("model: {source: builtin:smollm2}", [f"model.prompt_template={text}"])
    option, setting = shlex.split(line.partition("in quotes it is text: ")[2])
    assert option == "--set"
    assert parse_job("model: {source: builtin:smollm2}", [setting]).model.prompt_template == text


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
def profiles(draw: st.DrawFn) -> dict[str, Any]:
    seconds, model = st.floats(0, 1e6), st.fixed_dictionaries({"a": st.floats(0, 1e6), "b": st.floats(1e-3, 1e6)})
    lease = {"in_s": draw(seconds), "out_s": draw(seconds)}
    return {
        "rollout": {"slots": 64, "tokens_per_s": draw(st.floats(0.1, 1e9)), "half_batch": 24, "resume_tokens": 0},
        "train": {"tokens_per_s": 2800, "chunk_s": draw(seconds), "max_chunk_groups": draw(st.integers(1, 99))},
        "optimizer_s": draw(seconds),
        "weight_sync_s": draw(seconds),
        "switch": {"rollout_on_train": lease, "train_on_rollout": lease | {"grad_s": draw(seconds)}},
        "response_tokens": {"median": 700, "max": 2048, "drift": draw(st.floats(0, 3))},
        "prompt_tokens": draw(st.floats(0, 1e6)),
        "models": draw(st.none() | st.fixed_dictionaries({"rollout": model, "train": model})),
    }


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    arm = draw(st.sampled_from(ARMS))
    count = draw(st.integers(2, 20))
    rollout = draw(st.integers(1, count - 1))
    pools = draw(
        st.sampled_from(["auto", f"{rollout}:{count - rollout}", {"rollout": rollout, "train": count - rollout}])
    )
    return {
        "name": draw(NAMES),
        "seed": draw(st.integers(0, 2**31 - 1)),
        "task": {"params": draw(PARAMS), "answer_after": draw(st.none() | TEXTS.filter(bool))},
        "eval": {"control_prefix": draw(st.none() | TEXTS), "items": draw(st.integers(0, 10))},
        "algorithm": {"learning_rate": draw(FLOATS), "betas": draw(st.tuples(*[st.floats(0, 0.999)] * 2))},
        "schedule": {
            "arm": arm,
            "improvements": draw(st.dictionaries(st.sampled_from(IMPROVEMENTS), st.booleans(), max_size=3)),
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
        "profile": draw(st.none() | profiles()),
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


@pytest.mark.parametrize("text", [":0", "?0", "?", "? a", "?!x"])
def test_a_text_that_begins_with_a_mark_of_the_language_reads_back(text: str) -> None:
    job = parse_job(f'eval: {{control_prefix: "{text}"}}\ntask: {{params: {{kind: "{text}"}}}}')
    assert job.eval.control_prefix == text
    assert parse_job(dump_job(job)) == job
