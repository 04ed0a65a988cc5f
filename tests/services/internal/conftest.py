"""One service a test, and one provider for all of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.internal.main import create_app
from tests.support import parts
from tests.support.internal_service import Handler, Make, Service
from tests.support.parts import InternalParts


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[parts.Provider]:
    with parts.a_provider() as provider:
        yield provider


@pytest.fixture
def provider(shared_provider: parts.Provider) -> parts.Provider:
    shared_provider.answers.clear()
    shared_provider.requests.clear()
    shared_provider.headers.clear()
    shared_provider.during = lambda _: None
    return shared_provider


@pytest.fixture
def make(tmp_path: Path, provider: parts.Provider) -> Iterator[Make]:
    made: list[InternalParts] = []

    def make(queue: Any = None, is_asking: bool = False, **environ: str) -> Service:
        """`is_asking`: the team's code is behind an address."""
        handler = Handler()
        given = {"WHATSAPP_API_BASE_URL": provider.url, **environ}
        code = None if is_asking else handler
        internal = parts.internal_parts(tmp_path, code, queue=queue or parts.NoQueue(), **given)
        made.append(internal)
        return Service(create_app(internal.parts).test_client(), internal, handler)

    with parts.logged():
        yield make
    for internal in made:
        internal.parts.process_outbound.channels["meta"].close()
        internal.store.port.close()


@pytest.fixture
def service(make: Make) -> Service:
    return make()
