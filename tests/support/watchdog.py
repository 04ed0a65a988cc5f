"""A pytest plugin that ends a process whose test hangs where pytest-timeout cannot end it, and prints its stacks.

pytest-timeout raises in the main thread. That does not help in a call into C that never returns, in a `finally` that
waits for the hanging call, in a fixture's teardown after the timeout, while modules are imported, or in a thread that
keeps the finished process alive. faulthandler's watchdog needs neither the interpreter nor its lock: it prints the
stack of every thread and ends the process with code 1. pytest-xdist then names the test, fails it and continues in a
new worker.
"""

import faulthandler
import os

import pytest

GRACE = 60.0
"""Seconds after pytest-timeout's own limit, which goes first because it reports more."""
AROUND = 300.0
"""Seconds outside of tests: to import all modules, to end the process."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("watchdog_grace", "seconds after a test's timeout until its process is ended", default=str(GRACE))
    parser.addini("watchdog_around", "seconds that collection and the process's end may take", default=str(AROUND))


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("dist", "no") == "no":  # a process that only waits for its workers has no test to watch
        config.pluginmanager.register(Watchdog(config), "pombo-watchdog")


class Watchdog:
    def __init__(self, config: pytest.Config) -> None:
        self._screen = os.fdopen(os.dup(2), "w")  # pytest captures 2 itself
        self._grace = float(config.getini("watchdog_grace"))
        self._around = float(config.getini("watchdog_around"))
        told = (config.getoption("timeout"), os.environ.get("PYTEST_TIMEOUT"), config.getini("timeout"))
        self._default = next((float(limit) for limit in told if limit not in (None, "")), 0.0)
        self._watch(self._around)

    def _watch(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._screen)

    def _watch_test(self, item: pytest.Item) -> None:
        marker = item.get_closest_marker("timeout")
        given = (marker.args[0] if marker.args else marker.kwargs.get("timeout")) if marker else None
        limit = self._default if given is None else float(given)
        if limit:
            self._watch(limit + self._grace)
        else:  # pytest-timeout's 0 is "for ever", for a debugger
            faulthandler.cancel_dump_traceback_later()

    def pytest_collection_finish(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    # Repeated for each phase: pytest removes the watchdog after a failure.

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._watch_test(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._watch_test(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._watch_test(item)

    def pytest_runtest_logfinish(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._watch(self._around)
