"""One app for all tests of a process, with a store of its own for each."""

import fcntl
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from local.stack_files import LOCK_FILE
from tests.support.api_service import ApiService, build
from tests.support.parts import SENDER
from tests.support.served_api import ServedApi, served

built = cache(build)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiService]:
    service = built()
    service.begin(tmp_path)
    yield service
    service.store.port.close()


@pytest.fixture
def served_api(api: ApiService) -> Iterator[ServedApi]:
    """The same behind a socket."""
    with served(api) as made:
        yield made


@pytest.fixture
def stack(served_api: ServedApi, tmp_path: Path) -> Iterator[Path]:
    """The data directory of a stack whose API is the service."""
    described = {
        "api": served_api.url,
        "store": "sqlite",
        "data_dir": str(tmp_path),
        "environment": {"WHATSAPP_PHONE_NUMBER_ID": SENDER},
    }
    (tmp_path / "stack.json").write_text(json.dumps(described))
    (tmp_path / "api-key").write_text(served_api.service.key(None) + "\n")
    with (tmp_path / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield tmp_path
