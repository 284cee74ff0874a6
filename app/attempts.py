"""Wrong secrets slow down whoever enters them: the pause grows with each one, per session, per address, per process.

A new session costs an attacker nothing, so the address counts too; gently, for behind a proxy everybody has the same
one. Some have addresses without end, so all of them together count as well, more gently still. Only the counts are
kept, never what was typed. Whoever is signed in already is not slowed down.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

FIRST_PAUSE_S = 1.0
"""After the first wrong one that counts; each further one doubles it."""

FORGOTTEN_AFTER_S = 900.0
"""A quarter of an hour without a wrong one, and the next is the first again."""

KEPT_ADDRESSES = 4096
"""Addresses remembered; the one that was longest quiet is forgotten first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How many wrong ones are free, and how long the pause may grow."""

    free: int
    """Wrong ones without a pause."""
    longest_s: float
    """The pause does not grow beyond that."""


SESSION = Patience(free=0, longest_s=60.0)
"""A person who mistypes waits a second or two."""

ADDRESS = Patience(free=10, longest_s=5.0)
"""A long secret is safe at 12 tries a minute, and an operator behind the attacker's proxy still gets a turn."""


PROCESS = Patience(free=50, longest_s=1.0)
"""However many addresses try, one a second is looked at; a single one, held at 12 a minute, leaves the others room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Wrong secrets of one session, of one address, or of all of them."""

    wrong: int = 0
    """Since the last quarter of an hour without one."""
    last_at: float = 0.0
    """Unix seconds of the newest one."""

    def wait_s(self, patience: Patience, now: float) -> float:
        """Seconds until the next try is looked at; 0 when it may come."""
        counted = self.wrong - patience.free
        if counted <= 0:
            return 0.0
        # the exponent is bounded, or a thousand wrong ones would overflow
        pause = min(FIRST_PAUSE_S * 2 ** min(counted - 1, 32), patience.longest_s)
        # a clock that was set back makes nobody wait longer than the pause
        return min(pause, max(0.0, self.last_at + pause - now))

    def after_wrong(self, now: float) -> Attempts:
        """One more."""
        quiet = now - self.last_at > FORGOTTEN_AFTER_S
        return Attempts(wrong=1 if quiet else self.wrong + 1, last_at=now)


@dataclass(slots=True)
class ByAddress:
    """Wrong secrets of every address and of all together, for all sessions and threads of this process."""

    _all: Attempts = field(default_factory=Attempts)
    _known: OrderedDict[str, Attempts] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def try_once(self, address: str, now: float, is_right: Callable[[], bool]) -> tuple[bool | None, float]:
        """Whether `is_right`, None where it was too early to ask; and how long to wait before the next try.

        Tries come one after the other, or as many as there are threads would be free.
        """
        with self._lock:
            before = self._known.get(address, Attempts())
            if wait_s := max(before.wait_s(ADDRESS, now), self._all.wait_s(PROCESS, now)):
                return None, wait_s
            if is_right():
                return True, 0.0
            self._all = self._all.after_wrong(now)
            self._known.pop(address, None)
            self._known[address] = after = before.after_wrong(now)
            while len(self._known) > KEPT_ADDRESSES:
                self._known.popitem(last=False)
            return False, max(after.wait_s(ADDRESS, now), self._all.wait_s(PROCESS, now))
