"""The stack that most of these tests share: time twenty times as fast, no sweep, and a handler that does as told."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.stack import OLD_TASK_TOKEN, SECRET, SENDER, TASK_TOKEN, TEAM, Stack, need_server_of

_contacts = itertools.count(6_000_000)
"""Far from the business's own number, 1555 0001111: what comes from that is an echo, and reaches no handler."""


@pytest.fixture
def contact() -> str:
    """A person whom no other test knows."""
    return a_contact()


@pytest.fixture
def contacts() -> Callable[[], str]:
    """Makes more of them."""
    return a_contact


def a_contact() -> str:
    return f"1555{next(_contacts):07}"


def settings_for(data_dir: Path, **more: str) -> dict[str, str]:
    """Of a stack with the scripted handler."""
    return {
        "TIME_SCALE": "20",
        "MAX_ATTEMPTS": "3",
        "HANDLER": "scripted:handle",
        "HANDLER_CALLS": str(data_dir / "calls.jsonl"),
        "PYTHONPATH": str(TEAM),
        "WHATSAPP_PHONE_NUMBER_ID": SENDER,
        "META_APP_SECRET": SECRET,
        "INTERNAL_TASK_TOKEN": f"{TASK_TOKEN}, {OLD_TASK_TOKEN}",
        **more,
    }


@pytest.fixture(scope="session")
def make_stack(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Stack]:
    """Makes a stack, not started."""

    def make(*options: str, store: str = "sqlite", **settings: str) -> Stack:
        need_server_of(store)
        data_dir = tmp_path_factory.mktemp("stack") / "data"
        return Stack(data_dir, ("--no-sweep", *options), settings_for(data_dir, **settings), store, is_forked=True)

    return make


@pytest.fixture(scope="session")
def stack(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """One for all who do not disturb one another: each test has contacts of its own, and no fault is left behind."""
    with make_stack() as stack:
        yield stack
