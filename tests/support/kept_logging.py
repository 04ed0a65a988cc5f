"""A pytest plugin: restores the logging configuration of the process after each test.

A command run in this process logs its events to its stack's log, and would do so in all the tests that follow.
"""

import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from shared.logs import LOGGER


@pytest.fixture(autouse=True)
def _kept_logging() -> Iterator[None]:
    """pytest's own handlers of the root logger change with a test's phases, so only other handlers are restored."""
    root, ours = logging.getLogger(), logging.getLogger(LOGGER)
    before = _not_pytests(root), root.level, ours.handlers[:], ours.level, ours.propagate
    hooks = sys.excepthook, threading.excepthook
    yield
    root.handlers[:] = [*before[0], *(handler for handler in root.handlers if _is_pytests(handler))]
    root.setLevel(before[1])
    ours.handlers[:], ours.propagate = before[2], before[4]
    ours.setLevel(before[3])
    sys.excepthook, threading.excepthook = hooks


def _is_pytests(handler: logging.Handler) -> bool:
    return type(handler).__module__.startswith("_pytest.")


def _not_pytests(logger: logging.Logger) -> list[logging.Handler]:
    return [handler for handler in logger.handlers if not _is_pytests(handler)]
