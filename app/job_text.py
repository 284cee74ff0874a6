"""A job file that a page remembers: its text, which is the truth, where it came from, and what is typed. Fields and
editor are views of it, kept apart from widgets, which forget their values when another page is shown.

    picked source --load--> text <--field_changed, editor_changed-- widgets
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app import job_form
from app.presets import Source
from engine.config import JobError


@dataclass(frozen=True, slots=True, kw_only=True)
class JobText:
    """The job of one page, in the reader's session."""

    page: str
    """What the session calls it."""
    fields: Sequence[str]
    """Paths that have a field beside the editor."""
    widgets: str
    """What keys of fields begin with."""

    @property
    def editor(self) -> str:
        """Key of the widget that shows the whole of it."""
        return f"{self.page}_yaml"

    @property
    def loaded(self) -> bool:
        """Whether there is one already."""
        return self._source in st.session_state

    def text(self) -> str:
        """The job file as it stands."""
        return str(st.session_state[self._text])

    def source(self) -> Source:
        """What it was started from."""
        found: Source = st.session_state[self._source]
        return found

    def typed_problems(self) -> dict[str, str]:
        """Path -> sentence for what was typed into a field and is not even YAML."""
        found: dict[str, str] = st.session_state[self._typed]
        return found

    def show(self, wanted: Source | None) -> bool:
        """Go on with what there is, in new widgets where another page was shown. False where something has to be
        loaded: another source is wanted, or there is none."""
        if not self.loaded or (wanted is not None and self.source().key != wanted.key):
            return False
        if self.editor not in st.session_state:
            self.replace_text(self.text())
        return True

    def load(self, wanted: Source) -> None:
        """Start from another source."""
        st.session_state[self._source] = wanted
        self.replace_text(wanted.text)

    def replace_text(self, new: str) -> None:
        """Another text, shown by the fields and the editor alike."""
        self._keep(new)
        st.session_state[self._typed] = {}
        document = job_form.read_document(new)
        if document is not None:
            for path in self.fields:
                shown = job_form.field_text(document, path)
                # a choice always has a value
                choices = job_form.FIELDS[path].choices
                st.session_state[self.widget_key(path)] = (shown or job_form.default_text(path)) if choices else shown

    def widget_key(self, path: str) -> str:
        """Key of a field's widget."""
        return f"{self.widgets}_{path.replace('.', '_')}"

    def set_from_field(self, path: str) -> str | None:
        """A field changed the text; what is not YAML stays in the field with its problem. What was typed, None where
        the text did not change for it."""
        typed = str(st.session_state[self.widget_key(path)] or "")
        try:
            new = job_form.set_field(self.text(), path, typed)
        except JobError as error:
            self.typed_problems()[path] = next(iter(error.problems.values()))
            return None
        self.typed_problems().pop(path, None)
        self._keep(new)
        return typed

    def set_path(self, path: str, value: str) -> None:
        """Another value that follows from a field. Raises JobError for one that is not YAML."""
        self._keep(job_form.set_field(self.text(), path, value))

    def editor_changed(self) -> None:
        """The editor changed the text."""
        self.replace_text(st.session_state[self.editor])

    def _keep(self, new: str) -> None:
        st.session_state[self._text] = st.session_state[self.editor] = new

    @property
    def _text(self) -> str:
        return f"_{self.page}_text"

    @property
    def _source(self) -> str:
        return f"_{self.page}_source"

    @property
    def _typed(self) -> str:
        return f"_{self.page}_typed"
