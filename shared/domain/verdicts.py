"""Verdicts: what an attempt's outcome means. Only `settle` decides what happens to the record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar

from shared.domain.record import DROPPED_BY_HANDLER

CREDENTIAL_REPLACED = "credential_replaced"
"""The answer of an attempt whose credential was refused after another one had come into use."""


# ---- of the handler


@dataclass(frozen=True, slots=True)
class Origin:
    """Which of the team's code failed. It is only code, so it may be logged. `type` is the exception's; None if nothing
    was raised. `place` is file:line. `stack_trace` is the places that the exception passed; it is not stored.
    """

    type: str | None = None
    place: str | None = None
    function: str | None = None
    stack_trace: str | None = None


@dataclass(frozen=True, slots=True)
class Replied:
    """The handler answered; `payloads` are the replies, in order, ready to store. `contact` is used if the event was
    stored without one, because it could not be read then. `invalid` says by index why a reply cannot be sent.
    """

    payloads: tuple[Mapping[str, Any], ...]
    contact: str | None = None
    invalid: Mapping[int, str] = field(default_factory=dict)
    label: ClassVar[str] = "replied"


@dataclass(frozen=True, slots=True)
class Dropped:
    """The handler dropped the event. `said` is its reason, which is stored and never logged."""

    said: str
    label: ClassVar[str] = DROPPED_BY_HANDLER


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    """The handler raised, timed out, or returned an invalid answer. If it raised (`origin.type`), `error` may be
    private: it is stored, never logged. Otherwise it is a sentence of ours.
    """

    error: str
    origin: Origin = Origin()
    label: ClassVar[str] = "handler_failed"


@dataclass(frozen=True, slots=True)
class BackendDown:
    """The backend is down, which is not this event's fault. `error` is a sentence of ours, `until` is when it may be
    called again.
    """

    error: str
    until: datetime | None = None
    retry_after: timedelta | None = None
    label: ClassVar[str] = "backend_down"


@dataclass(frozen=True, slots=True)
class StillUnparsable:
    """A replayed item still cannot be parsed."""

    label: ClassVar[str] = "unparsable"


@dataclass(frozen=True, slots=True)
class StillUnknown:
    """A replayed event still names a sender that no tenant owns."""

    label: ClassVar[str] = "unknown_sender"


# ---- of the provider


@dataclass(frozen=True, slots=True)
class Accepted:
    """2xx. The id is None if the answer could not be read."""

    provider_id: str | None
    label: ClassVar[str] = "accepted"


@dataclass(frozen=True, slots=True)
class Lost:
    """The provider may or may not have it. `outage`: the provider said nothing about the message, so it may be down."""

    code: int | None = None
    outage: bool = False
    label: ClassVar[str] = "lost"


@dataclass(frozen=True, slots=True)
class ProviderDown:
    """The provider is down and certainly took nothing. `until` is when its breaker lets the next attempt probe, if the
    caller knows; `retry_after` is the minimum wait that the provider asks for.
    """

    code: int | None = None
    retry_after: timedelta | None = None
    until: datetime | None = None
    label: ClassVar[str] = "provider_down"


@dataclass(frozen=True, slots=True)
class Retry:
    """Certainly not accepted, and only this message is affected: our own backoff decides."""

    code: int | None = None
    retry_after: timedelta | None = None
    minutes: int = 0
    """The minimum wait that the provider documents for the code."""
    label: ClassVar[str] = "retry"


class LimitScope(StrEnum):
    """Whose limit was reached, which decides the wait. A channel maps its provider's codes to it."""

    RATE = "rate"  # the sender's messages a second
    CONTACT = "contact"  # messages to one contact
    ACCOUNT = "account"  # calls by the account, or by our access to it, in a period
    MAINTENANCE = "maintenance"  # the provider is updating the sender, for about a minute


class BlockScope(StrEnum):
    """What the provider has blocked."""

    SENDER = "sender"
    ACCOUNT = "account"


@dataclass(frozen=True, slots=True)
class Limited:
    """A limit of one contact, sender or account. `minutes` is the minimum wait that the provider documents."""

    scope: LimitScope
    code: int
    retry_after: timedelta | None = None
    minutes: int = 0
    label: ClassVar[str] = "limited"


@dataclass(frozen=True, slots=True)
class CredentialRefused:
    """The provider refused the credential. `curable`: the same credential may be accepted again later. `replaced`:
    another one is in use by now, so the refusal says nothing about the sender.
    """

    code: int
    curable: bool = False
    retry_after: timedelta | None = None
    replaced: bool = False
    label: ClassVar[str] = "credential_refused"

    @property
    def answer(self) -> str:
        """What the attempt's entry of the log says."""
        return CREDENTIAL_REPLACED if self.replaced else self.label


@dataclass(frozen=True, slots=True)
class Blocked:
    """The sender, or its whole account, may not send for now. `until` is when the block ends, if the caller knows; the
    first send after it is the probe.
    """

    scope: BlockScope
    code: int
    until: datetime | None = None
    retry_after: timedelta | None = None
    label: ClassVar[str] = "blocked"


@dataclass(frozen=True, slots=True)
class Refused:
    """Permanent for this message. `on_fault`: the provider answered as for a fault of its own."""

    code: int | None
    on_fault: bool = False
    label: ClassVar[str] = "refused"


# ---- of the provider, on a download


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The file is here."""

    label: ClassVar[str] = "downloaded"


@dataclass(frozen=True, slots=True)
class Unobtainable:
    """The provider will never return the file: it is gone, or never existed."""

    code: int | None = None
    label: ClassVar[str] = "unobtainable"


# ---- of ourselves


@dataclass(frozen=True, slots=True)
class Released:
    """Put back before the effect began: shutdown, or too late to begin. `resend`: it was leased out of a doubt."""

    resend: bool = False
    label: ClassVar[str] = "released"


HandlerVerdict = Replied | Dropped | HandlerFailed | BackendDown | StillUnparsable | StillUnknown | Released
CertainVerdict = Accepted | ProviderDown | Retry | Limited | CredentialRefused | Blocked | Refused | Released
SendVerdict = CertainVerdict | Lost
Verdict = HandlerVerdict | SendVerdict
DownloadVerdict = Downloaded | Unobtainable | ProviderDown | Retry | Limited | CredentialRefused | Blocked | Released


def of_repeatable(verdict: SendVerdict) -> CertainVerdict:
    """The verdict for an operation that may be repeated: it is never in doubt, and an outage costs it no attempt."""
    if not isinstance(verdict, Lost):
        return verdict
    return ProviderDown(verdict.code) if verdict.outage else Retry(verdict.code)


def of_download(verdict: SendVerdict) -> DownloadVerdict:
    """The verdict on a download. A channel raises the same errors for it as for a send."""
    match of_repeatable(verdict):
        case Accepted():
            return Downloaded()
        case Refused(code):
            return Unobtainable(code)
        case other:
            return other
