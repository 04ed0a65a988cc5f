"""What the hunts share: how long they last, and where their stores are."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fuzz.hunt import Hunt, hunt_long, hunt_quick


@pytest.fixture(params=["quick", pytest.param("long", marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def hunt(request: pytest.FixtureRequest) -> Hunt:
    return partial(hunt_long if request.param == "long" else hunt_quick, str(request.node.originalname))


@pytest.fixture(scope="session")
def quick_directory() -> Iterator[Path]:
    """Where a real store waits for no disk: what is tried here is what is written, not that it lasts."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="pombo-fuzz-", dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)
