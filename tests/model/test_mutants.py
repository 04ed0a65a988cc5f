"""The mutants: each planted mistake is caught, by the invariant that it breaks; and no patch rots unseen."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.model import settings
from tests.model.mutants import MUTANTS, Mutant
from tests.model.planting import ROOT, Patch, Rotten, plant
from tests.support import forked

PAGE = (ROOT / "docs" / "model.md").read_text()
IMPORTED = ("argparse", "tests.model.mutants", "tests.model.settings", "tests.model.explorer")


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, forked from one that has imported the code without a mistake: what a mistake does not
    touch need not be imported for each.
    """
    return forked.run(["tests.model", *arguments], os.environ, seconds=120, imported=IMPORTED)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_mistake_is_caught(mutant: Mutant) -> None:
    ended = program("--mutant", mutant.name, "--json")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    found = json.loads(ended.stdout)
    assert found["setting"] == mutant.setting
    assert found["broken"].startswith(f"{mutant.breaks}:"), found["broken"]
    assert found["trace"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_mistake_has_an_explored_setting_and_a_row_on_the_page(mutant: Mutant) -> None:
    assert mutant.setting in settings.BY_NAME
    assert re.search(rf"^\| {re.escape(mutant.name)} \| {mutant.breaks} \| {re.escape(mutant.setting)} \|", PAGE, re.M)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_mistake_applies_to_the_current_code(mutant: Mutant) -> None:
    for patch in mutant.patches:
        assert patch.apply((ROOT / patch.file).read_text())


@pytest.mark.parametrize("source", ["a = 1\n", "b = 2\nb = 2\n"], ids=["gone", "there twice"])
def test_patch_that_does_not_match_exactly_once_is_refused(source: str) -> None:
    with pytest.raises(Rotten):
        Patch("shared/domain/waits.py", "b = 2", "b = 3").apply(source)


def test_no_mistake_is_planted_in_an_imported_module() -> None:
    with pytest.raises(ImportError, match="imported already"):
        plant([Patch("tests/model/settings.py", "QUICK", "SLOW")])


def test_what_imports_a_forgotten_module_is_imported_anew_and_the_rest_is_not() -> None:
    """In another process: this one keeps its modules."""
    code = "import sys, tests.model.explorer as e, shared.domain.turns as t; from tests.model.planting import forget; "
    code += "before = dict(sys.modules); forget(['shared.domain.turns']); import tests.model.explorer as e2; "
    code += "import shared.domain.turns as t2; assert t is not t2 and e is not e2 and e2.explore is e.explore; "
    code += "assert sys.modules['shared.domain.record'] is before['shared.domain.record']"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


# ---- the program


def test_program_reports_that_a_setting_holds() -> None:
    ended = program("replay: after give_up_at")
    assert ended.returncode == 0
    assert "every invariant holds" in ended.stdout


def test_program_reports_a_broken_invariant_step_by_step_with_the_final_state() -> None:
    ended = program("--mutant", "the policy hold resends too")
    assert ended.returncode == 1
    first, *steps = ended.stdout.splitlines()
    assert "I3: reply 1 is leased out of a doubt that is not over" in first
    assert steps[0].split(maxsplit=1)[0] == "1"
    assert steps[steps.index("Then:") + 2].strip().startswith("reply 1: leased, attempt 2")


def test_program_lists_settings_and_mutants() -> None:
    listed = program().stdout.splitlines()
    assert {*settings.BY_NAME, *(mutant.name for mutant in MUTANTS)} <= set(listed)


@pytest.mark.parametrize("arguments", [("no such setting",), ("--mutant", "no such mutant")])
def test_program_reports_an_unknown_name(arguments: tuple[str, ...]) -> None:
    ended = program(*arguments)
    assert ended.returncode == 2
    assert f"there is no {'mutant' if len(arguments) > 1 else 'setting'}" in ended.stderr.splitlines()[-1]
