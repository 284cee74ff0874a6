"""Whether a file defines a function that a reward can be, told from its text: the file is read and never run.

Refuses names that are not defined, or defined as what is no function, and functions that cannot take what a reward is
called with. What only running tells (a name that another module brings, a decorator's result) passes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

KEYWORDS = ("prompt", "response", "answer", "fields")
"""What a function is called with, each by its name."""

A_FUNCTION = "allowed: def {name}(*, prompt, response, answer, fields), or with **others for what it does not use"

Function = ast.FunctionDef | ast.AsyncFunctionDef

CONSTANTS = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.DictComp)
"""Values that nobody can call."""


def check_function(path: Path, name: str) -> None:
    """Raises ValueError where the file cannot be read, or what it defines under this name cannot be a reward."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{path} is no Python that can be read: {error}") from None
    found = list(_definitions(body))
    named = [value for one, value in found if one == name]
    if not named and not any(one == "*" for one, _ in found):
        functions = sorted({one for one, value in found if isinstance(value, Function)})
        raise ValueError(f"{path} has no function {name}; it has {', '.join(functions) or 'none'}")
    faults = [_fault(value, name) for value in named]
    if faults and all(faults):  # where there are several, which one holds depends on what is run
        raise ValueError(f"{path}, {faults[-1]}")


def _definitions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.AST | None]]:
    """Names that a module has once it was run, with what defines them; None: unknown. `*`: what another one defines."""
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, statement
            case ast.Import(names=names):
                yield from (((alias.asname or alias.name).partition(".")[0], statement) for alias in names)
            case ast.ImportFrom(names=names):
                yield from ((alias.asname or alias.name, None) for alias in names)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                yield name, value
            case _:
                yield from _inside(statement)


def _inside(statement: ast.stmt) -> Iterator[tuple[str, ast.AST | None]]:
    """What a statement with others in it (if, try, for, with) or of another form assigns."""
    for field in ("body", "orelse", "finalbody"):
        yield from _definitions(getattr(statement, field, ()))
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield from _definitions(part.body)
    for node in ast.iter_child_nodes(statement):
        if not isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            names = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
            yield from ((name.id, None) for name in names if isinstance(name.ctx, ast.Store))


def _fault(value: ast.AST | None, name: str) -> str | None:
    """Why this cannot be a reward, as "line N: sentence"; None: it can, or nobody knows before it is run."""
    where, allowed = f"line {getattr(value, 'lineno', 0)}", A_FUNCTION.format(name=name)
    if isinstance(value, CONSTANTS):
        return f"{where}: {name} is no function but {ast.unparse(value)[:60]}; {allowed}"
    if isinstance(value, ast.Import):
        return f"{where}: {name} is no function but a module; {allowed}"
    if isinstance(value, ast.AsyncFunctionDef):
        return f"{where}: {name} is async, and nobody awaits it; {allowed}"
    if not isinstance(value, ast.FunctionDef) or value.decorator_list:
        return None
    takes = value.args
    by_place = [*takes.posonlyargs, *takes.args]
    without_default = by_place[: len(by_place) - len(takes.defaults)]
    without_default += [arg for arg, given in zip(takes.kwonlyargs, takes.kw_defaults, strict=True) if given is None]
    by_name = {arg.arg for arg in (*takes.args, *takes.kwonlyargs)}
    lacking = [] if takes.kwarg else [keyword for keyword in KEYWORDS if keyword not in by_name]
    needed = [arg.arg for arg in without_default if arg.arg not in by_name.intersection(KEYWORDS)]
    if not lacking and not needed:
        return None
    told = [f"does not take {', '.join(lacking)}"] * bool(lacking) + [f"asks for {', '.join(needed)}"] * bool(needed)
    return f"{where}: {name}({ast.unparse(takes)}) {' and '.join(told)}; {allowed}"
