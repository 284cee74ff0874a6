"""A function of the user's own: `python:MODULE:FUNCTION`, from a file in one of the folders that a job may read.

It is called as `function(prompt=..., response=..., answer=..., fields=...)` with the prompt as the model was asked it,
the whole text of the response, the item's answer, and a dictionary of the item's other fields.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.allowed_paths import resolve_in
from engine.learning.rewards.reward import Question


class PythonFunction:
    """Calls one."""

    def __init__(self, path: Path, function: str) -> None:
        """Runs the module. Raises whatever it raises, and AttributeError or TypeError without such a function."""
        sys.path.append(str(path.parent))  # last: it may import its neighbours, and they hide nothing
        spec = importlib.util.spec_from_file_location(f"reward_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = getattr(module, function)
        if not callable(found):
            raise TypeError(f"{function} is no function but {type(found).__name__}")
        self._function: Callable[..., object] = found

    def __call__(self, question: Question, text: str) -> object:
        return self._function(
            prompt=question.prompt, response=text, answer=question.answer, fields=dict(question.fields)
        )


def file_of(name: str, roots: Sequence[Path]) -> tuple[Path, str]:
    """File and function of `python:MODULE:FUNCTION`; the module is looked for in the roots, in their order.

    The file is read, not run. Raises ValueError when there is no such file or it defines no such name.
    """
    _, module, function = name.split(":")
    inside = module.replace(".", "/") + ".py"
    folder = next((root for root in roots if (root / inside).is_file()), None)
    if folder is None:
        raise ValueError(f"{name}: there is no {inside} in {', '.join(map(str, roots))}")
    path = resolve_in(str(folder / inside), roots)
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{name}: {path} is no Python that can be read: {error}") from None
    names = _names(tree)
    if function not in names and "*" not in names:
        raise ValueError(f"{name}: {path} has no {function}; it has {', '.join(sorted(names)) or 'nothing'}")
    return path, function


def _names(tree: ast.Module) -> set[str]:
    """What a module defines at its top level; `*` where it takes over what others define."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
