"""What holds for every test, whoever starts them."""

import os
import signal

import pytest

pytest.register_assert_rewrite("tests.support")

from tests.support.user_environment import clear  # noqa: E402 - after its asserts are rewritten

pytest_plugins = ["tests.support.watchdog", "tests.support.kept_logging"]


def pytest_configure() -> None:
    """No test sees the settings of a stack that runs beside it. And Ctrl-C means something to the programs that tests
    start: a shell in the background has its children ignore it, and who is started so hands that on.
    """
    clear(os.environ)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
