"""The architecture as the imports have it: who may know whom, who may start Ray, and that only one place decides."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = ("app", "engine", "planner", "storage")

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "planner": ("planner",),
    "storage": ("storage",),
    "engine": ("engine", "planner", "storage"),
    "app": ("app", "planner", "storage", "engine.config"),
}
"""Folder -> the modules of ours that it may import, with all below them."""

IMPURE = ("time", "random", "datetime", "secrets", "uuid", "os", "threading", "asyncio", "numpy", "torch", "ray")
"""What a pure decision has no use for: clocks, random sources, the machine, and what computes on devices."""


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def modules_imported(path: Path) -> Iterator[str]:
    """Full names of what a file imports, wherever in it the import stands; `from a import b` gives a and a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute, so that this test can read them"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_below(module: str, allowed: str) -> bool:
    return module == allowed or module.startswith(f"{allowed}.")


def imports(folder: str) -> list[tuple[str, str]]:
    return [(str(path.relative_to(ROOT)), name) for path in sources(folder) for name in modules_imported(path)]


@pytest.mark.parametrize("folder", OURS)
def test_a_folder_imports_only_what_its_layer_allows(folder: str) -> None:
    wrong = [
        (path, name)
        for path, name in imports(folder)
        if name.split(".")[0] in (*OURS, "tests") and not any(is_below(name, allowed) for allowed in MAY_IMPORT[folder])
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", OURS)
def test_ray_is_imported_by_the_ray_edge_alone(folder: str) -> None:
    users = {path for path, name in imports(folder) if is_below(name, "ray")}
    assert all(path.startswith("engine/actors/") for path in users), users
    assert users or folder != "engine", "the Ray edge has moved: this test looks in the wrong place"


def test_the_ray_edge_is_imported_only_where_an_engine_process_begins() -> None:
    users = {path for folder in OURS for path, name in imports(folder) if is_below(name, "engine.actors")}
    assert {path for path in users if not path.startswith("engine/actors/")} == {"engine/__main__.py"}


def test_the_policy_reads_no_clock_and_no_random_source() -> None:
    wrong = [
        (path, name) for path, name in imports("planner/policy") if any(is_below(name, impure) for impure in IMPURE)
    ]
    assert wrong == []


def test_the_job_model_imports_neither_torch_nor_ray() -> None:
    heavy = ("torch", "ray", "transformers", "reasoning_gym", "numpy")
    assert [item for item in imports("engine/config") if any(is_below(item[1], name) for name in heavy)] == []


def test_neither_the_engine_nor_the_command_line_loads_what_the_workers_load() -> None:
    program = (
        "import sys, engine.service, engine.cli.main\n"
        "print(*sorted({'torch', 'transformers', 'reasoning_gym', 'ray', 'streamlit'} & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    assert done.stdout.split() == []


# -- one decision -----------------------------------------------------------------------------------------------------


def functions_named_decide() -> dict[str, list[str]]:
    """File -> arguments of the functions called `decide` in it."""
    found: dict[str, list[str]] = {}
    for folder in OURS:
        for path in sources(folder):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "decide":
                    found[str(path.relative_to(ROOT))] = [argument.arg for argument in node.args.args]
    return found


def policy_modules_imported(path: Path) -> set[str]:
    """X of every `from planner.policy import X`."""
    return {
        alias.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "planner.policy"
        for alias in node.names
    }


def arms() -> set[str]:
    """Modules of the arms: what planner/policy/decide.py hands on to."""
    return policy_modules_imported(ROOT / "planner/policy/decide.py")


def test_every_function_that_decides_is_the_one_decide_or_an_arm_below_it() -> None:
    found = functions_named_decide()
    assert all(arguments == ["state", "now"] for arguments in found.values()), found
    assert arms() == {"pools", "colocated", "borrow"}
    assert set(found) == {"planner/policy/decide.py", *(f"planner/policy/{arm}.py" for arm in arms())}


def test_the_engine_calls_the_one_decide_and_no_arm() -> None:
    engine = imports("engine")
    callers = {path for path, name in engine if is_below(name, "planner.policy.decide")}
    assert callers == {"engine/run/steering.py"}
    # an arm's file may hold arithmetic that others need (a colocated device's share), never a second way to decide
    assert [item for item in engine if item[1] in {f"planner.policy.{arm}.decide" for arm in arms()}] == []
    assert [path for path in sources("engine") if policy_modules_imported(path) & arms()] == []
    tree = ast.parse((ROOT / "engine/run/steering.py").read_text(encoding="utf-8"))
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "decide"
    ]
    assert len(calls) == 1


# -- the guard of this very test suite --------------------------------------------------------------------------------


def test_a_test_cannot_start_ray() -> None:
    ray = pytest.importorskip("ray")
    with pytest.raises(AssertionError, match="may not start Ray"):
        ray.init()
