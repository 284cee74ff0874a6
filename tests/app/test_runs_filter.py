"""Which runs the table shows, and what of that is in the address."""

from __future__ import annotations

import pytest

from app.runs_filter import Wanted, offers, wanted_runs, words_of
from app.runs_table import Listed
from app.runs_url import Chosen
from tests.app.test_key_figures import make_run


def listed(run_id: str, **fields: object) -> Listed:
    own = {name: fields.pop(name) for name in ("tags", "note") if name in fields}
    run = make_run(run_id=run_id, **fields)
    return Listed(run=run, state=run.state, figures=None, **own)  # type: ignore[arg-type]


RUNS = [
    listed("math-1", name="Math 32B", arm="bidirectional", state="finished", kind="cuda", who="ana",
        tags=("good", "s1")),
    listed("math-2", name="Math 32B", arm="no_borrow", state="failed", kind="cuda", who="ben", note="out of memory"),
    listed("demo-3", name="demo", arm="no_borrow", state="running", kind="cpu", who="ana", tags=("good",)),
    listed("part-4", name="sixteen", arm="no_borrow", state="finished", kind="emulated", who="cleo", comparison="b-1"),
]  # fmt: skip


def ids(wanted: Wanted) -> list[str]:
    return [each.run.run_id for each in wanted_runs(RUNS, wanted)]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(), ["math-1", "math-2", "demo-3", "part-4"]),
        (Wanted(words=words_of("math")), ["math-1", "math-2"]),
        (Wanted(words=words_of("MATH  ben")), ["math-2"]),
        (Wanted(words=words_of("memory")), ["math-2"]),
        (Wanted(words=words_of("good demo")), ["demo-3"]),
        (Wanted(words=words_of("no_borrow")), ["math-2", "demo-3", "part-4"]),
        (Wanted(words=words_of("math cleo")), []),
        (Wanted(words=words_of("32bmath")), []),
        (Wanted(states=frozenset({"finished", "failed"})), ["math-1", "math-2", "part-4"]),
        (Wanted(kinds=frozenset({"cpu"})), ["demo-3"]),
        (Wanted(arms=frozenset({"bidirectional"})), ["math-1"]),
        (Wanted(tags=frozenset({"good", "s1"})), ["math-1"]),
        (Wanted(comparison="b-1"), ["part-4"]),
        (Wanted(words=words_of("ana"), states=frozenset({"running"})), ["demo-3"]),
    ],
)
def test_every_wish_must_be_met(wanted: Wanted, found: list[str]) -> None:
    assert ids(wanted) == found


def test_what_can_be_chosen_is_what_there_is_most_frequent_first() -> None:
    found = offers(RUNS)
    assert (found.states[0], set(found.states)) == ("finished", {"finished", "failed", "running"})
    assert found.arms == ["no_borrow", "bidirectional"]
    assert found.tags == ["good", "s1"]
    assert found.comparisons == {"b-1": 1}


def test_nothing_asked_for_is_everything() -> None:
    assert Wanted().everything
    assert not Wanted(words=("x",)).everything


def test_the_baseline_is_the_first_chosen_run_unless_another_one_is_named() -> None:
    chosen = Chosen(ids=("a", "b", "c"))
    assert (chosen.base, chosen.ordered) == ("a", ("a", "b", "c"))
    assert Chosen(ids=("a", "b", "c"), baseline="b").ordered == ("b", "a", "c")
    assert Chosen(ids=("a",), baseline="gone").base == "a"
    assert (Chosen().base, Chosen().ordered) == ("", ())


def test_what_the_table_does_not_show_stays_chosen() -> None:
    chosen = Chosen(ids=("a", "b"), baseline="b")
    # the table shows b and c, of which c is picked now: a is filtered out, b was unpicked
    assert chosen.shown_as(["b", "c"], ["c"]) == Chosen(ids=("a", "c"), baseline="b")
    assert chosen.shown_as(["a", "b"], ["a", "b"]) == chosen
    assert chosen.without(["b"]) == Chosen(ids=("a",), baseline="b")
