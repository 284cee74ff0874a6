"""Does some test notice when a rule of the policy is broken? One fault after the other, in a copy: `make mutants`.

    copy -> the tests pass there -> for each mutant: one text replaced -> the fast tests run until one fails

The working tree is never touched. Ends with exit status 1 when the tests fail without a fault, when a mutant does not
fit the code any more, when one is no Python, or when less than LEAST_KILLED of them are noticed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutant_list import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[1]
POLICY = Path("planner/policy")

COPIED = (
    "planner",
    "pyproject.toml",
    "storage/__init__.py",
    "storage/words.py",
    "tests/__init__.py",
    "tests/conftest.py",
    "tests/golden",
    "tests/planner",
    "tests/policy",
    "tests/simulator",
)
"""What the tests below need; no engine, no app, no database."""

TESTS = ("tests/policy", "tests/golden", "tests/simulator", "tests/planner")
"""In this order: tests of one rule first, since they tell best what is wrong."""

PYTEST = (
    *("-m", "pytest", *TESTS, "-x", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider"),
    # the profile "ci" of hypothesis: no deadline, no database, the same examples in every run
    *("--hypothesis-profile=ci", "--timeout=60"),
)

LEAST_KILLED = 0.9
"""Share of the mutants that must be noticed."""

SHORTEST_LIMIT_S = 120.0
"""A run of the tests that takes longer is a loop, on an idle machine: they need some 25 s."""

LIMIT_FACTOR = 5.0
"""Where the tests without a fault were slow, a loop is what takes so many times their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the tests said."""

    passed: bool
    by: str
    """the first test that failed, or what else happened"""
    seconds: float
    sound: bool = True
    """false: the tests could not run at all, which says nothing about them"""


def occurrences(mutant: Mutant, root: Path = ROOT) -> int:
    """How often the mutant's old text stands in its file."""
    return (root / POLICY / mutant.file).read_text(encoding="utf-8").count(mutant.old)


def copy_into(folder: Path, source: Path = ROOT) -> None:
    """The part of the tree that the tests need, without compiled files, which could hide a change of a second."""
    for name in COPIED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source / name, folder / name)


def verdict_of_tests(folder: Path, limit_s: float) -> Verdict:
    """Runs the tests of a copy until one fails."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, *PYTEST], cwd=folder, env=environment, capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return Verdict(passed=False, by=f"no end after {limit_s:.0f} s", seconds=limit_s)
    seconds = time.perf_counter() - began
    if done.returncode == 0:
        return Verdict(passed=True, by="", seconds=seconds)
    failed = re.search(r"^FAILED (?:tests/)?(\S+?\.py::.*?)(?: - .*)?$", done.stdout, flags=re.MULTILINE)
    if failed is None:  # nothing could be imported, or pytest itself fell over
        return Verdict(passed=False, by=(done.stdout + done.stderr).strip()[-300:], seconds=seconds, sound=False)
    return Verdict(passed=False, by=failed[1], seconds=seconds)


def verdict_on(mutant: Mutant, base: Path, limit_s: float) -> Verdict:
    """What the tests say of a copy of `base` with this one fault."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        copy_into(folder, base)
        path = folder / POLICY / mutant.file
        changed = path.read_text(encoding="utf-8").replace(mutant.old, mutant.new)
        path.write_text(changed, encoding="utf-8")
        return verdict_of_tests(folder, limit_s)


def own_planner(folder: Path) -> bool:
    """Whether a Python that runs in the copy imports the copy's planner, not the one that is installed."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    program = "import planner.policy.decide as module; print(module.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    return Path(done.stdout.strip()).is_relative_to(folder.resolve())


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the mutants and stop")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="run these numbers of the list")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time, each on a core (default 1)")
    options = parser.parse_args(arguments)
    numbered = list(enumerate(MUTANTS, 1))
    if options.only:
        numbered = [(number, mutant) for number, mutant in numbered if number in options.only]
        if len(numbered) != len(set(options.only)):
            parser.error(f"--only takes numbers from 1 to {len(MUTANTS)}, got {options.only}")
    if options.list:
        for number, mutant in numbered:
            print(f"{number:3} {mutant.file}: {mutant.breaks}")
        return 0
    stale = [(number, mutant) for number, mutant in numbered if occurrences(mutant) != 1]
    for number, mutant in stale:
        print(f"mutant {number}: {mutant.old!r} is {occurrences(mutant)} times in {mutant.file}, it must be there once")
    if stale:
        return 1
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        base = Path(name)
        copy_into(base)
        assert own_planner(base), "the tests of a copy would test the planner that is installed"
        alone = verdict_of_tests(base, 10 * SHORTEST_LIMIT_S)
        if not alone.passed:
            print(f"the tests fail without any fault: {alone.by}")
            return 1
        limit_s = max(SHORTEST_LIMIT_S, LIMIT_FACTOR * alone.seconds)
        print(
            f"without a fault the tests pass in {alone.seconds:.0f} s; a loop is what takes {limit_s:.0f} s", flush=True
        )
        return report(numbered, base, limit_s, options.jobs)


def report(numbered: list[tuple[int, Mutant]], base: Path, limit_s: float, jobs: int) -> int:
    """Runs the mutants and prints a table of them as they are done, then the share that was noticed."""
    survivors: list[str] = []
    unsound: list[str] = []
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = pool.map(lambda item: verdict_on(item[1], base, limit_s), numbered)
        for (number, mutant), verdict in zip(numbered, verdicts, strict=True):
            line = f"{number:3} {mutant.file}: {mutant.breaks}"
            fate = "SURVIVED" if verdict.passed else "killed by" if verdict.sound else "CANNOT RUN:"
            print(f"{line} | {fate} {verdict.by} | {verdict.seconds:.0f} s", flush=True)
            if verdict.passed:
                survivors.append(line)
            elif not verdict.sound:
                unsound.append(line)
    killed = len(numbered) - len(survivors) - len(unsound)
    print(f"\nkilled {killed} of {len(numbered)} ({killed / len(numbered):.1%}); at least {LEAST_KILLED:.0%} must be")
    for title, lines in (("survived", survivors), ("could not run", unsound)):
        if lines:
            print("\n".join([f"{title}:", *lines]))
    return 1 if unsound or killed < LEAST_KILLED * len(numbered) else 0


if __name__ == "__main__":
    raise SystemExit(main())
