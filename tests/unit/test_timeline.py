"""The timeline: one word for where a message is, and a sentence for everything that happened to it."""

import string
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest
from builders import (
    DELIVERED,
    FAILED,
    NOW,
    PLAYED,
    READ,
    SENT,
    STATES,
    at,
    dead,
    done,
    dropped,
    in_doubt,
    leased,
    pending,
)

from shared.domain.delivery import create
from shared.domain.identity import outbound_key
from shared.domain.limits import Limits
from shared.domain.record import Attempt, Delivery, Kind, Receipts, State
from shared.domain.verdicts import HandlerVerdict, Released, SendVerdict
from shared.pipeline.timeline import build, shown

NONE = Receipts()
POSITIVE = {"delivered": DELIVERED, "read": READ, "played": PLAYED}
SENT_FAILED = SENT.merged(FAILED)
DELIVERED_FAILED = DELIVERED.merged(FAILED)


def with_receipts(record: Delivery, receipts: Receipts, round_: int = 0) -> Delivery:
    return replace(record, receipts={round_: receipts})


def after(record: Delivery, answer: str, code: int | None = None) -> Delivery:
    """The record with that verdict as its last attempt."""
    return replace(record, attempts_log=(Attempt(at(-20), 1, "lost"), Attempt(at(-10), 2, answer, code)))


# ---- the word for the outside


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("pending", "received"),
        ("leased live", "processing"),
        ("leased expired", "processing"),
        ("done", "processed"),
        ("dropped", "ignored"),
        ("dead", "failed"),
    ],
)
def test_an_event_is_shown_by_its_state(name: str, word: str) -> None:
    assert shown(STATES[Kind.INBOUND][name]()) == (word, None)


OUTBOUND_WORDS: Mapping[str, Mapping[str, str]] = {
    "none": {"open": "pending", "done": "sent", "dropped": "failed", "dead": "failed"},
    "sent": {"open": "sent", "done": "sent", "dropped": "sent", "dead": "sent"},
    "failed": {"open": "failed", "done": "failed", "dropped": "failed", "dead": "failed"},
    "sent, failed": {"open": "failed", "done": "failed", "dropped": "failed", "dead": "failed"},
    "reached": {"open": "sent", "done": "sent", "dropped": "sent", "dead": "sent"},
}
"""Rows: the receipts of its round; columns: its state."""

RECEIPTS = {
    "none": [NONE],
    "sent": [SENT],
    "failed": [FAILED],
    "sent, failed": [SENT_FAILED],
    "reached": [*POSITIVE.values(), DELIVERED_FAILED],
}


@pytest.mark.parametrize("name", list(STATES[Kind.OUTBOUND]))
@pytest.mark.parametrize("row", list(OUTBOUND_WORDS))
def test_a_message_is_shown_by_its_receipts_and_then_by_its_state(row: str, name: str) -> None:
    record = STATES[Kind.OUTBOUND][name]()
    column = record.state if record.final else "open"
    for receipts in RECEIPTS[row]:
        assert shown(with_receipts(record, receipts))[0] == OUTBOUND_WORDS[row][column]


@pytest.mark.parametrize("receipts", [SENT, DELIVERED, FAILED])
def test_a_receipt_of_an_earlier_round_says_nothing_of_this_one(receipts: Receipts) -> None:
    record = replace(with_receipts(pending(), receipts, round_=0), round=1)
    assert shown(record) == ("pending", "waiting")


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (pending(), "waiting"),
        (leased(), "waiting"),
        (in_doubt(), "in_doubt"),
        (after(in_doubt(), "limited"), "in_doubt"),
        (after(pending(), "limited"), "limited"),
        (after(pending(), "blocked"), "blocked"),
        (after(pending(), "credential_refused"), "WHATSAPP_REAUTH_REQUIRED"),
        (after(pending(), "retry"), "waiting"),
        (after(pending(), "provider_down"), "waiting"),
    ],
)
def test_a_message_that_waits_says_why(record: Delivery, why: str) -> None:
    assert shown(record) == ("pending", why)


@pytest.mark.parametrize("record", [done(), dead(), dropped(), with_receipts(pending(), SENT)])
def test_only_what_waits_says_why(record: Delivery) -> None:
    assert shown(after(record, "limited"))[1] is None


# ---- sentences

HANDLER_WORDS = sorted({verdict.word for verdict in get_args(HandlerVerdict)} - {Released.word})
SEND_WORDS = sorted({verdict.word for verdict in get_args(SendVerdict)} - {Released.word})
DEAD_REASONS = ["unparsable", "attempts", "error", "permanent", "in_doubt", "waited", "window"]
DROP_REASONS = ["unknown_sender", "opt_out", "discarded", "the team's own reason"]


def is_a_sentence(text: str) -> bool:
    return text[0] in string.ascii_uppercase and text[-1] in ".)" and " " in text and "{" not in text


def sentences(*records: Delivery, lines: tuple[Mapping[str, Any], ...] = ()) -> dict[str, str]:
    return {moment.what: moment.sentence for moment in build(records, lines).events}


@pytest.mark.parametrize("word", HANDLER_WORDS)
def test_every_verdict_on_an_event_has_its_sentence(word: str) -> None:
    assert is_a_sentence(sentences(after(pending(Kind.INBOUND), word))[word])


@pytest.mark.parametrize("word", SEND_WORDS)
def test_every_verdict_on_a_message_has_its_sentence(word: str) -> None:
    said = sentences(after(pending(), word, code=131026))[word]
    assert is_a_sentence(said)
    assert said.endswith(" Code 131026.")


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("reason", DEAD_REASONS)
def test_every_reason_to_be_dead_has_its_sentence(kind: Kind, reason: str) -> None:
    said = sentences(dead(kind, reason=reason))["dead"]
    assert is_a_sentence(said)
    assert said != reason


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("reason", DROP_REASONS)
def test_every_reason_to_be_dropped_is_told(kind: Kind, reason: str) -> None:
    assert is_a_sentence(sentences(dropped(kind, reason=reason))["dropped"])


@pytest.mark.parametrize("kind", ["sent", "delivered", "read", "played", "failed"])
def test_every_receipt_has_its_sentence(kind: str) -> None:
    record = with_receipts(done(), Receipts(**{kind: at(-5)}, failed_code=131026 if kind == "failed" else None))
    said = sentences(record)[f"receipt_{kind}"]
    assert is_a_sentence(said)
    assert said.endswith("Code 131026.") is (kind == "failed")


def test_a_receipt_of_a_later_round_says_which() -> None:
    record = replace(with_receipts(done(), SENT, round_=2), round=2)
    assert sentences(record)["receipt_sent"] == "WhatsApp confirms that it was sent. (round 2)"


def test_a_failed_handler_is_quoted_at_its_last_try_alone() -> None:
    record = replace(
        pending(Kind.INBOUND),
        last_error="LookupError: no such customer",
        attempts_log=(Attempt(at(-20), 1, "handler_failed"), Attempt(at(-10), 2, "handler_failed")),
    )
    said = [moment.sentence for moment in build([record]).events if moment.what == "handler_failed"]
    assert said == ["The handler failed (try 1).", "The handler failed (try 2). LookupError: no such customer"]


def test_a_message_that_a_receipt_alone_proves_says_so() -> None:
    assert is_a_sentence(sentences(after(done(), "lost"))["done"])
    assert "done" not in sentences(after(done(), "accepted"))


@pytest.mark.parametrize(("size", "said"), [(0, "there is nothing to answer"), (2, "2 to send")])
def test_an_event_that_was_handled_says_how_much_there_is_to_send(size: int, said: str) -> None:
    assert said in sentences(done(Kind.INBOUND, plan_size=size))["done"]


# ---- the whole

EVENT = replace(done(Kind.INBOUND), key="0e" * 20, finished_at=at(-40), plan_size=2)


def reply(index: int, **changes: Any) -> Delivery:
    record = create(
        Kind.OUTBOUND,
        outbound_key(EVENT.key, index),
        provider="meta",
        tenant="default",
        sender=EVENT.sender,
        contact=EVENT.contact,
        correlation_id=EVENT.correlation_id,
        payload={"type": "text", "content": {"body": f"reply {index}"}, "to": "+15550002222"},
        limits=Limits(),
        now=at(-40),
    )
    return replace(record, **changes)


def test_a_timeline_tells_all_in_the_order_in_which_it_happened() -> None:
    first = reply(0, state=State.DONE, attempts_log=(Attempt(at(-30), 1, "accepted"),), receipts={0: SENT})
    timeline = build([EVENT, first, reply(1)])
    assert [(moment.what, moment.delivery) for moment in timeline.events] == [
        ("received", EVENT.key),
        ("done", EVENT.key),
        ("planned", first.key),
        ("planned", reply(1).key),
        ("accepted", first.key),
        ("receipt_sent", first.key),
    ]
    assert (timeline.correlation_id, timeline.shown) == (EVENT.correlation_id, "processed")
    assert [(r.key, r.type, r.text, r.shown, r.why) for r in timeline.replies] == [
        (first.key, "text", "reply 0", "sent", None),
        (reply(1).key, "text", "reply 1", "pending", "waiting"),
    ]


def test_the_replies_are_numbered() -> None:
    planned = [m.sentence for m in build([EVENT, reply(0), reply(1)]).events if m.what == "planned"]
    assert planned == ["Reply 1 of 2 was planned.", "Reply 2 of 2 was planned."]


def test_a_timeline_is_settled_once_all_of_it_is_final() -> None:
    assert not build([EVENT, reply(0)]).settled
    assert build([EVENT, reply(0, state=State.DONE)]).settled
    assert build([EVENT]).settled
    assert not build([pending(Kind.INBOUND)]).settled


@pytest.mark.parametrize(
    "payload", [{}, {"type": "image", "content": {"id": "1"}}, {"content": "odd"}, {"content": []}]
)
def test_a_reply_without_a_text_has_none(payload: Mapping[str, Any]) -> None:
    (found,) = build([EVENT, reply(0, payload=payload)]).replies
    assert found.text is None


# ---- what leaves no write comes from the log


def line(**fields: Any) -> dict[str, Any]:
    return {"time": NOW.isoformat().replace("+00:00", "Z"), **fields}


@pytest.mark.parametrize("reason", ["predecessor", "blocked", "WHATSAPP_REAUTH_REQUIRED", None, "something newer"])
def test_waiting_is_told_from_the_log(reason: str | None) -> None:
    said = sentences(pending(), lines=(line(event="outbound_waiting", delivery="0f" * 20, reason=reason),))
    assert is_a_sentence(said["waiting"])


def test_a_duplicate_is_told_from_the_log() -> None:
    timeline = build([EVENT], [line(event="inbound_duplicate", inbound_event_id=EVENT.key)])
    (moment,) = [moment for moment in timeline.events if moment.what == "duplicate"]
    assert (moment.at, moment.delivery, moment.sentence) == (NOW, EVENT.key, "It came again; nothing was done twice.")


def test_other_lines_are_no_part_of_the_timeline() -> None:
    assert build([EVENT], [line(event="outbound_sent")]) == build([EVENT])
