"""Scoring in a process of its own, with a deadline for each answer: what hangs is killed, and its group has no reward.

    waiting --fed, as much as the pipe holds--> outstanding --answer by answer--> verdicts
       ^                                            |
       +---- all but the first, which failed -------+  (too late: killed; or it died)  -> a new process

Nothing here blocks longer than it is told to: the process is fed only what fits into the pipe unread.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from engine.learning.rewards.judge import Values
from engine.learning.rewards.reward import FAILED, TIMED_OUT, RewardFailed
from engine.learning.rewards.scoring import Answers, Verdict
from engine.learning.rewards.spec import RewardSpec

LEAST_LOAD_S, LOAD_DEADLINES = 30.0, 6
"""Longest that a module may take to load: so many times what an answer may take, and never less than half a minute,
since an import of seconds takes that long on a crowded machine."""

START_DEADLINE_S = 120.0
"""Longest that a process may take to begin loading them: a Python of its own, with what is ours."""

END_DEADLINE_S = 10.0
"""Longest wait for a killed process to be gone."""

PIPE_BYTES = 48 * 1024
"""What a pipe takes without a reader, with room to spare: more is sent only to one that reads."""

READ_BYTES = 64 * 1024
"""Read at once: a whole pipe, so that many replies cost one call."""

ROOT = Path(__file__).resolve().parents[3]
"""Where the child finds this package."""


@dataclass(slots=True)
class _Handed:
    answers: Answers
    message: bytes
    values: list[Values] = field(default_factory=list)
    wanted: bool = True
    """False: it was withdrawn, and whatever comes of it is dropped."""


class ScoringProcess:
    """See `engine.learning.rewards.scoring.Scoring`. The process is started at once and loads in the background."""

    def __init__(self, spec: RewardSpec, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._clock = clock
        self._waiting: deque[_Handed] = deque()
        self._outstanding: deque[_Handed] = deque()
        self._verdicts: list[Verdict] = []
        self._since = 0.0
        """When the answer that is being scored came to be the first one; later by what it spent on loading modules."""
        self._importing: float | None = None
        """Since when it has been loading one."""
        self._replies: int | None = None
        """Where its replies are read; None once closed."""
        self.restarts = 0
        """Processes that were started anew, after one hung or died."""
        self._start()

    @property
    def pending(self) -> int:
        return len(self._waiting) + sum(handed.wanted for handed in self._outstanding) + len(self._verdicts)

    def wait_ready(self, each: Callable[[], None]) -> None:
        while not self._ready:
            each()
            self._look(0.5)

    def submit(self, answers: Answers) -> None:
        try:
            message = pickle.dumps(answers, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # fields of an item may hold anything
            detail = f"the item cannot be sent to the scoring process: {type(error).__name__}: {error}"
            failure = RewardFailed(FAILED, "scoring", answers.question.item, answers.texts[0], detail)
            self._verdicts.append(Verdict(key=answers.key, failure=failure))
            return
        self._waiting.append(_Handed(answers, message))
        self._feed()

    def collect(self, wait_s: float = 0.0) -> list[Verdict]:
        until = self._clock() + wait_s
        while self.pending > len(self._verdicts):
            left = 0.0 if self._verdicts else max(0.0, until - self._clock())
            if not self._look(left) and left <= 0:
                break
        found, self._verdicts = self._verdicts, []
        return found

    def withdraw(self) -> list[int]:
        handed = [one for one in (*self._outstanding, *self._waiting) if one.wanted]
        keys = [verdict.key for verdict in self._verdicts] + [one.answers.key for one in handed]
        self._verdicts.clear()
        self._waiting.clear()
        for one in handed:
            one.wanted = False
        return keys

    def close(self) -> None:
        self._kill()
        self._connection.close()
        replies, self._replies = self._replies, None
        if replies is not None:  # a number that is closed twice may be another's by then
            os.close(replies)

    # -- the process --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        theirs, self._connection = Pipe(duplex=False)
        mine, their_replies = os.pipe()
        os.set_blocking(mine, False)
        self._replies = mine
        self._unread = b""
        self._started = self._ready = False
        self._since, self._importing = self._clock(), None
        handed_over = theirs.fileno(), their_replies
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "engine.learning.rewards.child", *map(str, handed_over), str(os.getpid())],
            pass_fds=handed_over,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # what a reward starts itself is ended with it
        )
        theirs.close()
        os.close(their_replies)
        with suppress(OSError):  # that it is dead already is seen when its first word is waited for
            self._connection.send_bytes(pickle.dumps(self._spec))

    def _restart(self) -> None:
        self.restarts += 1
        self.close()
        self._start()

    def _kill(self) -> None:
        if self._process.returncode is not None:
            return  # its number may be another's by now
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(
                f"the scoring process {self._process.pid} is still there {END_DEADLINE_S:.0f} s after it was killed"
            ) from None

    # -- what goes in and comes out -----------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Send as much as the process can be sure to take: all that the pipe holds, or one set to a reader."""
        while self._ready and self._waiting:
            queued = sum(len(handed.message) for handed in self._outstanding)
            if self._outstanding and queued + len(self._waiting[0].message) > PIPE_BYTES:
                return
            handed = self._waiting.popleft()
            if not self._outstanding:
                self._since = self._clock()
            self._outstanding.append(handed)
            try:
                self._connection.send_bytes(handed.message)
            except OSError:
                return  # it died: told when it is looked at next

    def _look(self, wait_s: float) -> bool:
        """Enter what was said, or that nothing will be; waits at most so long. False: nothing has changed."""
        self._feed()
        left = max(0.0, self._due - self._clock())
        assert self._replies is not None, "a scoring that was closed is asked for verdicts"
        if wait_s > 0:
            select.select([self._replies], [], [], min(wait_s, left) if self._running else wait_s)
        try:
            said = os.read(self._replies, READ_BYTES)
        except BlockingIOError:
            said = None
        if said == b"":
            self._died()
            return True
        if said:
            *lines, self._unread = (self._unread + said).split(b"\n")
            for line in lines:
                self._enter(json.loads(line))
            return True
        if self._running and self._clock() >= self._due:
            self._late()
            return True
        return False

    @property
    def _running(self) -> bool:
        """It is loading, or at an answer."""
        return not self._ready or bool(self._outstanding)

    @property
    def _due(self) -> float:
        """When what it is at takes too long."""
        if self._importing is not None:
            return self._importing + self._load_s
        if self._ready:
            return self._since + self._spec.deadline_s
        return self._since + (self._load_s if self._started else START_DEADLINE_S)

    @property
    def _load_s(self) -> float:
        return max(LEAST_LOAD_S, LOAD_DEADLINES * self._spec.deadline_s)

    def _enter(self, message: dict[str, Any]) -> None:
        if "importing" in message:
            self._importing = self._clock()
            return
        if "imported" in message:
            self._importing = None
            self._since += message["imported"]
            return
        self._since = self._clock()
        if "started" in message:
            self._started = True
        elif "ready" in message:
            self._ready = True
        elif "broken" in message:
            self._kill()
            raise RuntimeError(f"the job's rewards ({', '.join(self._spec.weights)}) do not load: {message['broken']}")
        elif "failed" in message:
            self._fail(message["failed"], message["name"], message["detail"])
        else:
            first = self._outstanding[0]
            first.values.append(message["values"])
            if len(first.values) == len(first.answers.texts):
                self._outstanding.popleft()
                if first.wanted:
                    self._verdicts.append(Verdict(key=first.answers.key, values=tuple(first.values)))

    def _fail(self, reason: str, name: str, detail: str) -> None:
        """The first set has no reward."""
        first = self._outstanding.popleft()
        if not first.wanted:
            return
        text = first.answers.texts[len(first.values)]
        failure = RewardFailed(reason, name, first.answers.question.item, text, detail)
        self._verdicts.append(Verdict(key=first.answers.key, failure=failure))

    def _late(self) -> None:
        limit = (
            f"{self._load_s:.0f} s ({LOAD_DEADLINES} x task.reward_deadline_s {self._spec.deadline_s:g}, at least "
            f"{LEAST_LOAD_S:.0f} s)"
        )
        if not self._ready:
            self._kill()
            names = ", ".join(self._spec.weights)
            if not self._started:
                raise RuntimeError(f"the process of the job's rewards did not start within {START_DEADLINE_S:.0f} s")
            raise RuntimeError(
                f"the job's rewards ({names}) did not load within {limit}: a module of theirs takes longer, or hangs"
            )
        if self._importing is not None:
            self._again(TIMED_OUT, f"a module that it imports did not load within {limit}")
        else:
            self._again(TIMED_OUT, f"it took longer than the {self._spec.deadline_s:g} s of task.reward_deadline_s")

    def _died(self) -> None:
        self._kill()
        how = f"its process ended with status {self._process.returncode}"
        if not self._ready:
            raise RuntimeError(f"the job's rewards ({', '.join(self._spec.weights)}) do not load: {how}")
        self._again(FAILED, how)

    def _again(self, reason: str, detail: str) -> None:
        """A new process; the first set has no reward, the others begin anew."""
        if self._outstanding:
            self._fail(reason, " + ".join(self._spec.weights), detail)
        for handed in reversed(self._outstanding):
            if handed.wanted:
                handed.values.clear()
                self._waiting.appendleft(handed)
        self._outstanding.clear()
        self._restart()
