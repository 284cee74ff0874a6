"""Keys and values of a batch whose rows come and go, in buffers with room to grow.

Rows are packed (0 to rows - 1) and right-aligned: every row's newest token stands in the same column, so one token for
all rows is one write, and attention reads a view without copying. A row that ends leaves its place to the last
one. Every layer keeps all columns; sliding windows are cut by the model's own mask. Refuses layers that keep a state
instead of keys and values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache, PretrainedConfig
from transformers.cache_utils import CacheLayerMixin, get_layer_types_and_kwargs

HEADROOM_COLUMNS = 32
"""Free columns after the buffers were laid out anew, at least: fewer would copy them every few tokens."""

HEADROOM_SHARE = 4
"""One free column per this many used ones: copying then costs less than a tenth of what attention reads."""

LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")
"""Layers that attend to earlier columns and to nothing else."""


def check_supported(config: PretrainedConfig) -> int:
    """Layers with a cache of their own. Raises ValueError for a model whose layers keep another kind of state."""
    types, _ = get_layer_types_and_kwargs(config.get_text_config(decoder=True))
    other = sorted(set(types) - set(LAYER_TYPES))
    if other:
        raise ValueError(
            f"model {config.model_type!r} has layers of type {', '.join(other)}; allowed: {', '.join(LAYER_TYPES)}"
        )
    return len(types)


class _WindowLayer(CacheLayerMixin):
    """One layer's face towards the model; the buffers are the window's."""

    is_sliding = False

    def __init__(self, window: KVWindow, index: int) -> None:
        super().__init__()
        self._window = window
        self._index = index

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        raise AssertionError("rows join through KVWindow.append, which allocates")

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self._window.write(self._index, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self._window.end - self._window.begin

    def get_max_length(self) -> int:
        return -1


class KVWindow(Cache):
    """The cache to hand to a model's forward for one new token per row; see the module for its layout."""

    def __init__(self, layers: int, max_rows: int, *, device: torch.device | str = "cpu") -> None:
        super().__init__(layers=[_WindowLayer(self, index) for index in range(layers)])
        self._max_rows = max_rows
        self._row_capacity = 0
        self._column_capacity = 0
        self._buffers: list[tuple[Tensor, Tensor]] = []
        """Per layer keys and values [row capacity, heads, column capacity, head size]."""
        self._first = torch.zeros(max_rows, dtype=torch.long, device=device)
        """Row -> its first column."""
        self.rows = 0
        """Rows in use."""
        self.begin = 0
        """First column that any row uses."""
        self.end = 0
        """Column that the next token of every row goes into."""

    @property
    def lengths(self) -> Tensor:
        """int64 [rows]: tokens of each row so far, which is also the position of its next one."""
        return self.end - self._first[: self.rows]

    def make_room(self) -> None:
        """Before a forward: make sure that the column `end` exists."""
        if self.end == self._column_capacity:
            self._lay_out(rows=self._row_capacity, end=self.end - self.begin, like=self._buffers)

    def mask(self) -> Tensor:
        """bool [rows, end - begin + 1]: columns each row may attend to, its next token's included."""
        columns = torch.arange(self.begin, self.end + 1, device=self._first.device)
        return columns >= self._first[: self.rows, None]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Within a forward: store the new token's keys and values, return views of all that attention may see."""
        rows, columns = slice(0, self.rows), slice(self.begin, self.end + 1)
        for buffer, states in zip(self._buffers[layer], (keys, values), strict=True):
            buffer[rows, :, self.end : self.end + 1] = states
        all_keys, all_values = self._buffers[layer]
        return all_keys[rows, :, columns], all_values[rows, :, columns]

    def advance(self) -> None:
        """After a forward: the column `end` is written."""
        self.end += 1

    def append(self, prefill: list[tuple[Tensor, Tensor]], lengths: Tensor, copies: int) -> None:
        """Add the rows of a left-padded prefill, each `copies` times in a row.

        `prefill` holds per layer keys and values [prompts, heads, longest, head size], `lengths` int64 [prompts].
        """
        width, rows = int(lengths.max()), self.rows + len(lengths) * copies
        assert rows <= self._max_rows, f"{rows} rows in a window of {self._max_rows}"
        if self.rows == 0:
            self.begin = self.end = 0
        if rows > self._row_capacity or width > self.end:
            capacity = self._row_capacity
            if rows > capacity:
                capacity = min(self._max_rows, max(rows, 2 * capacity))
            self._lay_out(rows=capacity, end=max(self.end - self.begin, width), like=self._buffers or prefill)
        lengths = lengths.to(self._first.device)
        target = slice(self.rows, rows), slice(None), slice(self.end - width, self.end)
        for buffers, sources in zip(self._buffers, prefill, strict=True):
            for buffer, source in zip(buffers, sources, strict=True):
                buffer[target] = source[:, :, -width:].repeat_interleave(copies, dim=0)
        self._first[self.rows : rows] = self.end - lengths.repeat_interleave(copies)
        self.rows = rows
        self.begin = int(self._first[:rows].min())

    def move(self, sources: Tensor, targets: Tensor, rows: int) -> None:
        """Copy rows `sources` over rows `targets` (int64, disjoint) and keep the first `rows` rows."""
        if len(sources):
            sources, targets = sources.to(self._first.device), targets.to(self._first.device)
            columns = slice(self.begin, self.end)
            for buffers in self._buffers:
                for buffer in buffers:
                    buffer[targets, :, columns] = buffer[sources, :, columns]
            self._first[targets] = self._first[sources]
        self.rows = rows
        if rows:
            self.begin = int(self._first[:rows].min())

    def _lay_out(self, *, rows: int, end: int, like: list[tuple[Tensor, Tensor]]) -> None:
        """Move the used columns so that they end at column `end`, into new buffers where the old ones are too small."""
        columns = max(self._column_capacity, end + max(HEADROOM_COLUMNS, end // HEADROOM_SHARE))
        used = slice(0, self.rows), slice(None), slice(self.begin, self.end)
        target = slice(0, self.rows), slice(None), slice(end - (self.end - self.begin), end)
        kept = [tuple(buffer[used].clone() for buffer in buffers) for buffers in self._buffers]
        if (rows, columns) != (self._row_capacity, self._column_capacity):
            self._buffers = [(_zeros(keys, rows, columns), _zeros(values, rows, columns)) for keys, values in like]
        for buffers, contents in zip(self._buffers, kept, strict=False):
            for buffer, content in zip(buffers, contents, strict=True):
                buffer[target] = content
        self._row_capacity, self._column_capacity = rows, columns
        shift = end - self.end
        self._first[: self.rows] += shift
        self.begin, self.end = self.begin + shift, end


def _zeros(like: Tensor, rows: int, columns: int) -> Tensor:
    """Not `empty`: a masked column still multiplies its value by a weight of 0, and 0 times a stray nan is nan."""
    return like.new_zeros(rows, like.shape[1], columns, like.shape[3])


def states(cache: Cache) -> list[tuple[Tensor, Tensor]]:
    """Per layer the keys and values that a prefill left in an ordinary cache."""
    layers = [layer for layer in cache.layers if isinstance(layer, CacheLayerMixin)]
    return [(layer.keys, layer.values) for layer in layers if layer.keys is not None and layer.values is not None]
