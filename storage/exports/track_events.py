"""Writes the trace format that Perfetto reads: tracks, slices, moments and counters as packets, strings interned.

    TracePacket: timestamp (ns since the trace's start), sequence, track_event | descriptor | clock
    a sequence per track that has many events: its first packet says which track, later ones do not repeat it

It knows nothing of runs. Field numbers are those of Perfetto's own message definitions, which are never renumbered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from storage.exports.protobuf import double, int64, key, message, text, uint, varint

Value = str | int | float | bool
Args = Sequence[tuple[str, Value | None]]
"""Names and values of what is told about an event; those that are not known are left out."""

BUFFER_BYTES = 1 << 20
"""Written at a time."""

CACHED_EVENTS = 500
"""Encoded events kept for each track: the same work comes again and again within a step, and rarely after it."""

REALTIME, BOOTTIME = 1, 6
"""Numbers of Perfetto's clocks: unix time, and the one that packets are in where they do not name another."""

SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
"""Types of a track event."""

CLEARED, NEEDED = 1, 2
"""Flags of a sequence: interned strings begin anew with this packet, or are needed to read it."""

_PACKET = key(1, 2)
_TIMESTAMP = key(8, 0)


class Out(Protocol):
    """Where a trace goes."""

    def write(self, data: bytes, /) -> object: ...


class TraceWriter:
    """One trace. Call `close` at the end; what is buffered is lost without."""

    def __init__(self, out: Out, *, unix_start_s: float) -> None:
        """unix_start_s: unix seconds of the trace's time 0; nothing may be earlier."""
        self._out = out
        self._buffer = bytearray()
        self.unix_start_s = unix_start_s
        self._tracks = 0
        self._sequences = 0
        self._threads = 0
        self.events = 0
        clocks = ((BOOTTIME, 0), (REALTIME, round(unix_start_s * 1e9)))
        snapshot = b"".join(message(1, uint(1, clock), uint(2, ns)) for clock, ns in clocks)
        self._put(message(6, snapshot, uint(2, BOOTTIME)))

    def process(self, name: str) -> int:
        """A heading with tracks below it; returns its track."""
        uuid = self._next_track()
        # far above the threads' numbers: a thread with its process's number is taken for the main one
        self._put(message(60, uint(1, uuid), message(3, uint(1, 1_000_000 + uuid), text(6, name))))
        return uuid

    def thread(self, process: int, name: str) -> int:
        """A track below a process, for slices that follow one another or nest."""
        uuid = self._next_track()
        self._threads += 1
        thread = message(4, uint(1, 1_000_000 + process), uint(2, self._threads), text(5, name))
        self._put(message(60, uint(1, uuid), uint(5, process), thread))
        return uuid

    def track(self, parent: int, name: str) -> int:
        """A track below a process that is no thread of it."""
        uuid = self._next_track()
        self._put(message(60, uint(1, uuid), text(2, name), uint(5, parent)))
        return uuid

    def counter(self, parent: int, name: str, unit: str) -> int:
        """A track of numbers over time."""
        uuid = self._next_track()
        self._put(message(60, uint(1, uuid), text(2, name), uint(5, parent), message(8, text(6, unit))))
        return uuid

    def sequence(self, track: int) -> EventSequence:
        """Events of one track."""
        self._sequences += 1
        return EventSequence(self, self._sequences, track)

    def close(self) -> None:
        """Write what is buffered; the file below stays open."""
        self._flush()

    def put_at(self, unix_s: float, packet: bytes) -> None:
        """A packet with a moment, unix seconds; `packet` is the rest of it. Raises ValueError before the start."""
        at = varint(round((unix_s - self.unix_start_s) * 1e9))
        self.events += 1
        self._buffer += _PACKET + varint(len(_TIMESTAMP) + len(at) + len(packet)) + _TIMESTAMP + at + packet
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush()

    def _put(self, packet: bytes) -> None:
        self._buffer += _PACKET + varint(len(packet)) + packet

    def _flush(self) -> None:
        self._out.write(bytes(self._buffer))
        self._buffer.clear()

    def _next_track(self) -> int:
        self._tracks += 1
        return self._tracks


class EventSequence:
    """Events of one track, in the order of their moments."""

    def __init__(self, trace: TraceWriter, number: int, track: int) -> None:
        self._trace = trace
        self._tail = uint(10, number)
        self._flags = uint(13, NEEDED)
        self._strings: tuple[dict[str, int], ...] = ({}, {}, {})
        self._cached: dict[tuple[str, str, tuple[tuple[str, Value | None], ...]], bytes] = {}
        # the first packet says which track the events of this sequence are on
        self._first = uint(13, CLEARED | NEEDED) + message(59, message(11, uint(11, track)))
        self._end = self._tail + self._flags + message(11, uint(9, SLICE_END))

    def slice(self, t0: float, t1: float | None, name: str, category: str, args: Args = ()) -> None:
        """From t0 to t1, unix seconds; None: it has not ended. For one with slices inside it: `begin` and `end`."""
        self._event(SLICE_BEGIN, t0, name, category, args)
        if t1 is not None:
            self._trace.put_at(t1, self._end)

    def begin(self, t0: float, name: str, category: str, args: Args = ()) -> None:
        """A slice that `end` ends, or nothing."""
        self._event(SLICE_BEGIN, t0, name, category, args)

    def end(self, t1: float) -> None:
        """End the innermost slice."""
        self._trace.put_at(t1, self._end)

    def instant(self, at: float, name: str, category: str, args: Args = ()) -> None:
        """A moment."""
        self._event(INSTANT, at, name, category, args)

    def count(self, at: float, value: float) -> None:
        """The counter's value from now on."""
        body = self._tail + self._take_first() + message(11, uint(9, COUNTER), double(44, value))
        self._trace.put_at(at, body)

    def _event(self, kind: int, at: float, name: str, category: str, args: Args) -> None:
        cached = (name, category, tuple(args)) if kind == SLICE_BEGIN else None
        if cached is not None and (found := self._cached.get(cached)) is not None:
            self._trace.put_at(at, found)
            return
        interned: list[bytes] = []
        event = (
            uint(9, kind),
            uint(3, self._intern(0, category, interned)),
            uint(10, self._intern(1, name, interned)),
            *(
                message(4, uint(1, self._intern(2, label, interned)), _value(value))
                for label, value in args
                if value is not None
            ),
        )
        body = message(11, *event)
        strings = message(12, *interned) if interned else b""
        self._trace.put_at(at, self._tail + self._take_first() + strings + body)
        if cached is not None:
            if len(self._cached) >= CACHED_EVENTS:
                self._cached.clear()
            self._cached[cached] = self._tail + self._flags + body

    def _intern(self, which: int, string: str, interned: list[bytes]) -> int:
        """The number of a category (0), an event's name (1) or an argument's name (2) in this sequence."""
        known = self._strings[which]
        if (number := known.get(string)) is None:
            number = known[string] = len(known) + 1
            interned.append(message(which + 1, uint(1, number), text(2, string)))
        return number

    def _take_first(self) -> bytes:
        flags, self._first = self._first or self._flags, b""
        return flags


def _value(value: Value) -> bytes:
    if isinstance(value, bool):
        return uint(2, int(value))
    if isinstance(value, int):
        return int64(4, value)
    if isinstance(value, float):
        return double(5, value)
    return text(6, value)
