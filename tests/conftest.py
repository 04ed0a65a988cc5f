"""What holds for every test, whoever starts them."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.support")

from tests.support.user_environment import clear  # noqa: E402 - after its asserts are rewritten

pytest_plugins = ["tests.support.watchdog", "tests.support.kept_logging"]


LONGEST_FIRST = (
    "services/test_stack_store_faults.py",
    "services/test_stack_crash_points.py",
    "services/test_end_to_end.py",
    "release/test_deployment.py",
    "outages/test_backend_outages.py",
    "infra/test_make_deploy.py",
    "services/test_stack_sends.py",
    "infra/test_changes.py",
    "services/test_privacy_canary.py",
    "services/test_up_stores.py",
    "services/test_stack_outages.py",
    "model/test_model.py",
    "chaos/test_short_run.py",
    "services/test_stack_command_line.py",
    "outages/test_provider_outages.py",
    "release/test_image_runs.py",
    "services/test_stack_handlers.py",
    "infra/test_terraform.py",
    "services/test_stack_api.py",
    "infra/test_check_project.py",
    "services/internal/test_backend_outage.py",
    "services/test_terminals.py",
    "outages/test_isolation.py",
    "model/test_mutants.py",
    "services/test_dead_letters.py",
    "infra/test_mutations.py",
    "infra/test_log_filters.py",
    "large_posts/test_large_posts.py",
    "services/api/test_api_by_its_document.py",
    "release/test_cloudbuild.py",
    "local/test_tasks_durable.py",
    "unit/test_watchdog.py",
)
"""A process runs a file as a whole. These take longest, so they start first and no process is left alone with one.
Files that mostly wait lie between those that compute, so that few of either run at once.
"""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, and leave what was collected out of its later rounds: it stays to the end,
    and there are a million objects of it.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


MEMORY = Path("/dev/shm")
NEEDED = 4 << 30
"""Bytes of free space. A run writes about 0.5 GB."""


def keep_files_in_memory() -> None:
    """Put the tests' own directories in memory, where a commit takes 0.01 ms; on a busy disk it takes 7 ms.

    The tests kill processes, never the machine, so the disk would prove nothing more.
    """
    if not MEMORY.is_dir():
        return
    about = os.statvfs(MEMORY)
    if about.f_bavail * about.f_frsize >= NEEDED and not about.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_configure() -> None:
    """No test sees the settings of a stack that runs beside it. And Ctrl-C means something to the programs that tests
    start: a shell in the background has its children ignore it, and who is started so hands that on.
    """
    clear(os.environ)
    keep_files_in_memory()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
