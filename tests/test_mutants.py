"""The list of mutants fits the code; running them is `make mutants`."""

from __future__ import annotations

import ast

import pytest

from tests.mutant_list import MUTANTS, Mutant
from tests.mutants import POLICY, ROOT, occurrences


@pytest.mark.parametrize(
    "mutant", [pytest.param(mutant, id=f"{number}-{mutant.file}") for number, mutant in enumerate(MUTANTS, 1)]
)
def test_a_mutant_changes_one_place_of_the_policy_and_stays_python(mutant: Mutant) -> None:
    assert occurrences(mutant) == 1, f"{mutant.old!r} must be in {mutant.file} once: change tests/mutant_list.py"
    text = (ROOT / POLICY / mutant.file).read_text(encoding="utf-8")
    changed = ast.parse(text.replace(mutant.old, mutant.new))
    assert ast.dump(changed) != ast.dump(ast.parse(text)), "it changes nothing that runs"
