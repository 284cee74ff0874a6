"""What the numbers mean: every term well formed, said once and used, every letter of a formula explained, all found."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import help_view
from app.glossary import SUBJECTS, SYMBOLS, TERMS, field_help, found, help_of, plain_of, title_of
from app.job_form import FIELDS
from app.key_figures import five_numbers
from app.term import Term, merged
from app.terms.device_time import CAUSES
from app.terms.jobs import OF_FIELD
from storage.paths import DataDir
from storage.records import RunRow
from storage.words import IDLE_CAUSES

ROOT = Path(__file__).parents[2]
MAIN = str(ROOT / "app" / "main.py")

SHORT_WORDS = {"a", "as", "at", "by", "do", "if", "in", "is", "it", "no", "of", "on", "or", "to", "up"}
"""English words that are as short as a symbol."""

DEFINES = ("app/terms/", "app/glossary.py", "app/term.py")


def sources() -> dict[str, ast.Module]:
    files = [path for path in sorted((ROOT / "app").rglob("*.py")) if "static" not in path.parts]
    named = {path.relative_to(ROOT).as_posix(): path for path in files}
    return {name: ast.parse(path.read_text()) for name, path in named.items()}


def asked() -> list[ast.expr]:
    """What pages hand to the glossary."""
    names = ("brief_of", "help_of", "helps_of", "plain_brief_of", "plain_of", "plains_of", "title_of")
    calls = [node for tree in sources().values() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [a for call in calls if isinstance(call.func, ast.Name) and call.func.id in names for a in call.args]


def pattern(made: ast.JoinedStr) -> str:
    """A name with parts that are filled in, as a pattern of all that it may become."""
    return "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"\w+" for p in made.values)


def letters(formula: str) -> set[str]:
    """What stands for something else: words with an underscore or a prime, and those of one or two letters."""
    words = set(re.findall(r"[A-Za-z][A-Za-z_]*'?(?![A-Za-z])", formula))
    return {w for w in words if "_" in w or (w.endswith("'") and len(w) == 2) or (len(w) <= 2 and w not in SHORT_WORDS)}


@pytest.mark.parametrize("name", TERMS)
def test_a_term_is_well_formed(name: str) -> None:
    term = TERMS[name]
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    assert term.definition[0].isupper()
    assert term.definition.endswith(".")
    assert term.definition.count(".") <= 5
    for part in (term.definition, term.unit, term.formula, term.title):
        assert part == " ".join(part.split()), "one line, single spaces"
        assert "design.md" not in part
    assert not term.unit.endswith(".")
    assert not term.formula.endswith(".")
    assert title_of(name)[0].isupper()


@pytest.mark.parametrize("name", [name for name, term in TERMS.items() if term.formula])
def test_every_letter_of_a_formula_is_explained(name: str) -> None:
    unknown = {w for w in letters(TERMS[name].formula) if w not in SYMBOLS and w not in TERMS}
    assert not unknown, f"{name}: say what {', '.join(sorted(unknown))} stand for in app/terms/symbols.py"


def test_no_letter_is_explained_that_no_term_uses() -> None:
    said = " ".join(f"{t.definition} {t.formula}" for t in TERMS.values()) + " ".join(SYMBOLS.values())
    used = set(re.findall(r"[A-Za-z][A-Za-z_]*'?", said))
    assert {symbol for symbol in SYMBOLS if symbol not in used} == set()


def test_letters_are_told_from_words() -> None:
    assert letters("max over devices of C_in + M_r(Q, d_p) - U' / s") == {"C_in", "M_r", "Q", "d_p", "U'", "s"}


def test_no_two_terms_say_the_same() -> None:
    definitions = [term.definition for term in TERMS.values()]
    assert sorted(d for d in set(definitions) if definitions.count(d) > 1) == []


def test_a_term_that_is_defined_twice_is_refused_by_name() -> None:
    one, other = {"idle": Term(definition="One.")}, {"idle": Term(definition="Other.")}
    with pytest.raises(ValueError, match="twice: idle"):
        merged(one, other)


def test_every_term_is_used_by_a_page() -> None:
    texts = [
        node.value
        for name, tree in sources().items()
        if not name.startswith(DEFINES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    used = {*texts, *OF_FIELD.values(), *(f"cause_{cause}" for cause in IDLE_CAUSES)}
    made = [pattern(node) for node in asked() if isinstance(node, ast.JoinedStr)]
    assert [name for name in TERMS if name not in used and not any(re.fullmatch(p, name) for p in made)] == []


def test_every_name_that_pages_ask_for_is_defined() -> None:
    names = [node.value for node in asked() if isinstance(node, ast.Constant)]
    assert len(names) > 10
    assert [name for name in names if name not in TERMS] == []


def test_help_is_markdown_in_which_a_formula_stays_itself() -> None:
    told = help_of("measured_cost")
    assert "**Formula:** C\\_in + C\\_out + C\\_grad" in told
    assert plain_of("measured_cost").splitlines()[-1] == "Formula: C_in + C_out + C_grad"


def test_a_number_without_a_term_is_refused() -> None:
    with pytest.raises(KeyError, match="not_there"):
        help_of("not_there")


def test_every_cause_of_idle_time_has_its_words() -> None:
    assert tuple(CAUSES) == IDLE_CAUSES


def test_every_card_says_what_its_number_means() -> None:
    run = RunRow(run_id="r", staleness=1.0)
    cards = five_numbers(run, recent={}, whole={}, steps=[], prompts_per_step=8)
    assert all(card.help.startswith(tuple(term.definition for term in TERMS.values())) for card in cards)


def test_every_number_of_the_launch_form_has_help() -> None:
    assert set(OF_FIELD) <= set(FIELDS)
    words = {"name", "model.source", "task.source", "task.reward", "task.rewards", "task.answer_after", "task.params"}
    words |= {"task.prompt_field", "task.answer_field", "task.held_out", "task.prompt_template"}
    words |= {"model.prompt_template", "model.lora", "model.gradient_checkpointing"}
    words |= {"algorithm.loss", "algorithm.dynamic_sampling"}
    words |= {"algorithm.lr_schedule", "schedule.consume", "devices.kind", "devices.oversubscribe", "devices.rollouter"}
    assert {path for path in FIELDS if field_help(path) is None} == words


def test_search_finds_a_term_by_any_of_its_words_and_needs_all_of_them() -> None:
    assert found("") == {heading: list(terms) for heading, terms in SUBJECTS.items() if terms}
    assert "regret" in found("Leases regret")["Leases"]
    assert "lag_p95" in found("ceil(s) CAP")["Speed, progress and lag"]
    assert found("regret elephants") == {}


def test_the_list_shows_units_and_formulas_as_they_are() -> None:
    html = help_view.listing({"Leases": ["measured_gain", "paid_off_share"]})
    assert "Unit: share of leases" in html
    assert "leases with measured gain &gt; 0" in html


@pytest.mark.parametrize(
    "page", ["app_pages/live.py", "app_pages/control.py", "app_pages/runs.py", "app_pages/launch.py"]
)
def test_help_opens_on_every_page(page: str, folder: DataDir) -> None:
    shown = AppTest.from_file(MAIN, default_timeout=30).run().switch_page(page).run()
    assert not shown.exception
    shown.button(key="help").click().run()
    assert not shown.exception
    assert shown.text_input(key="help_search").value == ""
