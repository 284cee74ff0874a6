"""The arithmetic of rollups: no time is lost and none is made, whatever the spans and their order."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import words
from storage.records import Span
from storage.rollups import NUM_COLUMNS, RollupBuilder, cut, decode, encode, merged
from tests.storage.builders import RUN, T0, chain, make_span, seconds_of

lengths = st.lists(st.floats(1e-5, 90.0) | st.floats(1e-5, 0.01), max_size=40)


def folded(batches: list[list[Span]]) -> dict[tuple[int, int], np.ndarray]:
    """(resolution, bin) -> int32 [devices, columns]."""
    builder, bins = RollupBuilder(), {}
    for batch in batches:
        builder.add(batch)
        for part in builder.take().values():
            for res in words.RESOLUTIONS_S:
                numbers = part.bins // res
                for number in np.unique(numbers):
                    at = numbers == number
                    bins[res, number] = merged(bins.get((res, number)), part.cells[at], part.ms[at])
    return {key: total.reshape(-1, NUM_COLUMNS) for key, total in bins.items()}


@settings(max_examples=60, deadline=None)
@given(first=lengths, second=lengths, batch=st.integers(1, 20), seed=st.integers(0, 2**16))
def test_sums_of_rollups_are_sums_of_spans_in_any_order(
    first: list[float], second: list[float], batch: int, seed: int
) -> None:
    spans = chain(first, device=0, start=0.123) + chain(second, device=2, start=7.9)
    random.Random(seed).shuffle(spans)
    bins = folded([spans[i : i + batch] for i in range(0, len(spans), batch)])
    truth = seconds_of(spans)
    for res in words.RESOLUTIONS_S:
        sums: dict[tuple[int, str], int] = {}
        for (of_res, _), ms in bins.items():
            if of_res == res:
                for device, column in zip(*ms.nonzero(), strict=True):
                    key = int(device), words.COLUMNS[column]
                    sums[key] = sums.get(key, 0) + int(ms[device, column])
        keys = sums.keys() | {(device, column) for device, columns in truth.items() for column in columns}
        for device, column in keys:
            assert abs(sums.get((device, column), 0) - 1000 * truth[device][column]) <= 0.51


@settings(max_examples=25, deadline=None)
@given(first=lengths)
def test_every_bin_is_right_to_a_millisecond_a_column(first: list[float]) -> None:
    spans = chain(first)
    for (res, number), ms in folded([spans]).items():
        truth = seconds_of(spans, number * res, (number + 1) * res)
        for column, name in enumerate(words.COLUMNS):
            assert abs(ms[0, column] - 1000 * truth.get(0, {}).get(name, 0.0)) <= 1.01


def test_ten_thousand_tiny_spans_keep_their_time_though_each_rounds_to_nothing() -> None:
    spans = chain([0.0001] * 10_000)
    total = sum(int(ms.sum()) for (res, _), ms in folded([spans]).items() if res == 10)
    assert total == 1000


def test_a_span_is_cut_at_the_edges_of_bins() -> None:
    # 9.5 to 21.0 s in bins of 10 s: 0.5 s, 10 s, 1 s
    bins, cells, ms = cut(np.array([9.5]), np.array([21.0]), np.array([3]), 10)
    assert bins.tolist() == [0, 1, 2]
    assert ms.tolist() == [500.0, 10_000.0, 1000.0]
    assert cells.tolist() == [3, 3, 3]


def test_a_span_that_ends_at_an_edge_does_not_touch_the_next_bin() -> None:
    assert cut(np.array([10.0]), np.array([20.0]), np.array([0]), 10)[0].tolist() == [1]


def test_runs_are_kept_apart_and_a_forgotten_one_leaves_nothing() -> None:
    builder = RollupBuilder()
    builder.add([make_span(), make_span(run_id="run-2"), make_span(2, run_id="run-2")])
    builder.forget(RUN)
    taken = builder.take()
    assert list(taken) == ["run-2"]
    assert taken["run-2"].ms.sum() == 2000
    assert builder.take() == {}


def test_bins_with_different_numbers_of_devices_are_read_together() -> None:
    small, large = np.arange(NUM_COLUMNS, dtype=np.int32), np.arange(3 * NUM_COLUMNS, dtype=np.int32)
    window = decode([encode(small), encode(large)], [1, 1])
    assert window.shape == (2, 3, NUM_COLUMNS)
    assert window[0, 0].tolist() == small.tolist()
    assert window[0, 1:].sum() == 0
    assert window[1].reshape(-1).tolist() == large.tolist()


def test_an_older_layout_is_read_with_zeros_in_the_columns_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(words.COLUMNS_OF_VERSION, 0, 2)
    window = decode([np.array([5, 6, 7, 8], "<u2").tobytes()], [0])
    assert window.shape == (1, 2, NUM_COLUMNS)
    assert window[0, 1, :3].tolist() == [7, 8, 0]


def test_overlapping_spans_are_refused_and_the_device_is_named() -> None:
    cell = NUM_COLUMNS + words.COLUMNS.index("train")
    total = merged(None, np.array([cell, cell]), np.array([60_000, 60_000], np.int32))
    with pytest.raises(RuntimeError, match="device 1 has 120000 ms of train in one bin; at most 65535"):
        encode(total)


def test_times_are_large_numbers_and_still_exact() -> None:
    assert make_span(0.25, 0.5).t0 == T0 + 0.25
    assert sum(int(ms.sum()) for (res, _), ms in folded([[make_span(0.25, 0.5)]]).items() if res == 1) == 500
