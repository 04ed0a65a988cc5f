"""What a contributor runs and sets: hooks as `make check`, a stack in `make quick`, editor settings as ruff's."""

import ast
import configparser
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
HOOKS: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
RUFF = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]


def recipe_of(goal: str) -> list[list[str]]:
    """The commands of a goal of the Makefile, without what is said when one fails."""
    found = re.search(rf"^{goal}:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    assert found, goal
    lines = [line.removeprefix("\t@").partition(" || ")[0] for line in found[1].splitlines()]
    return [shlex.split(line.replace("$(BIN)", ".venv/bin")) for line in lines]


def test_hooks_run_every_command_of_make_check_and_no_other() -> None:
    (local,) = HOOKS["repos"]
    assert local["repo"] == "local", "nothing is fetched from another repository"
    assert re.search(r"^check: lint types ##", MAKEFILE, re.M)
    commands = recipe_of("lint") + recipe_of("types")
    assert [shlex.split(hook["entry"]) for hook in local["hooks"]] == commands
    assert len(commands) == 4


def test_hooks_use_the_locked_tools_on_the_whole_repository() -> None:
    for hook in HOOKS["repos"][0]["hooks"]:
        assert hook["entry"].startswith(".venv/bin/")
        assert (hook["language"], hook["pass_filenames"], hook["always_run"]) == ("system", False, True), hook["id"]


def test_make_quick_runs_the_unit_tests_and_one_test_on_a_running_stack() -> None:
    ((*_, stack_test, folder, _),) = recipe_of("quick")
    assert (stack_test, folder) == ("$(QUICK_STACK)", "tests/unit")
    found = re.search(r"^QUICK_STACK := (tests/services/\w+\.py)::(\w+)$", MAKEFILE, re.M)
    assert found
    tests = {it.name: it for it in ast.parse((ROOT / found[1]).read_text()).body if isinstance(it, ast.FunctionDef)}
    assert "stack" in {argument.arg for argument in tests[found[2]].args.args}


def test_make_quick_leaves_out_only_unit_test_files_that_exist() -> None:
    found = re.search(r"tests/unit/test_%\.py,\\\n\t([\w ]+)\)", MAKEFILE)
    assert found
    left_out = found[1].split()
    assert 0 < len(left_out) <= 5
    assert [name for name in left_out if not (ROOT / "tests" / "unit" / f"test_{name}.py").exists()] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", "docs/testing.md", "tests/README.md"])
def test_pages_for_contributors_name_make_quick(page: str) -> None:
    assert "make quick" in (ROOT / page).read_text()


def test_readme_leads_to_the_contributors_pages() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE"):
        assert f"]({page})" in readme, page


def test_editor_settings_agree_with_ruff() -> None:
    parser = configparser.ConfigParser()
    parser.read_string("[top]\n" + (ROOT / ".editorconfig").read_text())
    assert parser["top"]["root"] == "true"
    assert parser["*"]["max_line_length"] == str(RUFF["line-length"])
    assert (parser["*"]["indent_style"], parser["*"]["indent_size"]) == ("space", "4")
    assert parser["Makefile"]["indent_style"] == "tab"
    assert parser["*.{tf,tfvars,hcl,yaml,yml,md}"]["indent_size"] == "2"


@pytest.mark.parametrize("ending", ["py", "md", "tf", "yaml", "toml"])
def test_files_keep_to_the_editor_settings(ending: str) -> None:
    folders = ("bench", "docs", "examples", "handlers", "infra", "local", "services", "shared", "tests")
    below = (path for folder in folders for path in (ROOT / folder).rglob(f"*.{ending}"))
    texts = {path: path.read_bytes() for path in (*ROOT.glob(f"*.{ending}"), *below) if ".terraform" not in path.parts}
    assert texts
    assert [str(path) for path, text in texts.items() if text and not text.endswith(b"\n")] == []
    assert [str(path) for path, text in texts.items() if b"\r" in text or re.search(rb"[ \t]\n", text)] == []
