"""What each reward gives, that a fault is never a number, and that no reward can hold a worker up."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.config import TaskConfig, load_job
from engine.learning.grpo.advantages import advantages
from engine.learning.rewards import process
from engine.learning.rewards.judge import Judge
from engine.learning.rewards.make import make_scoring
from engine.learning.rewards.process import ScoringProcess
from engine.learning.rewards.python_function import file_of
from engine.learning.rewards.reward import BETWEEN, LARGEST, NoReward, Question, RewardFailed, as_number
from engine.learning.rewards.scoring import Answers, InlineScoring, Scoring, Verdict, score_all
from engine.learning.rewards.spec import check_rewards, reward_spec
from engine.learning.tasks import ReasoningGymTask

PATIENCE_S = 60.0
"""Longest wait for anything; reached only when a test fails."""

SUMS = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}

FUNCTIONS = """
import os, time

def length(*, prompt, response, answer, fields):
    return len(response)

def told(*, prompt, response, answer, fields):
    print("printed things do no harm")
    return (prompt, answer, fields) == ("2 + 2?", "4", {"level": 3})

def odd(*, prompt, response, answer, fields):
    match response:
        case "raise": raise ZeroDivisionError("boom")
        case "exit": raise SystemExit(3)
        case "die": os._exit(7)
        case "hang": time.sleep(600)
        case "nan": return float("nan")
        case "huge": return 1e308
        case "inf": return float("-inf")
        case "none": return None
        case "text": return "1.0"
    return 0.25

not_a_function = 3
"""

CALLS = """def few(response, answer): return 1.0
def more(x, y=1, **others): return 1.0
def by_place(prompt, /, response, answer, fields): return 1.0
async def later(**others): return 1.0
class Outer:
    def inner(self, **others): return 1.0
"""

NOTING = """
import time
from pathlib import Path

def noted(*, response, **others):
    with (Path(__file__).parent / "noted.txt").open("a") as file:
        print(response, file=file)
    if response == "hang":
        time.sleep(600)
    return 1.0
"""

LATE = """
import importlib, time

def f(*, response, **others):
    if response == "plain":
        return 1
    if response == "import_module":
        return importlib.import_module("heavy").VALUE
    import heavy
    if response == "import and hang":
        time.sleep(600)
    return heavy.VALUE
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rewards.py").write_text(FUNCTIONS, encoding="utf-8")
    return tmp_path


def config(**fields: Any) -> TaskConfig:
    return TaskConfig(**({"source": "jsonl:unused"} | fields))


def question(item: int = 0, **entry: Any) -> Question:
    return Question(item=item, prompt="2 + 2?", entry={"question": "2 + 2?", "answer": "4", "metadata": {}} | entry)


def judge(folder: Path, **fields: Any) -> Judge:
    return Judge(reward_spec(config(**fields), roots=[folder]))


# -- single rewards ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<answer>{}", 1.0),
        ("<think>1=1<answer>{}", 1.0),
        ("<answer> {}\n", 1.0),
        ("{}", 0.0),
        ("<answer>{}<answer>{}", 0.0),
        ("<answer>{}1", 0.0),
        ("<answer>", 0.0),
        ("", 0.0),
    ],
)
@pytest.mark.parametrize("name", ["scorer", "exact"])
def test_what_follows_the_single_marker_is_scored(text: str, reward: float, name: str, folder: Path) -> None:
    fields = {"source": "reasoning_gym:chain_sum", "params": SUMS, "answer_after": "<answer>", "reward": name}
    task = ReasoningGymTask(TaskConfig(**fields), seed=1, held_out_items=2)
    score = judge(folder, **fields)
    for item in (0, -1):
        entry = task.entry(item)
        asked = Question(item=item, prompt=task.prompt(item), entry=entry)
        assert score(asked, text.format(*[entry["answer"]] * 2)) == {name: reward}


def test_partial_credit_of_a_scorer_is_no_reward(folder: Path) -> None:
    fields = {"source": "reasoning_gym:countdown"}
    task = ReasoningGymTask(TaskConfig(**fields), seed=1, held_out_items=2)
    score = judge(folder, **fields)
    assert score(Question(item=0, prompt="", entry=task.entry(0)), "garbage") == {"scorer": 0.0}


@pytest.mark.parametrize(
    ("answer", "text", "reward"),
    [
        ("72", "#### 72", 1.0),
        ("72", r"So it is \boxed{72}.", 1.0),
        ("1080", "1,080", 1.0),
        ("0.5", r"$\frac{1}{2}$", 1.0),
        ("72", "71", 0.0),
        ("72", "", 0.0),
        ("72", "\\frac{1}{", 0.0),
    ],
)
def test_math_verify_compares_numbers_and_formulas(answer: str, text: str, reward: float, folder: Path) -> None:
    pytest.importorskip("math_verify")
    assert judge(folder, reward="math_verify")(question(answer=answer), text) == {"math_verify": reward}


def test_an_answer_that_math_verify_cannot_read_is_a_failure_and_not_a_wrong_answer(folder: Path) -> None:
    pytest.importorskip("math_verify")
    with pytest.raises(RewardFailed, match="the right answer 'why not' is neither a number nor a formula"):
        judge(folder, reward="math_verify")(question(answer="why not"), "42")


def test_a_function_is_told_the_prompt_the_whole_response_the_answer_and_the_other_fields(folder: Path) -> None:
    told = judge(folder, reward="python:rewards:told", answer_after="<answer>")
    assert told(question(metadata={"level": 3}), "anything") == {"python:rewards:told": 1.0}
    assert told(question(metadata={"level": 4}), "anything") == {"python:rewards:told": 0.0}
    whole = judge(folder, reward="python:rewards:length", answer_after="<answer>")
    assert whole(question(), "no marker") == {"python:rewards:length": 9.0}


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("raise", "reward_failed", "ZeroDivisionError: boom"),
        ("exit", "reward_failed", "SystemExit: 3"),
        ("nan", "reward_not_a_number", "it gave nan; allowed: a finite number"),
        ("inf", "reward_not_a_number", "it gave -inf; allowed: a finite number"),
        ("huge", "reward_too_large", f"it gave 1e+308; {BETWEEN}"),
        ("none", "reward_not_a_number", "it gave NoneType None; allowed: a finite number"),
        ("text", "reward_not_a_number", "it gave str '1.0'; allowed: a finite number"),
    ],
)
def test_a_fault_is_a_failure_with_its_reason_and_no_number(text: str, reason: str, detail: str, folder: Path) -> None:
    with pytest.raises(RewardFailed) as caught:
        judge(folder, reward="python:rewards:odd")(question(item=3), text)
    failure = caught.value
    assert (failure.reason, failure.detail) == (reason, detail)
    assert str(failure) == f"python:rewards:odd failed on item 3 and the answer {text!r}: {detail}"
    copy = pickle.loads(pickle.dumps(failure))
    assert (copy.item, copy.text, str(copy)) == (3, text, str(failure))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (True, 1.0),
        (2, 2.0),
        (-0.5, -0.5),
        (LARGEST, LARGEST),
        (np.float32(0.5), 0.5),
        (np.bool_(True), 1.0),
        (np.array(0.25), 0.25),
        (torch.tensor(0.5), 0.5),
        (torch.tensor(True), 1.0),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 4), 0.25),
    ],
    ids=repr,
)
def test_any_single_finite_number_is_a_reward(value: object, number: float) -> None:
    assert as_number(value) == number
    with pytest.raises(NoReward):
        as_number([value])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0.5", "reward_not_a_number"),
        (b"0.5", "reward_not_a_number"),
        (np.str_("0.5"), "reward_not_a_number"),
        (np.array([0.5]), "reward_not_a_number"),
        (torch.tensor([0.5]), "reward_not_a_number"),
        (torch.tensor(float("nan")), "reward_not_a_number"),
        (float, "reward_not_a_number"),
        (1j, "reward_not_a_number"),
        (np.nextafter(LARGEST, np.inf), "reward_too_large"),
        (-1e10, "reward_too_large"),
        (10**400, "reward_too_large"),
    ],
    ids=repr,
)
def test_whatever_is_no_single_number_that_can_be_trained_on_is_no_reward(value: object, reason: str) -> None:
    with pytest.raises(NoReward) as caught:
        as_number(value)
    assert caught.value.reason == reason
    assert "allowed: " in str(caught.value)


@pytest.mark.parametrize("scale", ["group", "none"])
def test_advantages_of_the_largest_rewards_can_be_squared_in_float32(scale: str) -> None:
    found = advantages(np.array([LARGEST, -LARGEST, 0.0, LARGEST]), scale_rewards=scale).astype(np.float32)
    assert np.isfinite(found**2).all()


def test_several_rewards_add_up_by_their_weights(folder: Path) -> None:
    rewards = [{"name": "exact", "weight": 2}, {"name": "python:rewards:length", "weight": -0.5}]
    score = judge(folder, rewards=rewards, answer_after=">")
    values = tuple(score(question(), text) for text in (">4", ">5", "4"))
    weights = {"exact": 2.0, "python:rewards:length": -0.5}
    assert [given["exact"] for given in values] == [1, 0, 0]
    assert Verdict(key=0, values=values).totals(weights) == [2 - 1, -1, -0.5]
    assert score(question(), ">4", only="exact") == {"exact": 1.0}


def test_a_sum_that_is_no_finite_number_is_a_failure() -> None:
    verdict = Verdict(key=5, values=({"a": 1e308},))
    with pytest.raises(RewardFailed, match=r"the weighted sum failed on item 5.*it gave inf.*for {'a': 1e\+308}"):
        verdict.totals({"a": 10.0})
    with pytest.raises(RewardFailed, match=r"it gave 1e\+10; allowed: from -1,000,000,000") as caught:
        Verdict(key=5, values=({"a": 1e9},)).totals({"a": 10.0})
    assert caught.value.reason == "reward_too_large"


# -- where a function comes from --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "python:rewards:lenght",
            "task.reward: python:rewards:lenght: .*has no function lenght; it has length, odd",
        ),
        (
            "python:rewards:not_a_function",
            r"rewards.py, line \d+: not_a_function is no function but 3; allowed: def",
        ),
        ("python:rewards:os", "os is no function but a module"),
        (
            "python:calls:few",
            r"calls.py, line 1: few\(response, answer\) does not take prompt, fields; allowed: def",
        ),
        ("python:calls:more", r"more\(x, y=1, \*\*others\) asks for x; allowed"),
        (
            "python:calls:by_place",
            r"by_place\(prompt, /, response, answer, fields\) does not take prompt and asks for",
        ),
        ("python:calls:later", "later is async, and nobody awaits it"),
        ("python:calls:inner", "has no function inner; it has by_place, few, later, more"),
        ("python:gone:length", "there is no gone.py in "),
        ("python:os:getcwd", "there is no os.py in "),
        ("python:broken:length", "broken.py is no Python that can be read"),
        ("python:link:length", "outside the folders a job may read"),
    ],
)
def test_a_function_that_is_not_there_is_refused_before_anything_runs(
    name: str, told: str, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (folder / "broken.py").write_text("def length(:", encoding="utf-8")
    (folder / "calls.py").write_text(CALLS, encoding="utf-8")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "link.py"
    elsewhere.write_text("raise AssertionError('it was run')\ndef length(**fields): return 1", encoding="utf-8")
    (folder / "link.py").symlink_to(elsewhere)
    with pytest.raises(ValueError, match=told):
        check_rewards(config(reward=name), roots=[folder])
    check_rewards(config(reward="python:link:length"), roots=[folder, elsewhere.parent])


@pytest.mark.parametrize(
    "text",
    [
        "def f(prompt, response, answer, fields, extra=1): ...",
        "def f(a=1, /, prompt=2, response=3, answer=4, fields=5): ...",
        "def f(*args, response, **others): ...",
        "from elsewhere import f",
        "from elsewhere import *",
        "from functools import partial\nf = partial(print)",
        "f = lambda **given: 1",
        "class f:\n    pass",
        "import functools\n@functools.cache\ndef f(response): ...",
        "try:\n    import fast as f\nexcept ImportError:\n    def f(**given): ...",
        "if True:\n    f = 3\nelse:\n    def f(**given): ...",
        "for f in (print,):\n    pass",
        "f, g = print, print",
    ],
)
def test_what_only_running_tells_is_no_reason_to_refuse_a_function(text: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(text, encoding="utf-8")
    assert file_of("python:m:f", [tmp_path]) == (tmp_path / "m.py", "f")


def test_a_function_is_looked_for_in_the_roots_in_their_order(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner" / "rewards.py").write_text(f"def name(**f): return {len(name)}", encoding="utf-8")
    spec = config(reward="python:inner.rewards:name")
    for roots, expected in ((["first", "second"], 5), (["second", "first"], 6)):
        score = Judge(reward_spec(spec, roots=[tmp_path / name for name in roots]))
        assert score(question(), "") == {"python:inner.rewards:name": expected}


# -- in a process -----------------------------------------------------------------------------------------------------


@pytest.fixture
def scoring(folder: Path) -> Iterator[Callable[..., Scoring]]:
    made: list[Scoring] = []

    def make(**fields: Any) -> Scoring:
        made.append(make_scoring(config(**fields), roots=[folder]))
        made[-1].wait_ready(lambda: None)
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[..., Scoring]


def answers(key: int, *texts: str, **entry: Any) -> Answers:
    return Answers(key=key, question=question(item=key, **entry), texts=texts)


def fetch(scoring: Scoring, count: int) -> dict[int, Verdict]:
    found: dict[int, Verdict] = {}
    until = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < until, f"only {len(found)} of {count} verdicts came"
        found |= {verdict.key: verdict for verdict in scoring.collect(1.0)}
    return found


def test_only_what_runs_nothing_foreign_is_scored_in_the_workers_own_process(scoring: Make) -> None:
    assert isinstance(scoring(reward="exact"), InlineScoring)
    assert isinstance(scoring(reward="python:rewards:odd"), ScoringProcess)


@pytest.mark.parametrize("reward", ["exact", "python:rewards:length"])
def test_verdicts_come_for_all_that_is_handed_in(reward: str, scoring: Make) -> None:
    one = scoring(reward=reward)
    for key in range(300):
        one.submit(answers(key, "4", "x" * (key % 7)))
    assert one.pending
    found = fetch(one, 300)
    for key, verdict in found.items():
        expected = (1.0, 0.0) if reward == "exact" else (1.0, float(key % 7))
        assert tuple(values[reward] for values in verdict.values) == expected
    assert one.pending == 0


def test_an_answer_larger_than_the_pipe_comes_through(scoring: Make) -> None:
    one = scoring(reward="python:rewards:length")
    for key in range(3):
        one.submit(answers(key, "x" * 2_000_000, "y"))
    assert fetch(one, 3)[2].values[0] == {"python:rewards:length": 2e6}


def test_one_that_fails_takes_its_own_group_alone(scoring: Make) -> None:
    one = scoring(reward="python:rewards:odd")
    for key, text in enumerate(["fine", "raise", "fine", "nan", "fine"]):
        one.submit(answers(key, "fine", text, "fine"))
    found = fetch(one, 5)
    reasons = [found[key].failure.reason if found[key].failure else None for key in range(5)]  # type: ignore[union-attr]
    assert reasons == [None, "reward_failed", None, "reward_not_a_number", None]
    assert found[4].values == ({"python:rewards:odd": 0.25},) * 3


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("hang", "reward_timeout", "longer than the 0.5 s of task.reward_deadline_s"),
        ("die", "reward_failed", "its process ended with status 7"),
    ],
)
def test_one_that_hangs_or_dies_costs_its_group_and_the_others_are_scored(
    text: str, reason: str, detail: str, scoring: Make
) -> None:
    one = scoring(reward="python:rewards:odd", reward_deadline_s=0.5)
    assert isinstance(one, ScoringProcess)
    for key, given in enumerate(["fine", text, "fine", "fine"]):
        one.submit(answers(key, given, "fine"))
    found = fetch(one, 4)
    failure = found[1].failure
    assert failure is not None
    assert (failure.reason, failure.item, failure.text) == (reason, 1, text)
    assert detail in failure.detail
    assert all(found[key].values == ({"python:rewards:odd": 0.25},) * 2 for key in (0, 2, 3))
    assert one.restarts == 1


def test_once_an_answer_took_too_long_the_others_of_its_group_are_not_scored(scoring: Make, folder: Path) -> None:
    (folder / "noting.py").write_text(NOTING, encoding="utf-8")
    one = scoring(reward="python:noting:noted", reward_deadline_s=0.5)
    one.submit(answers(0, "a", "hang", "b", "c"))
    one.submit(answers(1, "d"))
    found = fetch(one, 2)
    assert [found[key].failure is None for key in (0, 1)] == [False, True]
    assert (folder / "noted.txt").read_text(encoding="utf-8").split() == ["a", "hang", "d"]


def test_loading_a_module_within_a_call_does_not_count_towards_its_deadline(scoring: Make, folder: Path) -> None:
    (folder / "heavy.py").write_text("import time\ntime.sleep(1.5)\nimport inner_heavy\nVALUE = 2", encoding="utf-8")
    (folder / "inner_heavy.py").write_text("", encoding="utf-8")
    (folder / "late.py").write_text(LATE, encoding="utf-8")
    one = scoring(reward="python:late:f", reward_deadline_s=0.5)
    assert isinstance(one, ScoringProcess)
    one.submit(answers(0, "import", "import_module", "plain"))
    assert [values["python:late:f"] for values in fetch(one, 1)[0].values] == [2, 2, 1]
    one.submit(answers(1, "import and hang"))
    failure = fetch(one, 1)[1].failure
    assert failure is not None
    assert failure.detail == "it took longer than the 0.5 s of task.reward_deadline_s"
    assert one.restarts == 1


def test_a_module_that_hangs_has_a_limit_within_a_call_and_at_the_start(
    scoring: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LEAST_LOAD_S", 1.0)
    (folder / "heavy.py").write_text("import time\ntime.sleep(600)", encoding="utf-8")
    (folder / "late.py").write_text(LATE, encoding="utf-8")
    one = scoring(reward="python:late:f", reward_deadline_s=0.1)
    one.submit(answers(0, "import"))
    failure = fetch(one, 1)[0].failure
    assert failure is not None
    assert (failure.reason, failure.detail.split(" (")[0]) == (
        "reward_timeout", "a module that it imports did not load within 1 s"
    )  # fmt: skip
    (folder / "hangs.py").write_text("import heavy\ndef f(**given): return 1", encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"did not load within 1 s \(6 x task.reward_deadline_s 0.1, at least 1 s\)"):
        scoring(reward="python:hangs:f", reward_deadline_s=0.1)


def test_nobody_waits_for_a_reward_that_hangs(scoring: Make) -> None:
    one = scoring(reward="python:rewards:odd", reward_deadline_s=30.0)
    one.submit(answers(0, "hang"))
    began = time.monotonic()
    assert [one.collect(0.0), one.collect(0.1)] == [[], []]
    one.submit(answers(1, "x" * 5_000_000))  # more than the pipe takes, and nobody reads
    assert one.collect(0.1) == []
    assert time.monotonic() - began < 5.0
    assert one.withdraw() == [0, 1]
    assert one.pending == 0


def test_what_was_withdrawn_is_dropped_and_what_comes_after_it_is_scored(scoring: Make) -> None:
    one = scoring(reward="python:rewards:odd", reward_deadline_s=0.5)
    one.submit(answers(0, "hang"))
    one.collect(0.1)
    one.submit(answers(1, "fine"))
    assert sorted(one.withdraw()) == [0, 1]
    one.submit(answers(1, "fine", "fine"))
    assert fetch(one, 1)[1].values == ({"python:rewards:odd": 0.25},) * 2


def test_the_process_ends_with_whoever_started_it(scoring: Make) -> None:
    one = scoring(reward="python:rewards:odd")
    assert isinstance(one, ScoringProcess)
    one.submit(answers(0, "hang"))
    process = one._process
    one.close()
    assert process.poll() is not None


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        ("python:bad:f", "rewards .python:bad:f. do not load: ModuleNotFoundError: No module named 'not_there'"),
        ("python:made:three", "do not load: TypeError: three is no function but int"),
        ("python:made:few", r"do not load: TypeError: few\(response\) cannot be called with prompt, response, answer"),
        ("python:dead:f", "do not load: its process ended with status 4"),
    ],
)
def test_rewards_that_do_not_load_are_told_by_name(reward: str, told: str, folder: Path) -> None:
    (folder / "bad.py").write_text("import not_there\ndef f(**fields): return 1", encoding="utf-8")
    (folder / "made.py").write_text("few, three = lambda response: 1, 3", encoding="utf-8")
    (folder / "dead.py").write_text("import os\nos._exit(4)\ndef f(**fields): return 1", encoding="utf-8")
    one = make_scoring(config(reward=reward), roots=[folder])
    with pytest.raises(RuntimeError, match=told):
        one.wait_ready(lambda: None)


def test_an_evaluation_gives_up_after_a_few_answers_that_take_too_long(scoring: Make) -> None:
    one = scoring(reward="python:rewards:odd", reward_deadline_s=0.3)
    texts = ["fine", "hang", "fine", "hang", "fine", "fine"]
    verdicts = score_all(one, [answers(-1 - i, text) for i, text in enumerate(texts)], most_timeouts=2)
    assert [verdict.key for verdict in verdicts] == [-1, -2, -3, -4, -5, -6]
    assert [verdict.failure is None for verdict in verdicts] == [True, False, True, False, False, False]
    assert "not tried" in str(verdicts[-1].failure)


def test_the_module_is_found_without_a_path_to_it(scoring: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(os.sep)
    one = scoring(reward="python:rewards:length")
    one.submit(answers(0, "four"))
    assert fetch(one, 1)[0].values == ({"python:rewards:length": 4.0},)


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("2 * 3 = 6\n#### 6", 1.0),
        ("#### -1,080.5\n", 1.0),
        ("#### 6 apples", 0.0),
        ("6", 0.0),
        ("#### 6\nor 7", 0.0),
    ],
)
def test_the_reward_beside_the_word_problems_earns_an_ending_as_asked(response: str, reward: float) -> None:
    folder = Path(__file__).resolve().parents[2] / "jobs"
    task = load_job(folder / "smollm2_gsm8k.yaml").task
    judge = Judge(reward_spec(task, roots=[folder]))
    assert judge(question(), response, only=task.rewards[1].name) == {task.rewards[1].name: reward}
