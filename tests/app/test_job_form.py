"""The form as a view of the job file's text, and problems beside their fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import job_form
from app.job_fields import FIELDS
from app.job_form import check, default_text, field_text, first_path, read_document, set_field
from app.presets import JOBS_DIR, preset, preset_names
from engine.config import JobError, parse_job

TEXT = """# what this job is for
name: demo
algorithm:
  steps: 10  # short
  learning_rate: 6e-4
devices: {count: 2, partition: "1:1"}
"""


def document(text: str) -> dict[str, object]:
    found = read_document(text)
    assert found is not None
    return found


def test_every_field_is_a_key_of_the_job_with_a_default() -> None:
    assert all(default_text(path) != "" for path in FIELDS)
    parse_job("\n".join(f"# {path}" for path in FIELDS))


CHOSEN_IN = {"devices.rollouter": "model: {source: builtin:smollm2}\n"}
"""Jobs in which every choice of a field makes sense: vLLM does not compute the heads of the default model."""


def test_choices_are_what_the_validator_allows() -> None:
    refused = {
        (path, choice)
        for path, field in FIELDS.items()
        for choice in field.choices
        if path in check(set_field(CHOSEN_IN.get(path, "name: a\n"), path, choice), cores=None).problems
    }
    assert refused == set()


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("name", "demo"),
        ("algorithm.steps", "10"),
        ("algorithm.learning_rate", "6e-4"),
        ("devices.partition", "1:1"),
        ("seed", ""),
        ("task.params", ""),
    ],
)
def test_a_field_shows_the_value_as_it_was_written(path: str, shown: str) -> None:
    assert field_text(document(TEXT), path) == shown


def test_an_edit_keeps_comments_and_order() -> None:
    changed = set_field(TEXT, "algorithm.steps", "20")
    assert "# what this job is for" in changed
    assert "steps: 20" in changed
    assert changed.index("name:") < changed.index("algorithm:") < changed.index("devices:")
    assert parse_job(changed).algorithm.steps == 20


@pytest.mark.parametrize(
    ("path", "typed", "value"),
    [
        ("devices.partition", "3:1", "3:1"),
        ("algorithm.learning_rate", "3e-4", 3e-4),
        ("task.params", "{min_terms: 3, max_terms: 4}", {"min_terms": 3, "max_terms": 4}),
        ("task.answer_after", "<answer>", "<answer>"),
        ("eval.items", "64", 64),
        ("devices.oversubscribe", "true", True),
    ],
)
def test_what_is_typed_is_read_as_yaml(path: str, typed: str, value: object) -> None:
    changed = set_field(TEXT, path, typed)
    here: object = document(changed)
    for part in path.split("."):
        assert isinstance(here, dict)
        here = here[part]
    assert here == value


def test_clearing_a_field_leaves_it_to_its_default() -> None:
    assert "learning_rate" not in set_field(TEXT, "algorithm.learning_rate", "  ")
    assert set_field("name: a\n", "eval.items", "") == "name: a\n"


def test_a_field_can_be_set_in_an_empty_text() -> None:
    assert parse_job(set_field("", "name", "a")).name == "a"


def test_what_is_typed_and_is_no_yaml_is_a_problem_of_that_field() -> None:
    with pytest.raises(JobError) as caught:
        set_field(TEXT, "task.params", "{min_terms: ")
    assert list(caught.value.problems) == ["task.params"]


@pytest.mark.parametrize("text", ["- a\n- b\n", "name: [", "just words"], ids=["list", "broken", "text"])
def test_a_text_that_is_no_mapping_cannot_be_a_form(text: str) -> None:
    assert read_document(text) is None
    with pytest.raises(JobError, match="mended first"):
        set_field(text, "name", "a")


@pytest.mark.parametrize(
    ("setting", "path", "says"),
    [
        ("algorithm.group_size=1", "algorithm.group_size", "must be a whole number of at least 2"),
        ("schedule.staleness=99", "schedule.staleness", "16"),
        ("devices.partition=many", "devices.partition", "ROLLOUT:TRAIN"),
        ("name=a b", "name", "letters, digits"),
        ("task.params={a: null}", "task.params", ""),
        ("devices.rollout_slots=4", "devices.rollout_slots", "cannot hold one group"),
        ("devices.count=8", "devices.count", "2 cores"),
        ("schedule.arm=greedy", "schedule.arm", "must be one of no_borrow, colocated, rollout_on_train"),
    ],
)
def test_a_problem_stands_beside_its_field(setting: str, path: str, says: str) -> None:
    name, _, value = setting.partition("=")
    checked = check(set_field("name: demo\n", name, value), cores=2)
    assert checked.job is None
    assert says in checked.beside(path)
    assert checked.beside(path)


def test_a_problem_of_two_fields_stands_beside_the_one_it_names_first() -> None:
    assert first_path("schedule.staleness 1.0 with algorithm.correction 'none'") == "schedule.staleness"
    assert first_path("nothing that we know") == ""


def test_a_key_that_the_form_does_not_have_is_still_a_problem() -> None:
    checked = check("name: demo\nalgorithm: {stepz: 3}\n", cores=None)
    assert "did you mean 'steps'?" in checked.problems["algorithm.stepz"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ([], "Staleness 1: at most 1 version late, 16 groups may be started ahead."),
        (["schedule.staleness=0"], "strictly on-policy"),
        (["schedule.staleness=0.01"], "lets no group start ahead"),
        (["schedule.arm=colocated"], "no pools"),
        (["eval.items=0"], "No held-out evaluation."),
        ([], "Held-out accuracy on 256 items every 20 steps."),
        (
            ["task.rewards=[{name: 'python:rewards:short'}]"],
            "Held-out accuracy, the share of answers that python:rewards:short gives 1 or more, on 256 items",
        ),
        ([], "Scored by scorer, learnt from by grpo."),
        (
            ["task.rewards=[{name: exact}, {name: 'python:rewards:short', weight: 0.1}]", "algorithm.loss=dapo"],
            "Scored by exact + 0.1 x python:rewards:short, learnt from by dapo.",
        ),
        (["algorithm.dynamic_sampling=true"], "learnt from by grpo; groups without signal are replaced."),
    ],
)
def test_the_plan_says_what_a_job_will_do(settings: list[str], says: str) -> None:
    assert says in " ".join(job_form.plan_sentences(parse_job("", settings)))


def test_every_preset_is_a_job_and_the_demo_comes_first() -> None:
    names = preset_names()
    assert names[0] == "demo"
    for name in names:
        found = preset(name)
        assert found is not None
        assert check(found.text, cores=None).job is not None
        assert found.base_dir == str(JOBS_DIR)


def test_a_job_that_is_only_there_to_be_simulated_is_no_preset_and_one_with_a_mistake_is(tmp_path: Path) -> None:
    (tmp_path / "simulated.yaml").write_text("devices: {kind: cuda}")
    (tmp_path / "mistaken.yaml").write_text("schedule: {arm: bidirectionl}")
    (tmp_path / "good.yaml").write_text("name: good")
    (tmp_path / "demo.yaml").write_text("name: demo")
    assert preset_names(tmp_path) == ["demo", "good", "mistaken"]


@pytest.mark.parametrize("name", ["nothing", "../pyproject", ""])
def test_a_preset_that_is_not_there_is_none(name: str) -> None:
    assert preset(name) is None
