"""Reading and writing job files: YAML 1.2, `--set key.path=value`, and back again."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from engine.config.allowed import kind_at
from engine.config.errors import QUOTES, JobError, explain
from engine.config.job import Job

MAX_FILE_BYTES = 1_000_000
"""A job file is a page of text; anything larger is the wrong file."""


def plain_yaml() -> YAML:
    # ruamel reads YAML 1.2, where 12:4 is text and 3e-4 a number; in 1.1 they are 724 and text
    yaml = YAML(typ="safe", pure=True)
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.representer.add_representer(str, _quoted_where_it_must)
    return yaml


def _quoted_where_it_must(representer: Any, text: str) -> Any:
    """A text that begins with a colon or a question mark is written bare by the library, which then cannot read it."""
    quotes = '"' if text.startswith((":", "?")) else None
    return representer.represent_scalar("tag:yaml.org,2002:str", text, style=quotes)


def _read_yaml(text: str, *, source: str) -> Any:
    try:
        return plain_yaml().load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = " ".join(str(error.problem or error.context or "not valid").split())
        raise JobError({"": f"{where}not YAML: {problem}"}, source=source) from None
    except (YAMLError, ValueError) as error:  # a ValueError comes from a value such as 2024-13-01
        raise JobError({"": f"not YAML: {' '.join(str(error).split())}"}, source=source) from None
    except RecursionError:
        raise JobError({"": "is nested too deeply for a job"}, source=source) from None


def parse_setting(text: str) -> tuple[str, Any]:
    """`key.path=value` with the value read as YAML 1.2."""
    path, value = _parts(text)
    try:
        return path, _read_yaml(value, source=f"--set {path}")
    except JobError as error:
        if not kind_at(Job, path.split(".")).takes_any_text:
            raise
        raise JobError({"": f"{error.problems['']}{QUOTES}: {_quoted(path, value)}"}, source=error.source) from None


def _parts(setting: str) -> tuple[str, str]:
    """Path and value, both as they were given."""
    path, equals, value = setting.partition("=")
    if not equals or not path.strip():
        raise JobError({"": f"must be key.path=value, got {setting!r}"}, source="--set")
    return path.strip(), value


def _quoted(path: str, value: str) -> str:
    """The setting as a shell takes it and YAML reads a text; what JSON quotes YAML reads the same."""
    return f"--set {shlex.quote(f'{path}={json.dumps(value, ensure_ascii=False)}')}"


def _with_quotes(error: JobError, settings: list[str]) -> JobError:
    """The same with the quoted setting behind each problem of a text that a setting gave without quotes."""
    given = dict(map(_parts, settings))
    told = {
        path: f"{sentence}: {_quoted(path, given[path])}" if path in given and sentence.endswith(QUOTES) else sentence
        for path, sentence in error.problems.items()
    }
    return JobError(told, source=error.source)


def apply_settings(document: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """A copy of the document with each `key.path=value` set. Raises JobError for a path through a plain value."""
    result = _copy(document)
    for setting in settings:
        path, value = parse_setting(setting)
        *parents, last = path.split(".")
        here = result
        for part in parents:
            if here.get(part) is None:
                here[part] = {}
            if not isinstance(here[part], dict):
                raise JobError({path: f"{part!r} is not a mapping but {here[part]!r}"}, source="--set")
            here = here[part]
        here[last] = value
    return result


def _copy(value: Any) -> Any:
    return {k: _copy(v) for k, v in value.items()} if isinstance(value, dict) else value


def parse_job(text: str, settings: list[str] | None = None, *, source: str = "job") -> Job:
    """Validate the text of a job file. Raises JobError with every problem found."""
    document = _read_yaml(text, source=source)
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise JobError({"": f"must be a mapping of keys, got {type(document).__name__}"}, source=source)
    try:
        document = apply_settings(document, settings or [])
    except RecursionError:  # an anchor inside itself
        raise JobError({"": "is nested too deeply for a job"}, source=source) from None
    try:
        return check_job(document, source=source)
    except JobError as error:
        raise _with_quotes(error, settings or []) from None


def check_job(document: dict[str, Any], *, source: str = "job") -> Job:
    """Validate a mapping as a job. Raises JobError with every problem found."""
    try:
        return Job.model_validate(document)
    except ValidationError as error:
        raise explain(error, Job, source=source) from None


def load_job(path: Path, settings: list[str] | None = None) -> Job:
    """Read and validate a job file. Raises JobError naming the file when it cannot be read."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise JobError({"": f"is larger than {MAX_FILE_BYTES} bytes, so it is no job file"}, source=str(path))
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise JobError({"": "no such file"}, source=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise JobError({"": f"cannot be read: {error}"}, source=str(path)) from None
    return parse_job(text, settings, source=str(path))


def dump_job(job: Job) -> str:
    """The resolved job as YAML that `parse_job` reads back to an equal job."""
    document = job.model_dump(mode="json")
    if job.devices.partition != "auto":
        document["devices"]["partition"] = str(job.devices.partition)
    stream = io.StringIO()
    plain_yaml().dump(document, stream)
    return stream.getvalue()
