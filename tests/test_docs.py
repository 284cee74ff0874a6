"""What the README, the Makefile and the Procfile tell people to type exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from honcho.environ import parse_procfile

from engine.cli.main import app
from engine.config import apply_settings, load_job

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def code_in(text: str) -> list[str]:
    """Lines of fenced blocks and inline code, without prompts and comments."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    lines = [line for block in fenced for line in block.splitlines()] + inline
    return [line.removeprefix("$ ").split(" #")[0].strip() for line in lines]


MADE = sorted({line.split()[1] for line in code_in(README) if re.match(r"make [a-z-]+", line)})
TYPED = sorted({line for line in code_in(README) if re.match(r"bidirl [a-z]", line) and "ready" not in line})


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and the words after its name. Raises AssertionError when there is none."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words, f"more must follow: one of {sorted(command.commands)}"
        assert words[0] in command.commands, f"no command {words[0]!r}; there are {sorted(command.commands)}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def test_the_readme_begins_with_one_sentence_and_the_two_commands() -> None:
    lines = [line for line in README.splitlines() if line]
    assert lines[0].startswith("# ")
    assert lines[1].count(".") == 1
    assert {"run", "test"} <= set(MADE)
    assert README.index("make run") < README.index("make test") < README.index("##")


@pytest.mark.parametrize("target", sorted({*MADE, "run", "test", "setup", "lint", "bench"}))
def test_every_make_target_that_people_are_told_exists(target: str) -> None:
    assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), f"the Makefile has no target {target}"


def test_the_readme_shows_commands_to_check() -> None:
    assert len(TYPED) >= 5


@pytest.mark.parametrize("line", TYPED)
def test_every_command_of_the_readme_exists_with_its_options_and_files(line: str) -> None:
    command, words = command_of(shlex.split(line)[1:])
    options = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    for place, word in enumerate(words):
        if word.startswith("--"):
            assert word.split("=")[0] in options, f"{line}: {word} is not among {sorted(options)}"
        if word.endswith(".yaml") and "/" in word:
            job = load_job(ROOT / word)
            settings = [words[after + 1] for after in range(place, len(words)) if words[after] == "--set"]
            load_job(ROOT / word, settings)
            assert apply_settings(job.model_dump(mode="json"), settings)


def test_folders_that_the_readme_names_are_there() -> None:
    named = {code for code in code_in(README) if re.fullmatch(r"(app|engine|planner|storage|tests|jobs)/[\w/.]*", code)}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_procfile_names_the_page_and_the_engine() -> None:
    processes = parse_procfile((ROOT / "Procfile").read_text(encoding="utf-8")).processes
    assert set(processes) == {"web", "engine"}
    web, engine = shlex.split(processes["web"]), shlex.split(processes["engine"])
    assert web[:2] == ["streamlit", "run"]
    assert (ROOT / web[2]).is_file()
    assert engine[:2] == ["python", "-m"]
    assert importlib.util.find_spec(f"{engine[2]}.__main__") is not None


def names_in(pattern: str, text: str) -> set[str]:
    """Package names as package indexes compare them."""
    return {re.sub(r"[-_.]+", "-", name).lower() for name in re.findall(pattern, text, flags=re.MULTILINE)}


def test_every_package_that_the_project_needs_is_pinned() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[project.optional-dependencies]")[0]
    needed = names_in(r'^    "([A-Za-z0-9._-]+)', project)
    assert needed
    assert needed - names_in(r"^([A-Za-z0-9._-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8")) == set()
