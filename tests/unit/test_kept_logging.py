"""No test finds the logging of its process as another test left it."""

import logging
import os
import sys
import threading
from pathlib import Path

import pytest

from shared import logs

State = tuple[object, ...]


def state() -> State:
    root, ours = logging.getLogger(), logging.getLogger(logs.LOGGER)
    written = [(handler, getattr(handler, "descriptor", None)) for handler in (*root.handlers, *ours.handlers)]
    lines = [(handler, to) for handler, to in written if to is not None]
    return lines, root.level, ours.level, ours.propagate, sys.excepthook, threading.excepthook


@pytest.fixture(scope="module")
def at_first() -> State:
    return state()


@pytest.mark.parametrize("time", [1, 2])
def test_logging_changes_of_a_command_end_with_its_test(at_first: State, tmp_path: Path, time: int) -> None:
    assert state() == at_first, f"before time {time}"
    logs.configure("DEBUG")
    logs.write_to(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT))
    assert state() != at_first
