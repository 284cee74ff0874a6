"""What every number on the pages means: definition, unit and formula, said once. Pure text; pages show it as help.

A page that shows a number names its term here; `help_of` refuses a name that is not defined. The terms stand in
`app/terms/`, a file a subject.
"""

from __future__ import annotations

from app.markup import literal
from app.term import Term, merged
from app.terms.decisions import DECISIONS
from app.terms.device_time import DEVICE_TIME
from app.terms.jobs import JOBS, OF_FIELD, RUNS
from app.terms.learning import LEARNING
from app.terms.learning_health import HEALTH
from app.terms.lending import LENDING
from app.terms.plan import PLAN
from app.terms.progress import PROGRESS
from app.terms.steering import STEERING
from app.terms.symbols import SYMBOLS
from app.terms.timeline import TIMELINE

__all__ = [
    "SUBJECTS",
    "SYMBOLS",
    "TERMS",
    "Term",
    "brief_of",
    "field_help",
    "found",
    "help_of",
    "helps_of",
    "plain_brief_of",
    "plain_of",
    "plains_of",
    "title_of",
]

PAGES: dict[str, Term] = {}
"""Terms of single pages: name -> term. A subject that grows moves into a file of its own."""

SUBJECTS: dict[str, dict[str, Term]] = {
    "The devices' time": DEVICE_TIME,
    "The Timeline": TIMELINE,
    "Speed, progress and lag": PROGRESS,
    "Learning": LEARNING,
    "Learning's health": HEALTH,
    "Leases": LENDING,
    "Decisions": DECISIONS,
    "Steering a run": STEERING,
    "Runs": RUNS,
    "Plans": PLAN,
    "Jobs": JOBS,
    "More": PAGES,
}
"""Heading -> its terms, in the order in which they are listed."""

TERMS: dict[str, Term] = merged(*SUBJECTS.values())
"""Name -> term."""


def title_of(name: str) -> str:
    """What pages call a number."""
    return TERMS[name].title or name.replace("_", " ").capitalize()


def help_of(name: str) -> str:
    """Markdown for a widget's `help`. Raises KeyError for a name that is not in `TERMS`."""
    term = TERMS[name]
    parts = [literal(term.definition)]
    if term.unit:
        parts.append(f"**Unit:** {literal(term.unit)}")
    if term.formula:
        parts.append(f"**Formula:** {literal(term.formula)}")
    return "  \n".join(parts)


def helps_of(*names: str) -> str:
    """Markdown for what shows several numbers, each under its title. Raises KeyError as `help_of` does."""
    return "\n\n".join(f"**{literal(title_of(name))}**  \n{help_of(name)}" for name in names)


def brief_of(*names: str) -> str:
    """Markdown, a line a number: for what shows more of them than a small window of help has room for."""
    lines = [f"**{literal(title_of(name))}:** {literal(TERMS[name].definition)}" for name in names]
    return "  \n".join([*lines, "Units and formulas: Help, F1"])


def plain_of(name: str) -> str:
    """The same without markup, a part a line: for cards and heads of tables. Raises KeyError as `help_of` does."""
    term = TERMS[name]
    named = (("", term.definition), ("Unit: ", term.unit), ("Formula: ", term.formula))
    return "\n".join(f"{head}{text}" for head, text in named if text)


def plains_of(*names: str) -> str:
    """The same of several numbers, each under its title. Raises KeyError as `help_of` does."""
    return "\n\n".join(f"{title_of(name)}\n{plain_of(name)}" for name in names)


def plain_brief_of(*names: str) -> str:
    """`brief_of` without markup. Raises KeyError as `help_of` does."""
    lines = [f"{title_of(name)}: {TERMS[name].definition}" for name in names]
    return "\n".join([*lines, "Units and formulas: Help, F1"])


def field_help(path: str) -> str | None:
    """Markdown for the setting of a job at this dotted path; None for one that is no number."""
    return help_of(OF_FIELD[path]) if path in OF_FIELD else None


def found(query: str) -> dict[str, list[str]]:
    """Heading -> names of its terms in which every word of `query` stands, headings without any left out."""
    words = query.casefold().split()
    result: dict[str, list[str]] = {}
    for heading, terms in SUBJECTS.items():
        names = [name for name in terms if all(word in _searched(heading, name) for word in words)]
        if names:
            result[heading] = names
    return result


def _searched(heading: str, name: str) -> str:
    return f"{heading} {title_of(name)} {name} {plain_of(name)}".casefold()
