"""Rows of a file or of a data set of the library `datasets`, each with the place where it stands.

Refuses what it cannot read whole: an error names the file, the line, and what would be allowed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.allowed_paths import resolve_in
from engine.config.errors import one_line

MAX_FILE_BYTES = 2_000_000_000
"""All rows are kept in memory, by every worker: a larger file is for a machine that this version is not made for."""

HUB_TIMEOUT_S = 10.0
"""For the hub's one answer that is waited for before the library is let loose: without a network that alone tries again
for half a minute, and for minutes where answers get lost."""

DEFAULT_SPLIT = "train"
"""Of a data set of the library `datasets`: what nearly all of them have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row as it was read."""

    place: str
    """As messages call it: line 3, row 3."""
    values: Mapping[str, Any]
    """Field -> value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """All rows of a source, in their order."""

    name: str
    """As messages call it."""
    rows: Sequence[Row]


def read_rows(source: str, *, params: Mapping[str, Any], roots: Sequence[Path], key: str) -> Rows:
    """The rows of `jsonl:PATH`, `parquet:PATH` or `hf:NAME`; `params` are those of the last.

    `key` is the job's key that named the source. Raises ValueError, as "key: sentence", where the source lies outside
    the roots, cannot be read, or has no row.
    """
    kind, _, name = source.partition(":")
    try:
        rows = _from_hub(name, params, roots) if kind == "hf" else _from_file(kind, name, roots)
    except _Unreadable as error:
        raise ValueError(f"{key}: {source}: {error}") from error.__cause__
    except ValueError as error:  # of the allowed paths
        raise ValueError(f"{key}: {error}") from None
    if not rows:
        raise ValueError(f"{key}: {source}: has no rows; allowed: one row an item")
    return Rows(name=source, rows=rows)


class _Unreadable(Exception):
    """One sentence on what is wrong with a source."""


def _from_file(kind: str, name: str, roots: Sequence[Path]) -> list[Row]:
    path = resolve_in(name, roots)
    if not path.is_file():
        raise _Unreadable("is a folder; allowed: a file")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise _Unreadable(f"has {path.stat().st_size:,} bytes; allowed: up to {MAX_FILE_BYTES:,}")
    return _jsonl(path) if kind == "jsonl" else _parquet(path)


def _jsonl(path: Path) -> list[Row]:
    """One JSON object a line; empty lines are nothing."""
    rows = []
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    rows.append(Row(place=f"line {number}", values=_object(line, number)))
    except OSError as error:
        raise _Unreadable(f"cannot be read: {error.strerror or error}") from error
    return rows


def _object(line: bytes, number: int) -> Mapping[str, Any]:
    where = f"line {number}"
    try:
        found = json.loads(line.rstrip(b"\r\n").decode("utf-8-sig"), object_pairs_hook=_once, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise _Unreadable(f"{where}: is not UTF-8 text (byte {error.start + 1} of the line)") from None
    except json.JSONDecodeError as error:
        what = error.msg.rstrip(": ").removesuffix(" at")  # some of its sentences go on with a place
        raise _Unreadable(f"{where}, column {error.colno}: not JSON: {what[:1].lower()}{what[1:]}; {A_LINE}") from None
    except (ValueError, RecursionError) as error:
        raise _Unreadable(f"{where}: not JSON that can be read: {error}; {A_LINE}") from None
    if not isinstance(found, Mapping):
        raise _Unreadable(f"{where}: is no object but {type(found).__name__} {str(found)[:60]!r}; {A_LINE}")
    return found


A_LINE = 'allowed: one object a line, such as {"question": "1 + 1?", "answer": "2"}'


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it names the field {next(n for n in names if names.count(n) > 1)!r} twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _parquet(path: Path) -> list[Row]:
    import pyarrow.parquet  # only where such a file is read

    try:
        found = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _Unreadable(f"is no Parquet file that can be read: {one_line(error)}") from error
    return _numbered(found)


def _from_hub(name: str, params: Mapping[str, Any], roots: Sequence[Path]) -> list[Row]:
    try:
        import datasets  # optional, and seconds of imports
    except ImportError:
        raise _Unreadable(
            "needs the library datasets, which is not installed; install it with pip install datasets==5.2.0, or "
            "use jsonl:PATH or parquet:PATH"
        ) from None
    datasets.disable_progress_bars()
    split, options = params.get("split", DEFAULT_SPLIT), {k: v for k, v in params.items() if k != "split"}
    local = (roots[0] / Path(name).expanduser()).exists() or name.startswith((".", "/", "~"))
    folder = resolve_in(name, roots) if local else None
    silence = None if folder is not None or datasets.config.HF_HUB_OFFLINE else _silence_of_the_hub(name)
    try:
        with _quiet(datasets, offline=silence is not None):
            return _numbered(_loaded(datasets, name, folder, split, options))
    except Exception as error:  # the library raises nearly anything for a data set that is not there
        where = "" if folder is not None else "; without a network only what was downloaded before can be read"
        reason = f"the hub does not answer ({silence})" if silence else f"{type(error).__name__}: {one_line(error)}"
        raise _Unreadable(f"split {split!r} cannot be loaded: {reason}{where}") from error


def _loaded(datasets: Any, name: str, folder: Path | None, split: str, options: Mapping[str, Any]) -> Any:
    if folder is not None and any((folder / f).exists() for f in ("dataset_info.json", "dataset_dict.json")):
        found = datasets.load_from_disk(str(folder))
        return found[split] if isinstance(found, datasets.DatasetDict) else found
    return datasets.load_dataset(name if folder is None else str(folder), split=split, **options)


def _silence_of_the_hub(name: str) -> str | None:
    """Why the hub gives no answer about a data set; None where it gives one, if only that there is no such set."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    try:
        huggingface_hub.HfApi().dataset_info(name, timeout=HUB_TIMEOUT_S)
    except HfHubHTTPError as error:
        code = error.response.status_code
        # a busy or broken hub is one that the library would ask again and again
        return one_line(error) if code in (408, 429) or code >= 500 else None
    except ValueError:  # a name that cannot be one
        return None
    except Exception as error:  # its own errors, its HTTP library's and the system's
        return f"{type(error).__name__}: {one_line(error)}"
    return None


@contextmanager
def _quiet(datasets: Any, *, offline: bool) -> Iterator[None]:
    """Without the lines that the libraries write beside our one; offline: only what is in the cache is looked for."""
    from huggingface_hub.utils import logging as hub_logging

    loggers = (hub_logging, datasets.logging)
    levels, was_offline = [each.get_verbosity() for each in loggers], datasets.config.HF_HUB_OFFLINE
    try:
        for each in loggers:
            each.set_verbosity_error()
        datasets.config.HF_HUB_OFFLINE = was_offline or offline
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = was_offline
        for each, level in zip(loggers, levels, strict=True):
            each.set_verbosity(level)


def _numbered(found: Any) -> list[Row]:
    return [Row(place=f"row {number}", values=values) for number, values in enumerate(found, start=1)]
