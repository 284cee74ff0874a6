"""Tags and notes of the chosen runs; what may be written, and the fields that write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import streamlit as st

from app import session
from app.access import NotAllowed
from app.markup import literal
from app.runs_table import Listed
from app.status import symbol
from storage.database import StorageError

MAX_TAG_CHARS = 40
"""A tag is a word or two; the table shows it in a narrow column."""

MAX_NOTE_CHARS = 4000
"""A page of text."""

_PROBLEM, _REFUSED = "_runs_marks_problem", "_runs_marks_refused"
"""What was not written last, with the runs that it was for; and how often tags were refused in this session."""


def checked(tag: str) -> str:
    """The tag as it is stored. Raises ValueError for one that is empty, too long, or of several lines."""
    told = " ".join(tag.split())
    if not 0 < len(told) <= MAX_TAG_CHARS:
        raise ValueError(f"a tag has 1 to {MAX_TAG_CHARS} characters, got {tag!r}")
    return told


def change_tags(run_ids: Sequence[str], *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
    """Give and take tags. Raises NotAllowed, ValueError for what is no tag, or StorageError."""
    session.change_tags(run_ids, add=[checked(tag) for tag in add], remove=list(remove))


def write_note(run_id: str, text: str) -> None:
    """Replace a run's note. Raises NotAllowed, ValueError for one that is too long, or StorageError."""
    if len(text) > MAX_NOTE_CHARS:
        raise ValueError(f"a note has at most {MAX_NOTE_CHARS} characters, got {len(text)}")
    session.set_note(run_id, text.strip())


def tags_of(runs: Sequence[Listed]) -> tuple[str, ...]:
    """The tags that all of them have."""
    common = set.intersection(*(set(each.tags) for each in runs)) if runs else set()
    return tuple(sorted(common))


def tags_box(runs: Sequence[Listed], known: Sequence[str], *, allowed: bool) -> None:
    """Tags of one run, or those that several have in common: typing a new one adds it, taking one out removes it."""
    ids, common = [each.run.run_id for each in runs], tags_of(runs)
    # another field whenever the tags are others or some were refused, or it would go on showing what this session chose
    key = f"run_tags:{hash((tuple(ids), common, st.session_state.get(_REFUSED, 0)))}"
    st.multiselect(
        "Tags" if len(runs) == 1 else "Tags of all of them",
        list(dict.fromkeys((*common, *known))),
        default=list(common),
        accept_new_options=True,
        placeholder="add a tag" if allowed else "no tags",
        key=key,
        disabled=not allowed,
        on_change=_tags_changed,
        args=(key, ids, common),
    )


def _tags_changed(key: str, ids: Sequence[str], before: Sequence[str]) -> None:
    now = [str(tag) for tag in st.session_state[key]]
    added, taken = [tag for tag in now if tag not in before], [tag for tag in before if tag not in now]
    if not _told(ids, lambda: change_tags(ids, add=added, remove=taken)):
        st.session_state[_REFUSED] = st.session_state.get(_REFUSED, 0) + 1


def note_box(listed: Listed, *, allowed: bool) -> None:
    """The note of a run, saved when the field is left."""
    run_id = listed.run.run_id
    key = f"run_note:{hash((run_id, listed.note))}"
    st.text_area(
        "Note",
        value=listed.note,
        max_chars=MAX_NOTE_CHARS,
        height=68,
        placeholder="what this run was for, what it showed" if allowed else "no note",
        key=key,
        disabled=not allowed,
        on_change=_note_changed,
        args=(key, run_id),
    )


def _note_changed(key: str, run_id: str) -> None:
    text = str(st.session_state[key])
    # what was typed stays in the field when it was not written: it may be a page
    _told([run_id], lambda: write_note(run_id, text))


def _told(ids: Sequence[str], write: Callable[[], None]) -> bool:
    """Do it, and keep what went wrong for `problem_line`: a callback draws nothing. Whether it was written."""
    try:
        write()
    except (NotAllowed, StorageError, ValueError) as error:
        st.session_state[_PROBLEM] = (tuple(ids), str(error))
        return False
    st.session_state.pop(_PROBLEM, None)
    return True


def problem_line(runs: Sequence[Listed]) -> None:
    """Why the last change of a tag or note of these runs was not written, until one is or others are chosen: the page
    draws itself again within seconds."""
    ids, problem = st.session_state.get(_PROBLEM, ((), ""))
    if problem and ids == tuple(each.run.run_id for each in runs):
        st.error(f"Not saved: {literal(problem)}", icon=symbol("error"))
    else:
        st.session_state.pop(_PROBLEM, None)
