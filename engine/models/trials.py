"""Model folders tried out before a launch: in a process of its own, which may take its seconds and may die.

    question -> verdict known? -> yes: a sentence, or nothing wrong
                     no -> Trial: python -m engine.learning.trial -> verdict, kept beside the folder's fingerprint

The process imports transformers, which neither an engine nor a command line should, and does what workers do first,
without a weight: about 4 CPU seconds. A verdict is kept in the data folder's cache for as long as the folder's files
and the code stay as they are, so a launch waits once. Built-in models are never asked about.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from engine.config import Job
from storage.records import Command

DEADLINE_S = 120.0
"""Longest wait for a verdict: thirty times what it takes on a machine that does nothing else."""

LOOK_S = 0.05
"""How often a command line looks for it."""

DECIDED_BY = ("bidirl", "transformers", "tokenizers", "torch", "peft")
"""Packages whose versions a verdict holds for."""

CODE = Path(__file__).resolve().parents[1] / "learning"
"""What decides; while it is worked on, its version stays the same."""

TEMPLATES = "additional_chat_templates"
"""The one folder within a model's folder that transformers reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A model folder, and all of a job that decides whether it can be used."""

    folder: str
    template: str | None
    """`model.prompt_template`."""
    recompute: bool
    """`model.gradient_checkpointing`."""
    response_tokens: int
    """`sampling.max_response_tokens`."""
    lora: dict[str, Any] | None
    """`model.lora`."""

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def fingerprint(self) -> str:
        """Hex digest of what the verdict holds for: names, sizes and times of the files, and versions of the code."""
        folder = Path(self.folder)
        stats = [entry for place in (folder, folder / TEMPLATES, CODE) for entry in _stats(place)]
        return hashlib.sha256(json.dumps([stats, [_version(name) for name in DECIDED_BY]]).encode()).hexdigest()


class Undecided(Exception):
    """Nothing is known of the folder yet: it has to be tried."""

    def __init__(self, question: Question) -> None:
        self.question = question
        super().__init__(question)


def question_of(job: Job, folder: Path) -> Question:
    """What to ask for a job whose model lies in that folder."""
    model = job.model
    return Question(
        folder=str(folder.resolve()),
        template=model.prompt_template,
        recompute=model.gradient_checkpointing,
        response_tokens=job.sampling.max_response_tokens,
        lora=None if model.lora is None else model.lora.model_dump(mode="json"),
    )


class Trial:
    """One process that tries a folder out."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.fingerprint = question.fingerprint()
        self.decided = False
        """Whether it ended with a verdict, and not by an accident that says nothing of the folder."""
        self._ends_at = time.monotonic() + DEADLINE_S
        self._out, self._errors = _unnamed_file(), _unnamed_file()  # a pipe that nobody reads would stop it
        alone = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        self._process: subprocess.Popen[bytes] | None = None
        self._problem = ""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "engine.learning.trial", question.text],
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._errors,
                env=os.environ | alone,
            )
        except OSError as error:
            self._problem = f"no process could be started to try it: {error.strerror or error}"

    def told(self) -> str | None:
        """The verdict: '' where nothing is wrong; None while the process works within its time."""
        code = None if self._process is None else self._process.poll()
        if self._process is not None and code is None:
            if time.monotonic() < self._ends_at:
                return None
            self._problem = f"it could not be tried within {DEADLINE_S:.0f} s"
        self.end()
        with contextlib.suppress(ValueError, LookupError, TypeError):  # it died before, or while, it told
            if code == 0:
                verdict = str(json.loads(_lines(self._out)[-1])["told"])
                self.decided = True
                return verdict
        last = (_lines(self._errors) or ["it said nothing"])[-1][:300]
        problem = self._problem or f"the process that tried it ended with code {code}: {last}"
        return f"model.source {self.question.folder}: {problem}"

    def end(self) -> None:
        """Stop it if it still works."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(DEADLINE_S)


class Verdicts:
    """What trials told, in the data folder's cache."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / "model_trials"

    def get(self, question: Question) -> str | None:
        """The sentence, '' where nothing is wrong; None where nothing is known of the folder as it is now."""
        try:
            kept = json.loads(self._file(question).read_text(encoding="utf-8"))
            return str(kept["told"]) if kept["fingerprint"] == question.fingerprint() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # not tried yet, or a file that somebody cut off

    def keep(self, trial: Trial, told: str) -> None:
        """For the next launch; where it cannot be written that one tries again."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._file(trial.question)
            fresh = file.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps({"fingerprint": trial.fingerprint, "told": told}), encoding="utf-8")
            fresh.replace(file)

    def _file(self, question: Question) -> Path:
        return self._folder / f"{hashlib.sha256(question.text.encode()).hexdigest()[:32]}.json"


def ask(question: Question, cache: Path, *, keep: bool) -> str:
    """The verdict, waited for; `keep` it in that cache. For a process that has nothing else to do."""
    verdicts = Verdicts(cache)
    known = verdicts.get(question)
    if known is not None:
        return known
    trial = Trial(question)
    try:
        while (told := trial.told()) is None:
            time.sleep(LOOK_S)
    finally:
        trial.end()
    if keep and trial.decided:
        verdicts.keep(trial, told)
    return told


class Trials:
    """Launch commands that wait for a verdict, one after the other; the engine's loop only looks in."""

    def __init__(self, cache: Path) -> None:
        self._verdicts = Verdicts(cache)
        self._waiting: deque[tuple[Command, Question]] = deque()
        self._trial: Trial | None = None
        self._just_told: dict[str, str] = {}

    def verdict(self, question: Question) -> str:
        """What is known. Raises Undecided where that is nothing."""
        known = self._just_told.get(question.text)
        if known is None:
            known = self._verdicts.get(question)
        if known is None:
            raise Undecided(question)
        return known

    def add(self, command: Command, question: Question) -> None:
        """Try the folder that the command waits for."""
        self._waiting.append((command, question))

    def ended(self) -> Iterator[Command]:
        """Commands whose verdict is there; each is to be looked at again, once."""
        while self._waiting:
            command, question = self._waiting[0]
            if self._trial is None:
                if self._verdicts.get(question) is None:
                    self._trial = Trial(question)
                    return
            else:
                told = self._trial.told()
                if told is None:
                    return
                if self._trial.decided:
                    self._verdicts.keep(self._trial, told)
                self._trial, self._just_told = None, {question.text: told}
            self._waiting.popleft()
            yield command
            self._just_told = {}  # an accident is told once

    def close(self) -> None:
        """Let nothing of it go on."""
        if self._trial is not None:
            self._trial.end()


def _stats(folder: Path) -> list[tuple[str, int, int]]:
    """Path, bytes and time of each file; of none where the folder is gone, which is for others to tell."""
    try:
        found = [(path, path.stat()) for path in sorted(folder.iterdir()) if path.is_file()]
    except OSError:
        return []
    return [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in found]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _unnamed_file() -> IO[bytes]:
    return tempfile.TemporaryFile()


def _lines(stream: IO[bytes]) -> list[str]:
    stream.seek(0)
    return [line for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
