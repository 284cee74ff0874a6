"""The Timeline's URL: what it can hold, and that nonsense is named and never shown as something else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.timeline_url import COLOURS, ROWS, SUMS, WINDOWS, Block, View, moment, params_of, parsed_moment, read_view

T0 = 1_790_000_000.0

times = st.integers(1_000_000_000_000, 3_000_000_000_000).map(lambda ms: ms / 1000)
windows = st.tuples(times, st.integers(10, 10**9)).map(lambda w: (w[0], round(w[0] + w[1] / 1000, 3)))
keys = st.one_of(
    st.integers(0, 5000).map(lambda d: f"device:{d}"),
    st.text(min_size=1, max_size=60).map(lambda name: f"node:{name}"),
    st.sampled_from(["pool:rollout", "pool:train"]),
)
views = st.builds(
    View,
    window=st.sampled_from(list(WINDOWS)),
    exact=st.none() | windows,
    rows=st.sampled_from(ROWS),
    colour=st.sampled_from(COLOURS),
    sums=st.sampled_from(SUMS),
    opened=st.none() | keys,
    block=st.none() | st.builds(Block, row=keys, at=times),
    lease=st.none() | st.integers(0, 10**9),
    listed=st.none() | windows,
)


@given(views)
def test_every_view_comes_back_from_its_url(view: View) -> None:
    assert read_view(params_of(view), "5m") == (view, [])


def test_an_address_without_anything_is_the_default() -> None:
    assert read_view({"run": "demo-0001"}, "1m") == (View(window="1m"), [])


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"window": "7m"}, "window must be one of 1m, 5m, 30m, all, got '7m'"),
        ({"rows": "gpu"}, "rows must be one of device, node, role, got 'gpu'"),
        ({"colour": "<b>"}, "colour must be one of phase, cause, version, role, got '<b>'"),
        ({"sums": ""}, "sums must be one of window, run, got ''"),
        ({"from": "2026-05-01T12:00:00Z"}, "from and to belong together, and only from is given"),
        ({"from": "yesterday", "to": "2026-05-01T12:00:00Z"}, "from must be a time such as 2026-05-01T12:00:00.250Z"),
        ({"from": "2026-05-01T12:00:00", "to": "2026-05-01T13:00:00Z"}, "from must be a time"),
        ({"from": "2026-05-01T12:00:00Z", "to": "2026-05-01T11:00:00Z"}, "must end at least 10 ms after it begins"),
        ({"from": "1970-05-01T12:00:00Z", "to": "2026-05-01T11:00:00Z"}, "not be longer than ten years"),
        ({"block": "device:3"}, "block must be a row and a time"),
        ({"block": "device:3@noon"}, "block must be a row and a time"),
        ({"block": "@2026-05-01T12:00:00Z"}, "block must be a row and a time"),
        ({"open": "everything"}, "open must name a row"),
        ({"lease": "-1"}, "lease must be the number of a lease"),
        ({"lease": "9" * 40}, "lease must be the number of a lease"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_nonsense_is_named_with_what_is_allowed_and_the_default_is_shown(params: dict[str, str], said: str) -> None:
    view, problems = read_view(params, "5m")
    assert view == View(window="5m")
    assert len(problems) == 1
    assert said in problems[0]


@given(
    st.dictionaries(st.sampled_from(["window", "rows", "from", "to", "block", "open", "lease", "t0", "t1"]), st.text())
)
def test_no_address_breaks_the_page(params: dict[str, str]) -> None:
    read_view(params, "5m")


def test_an_endless_value_is_cut_where_it_is_named() -> None:
    _, problems = read_view({"rows": "x" * 5000}, "5m")
    assert len(problems[0]) < 200


def test_times_may_be_unix_seconds_and_be_called_as_other_pages_call_them() -> None:
    view, problems = read_view({"t0": "1790000000.25", "t1": "1790000060"}, "5m")
    assert (view.exact, problems) == ((T0 + 0.25, T0 + 60), [])


def test_a_moment_is_the_same_for_every_reader() -> None:
    assert moment(T0 + 0.25) == "2026-09-21T14:13:20.250Z"
    assert parsed_moment("2026-09-21T16:13:20.250+02:00") == T0 + 0.25


@pytest.mark.parametrize(
    ("view", "window"),
    [
        (View(window="5m"), (T0 + 700, T0 + 1000)),
        (View(window="all"), (T0, T0 + 1000)),
        (View(window="5m", exact=(T0 + 1, T0 + 2)), (T0 + 1, T0 + 2)),
    ],
    ids=["last minutes", "whole run", "exact"],
)
def test_the_window_of_a_view_lies_in_its_run(view: View, window: tuple[float, float]) -> None:
    assert view.bounds(T0, T0 + 1000) == window


def test_a_run_that_has_just_begun_has_a_window_of_a_second() -> None:
    assert View(window="all").bounds(T0, T0) == (T0 - 1, T0)
