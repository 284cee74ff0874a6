"""A function of the user's own: `python:MODULE:FUNCTION`, from a file in one of the folders that a job may read.

It is called as `function(prompt=..., response=..., answer=..., fields=...)` with the prompt as the model was asked it,
the whole text of the response, the item's answer, and a dictionary of the item's other fields.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.allowed_paths import resolve_in
from engine.learning.rewards.defined import KEYWORDS, check_function
from engine.learning.rewards.reward import Question


class PythonFunction:
    """Calls one."""

    def __init__(self, path: Path, function: str) -> None:
        """Runs the module. Raises whatever it raises, and AttributeError or TypeError without such a function, or for
        one that cannot be called as this file says.
        """
        sys.path.append(str(path.parent))  # last: it may import its neighbours, and they hide nothing
        spec = importlib.util.spec_from_file_location(f"reward_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = getattr(module, function)
        if not callable(found):
            raise TypeError(f"{function} is no function but {type(found).__name__}")
        _check_call(function, found)
        self._function: Callable[..., object] = found

    def __call__(self, question: Question, text: str) -> object:
        return self._function(
            prompt=question.prompt, response=text, answer=question.answer, fields=dict(question.fields)
        )


def _check_call(name: str, function: Callable[..., object]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some of those written in C do not say
    try:
        signature.bind(**dict.fromkeys(KEYWORDS))
    except TypeError as error:
        raise TypeError(f"{name}{signature} cannot be called with {', '.join(KEYWORDS)} by name: {error}") from None


def file_of(name: str, roots: Sequence[Path]) -> tuple[Path, str]:
    """File and function of `python:MODULE:FUNCTION`; the module is looked for in the roots, in their order.

    The file is read, not run. Raises ValueError when there is no such file, it defines no such function, or one that
    cannot be called as this file says.
    """
    _, module, function = name.split(":")
    inside = module.replace(".", "/") + ".py"
    folder = next((root for root in roots if (root / inside).is_file()), None)
    if folder is None:
        raise ValueError(f"{name}: there is no {inside} in {', '.join(map(str, roots))}")
    path = resolve_in(str(folder / inside), roots)
    try:
        check_function(path, function)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return path, function
