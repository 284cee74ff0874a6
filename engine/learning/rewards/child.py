"""The scoring process: loads the rewards, then scores what it is sent, answer by answer, until nobody sends any more.

    python -m engine.learning.rewards.child IN OUT PARENT     file descriptors, and the process whose child it is

It says `started`, is told its rewards and says `ready` or `broken`. Then each message is one set of answers; each
answer has a line back, `values` or `failed`, and after a failure the set's other answers have none. Where an answer's
scoring loads modules, `importing` and `imported` with its seconds come first. What comes in was pickled by the worker,
what goes out is JSON: a user's function runs here, and nothing of it is unpickled elsewhere. What it prints goes where
the worker's output goes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from engine.learning.rewards.importing import tell_of_imports
from engine.learning.rewards.judge import Judge
from engine.learning.rewards.reward import RewardFailed

MOST_DETAIL = 500
"""Characters of an error that are told: the rest of a long one helps nobody."""

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux: a function that hangs must not outlive the worker that would have ended it."""


def main(fd: int, out: int, parent: int) -> None:
    _die_with(parent)
    connection = Connection(fd, writable=False)
    with contextlib.suppress(EOFError, OSError):  # the worker is gone
        _send(out, {"started": True})
        try:
            judge = Judge(pickle.loads(connection.recv_bytes()))
        except (Exception, SystemExit) as error:
            _send(out, {"broken": f"{type(error).__name__}: {error}"[:MOST_DETAIL]})
            return
        _send(out, {"ready": True})
        tell_of_imports(lambda message: _send(out, message))
        while True:
            _score(out, judge, connection.recv_bytes())


def _score(out: int, judge: Judge, message: bytes) -> None:
    answers = pickle.loads(message)
    for text in answers.texts:
        try:
            values = judge(answers.question, text, only=answers.only)
        except RewardFailed as failure:
            told = {"failed": failure.reason, "name": failure.name, "detail": failure.detail[:MOST_DETAIL]}
            _send(out, told)
            return
        _send(out, {"values": values})


def _send(out: int, message: dict[str, Any]) -> None:
    line = json.dumps(message).encode() + b"\n"
    while line:
        line = line[os.write(out, line) :]


def _die_with(parent: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # elsewhere than on Linux
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
