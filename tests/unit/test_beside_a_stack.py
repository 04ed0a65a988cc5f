"""The tests pass while a stack runs on this machine: they take neither its ports, nor its data, nor its settings."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from local.stack import PORTS, Options
from shared import config
from tests.support.user_environment import CLEARED

ROOT = Path(__file__).parents[2]
PROGRAMS = ("shared", "services", "cli", "local", "pombo", "handlers", "bench", "examples", ".ci", "infra", "tests")
GIVEN = {"TF_PLUGIN_MAGIC_COOKIE", "CHAOS_TRIES"}
"""Read by a program that a program of ours starts with its own value, whatever the user's is."""
WANTED = {"CI", "HOME", "PATH", "PYTEST_DEBUG_TEMPROOT", "PYTEST_TIMEOUT"}
"""What a test wants of the user's shell."""

ONLY_READ = {
    "tests/infra/code_side.py",
    "tests/fuzz/no_queue.py",
    "tests/local/test_whatsapp_provider.py",
    "tests/services/test_try_it_page.py",
    "tests/unit/test_called.py",
    "tests/unit/test_config.py",
    "tests/unit/test_server_settings.py",
    "tests/unit/test_beside_a_stack.py",
}
"""Their addresses are read and compared, and nobody connects to them or listens there."""


OWN = "the-users-own"
SET_BY_THE_FRAMEWORK = {"FUNCTION_TARGET", "FUNCTION_SIGNATURE_TYPE"}
"""functions-framework sets them in the process in which a test makes its app."""


def test_no_test_sees_a_variable_of_the_users_shell() -> None:
    seen = CLEARED & os.environ.keys()
    assert sorted(name for name in seen if name not in SET_BY_THE_FRAMEWORK or os.environ[name] == OWN) == []


def test_the_settings_of_a_users_shell_are_cleared_before_any_test() -> None:
    environ = {**os.environ, **dict.fromkeys(CLEARED, OWN)}
    for workers in ("0", "1"):
        test = f"{Path(__file__)}::{test_no_test_sees_a_variable_of_the_users_shell.__name__}"
        command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider", test]
        ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_variable_that_a_program_reads_is_cleared() -> None:
    read = {name: place for top in PROGRAMS for path in (ROOT / top).rglob("*.py") for name, place in read_by(path)}
    assert {setting.name for setting in config.SETTINGS} <= CLEARED
    assert {"STORE", "K_SERVICE", "AUDIT_URL", "META_APP_SECRET", "HANDLER_CALLS"} <= read.keys(), "nothing was found"
    assert {name: place for name, place in read.items() if name not in CLEARED | GIVEN | WANTED} == {}


def test_variables_that_libraries_read_are_cleared_too() -> None:
    assert {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "GUNICORN_CMD_ARGS", "WEB_CONCURRENCY", "FUNCTION_TARGET"} <= CLEARED
    assert {"GOOGLE_APPLICATION_CREDENTIALS", "GRPC_VERBOSITY", "FLASK_DEBUG", "K_REVISION"} <= CLEARED
    assert not CLEARED & WANTED


def read_by(path: Path) -> Iterator[tuple[str, str]]:
    """The variables that a module reads from its process's environment, by a word or by a constant of the module."""
    source = path.read_text()
    if "environ" not in source and "getenv" not in source:
        return  # and need not be parsed
    tree = ast.parse(source)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(of, key, ast.Load()):
                pass
            case ast.Call(ast.Attribute(of, "get" | "pop" | "setdefault"), [key, *_]):
                pass
            case ast.Call(ast.Attribute(ast.Name("os"), "getenv") as of, [key, *_]):
                pass
            case ast.Compare(key, [ast.In() | ast.NotIn()], [of]):
                pass
            case _:
                continue
        if ast.unparse(of) in ("os.environ", "os.getenv"):
            name = key.value if isinstance(key, ast.Constant) else constants.get(ast.unparse(key))
            if isinstance(name, str):
                yield name, f"{path.relative_to(ROOT)}:{node.lineno}"


def test_no_test_names_a_port_of_a_running_stack() -> None:
    first = Options(Path()).first_port
    assert (first, max(PORTS.values())) == (8080, 7)
    port = re.compile(r"(?<![\d.])808[0-7](?!\d)")
    named = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "tests").rglob("*.py")
        if str(path.relative_to(ROOT)) not in ONLY_READ
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if port.search(line)
    }
    assert named == set()


def test_no_test_names_the_data_of_a_running_stack() -> None:
    """`.pombo` in this clone: a test's own lies in a directory of its own."""
    data = re.compile(r"ROOT\s*/\s*[\"']\.pombo|ROOT\s*/\s*(config\.)?DATA_DIRECTORY")
    named = [
        str(path) for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__) and data.search(path.read_text())
    ]
    assert named == []
