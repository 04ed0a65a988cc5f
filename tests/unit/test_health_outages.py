"""The line in /health that counts outages: seldom read, and honest where it cannot be read."""

from dataclasses import dataclass

import pytest

from services import health
from shared.domain.errors import RegistryUnavailable, StoreUnavailable
from shared.pipeline.senders import Outages


@dataclass
class Senders:
    """What is down now, or why that cannot be known."""

    now: Outages | Exception
    reads: int = 0

    def outages(self) -> Outages:
        self.reads += 1
        if isinstance(self.now, Exception):
            raise self.now
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its one item is the time."""
    time = [5.0]
    monkeypatch.setattr(health.time, "monotonic", lambda: time[0])
    return time


def test_outages_are_at_most_ten_seconds_old(clock: list[float]) -> None:
    senders = Senders(Outages(0, 0))
    outages = health.CachedOutages(senders)  # type: ignore[arg-type]
    assert outages() == {"provider_down": 0, "backend_down": 0}
    senders.now = Outages(2, 1)
    clock[0] += 9.9
    assert outages() == {"provider_down": 0, "backend_down": 0}
    assert senders.reads == 1
    clock[0] += 0.2
    assert outages() == {"provider_down": 2, "backend_down": 1}
    assert senders.reads == 2


@pytest.mark.parametrize("error", [StoreUnavailable, RegistryUnavailable])
def test_outages_that_cannot_be_read_are_unknown_and_not_asked_for_at_every_look(
    clock: list[float], error: type[Exception]
) -> None:
    senders = Senders(error())
    outages = health.CachedOutages(senders)  # type: ignore[arg-type]
    for _ in range(3):
        assert outages() == {"provider_down": None, "backend_down": None}
    assert senders.reads == 1
    clock[0] += 11
    senders.now = Outages(1, 0)
    assert outages() == {"provider_down": 1, "backend_down": 0}
