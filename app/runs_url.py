"""What of the Runs page is in its address: the runs that are chosen, and which of them is the baseline.

The filters are bound to the address by their widgets. What is chosen survives a change of pages in the session; an
address that names runs wins over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

COMPARE_KEY, BASELINE_KEY = "compare", "baseline"
"""Names in the address: ids with commas between them, and one of them."""

_SLOT = "_runs_chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The chosen runs."""

    ids: tuple[str, ...] = ()
    """In the order in which they were chosen."""
    baseline: str = ""
    """Id of the baseline; "" is the first one."""

    @property
    def base(self) -> str:
        """The baseline's id, "" when nothing is chosen."""
        return self.baseline if self.baseline in self.ids else next(iter(self.ids), "")

    @property
    def ordered(self) -> tuple[str, ...]:
        """The baseline first, then the others in their order."""
        return (self.base, *(i for i in self.ids if i != self.base)) if self.ids else ()

    def shown_as(self, shown: Sequence[str], picked: Sequence[str]) -> Chosen:
        """After the table, which shows the runs `shown`, has `picked` of them: what it does not show stays chosen."""
        on_table, now = set(shown), set(picked)
        kept = [i for i in self.ids if i not in on_table or i in now]
        return replace(self, ids=(*kept, *(i for i in picked if i not in kept)))

    def without(self, gone: Sequence[str]) -> Chosen:
        """The others."""
        return replace(self, ids=tuple(i for i in self.ids if i not in gone))


def read() -> Chosen:
    """What the address names, or what this session chose when it names nothing."""
    named = st.query_params.get(COMPARE_KEY, "")
    ids = tuple(dict.fromkeys(part.strip() for part in named.split(",") if part.strip()))
    if ids:
        return Chosen(ids=ids, baseline=st.query_params.get(BASELINE_KEY, ""))
    kept: Chosen = st.session_state.get(_SLOT, Chosen())
    return kept


def write(chosen: Chosen) -> None:
    """Keep it in the session and in the address, where one run needs no baseline."""
    st.session_state[_SLOT] = chosen
    baseline = chosen.base if len(chosen.ids) > 1 else ""
    for key, value in ((COMPARE_KEY, ",".join(chosen.ids)), (BASELINE_KEY, baseline)):
        if value and st.query_params.get(key) != value:
            st.query_params[key] = value
        elif not value and key in st.query_params:
            del st.query_params[key]
