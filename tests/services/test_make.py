"""make: its own options in its errors, and one sentence where Python or the package index is not there."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.support.stack import ROOT, clean_environment

LOCK = f"nothing-of-that-name==1.0 \\\n    --hash=sha256:{'0' * 64}\n"


def make(tree: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """make as a person calls it, in another clone."""
    environment = clean_environment(PYTHONPATH=str(ROOT), **settings)
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):  # of the make test that may run this
        environment.pop(name, None)
    command = ["make", *words]
    made = subprocess.Popen(
        command, cwd=tree, env=environment, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True
    )
    try:
        said, errors = made.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(made.pid, signal.SIGTERM)  # what should have been refused has been started, and serves
        raise
    return subprocess.CompletedProcess(command, made.returncode, said, errors)


def sentence_of(failed: subprocess.CompletedProcess[str]) -> str:
    """What pombo said, in one line; make itself adds one, that the target failed."""
    *said, made = failed.stderr.splitlines()
    assert failed.returncode == 2, "make's own for whatever failed"
    assert made.startswith("make: ***")
    (sentence,) = said
    assert sentence.startswith("pombo: ")
    return sentence


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A clean clone of a tiny project."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "requirements.lock").write_text(LOCK)
    return tmp_path


@pytest.fixture
def tree(bare: Path) -> Path:
    """The same, set up: its virtual environment is this one."""
    programs = bare / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, arguments in (("python", ""), ("pombo", " -m cli.main")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        (programs / name).chmod(0o755)
    (bare / ".venv" / ".run-time").touch()
    return bare


# ---- options


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "STORE="), "Invalid value for STORE: '' is not one of 'sqlite', 'firestore', 'redis'."),
        (("run", "STORE=mysql"), "Invalid value for STORE: 'mysql' is not one of 'sqlite', 'firestore', 'redis'."),
        (("run", "PORTS="), "Invalid value for PORTS: '' is not a valid integer"),
        (("run", "PORTS=99999"), "Invalid value for PORTS: 99999 is not in the range"),
        (("demo", "STORE=it's"), 'Invalid value for STORE: "it\'s" is not one of'),
        (("try", "STORE="), "Invalid value for STORE: '' is not one of"),
        (("chaos", "MESSAGES="), "Invalid value for MESSAGES: '' is not a valid integer"),
        (("chaos", "SECONDS=1"), "Invalid value for SECONDS: 1.0 is not in the range"),
        (("chaos", "SEED=x"), "Invalid value for SEED: 'x' is not a valid integer"),
    ],
    ids=" ".join,
)
def test_wrong_make_option_is_named_as_typed(tree: Path, words: tuple[str, ...], said: str) -> None:
    sentence = sentence_of(make(tree, *words))
    assert sentence.startswith(f"pombo: {said}")
    assert sentence.endswith("Try: make help")
    assert "--" not in sentence


@pytest.mark.parametrize("words", [("run",), ("demo",), ("try",)], ids=" ".join)
def test_port_in_use_is_reported_with_the_make_option(tree: Path, words: tuple[str, ...]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        sentence = sentence_of(make(tree, *words, f"PORTS={port}"))
    assert sentence == (
        f"pombo: Port {port} is in use: stop the program that uses it, or choose other ports with PORTS=N "
        "(0 takes free ones)."
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "MESSAGES=3"), "make run takes no MESSAGES; it takes: STORE DATA PORTS"),
        (("demo", "DATA=elsewhere"), "make demo takes no DATA; it takes: STORE PORTS"),
        (("try", "SEED=1"), "make try takes no SEED; it takes: STORE PORTS"),
        (("chaos", "PORTS=9000"), "make chaos takes no PORTS; it takes: STORE MESSAGES SECONDS SEED"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_variable_that_a_goal_does_not_take_is_refused(tree: Path, words: tuple[str, ...], said: str) -> None:
    assert sentence_of(make(tree, *words)) == f"pombo: {said}"


def test_make_explains_how_to_start_a_second_pombo(tree: Path) -> None:
    (tree / "elsewhere").mkdir()
    with (tree / "elsewhere" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sentence = sentence_of(make(tree, "run", "DATA=elsewhere"))

    assert f"with its data in {tree / 'elsewhere'}." in sentence
    assert sentence.endswith("Or start another one with DATA=DIR and PORTS=N.")


# ---- Python and the package index


def test_a_python_that_did_not_make_the_virtual_environment_is_not_ignored(tree: Path) -> None:
    (tree / "another").write_text("#!/bin/sh\necho 3.99\n")
    (tree / "another").chmod(0o755)

    assert sentence_of(make(tree, "setup", "PYTHON=nope")) == (
        "pombo: nope does not run here; .venv already exists, so omit PYTHON"
    )
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert sentence_of(make(tree, "setup", "PYTHON=./another")) == (
        f"pombo: .venv has Python {version} and ./another is Python 3.99: "
        "omit PYTHON, or remove .venv and run make again"
    )
    assert make(tree, "setup", f"PYTHON={sys.executable}").returncode == 0
    assert make(tree, "setup", PYTHON="nope").returncode == 0, "the environment's is for whoever makes the first one"


def test_a_python_that_is_not_there_is_one_sentence(bare: Path) -> None:
    assert sentence_of(make(bare, "setup", "PYTHON=python9")) == (
        "pombo: python9 is not installed; name Python 3.11 or newer, for example: make setup PYTHON=python3.12"
    )


def test_a_python_that_is_too_old_is_one_sentence(bare: Path) -> None:
    (bare / "old").write_text("#!/bin/sh\nexit 1\n")
    (bare / "old").chmod(0o755)
    assert sentence_of(make(bare, "PYTHON=./old", "run")) == (
        "pombo: ./old is not Python 3.11 or newer; name one that is, for example: make run PYTHON=python3.12"
    )
    assert not (bare / ".venv").exists()


def test_a_package_index_that_does_not_answer_is_one_sentence(bare: Path) -> None:
    began = time.monotonic()
    failed = make(
        bare,
        "setup",
        f"PYTHON={sys.executable}",
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_CONFIG_FILE=os.devnull,
    )
    sentence = sentence_of(failed)
    assert "Cannot install the packages of requirements.lock: check that the package index answers" in sentence
    assert "nothing-of-that-name" in (bare / ".venv" / "pip.log").read_text()
    assert time.monotonic() - began < 60
    assert (bare / ".venv" / "pip.log").read_text().count("Retrying") <= 2, (
        "pip's own 5 take minutes where packets get lost"
    )
    assert not (bare / ".venv" / ".run-time").exists(), "the next make tries again"
