"""The access tokens of senders, by reference: each sender names a secret, whose newest enabled version counts."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shared.domain.errors import CredentialsUnavailable, SecretsUnavailable
from shared.domain.tenants import Sender
from shared.pipeline.ports import Secrets

OLDEST_SECONDS = 60.0
"""How old a cached value may be: a token that was replaced by hand counts within a minute."""

FAILED_SECONDS = 5.0
"""How long a failure stands for the next reads, too: each could take seconds of a request thread, and what needs the
secret looks again after a minute.
"""

MOST_SECRETS = 4096
"""Values that are kept: more senders than one process serves within a minute."""


@dataclass(frozen=True, slots=True)
class _Read:
    """One read of a secret, with its times by the monotonic clock: it gave a value, or it failed."""

    began: float
    ended: float
    value: str | None = field(repr=False)
    failure: SecretsUnavailable | None


@dataclass(slots=True)
class _Slot:
    """One secret: its last read, and the last one that did not fail. The thread that reads holds the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    last: _Read | None = None
    good: _Read | None = None


class SecretCache:
    """The newest values of secrets, for all threads of a process. A value is `oldest` seconds old at most, counted from
    the beginning of its read; an older one is never used, even if the secrets cannot be read. One thread at a time
    reads a secret, and those that asked meanwhile share the result. A failure stands for FAILED_SECONDS.
    """

    def __init__(
        self,
        secrets: Secrets,
        monotonic: Callable[[], float] = time.monotonic,
        oldest: float = OLDEST_SECONDS,
        most: int = MOST_SECRETS,
    ) -> None:
        self._secrets = secrets
        self._monotonic = monotonic
        self._oldest = oldest
        self._most = most
        self._lock = threading.Lock()
        self._slots: OrderedDict[str, _Slot] = OrderedDict()

    def value(self, name: str, fresh: bool = False) -> str | None:
        """The newest enabled version of a secret; None if there is none. `fresh`: by a read that begins after this
        call. Raises SecretsUnavailable.
        """
        asked = self._monotonic()
        slot = self._slot(name)
        good = slot.good
        if not fresh and good and self._is_young(good):
            return good.value
        with slot.lock:
            last = slot.last
            if last is None or not self._answers(last, asked, fresh):
                last = slot.last = self._read(name)
                slot.good = slot.good if last.failure else last
        if last.failure:
            raise SecretsUnavailable(*last.failure.args) from last.failure.__cause__
        return last.value

    def _slot(self, name: str) -> _Slot:
        with self._lock:
            slot = self._slots.pop(name, None) or _Slot()
            self._slots[name] = slot  # now the last to be dropped
            while len(self._slots) > self._most:
                self._slots.popitem(last=False)
            return slot

    def _is_young(self, read: _Read) -> bool:
        return self._monotonic() - read.began < self._oldest

    def _answers(self, read: _Read, asked: float, fresh: bool) -> bool:
        """Whether the last read answers a question asked then."""
        if fresh:
            return read.began > asked
        if read.failure is None:
            return read.ended > asked or self._is_young(read)
        return self._monotonic() - read.ended < FAILED_SECONDS

    def _read(self, name: str) -> _Read:
        began = self._monotonic()
        value, failure = None, None
        try:
            value = self._secrets.newest(name)
        except SecretsUnavailable as error:
            failure = error
        return _Read(began, self._monotonic(), value, failure)


class RegisteredCredentials:
    """The credentials port. A sender that names no secret has the environment's token of its provider."""

    def __init__(self, secrets: SecretCache, environment: Mapping[str, str]) -> None:
        """`environment` maps a provider to its token in the environment."""
        self._secrets = secrets
        self._environment = environment

    def of(self, sender: Sender) -> str:
        """The token, 60 s old at most; "" if there is none. Raises CredentialsUnavailable."""
        return self._token(sender, fresh=False)

    def newest(self, sender: Sender) -> str:
        """The token, read now. Raises CredentialsUnavailable."""
        return self._token(sender, fresh=True)

    def _token(self, sender: Sender, fresh: bool) -> str:
        if not sender.credential:
            return self._environment.get(sender.provider, "")
        try:
            return self._secrets.value(sender.credential, fresh) or ""
        except SecretsUnavailable as error:
            raise CredentialsUnavailable(*error.args) from error.__cause__
