"""Long computations in a process of their own, one at a time for all sessions: in the app's process a simulated run
would hold every reader's page back for as long as it takes, since Python runs one thread at a time.

    page --function, arguments--> the process --share done, ...--> result, or why there is none

Whoever waits has a deadline; what takes longer is ended with its process, and the next one gets a fresh one. The
process is started when it is first needed and ends by itself when nobody asks it for anything.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

IDLE_S = 120.0
"""Seconds without work after which the process ends: it holds some 80 MB."""

LOOK_S = 0.5
"""Longest time between two looks at the deadline."""

NICENESS = 10
"""As low as the workers on cores: engine and pages go before it."""

Tell = Callable[[float], None]
"""Is told the share that is done, 0 to 1."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Busy(RuntimeError):
    """The process works for somebody else."""


class TooLong(RuntimeError):
    """A computation that was not waited for."""


class Apart:
    """The process; threads of several sessions share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None

    def run(
        self,
        function: Callable[Concatenate[Tell, Arguments], Result],
        longest_s: float,
        tell: Tell,
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """What a function of a module returns, called there with a `tell` of its own first.

        longest_s: seconds that it may take. Raises Busy at once while it works for somebody else, TooLong, and what the
        function raises. Whatever else ends the waiting ends the process too.
        """
        if not self._lock.acquire(blocking=False):
            raise Busy("another simulated run is being played")
        try:
            word, value = self._answer((function, arguments, named), longest_s, tell)
        except BaseException:
            self._end()
            raise
        finally:
            self._lock.release()
        if word == "raised":
            raise value
        result: Result = value
        return result

    def _answer(self, work: tuple[Any, ...], longest_s: float, tell: Tell) -> tuple[str, Any]:
        ends_at = time.monotonic() + longest_s
        connection = self._send(work)
        while (left := ends_at - time.monotonic()) > 0:
            if not connection.poll(min(left, LOOK_S)):
                continue
            try:
                word, value = connection.recv()
            except (EOFError, OSError):
                raise RuntimeError("the process that computes it ended before it was done") from None
            if word != "share":
                return word, value
            tell(value)
        raise TooLong(f"it takes more than {longest_s:g} s")

    def _send(self, work: tuple[Any, ...]) -> Connection[Any, Any]:
        """To the process that is there, or to a new one where it has ended by itself."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                _put(self._connection, work)
                if self._process is not None and self._process.poll() is None:
                    return self._connection
        self._end()
        connection = self._start()
        _put(connection, work)
        return connection

    def _start(self) -> Connection[Any, Any]:
        ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app.apart", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._connection = ours
        return ours

    def _end(self) -> None:
        """End the process if there is one; it holds nothing that is kept."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
        self._process = self._connection = None


APART = Apart()


def _put(connection: Connection[Any, Any], told: object) -> None:
    """As the connection's own way does, which is called like that of a command."""
    connection.send_bytes(pickle.dumps(told))


def serve(connection: Connection[Any, Any]) -> None:
    """The process: answers until nobody asks any more."""
    while connection.poll(IDLE_S):
        try:
            function, arguments, named = connection.recv()
        except EOFError:
            return
        try:
            answer = ("done", function(lambda share: _put(connection, ("share", share)), *arguments, **named))
        except BrokenPipeError:
            return
        except Exception as error:
            answer = ("raised", error)
        _put(connection, answer)


if __name__ == "__main__":
    os.nice(NICENESS)
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        serve(Connection(int(sys.argv[1])))
