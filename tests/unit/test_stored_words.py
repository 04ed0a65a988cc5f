"""Words and numbers that are stored, logged, answered or documented: a change breaks records of an earlier version,
dashboards, or a promise. So they stand here once more, as literals.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import MISSING, FrozenInstanceError, fields, is_dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from shared import domain
from shared.domain import (
    calls,
    dead_letters,
    drains,
    errors,
    events,
    guards,
    identity,
    limits,
    listings,
    marks,
    message_kinds,
    onboarding,
    record,
    retention,
    send_errors,
    tasks,
    tenants,
    verdicts,
)
from shared.domain.conversations import ConversationState
from shared.domain.limits import Backoff, Limits, PostTimes, Waits
from shared.domain.outbound import checks, templates, types
from shared.domain.rate_limit import RateLimit
from shared.pipeline.registry import EntryKind
from shared.stores.marks_codec import changes
from tests.support.builders import NOW, at, dead, pending, task_for

ENUMS: Mapping[type[StrEnum], Mapping[str, str]] = {
    record.State: {
        "PENDING": "pending",
        "LEASED": "leased",
        "IN_DOUBT": "in_doubt",
        "DONE": "done",
        "DROPPED": "dropped",
        "DEAD": "dead",
    },
    record.Kind: {"INBOUND": "inbound", "OUTBOUND": "outbound"},
    record.ReceiptKind: {
        "SENT": "sent",
        "DELIVERED": "delivered",
        "READ": "read",
        "PLAYED": "played",
        "FAILED": "failed",
    },
    listings.Listing: {
        "DEAD": "dead",
        "PENDING": "pending",
        "REFUSED": "refused",
        "UNKNOWN_SENDER": "unknown_sender",
        "REPLAYED": "replayed",
    },
    dead_letters.Replays: {"AGAIN": "again", "DONE": "done", "MAY_DOUBLE": "may_double", "NEVER": "never"},
    verdicts.LimitScope: {"RATE": "rate", "CONTACT": "contact", "ACCOUNT": "account", "MAINTENANCE": "maintenance"},
    verdicts.BlockScope: {"SENDER": "sender", "ACCOUNT": "account"},
    limits.DoubtPolicy: {"RESEND": "resend", "HOLD": "hold"},
    tenants.TenantState: {"ACTIVE": "active", "SUSPENDED": "suspended"},
    tenants.Order: {"CONTACT": "contact", "SENDER": "sender"},
    tenants.Scope: {"SEND": "send", "READ": "read", "READ_DEAD": "dead:read", "MANAGE": "manage"},
    EntryKind: {
        "TENANT": "tenants",
        "SENDER": "senders",
        "ACCOUNT": "accounts",
        "KEY": "api_keys",
        "QUEUE_USE": "queue_use",
    },
}


@pytest.mark.parametrize("words", ENUMS, ids=lambda words: words.__name__)
def test_values_of_an_enum_are_stable(words: type[StrEnum]) -> None:
    assert {one.name: one.value for one in words} == ENUMS[words]


@pytest.mark.parametrize(
    ("word", "stays"),
    [
        (dead_letters.REFUSED, "refused"),
        (dead_letters.UNKNOWN_SENDER, "unknown_sender"),
        (dead_letters.DISCARDED_BECAUSE, "discarded_because"),
        ((marks.DOWN, marks.BLOCK, marks.REFUSED), ("down", "block", "refused")),
        (
            (guards.PROVIDER_DOWN, guards.BACKEND_DOWN, guards.REAUTH_REQUIRED),
            ("provider_down", "backend_down", "WHATSAPP_REAUTH_REQUIRED"),
        ),
        (
            (drains.RECONNECTED, drains.LIMIT_OVER, drains.RESUMED, drains.SENDER_CHANGED, drains.ACCOUNT_NEWS),
            ("reconnected", "limit_over", "resumed", "sender_changed", "account_news"),
        ),
        (
            (guards.SUSPENDED, guards.SENDER_REMOVED, guards.CREDENTIALS_UNAVAILABLE, guards.PACED, guards.BUSY),
            ("suspended", "sender_removed", "credentials_unavailable", "paced", "busy"),
        ),
        ((tenants.CREDENTIAL_PREFIX, tenants.HANDLER_PREFIX), ("pombo-credential-", "pombo-handler-")),
        (events.OF_ACCOUNT, "of_account"),
        ((tasks.VERSION, tasks.READABLE), (2, (1, 2))),
        (tasks.KEY_FIELD, {record.Kind.INBOUND: "inbound_event_id", record.Kind.OUTBOUND: "outbound_key"}),
        (retention.UNKNOWN_SENDER_PAYLOAD_BYTES, 16_384),
        (retention.RAW_PAYLOAD_BYTES, 262_144),
        (record.ATTEMPTS_KEPT, 50),
        (identity.DOCTOR_KEY, "doctor"),
        (identity.sender_id("meta", "1"), "09f3954d0395338ffabf326bd7a4c5c9c6b1353a"),
        (identity.backend_id("https://example.com"), "44873a3aa7a9ef3397b65007caf758d506dad751"),
        (identity.backend_id("https://example.com", "acme"), "71a83047e2b631f7f52fb1e117e59d28243d27ac"),
        (identity.account_id("meta", "1"), "b5196a5b589b1ac792876fe5d5a70a1984598be4"),
        (identity.pace_id("meta", "1"), "83212c9c858f0c7f871616e282e00ec1ddea86e3"),
        (identity.credential_fingerprint("token"), "63204cc4fb66fda92c748eda3622b919206f4867"),
    ],
)
def test_stored_value_is_stable(word: object, stays: object) -> None:
    assert word == stays


@pytest.mark.parametrize(
    ("words", "stay"),
    [
        (
            dead_letters.ERRORS,
            "unparsable attempts error permanent in_doubt waited window refused unknown_sender",
        ),
        (message_kinds.DEFAULT_KINDS, "button text contacts order location media interactive"),
        (
            message_kinds.KINDS,
            "button text contacts order location media interactive revoke reaction edit unsupported system",
        ),
        (
            types.TYPES,
            "text image video audio document sticker location contacts interactive template reaction read typing",
        ),
        (calls.CALLS, "read typing"),
        (
            checks.OTHER_INTERACTIVE,
            "address_message call_permission_request carousel catalog_message flow location_request_message "
            "order_details order_status product product_list voice_call",
        ),
        (
            templates.COMPONENTS,
            "header body footer button carousel limited_time_offer order_status tap_target_configuration",
        ),
        (checks.HEADERS, "text image video document"),
        (checks.NAME_PARTS, "first_name last_name middle_name prefix suffix"),
    ],
)
def test_values_of_a_set_are_stable(words: Any, stay: str) -> None:
    assert set(stay.split()) <= set(words)


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        (verdicts.Replied, "replied"),
        (verdicts.Dropped, "dropped"),
        (verdicts.HandlerFailed, "handler_failed"),
        (verdicts.BackendDown, "backend_down"),
        (verdicts.StillUnparsable, "unparsable"),
        (verdicts.StillUnknown, "unknown_sender"),
        (verdicts.Accepted, "accepted"),
        (verdicts.Lost, "lost"),
        (verdicts.ProviderDown, "provider_down"),
        (verdicts.Retry, "retry"),
        (verdicts.Limited, "limited"),
        (verdicts.CredentialRefused, "credential_refused"),
        (verdicts.Blocked, "blocked"),
        (verdicts.Refused, "refused"),
        (verdicts.Downloaded, "downloaded"),
        (verdicts.Unobtainable, "unobtainable"),
        (verdicts.Released, "released"),
    ],
)
def test_verdict_label_in_the_attempts_is_stable(verdict: Any, word: str) -> None:
    assert verdict.label == word


@pytest.mark.parametrize(
    ("error", "code", "retryable", "scope", "alert"),
    [
        (errors.PomboError, "error", False, "us", False),
        (errors.StoreUnavailable, "store_unavailable", True, "us", False),
        (errors.QueueUnavailable, "queue_unavailable", True, "us", False),
        (errors.RegistryUnavailable, "registry_unavailable", True, "us", False),
        (errors.RegistryUnreadable, "registry_unreadable", True, "tenant", False),
        (errors.SecretsUnavailable, "secrets_unavailable", True, "us", False),
        (errors.CredentialsUnavailable, "credentials_unavailable", True, "us", False),
        (onboarding.OnboardingRefused, "onboarding_refused", False, "sender", False),
        (onboarding.OnboardingUnavailable, "onboarding_unavailable", True, "provider", False),
        (errors.CertificatesUnavailable, "certificates_unavailable", True, "us", False),
        (errors.UnknownState, "state_unknown", True, "us", False),
        (errors.Forbidden, "forbidden", False, "us", False),
        (errors.TaskInvalid, "task_invalid", False, "us", False),
        (errors.SignatureInvalid, "signature_invalid", False, "us", False),
        (errors.ItemUnparsable, "unparsable", False, "message", True),
        (send_errors.AnswerLost, "answer_lost", False, "message", False),
        (send_errors.OutageInSuccess, "outage_in_success", False, "message", False),
        (send_errors.ProviderUnavailable, "provider_unavailable", True, "provider", False),
        (send_errors.TryLater, "try_later", True, "message", False),
        (send_errors.LimitReached, "limited", True, "sender", False),
        (send_errors.CredentialInvalid, "credential_refused", True, "tenant", True),
        (send_errors.AccessDenied, "access_denied", True, "tenant", True),
        (send_errors.SenderBlocked, "sender_blocked", True, "sender", True),
        (send_errors.SendRefused, "refused", False, "message", True),
    ],
)
def test_fields_of_an_error_are_stable(error: Any, code: str, retryable: bool, scope: str, alert: bool) -> None:
    assert (error.code, error.retryable, error.scope, error.alert) == (code, retryable, scope, alert)


AT = "2026-03-01T12:00:00.000000+00:00"
MARKS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "down": (marks.Outage(NOW, timedelta(seconds=10), "t", "e"), {"until": AT, "wait": 10**7, "claim": "t", "by": "e"}),
    "block": (
        marks.Block(NOW, timedelta(seconds=600), 368, "t", True, True),
        {"until": AT, "wait": 6 * 10**8, "code": 368, "claim": "t", "by_receipt": True, "confirming": True},
    ),
    "refused": (
        marks.RefusedCredential("f", 190, NOW, NOW, "t"),
        {"fingerprint": "f", "code": 190, "since": AT, "until": AT, "claim": "t"},
    ),
    "credential": (marks.Credential("f", NOW, "p"), {"fingerprint": "f", "since": AT, "previous": "p"}),
    "receipt_block": (events.ReceiptBlock(368, NOW, "k"), {"code": 368, "at": AT, "key": "k"}),
    "disconnected": (marks.Disconnected("PARTNER_REMOVED", NOW), {"event": "PARTNER_REMOVED", "since": AT}),
    "bucket": (marks.Bucket(NOW), {"next": AT}),
    "limited": (RateLimit(NOW, timedelta(seconds=1)), {"until": AT, "wait": 10**6}),
}


@pytest.mark.parametrize("name", MARKS)
def test_names_in_a_stored_mark_are_stable(name: str) -> None:
    mark, plain = MARKS[name]
    assert changes(marks.Marks(), marks.Marks(**{name: mark})) == {name: plain}


def test_every_stored_mark_is_held_here() -> None:
    assert set(MARKS) == {field.name for field in fields(marks.Marks)} - {"version"}


# ---- the numbers of the protocol


def backoff(first: float, factor: int, longest: float) -> Backoff:
    return Backoff(timedelta(seconds=first), factor, timedelta(seconds=longest))


NUMBERS: Mapping[Any, Mapping[str, Any]] = {
    Limits(): {
        "max_attempts": 8,
        "handler_timeout": 60,
        "inbound_lease_margin": 30,
        "outbound_lease": 60,
        "begin_within": 30,
        "early": 0.1,
        "clock_margin": 4,
        "request_margin": 30,
        "dispatch_margin": 15,
        "marks_age": 5,
        "claim": 90,
        "request_budget": 90,
        "doubt_window": 300,
        "doubt_policy": limits.DoubtPolicy.RESEND,
        "max_doubts": 2,
        "order_patience": 600,
        "message_max_age": 86_400,
        "sweep_after": 600,
        "sweep_longest": 21_600,
        "sweep_budget": 45,
        "counters_flush": 60,
        "inbound_retention": 8 * 86_400,
        "outbound_retention": 35 * 86_400,
        "receipt_retention": 35 * 86_400,
        "max_replies": 30,
        "inbound_lease": 90,
        "dispatch_deadline": 135,
    },
    PostTimes(): {"connect": 3, "write": 3, "read": 6, "total": 20, "longest": 26},
    Waits(): {
        "retry": backoff(10, 2, 300),
        "throughput": backoff(1, 4, 32),
        "limited": backoff(60, 4, 200),
        "pair": backoff(1, 4, 256),
        "account": backoff(60, 2, 3600),
        "maintenance": 30,
        "minute": 60,
        "second": 1,
        "credential": 600,
        "replaced_credential": 1,
        "credentials_unavailable": 60,
        "suspended": 600,
        "pace_ahead": 600,
        "pace_late": 10,
        "block": backoff(600, 2, 21_600),
        "predecessor": backoff(0.3, 2, 38.4),
        "turn": backoff(1, 2, 32),
        "outage": backoff(10, 2, 300),
        "claimed": 15,
        "doubtful_trial": 60,
        "credential_probe": 7200,
        "confirmation": 60,
        "doubt": backoff(15, 2, 240),
        "busy": backoff(1, 2, 32),
        "reply_spacing": 1,
    },
}


@pytest.mark.parametrize(
    ("of", "name"), [(of, name) for of, numbers in NUMBERS.items() for name in numbers], ids=lambda x: str(x)[:20]
)
def test_number_of_the_protocol_is_stable(of: Any, name: str) -> None:
    stays, found = NUMBERS[of][name], getattr(of, name)
    assert (found.total_seconds() if isinstance(found, timedelta) else found) == stays


def test_every_number_of_the_protocol_is_held_here() -> None:
    for of, numbers in NUMBERS.items():
        assert {field.name for field in fields(of) if not is_dataclass(getattr(of, field.name))} <= (
            numbers.keys() | {"post", "waits"}
        )


# ---- what a record and a task are by default


def test_a_new_record_has_spent_and_waited_for_nothing() -> None:
    new = record.Delivery(
        key="k",
        kind=record.Kind.OUTBOUND,
        provider="meta",
        tenant="t",
        sender="s",
        contact="c",
        correlation_id="correlation-1",
        state=record.State.PENDING,
        received_at=NOW,
        payload={},
    )
    counted = ("attempt", "generation", "sweeps", "doubts", "throttled", "round")
    assert [getattr(new, name) for name in counted] == [0] * len(counted)
    assert (new.attempts_log, dict(new.receipts), dict(new.metadata)) == ((), {}, {})


SAYS_SOMETHING = {
    ("Tenant", "state"): tenants.TenantState.ACTIVE,
    ("Sender", "order"): tenants.Order.CONTACT,
    ("Pace", "burst"): 1,
    ("DrainTask", "reason"): drains.RECONNECTED,
    ("Conversation", "state"): ConversationState.OPEN,
    ("Thread", "is_ordered"): True,
    ("HandlerFailed", "origin"): verdicts.Origin(),
    ("Limit", "seen"): "November 2026",
    ("Limit", "confirmed"): True,
}


def test_only_listed_defaults_have_a_meaning() -> None:
    """No field of the domain has a default that means something, but those above; the limits are numbers, see there."""
    found = pkgutil.walk_packages(domain.__path__, "shared.domain.")
    modules = [importlib.import_module(module.name) for module in found]
    defaults = {
        (kind.__name__, field.name): field.default
        for module in modules
        if module is not limits
        for kind in vars(module).values()
        if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__
        for field in fields(kind)
        if field.default is not MISSING
    }
    assert len(defaults) > 150
    assert {field: default for field, default in defaults.items() if default} == SAYS_SOMETHING


def test_a_task_is_named_by_its_record_its_generation_and_its_hop() -> None:
    task = task_for(pending(), hop=3)
    assert task.name == "87e9db0dfba4a143503ec1e9f50661cfc46d8bd0"
    assert record.Task.of(pending()) == task_for(pending(), hop=0)


def test_a_record_is_never_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        dead().attempt = 5  # type: ignore[misc]


def test_lower_code_of_two_simultaneous_failures_stays_and_none_is_lowest() -> None:
    without, with_code = record.Receipts(failed=at(-5)), record.Receipts(failed=at(-5), failed_code=0)
    one = record.Receipts(failed=at(-5), failed_code=1)
    for code in (with_code, one):
        assert without.merged(code).failed_code is code.merged(without).failed_code is None
    assert with_code.merged(one).failed_code == one.merged(with_code).failed_code == 0
