"""The mutation tester: it kills what a test notices, reports what no test notices, and leaves the tree as it was."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.__main__ import EQUIVALENTS, equivalents
from tests.mutation.mutants import mutants_of
from tests.mutation.targets import TARGETS

ROOT = Path(__file__).parents[2]

CALC = '''"""Prices."""

LIMIT = 10
UNUSED = 20
NAMED = 10


def price(count: int, each: int = 2) -> int:
    """What so many cost."""
    if count > LIMIT:
        raise ValueError("too many")
    return count * each


def rounds(left: list[int]) -> None:
    while left:
        left.pop()


def early(count: int) -> int:
    return count + count


def untested(count: int) -> int:
    return count - count
'''
TESTS = """
import pytest
from calc import LIMIT, NAMED, early, price, rounds

EARLY = early(1)  # while it is collected

def test_price():
    assert (price(3), price(LIMIT)) == (6, 20)

@pytest.mark.parametrize("named", [NAMED])
def test_named(named):
    assert named == 10

def test_too_many():
    with pytest.raises(ValueError):
        price(11)

def test_rounds():
    left = [1, 2]
    rounds(left)
    assert left == []

def test_early():
    early(1)
    assert EARLY == 2

def test_that_fails_anyway():
    assert price(1) == 3
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("project")
    (directory / "calc.py").write_text(CALC)
    (directory / "tests").mkdir()
    (directory / "tests" / "test_calc.py").write_text(TESTS)
    (directory / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    (directory / ".gitignore").write_text(".cache/\n__pycache__/\n")
    subprocess.run(["git", "init", "-q", str(directory)], check=True)
    return directory


def tried(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.mutation", "--tree", str(project), "--patience", "6", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)


@pytest.fixture(scope="module")
def ended(project: Path) -> "subprocess.CompletedProcess[str]":
    return tried(project)


@pytest.fixture(scope="module")
def results(project: Path, ended: object) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """By what was and what is."""
    lines = (project / ".cache" / "mutation" / "results.jsonl").read_text().splitlines()
    return {(found["was"], found["now"]): found for found in map(json.loads, lines)}


@pytest.mark.parametrize(
    ("was", "now", "outcome"),
    [
        ("return count * each", "return count / each", "killed"),
        ("return count * each", "return None", "killed"),
        ("if count > LIMIT:", "if count >= LIMIT:", "killed"),
        ('raise ValueError("too many")', "pass", "killed"),
        ("def price(count: int, each: int = 2) -> int:", "def price(count: int, each: int = 3) -> int:", "killed"),
        ("LIMIT = 10", "LIMIT = 11", "killed"),
        ("NAMED = 10", "NAMED = 11", "killed"),
        ("return count + count", "return count - count", "killed"),
        ("left.pop()", "pass", "timeout"),
        ("UNUSED = 20", "UNUSED = 21", "survived"),
        ("return count - count", "return count + count", "survived"),
    ],
)
def test_each_kind_of_mutant_has_its_outcome(
    results: Mapping[tuple[str, str], Mapping[str, Any]], was: str, now: str, outcome: str
) -> None:
    assert results[was, now]["outcome"] == outcome


def test_the_test_that_noticed_is_named_and_one_that_always_fails_is_not(
    results: Mapping[tuple[str, str], Mapping[str, Any]],
) -> None:
    killers = {found["by"].partition("::")[2] for found in results.values() if found["outcome"] == "killed"}
    assert "test_price" in killers
    assert "test_that_fails_anyway" not in killers


def test_survivor_is_reported_with_its_line_and_exit_code_1(ended: "subprocess.CompletedProcess[str]") -> None:
    assert ended.returncode == 1, ended.stderr
    assert "calc.py:4 (survived)  UNUSED = 20  ->  UNUSED = 21" in ended.stdout
    assert "LIMIT = 10" not in ended.stdout


def test_report_shows_the_same_without_running_mutants(
    project: Path, ended: "subprocess.CompletedProcess[str]"
) -> None:
    file = project / ".cache" / "mutation" / "results.jsonl"
    before = file.read_text()
    reported = tried(project, "--report")
    assert (reported.returncode, reported.stdout, file.read_text()) == (1, ended.stdout, before)


def test_source_tree_is_unchanged_after_a_run(project: Path, ended: object) -> None:
    assert (project / "calc.py").read_text() == CALC
    assert (project / ".cache" / "mutation" / "tree" / "calc.py").read_text() == CALC


def test_second_run_repeats_no_mutant_until_the_tests_change(project: Path, ended: object) -> None:
    file = project / ".cache" / "mutation" / "results.jsonl"
    before = file.read_text()
    assert tried(project).returncode == 1
    assert file.read_text() == before
    with (project / "tests" / "test_calc.py").open("a") as tests:
        tests.write("\n\ndef test_unused():\n    import calc\n    assert calc.UNUSED == 20\n")
    assert "calc.py:4 " not in tried(project).stdout
    again = [json.loads(line) for line in file.read_text().removeprefix(before).splitlines()]
    assert {found["was"] for found in again} == {"UNUSED = 20", "return count - count"}


def test_ending_a_run_ends_its_child_processes(project: Path, tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("a fork dies with its parent on Linux only")
    grandchild = tmp_path / "pid"
    program = f"""
import os, time
from pathlib import Path
from tests.mutation.session import in_fork

def last():
    Path({str(grandchild)!r}).write_text(str(os.getpid()))
    time.sleep(60)

in_fork(lambda: in_fork(last, 60), 60)
"""
    running = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    try:
        until(lambda: grandchild.exists() and grandchild.read_text() != "")
    finally:
        running.kill()
        running.wait()
    place = Path("/proc", grandchild.read_text())
    until(lambda: not place.exists() or (place / "stat").read_text().rpartition(")")[2].split()[0] == "Z")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ---- which mutants


@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        ("a < b", {"a <= b"}),
        ("a is not b", {"a is b"}),
        ("a not in b", {"a in b"}),
        ("a == b != c", {"a != b != c", "a == b == c"}),
        ("a + b", {"a - b"}),
        ("a and b or c", {"a or b or c", "a and b and c"}),
        ("not a", {"(a)"}),
        ("x = True", {"x = False"}),
        ("x = 5", {"x = 6"}),
        ("x = 'word'", {"x = 'Xword'"}),
        ("x = 'a whole sentence'", set()),
        ("x: int = 5", {"x: int = 6"}),
        ("def f(a: 'word', b=1) -> 'word':\n    '''Words.'''", {"def f(a: 'word', b=2) -> 'word':\n    '''Words.'''"}),
        ("f(a, k=b)", {"f(a)", "pass"}),
        ("f(k=a, l=b)", {"f(l=b)", "f(k=a)", "pass"}),
        ("x = f(a, *b, k=c, **d)", {"x = f(a, *b, **d)"}),
        ("def f():\n    return a", {"def f():\n    return None"}),
        ("a.b = c", {"pass"}),
        ("a[b] = c", {"pass"}),
        ("a += b", {"a -= b", "pass"}),
        ("del a[b]", {"pass"}),
        ("for a in b:\n    break", {"for a in b:\n    pass"}),
        ("raise A(b)", {"pass", "raise Exception(b)"}),
        ("try:\n    a\nexcept A:\n    b", {"try:\n    a\nexcept ():\n    b"}),
        ("if a:\n    b", {"if (not (a)):\n    b"}),
        ("x = a if b else c", {"x = a if (not (b)) else c"}),
        ("[a for a in b if c]", {"[a for a in b if True]"}),
        ("match a:\n    case B():\n        c", {"match a:\n    case B() if False:\n        c"}),
        ("match a:\n    case _:\n        assert_never(a)", set()),
        ("assert a == b", set()),
        ("import a", set()),
        ("@dataclass(frozen=True)\nclass A:\n    b: int = 1", {"@dataclass(frozen=True)\nclass A:\n    b: int = 2"}),
    ],
)
def test_a_text_has_these_mutants_and_no_others(text: str, mutated: set[str]) -> None:
    assert {mutant.applied(text.encode()).decode() for mutant in mutants_of(text.encode())} == mutated


def test_a_mutant_knows_the_outermost_function_around_it() -> None:
    text = b"x = 1\n\nclass A:\n    y = 2\n\n    @d\n    def f(self, a=3):\n        def g():\n            return 4\n"
    functions = {mutant.replacement: mutant.function for mutant in mutants_of(text)}
    assert functions == {b"2": None, b"3": None, b"4": None, b"5": ("A.f", 6), b"None": ("A.f", 6)}


# ---- what it is used on


def test_every_module_of_the_services_is_a_target() -> None:
    targeted = [path for target in TARGETS for path in target.paths(ROOT)]
    assert len(targeted) == len(set(targeted)), "no module twice"
    of_ours = {path for top in ("shared", "services", "cli") for path in (ROOT / top).rglob("*.py")}
    of_ours -= {path for tool in ("chaos", "tour") for path in (ROOT / "cli" / tool).rglob("*.py")}
    assert set(targeted) == of_ours
    (whole,) = [target for target in TARGETS if target.is_whole]
    assert set(whole.paths(ROOT)) == set((ROOT / "shared" / "domain").rglob("*.py"))


def test_the_tests_and_the_modules_that_a_target_names_are_there() -> None:
    for target in TARGETS:
        modules = [path.relative_to(ROOT).as_posix() for path in target.paths(ROOT)]
        for pattern, files in target.programs:
            assert any(fnmatch(module, pattern) for module in modules), pattern
            assert all((ROOT / file).is_file() for file in files), pattern
        assert all((ROOT / test).exists() for test in target.tests)


def test_make_mutants_starts_it_with_what_is_asked_and_lets_others_go_first() -> None:
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    said = subprocess.run(
        ["make", "-n", "mutants", "ARGS=--domain"], cwd=ROOT, env=outer, capture_output=True, text=True, timeout=60
    )
    assert said.stdout.splitlines()[-1] == "exec nice -n 15 .venv/bin/python -m tests.mutation --domain"


def test_each_equivalent_mutant_exists_and_has_a_reason() -> None:
    assert EQUIVALENTS.is_file()
    named = equivalents()
    for (file, was, now), why in named.items():
        text = (ROOT / file).read_text()
        assert was != now
        assert was in " ".join(text.split()), f"{file} has no such line: {was}"
        assert why.endswith(".")
