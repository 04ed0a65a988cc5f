"""Access tokens by reference: how old a cached one may be, how many reads it costs, and what counts if none is read."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from shared.domain.errors import CredentialsUnavailable, SecretsUnavailable
from shared.domain.tenants import Sender
from shared.tenants.credentials import RegisteredCredentials, SecretCache
from tests.support.real_servers import until

LISTED = Sender("acme", "meta", "100000000000002", credential="pombo-credential-1")
OURS = Sender("default", "meta", "100000000000001")


@dataclass
class FakeSecrets:
    """A dictionary that counts its reads. `during` runs within a read."""

    values: dict[str, str | None] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    failure: SecretsUnavailable | None = None
    during: Callable[[], object] = lambda: None

    def newest(self, name: str) -> str | None:
        self.reads.append(name)
        value, failure = self.values.get(name), self.failure
        self.during()
        if failure:
            raise failure
        return value

    def add(self, name: str, value: str) -> None:
        self.values[name] = value

    def remove(self, name: str) -> None:
        self.values.pop(name, None)


@dataclass
class Ticks:
    """A monotonic clock that moves a little with each look."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        self.seconds += 0.001
        return self.seconds


@pytest.fixture
def secrets() -> FakeSecrets:
    return FakeSecrets({"pombo-credential-1": "token-1", "a": "value"})


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


# ---- the cache


def test_value_is_read_once_a_minute(secrets: FakeSecrets, ticks: Ticks) -> None:
    cache = SecretCache(secrets, ticks)
    assert [cache.value("a") for _ in range(5)] == ["value"] * 5
    assert secrets.reads == ["a"]
    secrets.values["a"] = "other"
    ticks.seconds += 59
    assert cache.value("a") == "value"
    ticks.seconds += 1
    assert cache.value("a") == "other"
    assert secrets.reads == ["a", "a"]


def test_age_of_a_value_counts_from_the_beginning_of_its_read(secrets: FakeSecrets, ticks: Ticks) -> None:
    def slow() -> None:
        ticks.seconds += 59.9

    secrets.during = slow
    cache = SecretCache(secrets, ticks)
    cache.value("a")
    ticks.seconds += 0.2
    cache.value("a")
    assert len(secrets.reads) == 2


def test_fresh_value_is_read_again_and_then_kept(secrets: FakeSecrets, ticks: Ticks) -> None:
    cache = SecretCache(secrets, ticks)
    cache.value("a")
    secrets.values["a"] = "other"
    assert cache.value("a") == "value"
    assert cache.value("a", fresh=True) == "other"
    assert cache.value("a") == "other"
    assert len(secrets.reads) == 2


def test_fresh_value_is_read_again_within_one_tick_of_the_clock(secrets: FakeSecrets) -> None:
    cache = SecretCache(secrets, lambda: 1000.0)
    cache.value("a", fresh=True)
    secrets.values["a"] = "other"
    assert cache.value("a", fresh=True) == "other"


def test_absence_is_kept_too(secrets: FakeSecrets, ticks: Ticks) -> None:
    cache = SecretCache(secrets, ticks)
    assert cache.value("none") is None
    assert cache.value("none") is None
    assert secrets.reads == ["none"]


def test_old_value_is_not_used_while_secrets_are_down(secrets: FakeSecrets, ticks: Ticks) -> None:
    cache = SecretCache(secrets, ticks)
    cache.value("a")
    secrets.failure = SecretsUnavailable("down")
    assert cache.value("a") == "value"
    ticks.seconds += 60
    with pytest.raises(SecretsUnavailable, match="down"):
        cache.value("a")
    secrets.failure = None
    ticks.seconds += 5
    assert cache.value("a") == "value"


def test_failed_fresh_read_raises_and_keeps_the_young_value(secrets: FakeSecrets, ticks: Ticks) -> None:
    cache = SecretCache(secrets, ticks)
    cache.value("a")
    secrets.failure = SecretsUnavailable("down")
    with pytest.raises(SecretsUnavailable):
        cache.value("a", fresh=True)
    assert cache.value("a") == "value"


def test_failure_stands_for_five_seconds_for_all_but_fresh_reads(secrets: FakeSecrets, ticks: Ticks) -> None:
    """A thousand messages that wait for one secret would keep all threads waiting for it otherwise."""
    cache = SecretCache(secrets, ticks)
    secrets.failure = SecretsUnavailable("down")
    for _ in range(20):
        with pytest.raises(SecretsUnavailable, match="down"):
            cache.value("a")
    assert len(secrets.reads) == 1
    secrets.failure = None
    assert cache.value("a", fresh=True) == "value"


def test_secret_is_read_again_five_seconds_after_a_failure(secrets: FakeSecrets, ticks: Ticks) -> None:
    cache = SecretCache(secrets, ticks)
    secrets.failure = SecretsUnavailable("down")
    with pytest.raises(SecretsUnavailable):
        cache.value("a")
    secrets.failure = None
    ticks.seconds += 4.9
    with pytest.raises(SecretsUnavailable):
        cache.value("a")
    ticks.seconds += 0.1
    assert cache.value("a") == "value"


def test_threads_that_ask_at_once_share_one_read(secrets: FakeSecrets) -> None:
    asked, go = threading.Semaphore(0), threading.Event()
    secrets.during = go.wait
    cache = SecretCache(secrets)

    def ask(_: int) -> str | None:
        asked.release()
        return cache.value("a")

    with ThreadPoolExecutor(16) as pool:
        answers = pool.map(ask, range(16))
        for _ in range(16):
            asked.acquire()
        until(lambda: secrets.reads)
        go.set()
        assert list(answers) == ["value"] * 16
    assert secrets.reads == ["a"]


def test_threads_that_wait_share_a_failure(secrets: FakeSecrets) -> None:
    waiting, go = threading.Semaphore(0), threading.Event()
    secrets.during, secrets.failure = go.wait, SecretsUnavailable("down")
    looks = iter(range(1000))

    def monotonic() -> float:
        waiting.release()
        return float(next(looks)) / 1000

    cache = SecretCache(secrets, monotonic)

    def ask(_: int) -> str:
        with pytest.raises(SecretsUnavailable) as raised:
            cache.value("a")
        return str(raised.value)

    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(ask, range(8))
        for _ in range(9):  # each thread's first look, and the reader's second
            waiting.acquire()
        go.set()
        assert list(answers) == ["down"] * 8
    assert len(secrets.reads) == 1


def test_fresh_read_is_not_one_that_began_before(secrets: FakeSecrets) -> None:
    """The running read may have seen the old value."""
    go = threading.Event()
    secrets.during = go.wait
    cache = SecretCache(secrets)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.value, "a")
        until(lambda: secrets.reads)
        secrets.values["a"] = "other"
        second = pool.submit(cache.value, "a", True)
        go.set()
        assert first.result() == "value"
        assert second.result() == "other"


def test_secret_that_hangs_delays_no_other(secrets: FakeSecrets) -> None:
    go = threading.Event()
    secrets.during = lambda: go.wait() if secrets.reads[-1] == "slow" else None
    cache = SecretCache(secrets)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache.value, "slow")
        until(lambda: secrets.reads)
        assert cache.value("a") == "value"
        go.set()
        assert slow.result() is None


def test_cache_drops_what_was_not_used_longest(secrets: FakeSecrets, ticks: Ticks) -> None:
    cache = SecretCache(secrets, ticks, most=2)
    for name in ("a", "b", "a", "c"):
        cache.value(name)
    cache.value("a")
    assert secrets.reads == ["a", "b", "c"]
    cache.value("b")
    assert secrets.reads == ["a", "b", "c", "b"]


def test_default_times_are_those_of_the_protocol(secrets: FakeSecrets) -> None:
    cache = SecretCache(secrets)
    assert (cache._oldest, cache._most) == (60.0, 4096)


def test_cached_value_is_not_in_a_repr(secrets: FakeSecrets) -> None:
    cache = SecretCache(secrets)
    cache.value("pombo-credential-1")
    assert "_Read(" in repr(cache._slots)
    assert "token-1" not in repr(cache._slots)


# ---- the credentials


@pytest.fixture
def credentials(secrets: FakeSecrets, ticks: Ticks) -> RegisteredCredentials:
    return RegisteredCredentials(SecretCache(secrets, ticks), {"meta": "environment's token"})


def test_sender_has_the_token_in_the_secret_that_it_names(credentials: RegisteredCredentials) -> None:
    assert credentials.of(LISTED) == credentials.newest(LISTED) == "token-1"


def test_sender_without_a_secret_has_the_environments_token(
    credentials: RegisteredCredentials, secrets: FakeSecrets
) -> None:
    assert credentials.of(OURS) == credentials.newest(OURS) == "environment's token"
    assert credentials.of(Sender("default", "twilio", "1")) == ""
    assert secrets.reads == []


def test_sender_whose_secret_is_gone_has_no_token(credentials: RegisteredCredentials, secrets: FakeSecrets) -> None:
    secrets.remove("pombo-credential-1")
    assert credentials.of(LISTED) == ""


def test_newest_token_is_read_past_the_cache(credentials: RegisteredCredentials, secrets: FakeSecrets) -> None:
    credentials.of(LISTED)
    secrets.add("pombo-credential-1", "token-2")
    assert credentials.of(LISTED) == "token-1"
    assert credentials.newest(LISTED) == "token-2"
    assert credentials.of(LISTED) == "token-2"


def test_secrets_that_are_down_make_credentials_unavailable(
    credentials: RegisteredCredentials, secrets: FakeSecrets
) -> None:
    secrets.failure = SecretsUnavailable("down")
    for call in (credentials.of, credentials.newest):
        with pytest.raises(CredentialsUnavailable, match="down") as raised:
            call(LISTED)
        assert "token" not in repr(raised.value)
    assert credentials.of(OURS) == "environment's token"
