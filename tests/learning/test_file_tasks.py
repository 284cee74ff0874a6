"""Items from files: what is read, what is held out, and that nothing malformed gets through."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from engine.config import JobError, TaskConfig, check_job
from engine.learning.tasks import FileTask, check_task, rows
from engine.learning.tasks.read import final_answer

ROWS = [{"question": f"{n} + {n}?", "answer": f"Twice {n}.\n#### {2 * n}", "level": n} for n in range(1, 21)]
"""Twenty, in the form of GSM8K."""

GSM8K_VARIABLE = "BIDIRL_TEST_GSM8K"
"""Names a file of GSM8K in its public form, where there is one to test with."""


def write(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def make_task(folder: Path, *, held_out_items: int = 4, **fields: Any) -> FileTask:
    fields = {"source": "jsonl:data.jsonl", "reward": "exact"} | fields
    return FileTask(TaskConfig(**fields), roots=[folder.resolve()], held_out_items=held_out_items)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "data.jsonl", ROWS)
    return tmp_path


def prompts(task: FileTask) -> tuple[list[str], list[str]]:
    """Of training and of held-out items."""
    return [task.prompt(i) for i in range(task.size)], [task.prompt(-1 - i) for i in range(task.held_out)]


def test_rows_are_split_into_training_and_held_out_items_without_a_common_prompt(folder: Path) -> None:
    task = make_task(folder)
    training, held_out = prompts(task)
    assert (len(training), len(held_out)) == (16, 4)
    assert sorted(training + held_out) == sorted(row["question"] for row in ROWS)
    assert training == sorted(training, key=[row["question"] for row in ROWS].index), "in the order of the file"
    assert task.notes == ("jsonl:data.jsonl: 20 rows; 16 to train on, 4 held out.",)


def test_the_same_rows_are_held_out_wherever_they_stand_in_the_file(folder: Path) -> None:
    before = prompts(make_task(folder))[1]
    write(folder / "data.jsonl", ROWS[::-1])
    assert prompts(make_task(folder))[1] == before
    assert set(prompts(make_task(folder, held_out_items=2))[1]) < set(before)


def test_an_item_is_its_row(folder: Path) -> None:
    task = make_task(folder, prompt_template="Work it out: {prompt}")
    assert task.entry(0)["metadata"] == {"level": int(task.entry(0)["answer"]) // 2}
    assert task.prompt(0) == f"Work it out: {task.entry(0)['question']}"
    with pytest.raises(IndexError):
        task.entry(16)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so\n#### 72", "72"),
        ("so\n#### 1,080\n", "1080"),
        ("so\n#### $-3.5", "-3.5"),
        ("#### 7", "7"),
        ("72", "72"),
        (" some words ", "some words"),
        ("#### a heading\nand words", "#### a heading\nand words"),
        ("not #### 7", "not #### 7"),
    ],
)
def test_the_line_that_ends_a_way_to_an_answer_is_read_as_the_answer(text: str, answer: str) -> None:
    assert final_answer(text) == answer


def test_held_out_items_may_have_a_file_of_their_own_and_their_prompts_are_left_out_of_training(folder: Path) -> None:
    write(folder / "test.jsonl", [*ROWS[:3], {"question": "another?", "answer": 5}])
    task = make_task(folder, held_out="jsonl:test.jsonl", held_out_items=2)
    training, held_out = prompts(task)
    assert (len(training), len(held_out)) == (17, 2)
    assert not {row["question"] for row in ROWS[:3]} & set(training), "those too that are not among the two"
    assert task.notes[0].endswith("17 to train on, 2 held out, 3 left out since jsonl:test.jsonl has their prompt.")


def test_an_items_place_names_the_file_and_the_line_it_stands_in(folder: Path) -> None:
    text = (folder / "data.jsonl").read_text(encoding="utf-8")
    (folder / "data.jsonl").write_text(f"\n{text}", encoding="utf-8")
    write(folder / "test.jsonl", [{"question": "another?", "answer": 5}])
    task = make_task(folder, held_out="jsonl:test.jsonl", held_out_items=1)
    assert (task.place(0), task.place(19)) == ("jsonl:data.jsonl, line 2", "jsonl:data.jsonl, line 21")
    assert task.place(-1) == "jsonl:test.jsonl, line 1"


def test_a_changed_field_changes_what_the_rows_say_since_a_reward_may_read_it(folder: Path) -> None:
    before = make_task(folder).sha256
    write(folder / "data.jsonl", [{key: row[key] for key in reversed(row)} for row in ROWS])
    assert make_task(folder, sha256=before).sha256 == before, "the order of fields says nothing"
    write(folder / "data.jsonl", [row | {"level": 7} if row["level"] == 3 else row for row in ROWS])
    with pytest.raises(ValueError, match="says something else than when the run was launched"):
        make_task(folder, sha256=before)


def test_fields_of_any_kind_are_told_apart_and_the_same_ones_are_the_same(folder: Path) -> None:
    day = datetime.date(2024, 5, 1)
    hashes = []
    for changed in ({}, {}, {"raw": b"y"}, {"day": day.replace(day=2)}, {"several": [{"a": 2}]}):
        fields = {"raw": b"x", "day": day, "several": [{"a": 1}], "none": None} | changed
        rows = [row | fields for row in ROWS]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "data.parquet")
        hashes.append(make_task(folder, source="parquet:data.parquet").sha256)
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


def test_a_run_of_before_hashes_covered_all_fields_keeps_its_hash_and_can_be_resumed(folder: Path) -> None:
    task = make_task(folder)
    items = [*range(task.size), *(-1 - i for i in range(task.held_out))]
    two = [json.dumps([task.entry(item)["question"], task.entry(item)["answer"]]) for item in items]
    old = hashlib.sha256("".join(two).encode()).hexdigest()
    resumed = make_task(folder, sha256=old)
    assert resumed.sha256 == old != task.sha256, "the job that is resumed is compared with what it was"
    assert "covers prompts and answers alone" in resumed.notes[1]
    write(folder / "data.jsonl", [ROWS[0] | {"answer": "9"}, *ROWS[1:]])
    with pytest.raises(ValueError, match="says something else"):
        make_task(folder, sha256=old)


def test_fields_may_have_other_names_and_answers_may_be_numbers(folder: Path) -> None:
    write(folder / "data.jsonl", [{"prompt": "a", "x": "b", "answer": 1.5}, {"prompt": "c", "x": "d", "answer": 2}])
    task = make_task(folder, held_out_items=0)
    assert [task.entry(i)["answer"] for i in (0, 1)] == ["1.5", "2"]
    task = make_task(folder, held_out_items=0, prompt_field="x", answer_field="prompt")
    assert (task.prompt(1), task.entry(1)["answer"], task.entry(1)["metadata"]) == ("d", "c", {"answer": 2})


def test_fewer_items_are_the_first_ones(folder: Path) -> None:
    assert prompts(make_task(folder, items=5))[0] == prompts(make_task(folder))[0][:5]


def test_parquet_says_the_same_as_jsonl(folder: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), folder / "data.parquet")
    one, other = make_task(folder), make_task(folder, source="parquet:data.parquet")
    assert prompts(one) == prompts(other)
    assert (one.sha256, one.entry(0)) == (other.sha256, other.entry(0))


# -- what is refused --------------------------------------------------------------------------------------------------


def line(**row: Any) -> str:
    return json.dumps(row)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "jsonl:data.jsonl: has no rows; allowed: one row an item"),
        ("\n \n", "has no rows"),
        ('{"question": "a", "answer": "b"}\n{"question": ', "line 2, column 14: not JSON: expecting value; allowed:"),
        ('{"question": "a', "line 1, column 14: not JSON: unterminated string starting; allowed: one object a line"),
        ('{"question": "a\tb"}', "line 1, column 16: not JSON: invalid control character; allowed: one object a line"),
        ("[1, 2]", "line 1: is no object but list '[1, 2]'; allowed: one object a line"),
        ('"text"', "line 1: is no object but str 'text'"),
        ('{"question": "a", "answer": NaN}', "line 1: not JSON that can be read: NaN is no number of JSON"),
        (
            '{"question": "a", "question": "b"}',
            "line 1: not JSON that can be read: it names the field 'question'",
        ),
        ("[" * 100_000, "line 1: not JSON that can be read"),
        (
            line(answer="b"),
            "line 1: has no field 'question' or 'prompt'; its fields: answer; name another in task",
        ),
        (line(question="a", text="b"), "line 1: has no field 'answer'; its fields: question, text; name another in "),
        (line(question=3, answer="b"), "line 1, field 'question': must be text, got int '3'"),
        (line(question="a", answer=["b"]), "line 1, field 'answer': must be text or a number, got list"),
        (line(question="a", answer=True), "line 1, field 'answer': must be text or a number, got bool 'True'"),
        (line(question="a", answer=None), "line 1, field 'answer': must be text or a number, got NoneType"),
        ('{"question": "a", "answer": 1e999}', "line 1, field 'answer': must be a finite number, got inf"),
        (line(question=" ", answer="b"), "line 1, field 'question': is empty; allowed: some text"),
        (line(question="a", answer=" "), "line 1, field 'answer': is empty; allowed: some text or a number"),
        (line(question="\ud800", answer="b"), "line 1, field 'question': holds half a character"),
        (
            f"{line(question='a', answer='b')}\n\n{line(question='a', answer='c')}",
            "jsonl:data.jsonl: 1 row has an earlier prompt: line 3 that of line 1, 'a'; allowed: each prompt once",
        ),
    ],
)
def test_a_malformed_file_is_refused_with_its_line_and_what_is_allowed(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        make_task(tmp_path, held_out_items=0)
    message = str(caught.value)
    assert message.startswith("task.source: jsonl:data.jsonl")
    assert told in message
    assert "\n" not in message


def test_all_repeated_prompts_are_told_at_once_and_the_first_of_them_named(tmp_path: Path) -> None:
    rows = [line(question=f"q{i % 5}", answer="b") for i in range(12)]
    (tmp_path / "data.jsonl").write_text("\n".join(rows), encoding="utf-8")
    with pytest.raises(ValueError, match="7 rows have the prompt of an earlier one") as caught:
        make_task(tmp_path, held_out_items=0)
    message = str(caught.value)
    assert "line 6 that of line 1, 'q0'; line 7 that of line 2, 'q1'" in message
    # five are named; line 11 repeats the first line too, and is counted
    assert "line 10 that of line 5" in message
    assert "line 11" not in message
    assert message.endswith("; and 2 more; allowed: each prompt once")


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_bytes(b'{"question": "caf\xe9", "answer": "b"}')
    with pytest.raises(ValueError, match=r"line 1: is not UTF-8 text \(byte 18 of the line\)"):
        make_task(tmp_path)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"source": "jsonl:gone.jsonl"}, r"task.source: 'gone.jsonl' does not exist"),
        ({"source": "jsonl:../data.jsonl"}, r"task.source: '../data.jsonl' is outside the folders a job may read"),
        ({"source": "jsonl:."}, r"task.source: jsonl:.: is a folder; allowed: a file"),
        ({"source": "parquet:data.jsonl"}, r"task.source: parquet:data.jsonl: is no Parquet file that can be read"),
        ({"held_out": "jsonl:gone.jsonl"}, r"task.held_out: 'gone.jsonl' does not exist"),
        ({"prompt_field": "level"}, r"line 1, field 'level': must be text, got int '1'"),
        ({"held_out_items": 11}, r"eval.items: 11 of the 20 rows .* allowed: at most half of them, 10"),
        ({"items": 17}, r"task.items: 17 are asked for and jsonl:data.jsonl has 16 rows that are not held out"),
        ({"held_out": "jsonl:data.jsonl"}, r"every row's prompt is held out"),
        ({"held_out": "jsonl:data.jsonl", "held_out_items": 21}, r"eval.items: 21 are asked for and .* has 20"),
        ({"sha256": "0" * 64}, r"task.sha256: jsonl:data.jsonl: says something else than when the run was launched"),
    ],
)
def test_a_task_that_cannot_be_made_of_its_file_is_refused(fields: dict[str, Any], told: str, folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    write(inner / "data.jsonl", ROWS)
    with pytest.raises(ValueError, match=told):
        make_task(inner, **fields)


def test_a_launch_fills_in_how_many_items_there_are_and_what_they_say(folder: Path) -> None:
    document = {"task": {"source": "jsonl:data.jsonl", "reward": "exact", "epochs": 2}, "eval": {"items": 4}}
    document["algorithm"] = {"steps": 2, "prompts_per_step": 16}
    job = check_task(check_job(document), roots=[folder.resolve()])
    assert (job.task.items, job.task.sha256) == (16, make_task(folder).sha256)
    assert check_task(job, roots=[folder.resolve()]) == job
    write(folder / "data.jsonl", [*ROWS[1:], {"question": "new?", "answer": "1"}])
    with pytest.raises(JobError, match="says something else than when the run was launched"):
        check_task(job, roots=[folder.resolve()])


def test_a_launch_refuses_more_steps_than_the_file_has_prompts_for(folder: Path) -> None:
    document = {"task": {"source": "jsonl:data.jsonl", "reward": "exact", "epochs": 1}, "eval": {"items": 4}}
    document["algorithm"] = {"steps": 2, "prompts_per_step": 16}
    with pytest.raises(JobError, match=r"needs more prompts than task.epochs 1 x task.items 16"):
        check_task(check_job(document), roots=[folder.resolve()])


# -- the library datasets ---------------------------------------------------------------------------------------------


def test_without_the_library_it_is_said_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"hf:data: needs the library datasets, .*pip install datasets==.* jsonl"):
        make_task(folder, source="hf:data")


def test_a_folder_of_the_library_is_read_by_its_splits(folder: Path) -> None:
    datasets = pytest.importorskip("datasets")
    splits = {"train": datasets.Dataset.from_list(ROWS[:12]), "test": datasets.Dataset.from_list(ROWS[12:])}
    datasets.DatasetDict(splits).save_to_disk(folder / "saved")
    task = make_task(folder, source="hf:saved", held_out="hf:saved")
    assert (task.size, task.held_out) == (12, 4)
    assert task.prompt(0) == "1 + 1?"
    assert make_task(folder, source="hf:saved", params={"split": "test"}, held_out_items=0).size == 8
    with pytest.raises(ValueError, match=r"task.source: hf:saved: split 'gone' cannot be loaded: KeyError"):
        make_task(folder, source="hf:saved", params={"split": "gone"})
    with pytest.raises(ValueError, match="outside the folders a job may read"):
        make_task(folder, source="hf:../elsewhere")


def test_a_plain_folder_is_read_by_the_library(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    (folder / "plain").mkdir()
    write(folder / "plain" / "train.jsonl", ROWS)
    assert make_task(folder, source="hf:plain").size == 16


def test_a_name_that_is_not_there_is_refused_and_no_network_is_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"split 'train' cannot be loaded: .*without a network only"):
        make_task(folder, source="hf:nobody/has-this")


class Asked:
    """The hub, as far as it is asked: raises what a request meets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, meets: Exception | None) -> None:
        self.meets, self.timeouts, self.loaded_offline = meets, list[float](), list[bool]()
        import datasets

        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda api, name, timeout: self.info(timeout))
        monkeypatch.setattr(datasets, "load_dataset", self.load)

    def info(self, timeout: float) -> None:
        self.timeouts.append(timeout)
        if self.meets is not None:
            raise self.meets

    def load(self, name: str, split: str) -> list[dict[str, str]]:
        import datasets

        self.loaded_offline.append(datasets.config.HF_HUB_OFFLINE)
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 8s [Retry 5/5].")
        logging.getLogger("datasets.load").warning("Using the latest cached version")
        if name == "nobody/has-this":
            raise ConnectionError("Couldn't reach the hub")
        return [{"question": "1 + 1?", "answer": "2"}]


def refusal(code: int) -> Exception:
    """What the hub's library raises for an answer with this status."""
    from huggingface_hub.errors import HfHubHTTPError

    class Answer:
        status_code, headers, request = code, dict[str, str](), None

    return HfHubHTTPError(f"{code} it says", response=Answer())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("meets", "offline"),
    [
        pytest.param(None, False, id="an answer"),
        pytest.param(refusal(404), False, id="no such set"),
        pytest.param(refusal(503), True, id="busy"),
        pytest.param(OSError("Name or service not known"), True, id="no network"),
    ],
)
def test_the_hub_is_asked_once_with_a_deadline_and_its_library_only_where_it_answers(
    meets: Exception | None, offline: bool, folder: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pytest.importorskip("datasets")
    hub = Asked(monkeypatch, meets)
    assert make_task(folder, source="hf:some/set", held_out_items=0).size == 1
    # where it does not, what was downloaded before is read from the cache, without waits
    assert (hub.timeouts, hub.loaded_offline) == ([rows.HUB_TIMEOUT_S], [offline])
    with pytest.raises(ValueError, match="without a network only what was downloaded before can be read") as caught:
        make_task(folder, source="hf:nobody/has-this")
    assert ("the hub does not answer (" in str(caught.value)) is offline
    assert capfd.readouterr() == ("", ""), "one line is the message; the libraries' own are left out"
    import datasets

    assert datasets.config.HF_HUB_OFFLINE is False


def test_gsm8k_in_its_public_form_is_read_whole() -> None:
    named = os.environ.get(GSM8K_VARIABLE)
    if not named:
        pytest.skip(f"{GSM8K_VARIABLE} names no file")
    path = Path(named).resolve()
    task = make_task(path.parent, source=f"jsonl:{path.name}", held_out_items=20)
    answers = [task.entry(item)["answer"] for item in range(-20, task.size)]
    assert len(answers) == sum(1 for text in path.read_text(encoding="utf-8").splitlines() if text)
    assert all(float(answer) == float(answer) for answer in answers)
