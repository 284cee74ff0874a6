"""What a reader of the Timeline chose, as parameters of its URL and back. Pure: a link shows the same a year later.

Nonsense in a URL is never taken for something else: it is named with what would be allowed, and the default is shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

WINDOWS: dict[str, float | None] = {"1m": 60.0, "5m": 300.0, "30m": 1800.0, "all": None}
"""Value in the URL -> length, seconds; None for the whole run."""

ROWS = ("device", "node", "role")
COLOURS = ("phase", "cause", "version", "role")
SUMS = ("window", "run")

SHORTEST_S = 0.01
"""A window of less than ten milliseconds is below what clocks of workers agree on."""

LONGEST_S = 10 * 365.25 * 86_400.0
"""Longer than any run: a wrong year."""

PLAIN_SECONDS = re.compile(r"[0-9]{9,11}([.][0-9]+)?")
"""Unix seconds since 1973, which no date can be taken for."""

MAX_KEY = 300
"""Characters of a row's key in a URL; names of nodes are shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A place in the timeline that was clicked on."""

    row: str
    """Key of the row, such as device:3 or node:n1."""
    at: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is shown. Frozen: a click gives another one."""

    window: str
    """One of `WINDOWS`: the last so many minutes."""
    exact: tuple[float, float] | None = None
    """Exact window, unix seconds, instead of `window`; None follows a live run."""
    rows: str = "device"
    """One of `ROWS`."""
    colour: str = "phase"
    """One of `COLOURS`."""
    sums: str = "window"
    """One of `SUMS`: what lost time is counted over."""
    opened: str | None = None
    """Key of the group of rows that is open."""
    block: Block | None = None
    """What was clicked on."""
    lease: int | None = None
    """Lease that was clicked on."""
    listed: tuple[float, float] | None = None
    """Window whose worst bubbles are listed although another one is shown, since one of them was chosen."""

    @property
    def shows_all(self) -> bool:
        """Whether the window is the whole run."""
        return self.exact is None and WINDOWS[self.window] is None

    def showing(self, low: float, high: float) -> View:
        """The same with an exact window, to the millisecond as a URL holds it."""
        return replace(self, exact=(round(low, 3), round(high, 3)), listed=None)

    def following(self) -> View:
        """The same without one."""
        return replace(self, exact=None, listed=None)

    def bounds(self, begin: float, end: float) -> tuple[float, float]:
        """The window of a run that began at `begin` and goes to `end`, unix seconds; at least a second long."""
        if self.exact is not None:
            return self.exact
        length = WINDOWS[self.window]
        low = begin if length is None else end - length
        return min(low, end - 1.0), end


def read_view(params: Mapping[str, str], default_window: str) -> tuple[View, list[str]]:
    """The view that a URL asks for, and a sentence for each parameter that cannot be had (its default is taken)."""
    problems: list[str] = []
    view = View(
        window=_word(params, "window", tuple(WINDOWS), default_window, problems),
        rows=_word(params, "rows", ROWS, "device", problems),
        colour=_word(params, "colour", COLOURS, "phase", problems),
        sums=_word(params, "sums", SUMS, "window", problems),
        exact=_exact(params, ("from", "to"), problems) or _exact(params, ("t0", "t1"), problems),
        listed=_exact(params, ("listed_from", "listed_to"), problems),
        opened=_key(params, "open", problems),
        block=_block(params, problems),
        lease=_lease(params, problems),
    )
    return view, problems


def params_of(view: View) -> dict[str, str]:
    """Parameters that `read_view` reads back as the same view."""
    found = {"window": view.window, "rows": view.rows, "colour": view.colour, "sums": view.sums}
    if view.exact is not None:
        found |= exact_params(view.exact)
    if view.listed is not None:
        found |= {f"listed_{name}": value for name, value in exact_params(view.listed).items()}
    if view.opened is not None:
        found["open"] = view.opened
    if view.block is not None:
        found["block"] = f"{view.block.row}@{moment(view.block.at)}"
    if view.lease is not None:
        found["lease"] = str(view.lease)
    return found


def exact_params(window: tuple[float, float]) -> dict[str, str]:
    """The parameters of an exact window."""
    return {"from": moment(window[0]), "to": moment(window[1])}


def moment(at: float) -> str:
    """Unix seconds as a URL writes them: 2026-05-01T12:00:00.250Z, the same for every reader."""
    whole = datetime.fromtimestamp(0, UTC).timestamp() + round(at * 1000) / 1000
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def parsed_moment(text: str) -> float:
    """Unix seconds of such a text, or of unix seconds as they are. Raises ValueError for anything else, a time without
    a zone included: two readers would take it for two moments."""
    if PLAIN_SECONDS.fullmatch(text):
        at = float(text)
    else:
        parsed = datetime.fromisoformat(text.strip())
        if parsed.tzinfo is None:
            raise ValueError(f"a time needs its zone, such as a Z behind it, got {text!r}")
        at = parsed.timestamp()
    if not 0 < at < LONGEST_S * 20:
        raise ValueError(f"a time must lie between 1970 and 2170, got {text!r}")
    return round(at, 3)


def window_problem(low: float, high: float) -> str | None:
    """Why the two cannot be a window; None when they can."""
    if not (math.isfinite(low) and math.isfinite(high)) or round(high - low, 6) < SHORTEST_S:
        return f"a window must end at least {SHORTEST_S * 1000:g} ms after it begins"
    if high - low > LONGEST_S:
        return "a window must not be longer than ten years"
    return None


def _word(params: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str, problems: list[str]) -> str:
    value = params.get(name)
    if value is None or value in allowed:
        return value or default
    problems.append(f"{name} must be one of {', '.join(allowed)}, got {_quoted(value)}; {default} is shown")
    return default


def _exact(params: Mapping[str, str], names: tuple[str, str], problems: list[str]) -> tuple[float, float] | None:
    given = {name: params[name] for name in names if name in params}
    if not given:
        return None
    if len(given) == 1:
        problems.append(f"{' and '.join(names)} belong together, and only {next(iter(given))} is given; it is ignored")
        return None
    ends = []
    for name, text in given.items():
        try:
            ends.append(parsed_moment(text))
        except (ValueError, OverflowError):
            problems.append(
                f"{name} must be a time such as 2026-05-01T12:00:00.250Z, got {_quoted(text)}; it is ignored"
            )
    if len(ends) < 2:
        return None
    if wrong := window_problem(*ends):
        problems.append(f"{wrong}, got {' to '.join(_quoted(text) for text in given.values())}; it is ignored")
        return None
    return ends[0], ends[1]


def _key(params: Mapping[str, str], name: str, problems: list[str]) -> str | None:
    value = params.get(name)
    if value is None:
        return None
    kind, colon, rest = value.partition(":")
    if kind in ("device", "node", "pool") and colon and rest and len(value) <= MAX_KEY:
        return value
    problems.append(f"{name} must name a row, such as node:n1, got {_quoted(value)}; all rows are shown")
    return None


def _block(params: Mapping[str, str], problems: list[str]) -> Block | None:
    value = params.get("block")
    if value is None:
        return None
    row, _, at = value.rpartition("@")
    wrong: list[str] = []
    key = _key({"block": row}, "block", wrong)
    if key is not None:
        try:
            return Block(row=key, at=parsed_moment(at))
        except (ValueError, OverflowError):
            pass
    such = "device:3@2026-05-01T12:00:00.250Z"
    problems.append(f"block must be a row and a time, such as {such}, got {_quoted(value)}; none is chosen")
    return None


def _lease(params: Mapping[str, str], problems: list[str]) -> int | None:
    value = params.get("lease")
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) < 12:
        return int(value)
    problems.append(f"lease must be the number of a lease, got {_quoted(value)}; none is chosen")
    return None


def _quoted(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= 60 else text[:57] + "...")
