"""The line in /health that counts outages: seldom read, and honest where it cannot be read."""

import pytest
from pytest_mock import MockerFixture, MockType

from services.internal import outages as outages_of_internal
from shared.domain.errors import RegistryUnavailable, StoreUnavailable
from shared.pipeline.sender_health import Outages, Senders


@pytest.fixture
def now(mocker: MockerFixture) -> MockType:
    """Its return_value is the time."""
    monotonic: MockType = mocker.patch.object(outages_of_internal, "time").monotonic
    monotonic.return_value = 5.0
    return monotonic


@pytest.fixture
def senders(mocker: MockerFixture) -> MockType:
    """The return_value of `outages` is what is down now, its side_effect why that cannot be known."""
    return mocker.create_autospec(Senders, instance=True)


def test_outages_are_at_most_ten_seconds_old(now: MockType, senders: MockType) -> None:
    senders.outages.return_value = Outages(0, 0)
    outages = outages_of_internal.CachedOutages(senders)
    assert outages() == {"provider_down": 0, "backend_down": 0}
    senders.outages.return_value = Outages(2, 1)
    now.return_value += 9.9
    assert outages() == {"provider_down": 0, "backend_down": 0}
    assert senders.outages.call_count == 1
    now.return_value += 0.2
    assert outages() == {"provider_down": 2, "backend_down": 1}
    assert senders.outages.call_count == 2


@pytest.mark.parametrize("error", [StoreUnavailable, RegistryUnavailable])
def test_outages_that_cannot_be_read_are_unknown_and_not_asked_for_at_every_look(
    now: MockType, senders: MockType, error: type[Exception]
) -> None:
    senders.outages.side_effect = error()
    outages = outages_of_internal.CachedOutages(senders)
    for _ in range(3):
        assert outages() == {"provider_down": None, "backend_down": None}
    assert senders.outages.call_count == 1
    now.return_value += 11
    senders.outages.side_effect = None
    senders.outages.return_value = Outages(1, 0)
    assert outages() == {"provider_down": 1, "backend_down": 0}
