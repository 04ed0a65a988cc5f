"""The timeline: one word for where a message is, and a sentence for everything that happened to it."""

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, get_args

import pytest

from shared.domain.delivery.create import create
from shared.domain.delivery.operator import cancel, discard, replay
from shared.domain.identity import DOCTOR_KEY, outbound_key
from shared.domain.limits import Limits
from shared.domain.record import Attempt, Delivery, Kind, Receipts, State
from shared.domain.verdicts import HandlerVerdict, Released, SendVerdict
from shared.operations.timeline.build import Timeline, build, from_log_lines, shown
from shared.operations.timeline.sentences import RECEIVED, waited
from tests.support.builders import (
    DELIVERED,
    FAILED,
    NOW,
    OTHERS,
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

NONE = Receipts()
POSITIVE = {"delivered": DELIVERED, "read": READ, "played": PLAYED}
SENT_FAILED = SENT.merged(FAILED)
DELIVERED_FAILED = DELIVERED.merged(FAILED)
UNTIL_RECEIPT = "Waiting for a delivery receipt until 12:03:20 UTC before deciding whether to resend."


def with_receipts(record: Delivery, receipts: Receipts, round_: int = 0) -> Delivery:
    return replace(record, receipts={round_: receipts})


def after(record: Delivery, answer: str, code: int | None = None) -> Delivery:
    """The record with that verdict as its last attempt."""
    return replace(record, attempts_log=(Attempt(at(-20), 1, "lost"), Attempt(at(-10), 2, answer, code)))


# ---- a message that answers no event


def test_message_without_an_event_has_its_own_timeline() -> None:
    """As one that an API or a schedule stores."""
    attempts = (Attempt(at(1), 1, "accepted", provider_id="id.1"),)
    record = done(payload={"type": "text", "content": {"body": "hello"}}, attempts_log=attempts, received_at=NOW)
    timeline = build([record])
    assert next(moment.sentence for moment in timeline.events) == "Accepted for sending."
    assert (timeline.shown, timeline.settled, timeline.answered) == ("sent", True, True)
    assert [(reply.key, reply.text, reply.shown) for reply in timeline.replies] == [(record.key, "hello", "sent")]


def test_a_message_without_an_event_that_waits_or_failed_is_shown_so() -> None:
    for record, word in ((pending(), "pending"), (dead(), "failed")):
        timeline = build([record])
        assert (timeline.shown, timeline.answered) == (word, False)


def test_message_for_a_later_time_says_when_it_is_sent() -> None:
    def said(send_at: datetime) -> str:
        return build([pending(received_at=NOW, send_at=send_at)]).events[0].sentence

    assert said(at(3600)) == "Accepted for sending. To be sent at 13:00:00 UTC."
    assert said(at(24 * 3600)).endswith(f"To be sent at {at(24 * 3600):%Y-%m-%d} 12:00:00 UTC.")


def test_cancelled_message_is_shown_so_and_its_last_sentence_says_so() -> None:
    cancelled = cancel(pending(received_at=NOW), Limits(), at(5)).write
    assert cancelled is not None
    timeline = build([cancelled])
    assert (timeline.shown, timeline.settled) == ("cancelled", True)
    assert timeline.events[-1].sentence == "Cancelled before it was sent. It will not be sent."


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
def test_receipt_of_an_earlier_round_does_not_count_for_this_one(receipts: Receipts) -> None:
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
        (after(pending(), "provider_down"), "provider_down"),
    ],
)
def test_waiting_message_has_its_reason(record: Delivery, why: str) -> None:
    assert shown(record) == ("pending", why)


@pytest.mark.parametrize("record", [done(), dead(), dropped(), with_receipts(pending(), SENT)])
def test_only_a_waiting_message_has_a_reason(record: Delivery) -> None:
    assert shown(after(record, "limited"))[1] is None


# ---- sentences

HANDLER_WORDS = sorted({verdict.label for verdict in get_args(HandlerVerdict)} - {Released.label})
SEND_WORDS = sorted({verdict.label for verdict in get_args(SendVerdict)} - {Released.label})
DEAD_REASONS = ["unparsable", "attempts", "error", "permanent", "in_doubt", "waited", "window", "invalid"]
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
    assert re.search(r"code 131026(, round \d)?\)$", said)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("reason", DEAD_REASONS)
def test_every_reason_to_be_dead_has_its_sentence(kind: Kind, reason: str) -> None:
    said = sentences(dead(kind, reason=reason))["dead"]
    assert is_a_sentence(said)
    assert said != reason


def test_unsendable_reply_has_its_reason_and_advice() -> None:
    record = dead(reason="invalid", attempt=0, last_error="The text of a message is empty.")
    assert sentences(record)["dead"] == (
        "Cannot be sent: The text of a message is empty. Moved to dead letters. Correct the handler; "
        "`pombo dead discard` discards this reply."
    )
    (reply,) = build([record]).replies
    assert (reply.shown, reply.why) == ("failed", None)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("reason", DROP_REASONS)
def test_every_drop_reason_has_its_sentence(kind: Kind, reason: str) -> None:
    what = "discarded" if reason == "discarded" else "dropped"
    assert is_a_sentence(sentences(dropped(kind, reason=reason))[what])


@pytest.mark.parametrize("kind", list(Kind))
def test_discarded_record_has_its_reason_and_its_earlier_dead_letter(kind: Kind) -> None:
    before = dead(kind, reason="attempts", finished_at=at(-20))
    given_up = discard(before, Limits(), NOW, "a wrong number.").write
    assert given_up is not None
    died = line(event="dead_lettered", delivery=before.key, reason="attempts") | {"time": at(-20).isoformat()}
    dead_then, discarded = build([given_up], [died]).events[-2:]
    assert (dead_then.what, discarded.what) == ("dead", "discarded")
    assert discarded.sentence == "An operator discarded it: a wrong number."


def test_discarded_invalid_reply_still_has_its_reason() -> None:
    before = dead(
        Kind.OUTBOUND, reason="invalid", payload={"type": "invalid", "given": None}, last_error="It is empty."
    )
    given_up = discard(before, Limits(), NOW, "our fault").write
    assert given_up is not None
    assert build([given_up]).events[-1].sentence == "Cannot be sent: It is empty. An operator discarded it: our fault."


@pytest.mark.parametrize("kind", ["sent", "delivered", "read", "played", "failed"])
def test_every_receipt_has_its_sentence(kind: str) -> None:
    record = with_receipts(done(), Receipts(**{kind: at(-5)}, failed_code=131026 if kind == "failed" else None))
    said = sentences(record)[f"receipt_{kind}"]
    assert is_a_sentence(said)
    assert said.endswith("(code 131026)") is (kind == "failed")


def test_receipt_of_a_later_round_names_its_round() -> None:
    record = replace(with_receipts(done(), SENT, round_=2), round=2)
    assert sentences(record)["receipt_sent"] == "WhatsApp confirmed that it was sent. (round 2)"


def failed(seconds: float, number: int, error: str, where: str | None = None, function: str | None = None) -> Attempt:
    """A try of a handler that failed; `where` it did."""
    type_ = error.partition(":")[0] if where else None
    return Attempt(at(seconds), number, "handler_failed", error=error, error_type=type_, place=where, function=function)


def failures(record: Delivery) -> list[str]:
    return [one.sentence for one in build([record]).events if one.what in ("handler_failed", "backend_down")]


def test_each_failed_attempt_has_its_reason_and_the_last_in_full() -> None:
    record = replace(
        pending(Kind.INBOUND),
        last_error="KeyError: 'monday', and the rest of a long story",
        attempts_log=(
            failed(-30, 1, "LookupError: no such customer", "handlers/mine.py:14", "book"),
            failed(-20, 2, "ValueError: x", "handlers/mine.py:7"),
            failed(-15, 3, "The handler took longer than 60 s."),
            failed(-10, 4, "KeyError: 'monday', and…", "handlers/mine.py:21", "Day.of"),
        ),
    )
    assert failures(record) == [
        "The handler failed at handlers/mine.py:14 in book: LookupError: no such customer. (attempt 1)",
        "The handler failed at handlers/mine.py:7: ValueError: x. (attempt 2)",
        "The handler failed: The handler took longer than 60 s. (attempt 3)",
        "The handler failed at handlers/mine.py:21 in Day.of: KeyError: 'monday', and the rest of a long story. "
        "Next attempt at 11:59:00 UTC. (attempt 4)",
    ]


def test_every_backend_outage_has_its_own_reason() -> None:
    log = tuple(
        Attempt(at(-20 + n), 1, "backend_down", error=f"The backend answered {status}.")
        for n, status in enumerate((502, 503))
    )
    record = replace(pending(Kind.INBOUND), last_error="The backend answered 503.", attempts_log=log)
    assert failures(record) == [
        "The backend answered 502. This attempt does not count.",
        "The backend answered 503. This attempt does not count. Next attempt at 11:59:00 UTC.",
    ]


def test_attempts_of_an_older_version_have_only_the_last_reason() -> None:
    record = replace(
        pending(Kind.INBOUND),
        last_error="LookupError: no such customer",
        attempts_log=(Attempt(at(-20), 1, "handler_failed"), Attempt(at(-10), 2, "handler_failed")),
    )
    assert failures(record) == [
        "The handler failed. (attempt 1)",
        "The handler failed: LookupError: no such customer. Next attempt at 11:59:00 UTC. (attempt 2)",
    ]


@pytest.mark.parametrize("next_try", ["started", "replied"])
def test_handler_error_stays_visible_after_a_retry(next_try: str) -> None:
    tried = (Attempt(at(-20), 1, "handler_failed"), Attempt(at(-10), 2, next_try))
    record = replace(pending(Kind.INBOUND), last_error="LookupError: no such customer", attempts_log=tried)
    said = [moment.sentence for moment in build([record]).events if moment.what == "handler_failed"]
    assert said == ["The handler failed: LookupError: no such customer. (attempt 1)"]


def test_message_proved_by_a_receipt_alone_is_explained() -> None:
    assert is_a_sentence(sentences(after(done(), "lost"))["done"])
    assert "done" not in sentences(after(done(), "accepted"))


@pytest.mark.parametrize(("size", "said"), [(0, "no reply to send"), (1, "1 reply to send"), (2, "2 replies to send")])
def test_handled_event_has_the_number_of_its_replies(size: int, said: str) -> None:
    assert said in sentences(done(Kind.INBOUND, plan_size=size))["done"]


def test_missing_reply_and_event_without_handler_are_distinguished() -> None:
    log = (Attempt(at(-40), 1, "replied"),)
    message = done(Kind.INBOUND, plan_size=0, attempts_log=log, payload={"item": {}})
    change = done(Kind.INBOUND, plan_size=0, attempts_log=log, payload={"field": "flows", "value": {}})
    no_reply = "No reply: the handler returned none, or it is not called for this kind of message."
    assert sentences(message)["replied"] == no_reply
    assert sentences(change)["replied"] == "Parsed. No handler is called for this kind of event."


# ---- the whole

EVENT = replace(
    done(Kind.INBOUND),
    key="0e" * 20,
    started_at=at(-45),
    attempts_log=(Attempt(at(-40), 1, "replied"),),
    finished_at=at(-40),
    plan_size=2,
)


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


def test_timeline_is_in_order_of_time() -> None:
    first = reply(0, state=State.DONE, attempts_log=(Attempt(at(-30), 1, "accepted"),), receipts={0: SENT})
    timeline = build([EVENT, first, reply(1)])
    assert [(moment.what, moment.delivery) for moment in timeline.events] == [
        ("received", EVENT.key),
        ("replied", EVENT.key),
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
    assert planned == ["Planned as reply 1 of 2.", "Planned as reply 2 of 2."]


def test_timeline_is_settled_when_every_record_is_final() -> None:
    assert not build([EVENT, reply(0)]).settled
    assert build([EVENT, reply(0, state=State.DONE)]).settled
    assert build([EVENT]).settled
    assert not build([pending(Kind.INBOUND)]).settled


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"type": "text", "content": {"body": "hello"}}, "hello"),
        ({"type": "interactive", "content": {"type": "button", "body": {"text": "Shall we?"}}}, "Shall we?"),
        ({"type": "image", "content": {"link": "https://example.com/a.png", "caption": "Today"}}, "Today"),
        ({"type": "reaction", "content": {"message_id": "m", "emoji": "👍"}}, "👍"),
    ],
)
def test_reply_text_is_what_the_customer_reads(payload: Mapping[str, Any], text: str) -> None:
    record = replace(done(), payload=payload)
    assert build([record]).replies[0].text == text


def test_receipt_in_the_second_of_the_send_follows_it() -> None:
    """WhatsApp's clock counts whole seconds."""
    lost = replace(in_doubt(), attempts_log=(Attempt(at(-5.2), 1, "lost"),), receipts={0: Receipts(sent=at(-6))})
    told = {moment.what: moment.at for moment in build([lost]).events}
    assert [what for what in told if what in ("lost", "receipt_sent")] == ["lost", "receipt_sent"]
    assert told["receipt_sent"] == told["lost"] == at(-5.2)


@pytest.mark.parametrize("answer", ["lost", "accepted"])
def test_a_receipt_that_was_quicker_than_the_answer_stands_at_its_own_time(answer: str) -> None:
    quick = replace(in_doubt(), attempts_log=(Attempt(at(-5), 1, answer),), receipts={0: Receipts(sent=at(-6))})
    told = {moment.what: moment.at for moment in build([quick]).events}
    assert [what for what in told if what in (answer, "receipt_sent")] == ["receipt_sent", answer]
    assert told["receipt_sent"] == at(-6)


def test_a_receipt_of_a_clock_with_parts_of_seconds_is_not_moved() -> None:
    precise = replace(done(), attempts_log=(Attempt(at(-5.2), 1, "accepted"),), receipts={0: Receipts(sent=at(-5.4))})
    told = {moment.what: moment.at for moment in build([precise]).events}
    assert told["receipt_sent"] == at(-5.4)


def test_receipt_is_not_shown_before_its_send_began() -> None:
    """The send began at 54.4 and its answer was lost six seconds later; the receipt says 54."""
    record = replace(in_doubt(), started_at=at(-5.6), attempts_log=(Attempt(at(0.4), 1, "lost"),))
    told = {moment.what: moment.at for moment in build([replace(record, receipts={0: Receipts(sent=at(-6))})]).events}
    assert told["receipt_sent"] == at(-5.6)
    planned = replace(record, started_at=None, received_at=at(-5.8))
    told = {moment.what: moment.at for moment in build([replace(planned, receipts={0: Receipts(sent=at(-6))})]).events}
    assert told["receipt_sent"] == told["planned"] == at(-5.8)


def test_later_receipts_stand_at_their_own_times() -> None:
    receipts = Receipts(sent=at(-5), delivered=at(-3), read=at(20))
    record = replace(done(), attempts_log=(Attempt(at(-4.7), 1, "accepted"),), receipts={0: receipts})
    told = {moment.what: moment.at for moment in build([record]).events}
    assert [told[f"receipt_{kind}"] for kind in ("sent", "delivered", "read")] == [at(-4.7), at(-3), at(20)]


@pytest.mark.parametrize(
    "payload", [{}, {"type": "image", "content": {"id": "1"}}, {"content": "odd"}, {"content": []}]
)
def test_a_reply_without_a_text_has_none(payload: Mapping[str, Any]) -> None:
    (found,) = build([EVENT, reply(0, payload=payload)]).replies
    assert found.text is None


# ---- what comes next


def what(timeline: Timeline) -> list[str]:
    return [moment.what for moment in timeline.events]


def tried(*answers: str, **changes: Any) -> Delivery:
    """A reply that waits after these tries, ten seconds apart; those that do not count keep the number."""
    number, log = 1, []
    for index, answer in enumerate(answers):
        log.append(Attempt(at(10 * index), number, answer))
        number += not answer.startswith(("limited", "blocked", "credential_", "provider_down", "backend_down"))
    fields = {"attempts_log": tuple(log), "attempt": number - 1, "due_at": at(300), "token": OTHERS}
    return pending(**(fields | changes))


@pytest.mark.parametrize("answer", ["retry", "limited", "credential_refused", "credential_replaced", "provider_down"])
def test_retry_has_its_time(answer: str) -> None:
    assert "Next attempt at 12:05:00 UTC." in sentences(tried(answer))[answer]


def test_attempt_in_an_outage_does_not_count_and_has_no_number() -> None:
    record = tried("provider_down", "provider_down", "accepted", state=State.DONE, finished_at=at(20))
    events = build([record]).events
    assert [moment.what for moment in events] == ["planned", "provider_down", "provider_down", "accepted"], (
        "none cut off"
    )
    for moment in events[1:3]:
        assert moment.sentence.endswith("This attempt does not count.")
    assert "attempt 2" in sentences(tried("provider_down", "retry", "provider_down", "retry"))["retry"]


@pytest.mark.parametrize("answer", ["limited", "blocked", "credential_refused", "credential_replaced"])
def test_attempt_that_was_cut_off_after_one_that_does_not_count_is_told(answer: str) -> None:
    log = (Attempt(at(0), 1, answer), Attempt(at(20), 2, "accepted"))
    record = pending(attempts_log=log, attempt=2, state=State.DONE, finished_at=at(20))
    assert what(build([record]))[:3] == ["planned", answer, "in_doubt"]


def test_call_to_a_backend_that_is_down_does_not_count_and_has_its_next_time() -> None:
    log = (Attempt(at(0), 1, "backend_down"), Attempt(at(10), 1, "backend_down"))
    record = pending(Kind.INBOUND, attempts_log=log, attempt=0, due_at=at(300), token=OTHERS)
    first, last = [moment.sentence for moment in build([record]).events if moment.what == "backend_down"]
    assert first.endswith("This attempt does not count.")
    assert last.endswith("This attempt does not count. Next attempt at 12:05:00 UTC.")
    done_then = replace(record, attempts_log=(*log, Attempt(at(20), 1, "replied")), state=State.DONE, plan_size=0)
    assert "cut_off" not in what(build([done_then]))


@pytest.mark.parametrize(
    ("kind", "answer", "told"),
    [
        (Kind.OUTBOUND, "provider_down", ["in_doubt", "resent", "accepted"]),
        (Kind.INBOUND, "backend_down", ["cut_off", "accepted"]),
    ],
)
def test_attempt_cut_off_after_an_outage_is_shown_by_its_number(kind: Kind, answer: str, told: list[str]) -> None:
    log = (Attempt(at(0), 1, answer), Attempt(at(99), 2, "accepted"))
    record = replace(pending(kind), attempts_log=log, state=State.DONE, plan_size=1)
    assert what(build([record]))[1:4] == [answer, *told][:3]


def test_cut_off_attempt_of_a_replay_is_shown_with_its_round() -> None:
    log = (Attempt(at(0), 1, "provider_down", round=2), Attempt(at(99), 2, "accepted", round=2))
    record = replace(pending(Kind.OUTBOUND), attempts_log=log, state=State.DONE, round=2)
    said = [moment.sentence for moment in build([record]).events if moment.what == "in_doubt"]
    assert len(said) == 1
    assert "round 2" in said[0]


@pytest.mark.parametrize("later", [(), ("handler_failed",)])
def test_a_failed_handler_is_not_quoted_with_the_error_of_an_outage(later: tuple[str, ...]) -> None:
    answers = ("handler_failed", "backend_down", *later, "backend_down")
    log = tuple(Attempt(at(-40 + 10 * n), 1, answer) for n, answer in enumerate(answers))
    record = replace(pending(Kind.INBOUND), last_error="The backend answered 503.", attempts_log=log)
    said = [moment.sentence for moment in build([record]).events if moment.what == "handler_failed"]
    assert not any("503" in sentence for sentence in said)
    outages = [moment.sentence for moment in build([record]).events if moment.what == "backend_down"]
    assert ["The backend answered 503." in sentence for sentence in outages] == [False, True]
    assert all("This attempt does not count." in sentence for sentence in outages)


def test_blocked_message_has_its_end() -> None:
    assert "Waiting until 12:05:00 UTC." in sentences(tried("blocked"))["blocked"]


def test_wait_until_another_day_has_its_date() -> None:
    assert "Waiting until 2026-03-02 12:00:00 UTC." in sentences(tried("blocked", due_at=at(86400)))["blocked"]


def test_message_in_doubt_has_the_end_of_its_wait_for_a_receipt() -> None:
    record = tried("lost", state=State.IN_DOUBT, doubt_until=at(200))
    assert sentences(record)["lost"].endswith(f"{UNTIL_RECEIPT} (attempt 1)")


def test_only_the_last_attempt_announces_the_next() -> None:
    said = [moment.sentence for moment in build([tried("retry", "retry")]).events if moment.what == "retry"]
    assert ["Next attempt" in sentence for sentence in said] == [False, True]


@pytest.mark.parametrize("state", [State.DONE, State.DEAD, State.DROPPED, State.LEASED])
def test_finished_or_running_record_announces_no_next_attempt(state: State) -> None:
    assert "Next attempt at" not in sentences(tried("retry", state=state, finished_at=at(60)))["retry"]


# ---- codes


def explain(provider: str, code: int, answer: str) -> str | None:
    return {131047: "Meta refused it: the customer's last message is more than 24 hours old."}.get(code)


def test_known_code_has_its_own_sentence() -> None:
    record = after(dead(reason="permanent"), "refused", code=131047)
    (said,) = [moment.sentence for moment in build([record], explain=explain).events if moment.what == "refused"]
    assert said == "Meta refused it: the customer's last message is more than 24 hours old. (code 131047)"


def test_unknown_code_has_the_sentence_of_its_verdict() -> None:
    record = after(dead(reason="permanent"), "refused", code=999)
    (said,) = [moment.sentence for moment in build([record], explain=explain).events if moment.what == "refused"]
    assert said == "WhatsApp rejected it permanently. (code 999)"


def test_a_failed_receipt_explains_its_code() -> None:
    record = with_receipts(after(done(), "accepted"), Receipts(failed=at(5), failed_code=131047))
    said = {moment.what: moment.sentence for moment in build([record], explain=explain).events}["receipt_failed"]
    assert said == (
        "Accepted by WhatsApp, but not delivered. "
        "Meta refused it: the customer's last message is more than 24 hours old. "
        "`pombo dead replay` retries it. (code 131047)"
    )


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (done(), "`pombo dead replay` retries it."),
        (done(doubts=1), "A copy may have arrived; `pombo dead replay --may-double` resends it."),
        (pending(), None),
    ],
    ids=["refused", "refused after a doubt", "not yet at its end"],
)
def test_late_refusal_has_advice(record: Delivery, said: str | None) -> None:
    told = sentences(with_receipts(record, SENT_FAILED))["receipt_failed"]
    assert (said in told) if said else ("again" not in told)


def test_refusal_in_an_earlier_round_or_after_delivery_offers_no_replay() -> None:
    assert "again" not in sentences(with_receipts(done(), DELIVERED_FAILED))["receipt_failed"]
    assert "again" not in sentences(with_receipts(done(round=1), FAILED))["receipt_failed"]


# ---- tries that left no verdict, and rounds


def test_resend_after_a_doubt_is_shown_before_the_attempt() -> None:
    record = tried("lost", "accepted", state=State.DONE, started_at=at(8), finished_at=at(10))
    assert what(build([record])) == ["planned", "lost", "resent", "accepted"]
    assert [moment.at for moment in build([record]).events][2] == at(8)


def test_expired_attempt_without_an_entry_in_the_log_is_shown() -> None:
    record = replace(in_doubt(), attempts_log=())
    assert what(build([record])) == ["planned", "in_doubt"]
    assert UNTIL_RECEIPT in sentences(record)["in_doubt"]


def test_attempt_known_by_number_alone_has_the_time_of_the_log() -> None:
    record = done(attempts_log=(Attempt(at(100), 2, "accepted"),), started_at=at(99))
    found = line(event="outbound_in_doubt", delivery=record.key, reason="lease_expired", hop=0)
    events = build([record], [found]).events
    assert [(moment.what, moment.at) for moment in events if moment.what != "waiting"] == [
        ("planned", at(-60)),
        ("in_doubt", NOW),
        ("resent", at(99)),
        ("accepted", at(100)),
    ]


def test_attempt_known_by_number_alone_precedes_the_next_without_a_log() -> None:
    record = done(attempts_log=(Attempt(at(100), 2, "accepted"),), started_at=at(99))
    assert what(build([record])) == ["planned", "in_doubt", "resent", "accepted"]


def test_cut_off_handler_is_shown() -> None:
    record = done(Kind.INBOUND, attempts_log=(Attempt(at(100), 2, "replied"),), started_at=at(99), finished_at=at(100))
    assert what(build([record])) == ["received", "cut_off", "replied", "done"]
    assert what(build([dead(Kind.INBOUND, attempt=1)])) == ["received", "cut_off", "dead"]


@pytest.mark.parametrize("kind", list(Kind))
def test_running_and_released_attempts_are_shown(kind: Kind) -> None:
    put_back = pending(kind, token=None, started_at=at(-30))
    assert what(build([leased(kind)]))[-1] == "started"
    assert what(build([put_back]))[-1] == "put_back"
    assert is_a_sentence(sentences(put_back)["put_back"])


def test_repeated_call_is_not_a_resend() -> None:
    record = replace(tried("retry", "accepted"), payload={"type": "read", "content": {}}, state=State.DONE)
    assert "resent" not in what(build([record]))
    cut_off = replace(leased(), state=State.PENDING, payload={"type": "read", "content": {}})
    assert what(build([cut_off])) == ["planned", "cut_off"]


def replayed(*log: Attempt, **changes: Any) -> Delivery:
    return pending(**({"round": 1, "attempts_log": log, "attempt": 1, "token": OTHERS} | changes))


def test_attempts_of_another_round_are_separated() -> None:
    log = (Attempt(NOW, 1, "refused"), Attempt(at(60), 1, "accepted", round=1))
    record = replayed(*log, state=State.DONE, finished_at=at(60))
    events = build([record]).events
    assert [moment.what for moment in events] == ["planned", "refused", "replayed", "accepted"]
    assert events[2].sentence == "An operator replayed it (round 1)."
    assert events[3].sentence.endswith("(round 1)")
    assert "round" not in events[1].sentence


def test_replay_that_has_not_begun_is_shown() -> None:
    record = replayed(Attempt(NOW, 1, "refused"), attempt=0, due_at=at(60), started_at=at(-1))
    assert [(moment.what, moment.at) for moment in build([record]).events][1:] == [
        ("refused", NOW),
        ("replayed", at(60)),
    ]


def test_log_has_the_time_when_an_operator_began_a_round() -> None:
    """What it waited for since comes after it; a killed command may have said it twice."""
    record = replayed(Attempt(NOW, 1, "refused"), attempt=0, due_at=at(60))
    said = [line(event="replayed", delivery=record.key, round=1) | {"time": at(n).isoformat()} for n in (20, 25)]
    waits = line(event="outbound_waiting", delivery=record.key, reason="predecessor") | {"time": at(30).isoformat()}
    assert [(moment.what, moment.at) for moment in build([record], [*said, waits]).events][1:] == [
        ("refused", NOW),
        ("replayed", at(20)),
        ("waiting", at(30)),
    ]


def test_replay_of_a_record_without_earlier_attempts_is_shown() -> None:
    record = replayed(Attempt(at(60), 1, "accepted", round=1), state=State.DONE, started_at=at(59))
    assert what(build([record])) == ["planned", "replayed", "accepted"]
    assert sentences(record)["accepted"].endswith("(round 1)")


def test_record_dead_again_after_a_replay_is_shown_dead_twice() -> None:
    log = (Attempt(at(-20), 1, "refused", 131047), Attempt(at(60), 1, "refused", 131047, round=1))
    record = replayed(*log, state=State.DEAD, reason="permanent", finished_at=at(60))
    deaths = [line(event="dead_lettered", delivery=record.key, reason="permanent"), line_at(60, record)]
    assert what(build([record], deaths)) == ["planned", "refused", "dead", "replayed", "refused", "dead"]


def line_at(seconds: float, record: Delivery) -> dict[str, Any]:
    return line(event="dead_lettered", delivery=record.key, reason="permanent") | {"time": at(seconds).isoformat()}


def test_a_limit_does_not_look_like_a_new_round() -> None:
    later = (Attempt(at(9), 1, "limited", round=1), Attempt(at(12), 1, "accepted", round=1))
    record = replayed(Attempt(NOW, 1, "refused"), *later)
    assert what(build([record])) == ["planned", "refused", "replayed", "limited", "accepted"]


@pytest.mark.parametrize("answer", ["limited", "blocked", "credential_refused", "credential_replaced", "provider_down"])
def test_last_uncounted_attempt_stays_in_its_round_when_the_next_begins(answer: str) -> None:
    """It had waited too long, and was replayed before anything else was tried."""
    record = replayed(Attempt(at(-20), 1, answer, 131042), attempt=0, due_at=at(60), started_at=at(-20))
    events = build([record]).events
    assert [(moment.what, moment.at) for moment in events[1:]] == [(answer, at(-20)), ("replayed", at(60))]
    assert "round" not in events[1].sentence


def test_dead_sentence_is_the_same_before_and_after_a_replay() -> None:
    """Its cause stands in the try before it, once."""
    refused = Attempt(at(-20), 1, "refused", 131047)
    ended = replace(dead(reason="permanent", finished_at=at(-20)), attempts_log=(refused,), round=0)
    died = line(event="dead_lettered", delivery=ended.key, reason="permanent", code=131047)
    before = [m.sentence for m in build([ended], [died], explain).events if m.what == "dead"]
    again = replayed(refused, attempt=0, due_at=at(60))
    after_ = [m.sentence for m in build([again], [died | {"delivery": again.key}], explain).events if m.what == "dead"]
    assert before == after_
    assert "131047" not in before[0]


def test_an_earlier_end_of_a_replayed_message_comes_from_the_log() -> None:
    record = replayed(Attempt(at(-20), 1, "refused", 131047), attempt=0, due_at=at(60))
    died = line(event="dead_lettered", delivery=record.key, reason="permanent", code=131047)
    assert what(build([record], [died])) == ["planned", "refused", "dead", "replayed"]
    ended = replace(record, round=0, state=State.DEAD, reason="permanent", finished_at=at(-20))
    assert what(build([ended], [died])).count("dead") == 1


def test_receipt_follows_the_acceptance_of_its_own_round() -> None:
    log = (Attempt(at(-50.2), 1, "accepted"), Attempt(at(59.8), 1, "accepted", round=1))
    record = replayed(*log, receipts={0: Receipts(failed=at(-51)), 1: Receipts(sent=at(59))}, state=State.DONE)
    events = build([record]).events
    assert [moment.what for moment in events] == [
        "planned", "accepted", "receipt_failed", "replayed", "accepted", "receipt_sent"
    ]  # fmt: skip


# ---- the event of doctor


def test_doctor_event_is_not_shown_as_a_customers() -> None:
    record = done(Kind.INBOUND, key=DOCTOR_KEY, plan_size=0)
    assert "pombo doctor" in sentences(record)["received"]


# ---- what leaves no write comes from the log


def line(**fields: Any) -> dict[str, Any]:
    return {"time": NOW.isoformat().replace("+00:00", "Z"), **fields}


def waiting(seconds: float, reason: str | None = "predecessor", until: float | None = None, **more: Any) -> Any:
    later = {} if until is None else {"until": at(until).isoformat()}
    found = {"event": "outbound_waiting", "delivery": "0f" * 20, "reason": reason, **later, **more}
    return {"time": at(seconds).isoformat().replace("+00:00", "Z"), **found}


@pytest.mark.parametrize("reason", ["predecessor", "blocked", "WHATSAPP_REAUTH_REQUIRED", None, "something newer"])
def test_waiting_is_read_from_the_log(reason: str | None) -> None:
    said = sentences(pending(), lines=(waiting(0, reason),))
    assert is_a_sentence(said["waiting"])
    assert said["waiting"].startswith("Waiting")


@pytest.mark.parametrize(
    ("kind", "event", "reason", "begins", "began"),
    [
        (Kind.OUTBOUND, "outbound_waiting", "provider_down", "Waiting: WhatsApp is", "Waited while WhatsApp was"),
        (Kind.INBOUND, "inbound_waiting", "turn", "Waiting for another message", "Waited for another message"),
        (Kind.OUTBOUND, "outbound_waiting", "suspended", "Waiting: the tenant is", "Waited while the tenant was"),
        (Kind.OUTBOUND, "outbound_waiting", "sender_removed", "Waiting: its business", "Waited while its business"),
        (
            Kind.OUTBOUND,
            "outbound_waiting",
            "credentials_unavailable",
            "Waiting: a secret that it needs is missing",
            "Waited for a secret",
        ),
        (Kind.OUTBOUND, "outbound_waiting", "paced", "Waiting for its turn", "Waited for its turn"),
        (Kind.OUTBOUND, "outbound_waiting", "limited", "Waiting: a limit of", "Waited while a limit of"),
        (
            Kind.OUTBOUND,
            "outbound_waiting",
            "provider_probe",
            "Waiting for a probe of WhatsApp",
            "Waited for a probe of W",
        ),
        (
            Kind.INBOUND,
            "inbound_waiting",
            "backend_probe",
            "Waiting for a probe of the ha",
            "Waited for a probe of the ha",
        ),
        (
            Kind.INBOUND,
            "inbound_waiting",
            "backend_down",
            "Waiting: the handler's backend does not",
            "Waited while the handler's backend did not",
        ),
        (
            Kind.INBOUND,
            "inbound_waiting",
            "busy",
            "Waiting: the handler is busy with other messages of this tenant",
            "Waited while the handler was busy",
        ),
        (
            Kind.INBOUND,
            "inbound_waiting",
            "credentials_unavailable",
            "Waiting: a secret that it needs is missing",
            "Waited for a secret",
        ),
    ],
)
def test_outage_is_shown_while_it_lasts_and_when_it_is_over(
    kind: Kind, event: str, reason: str, begins: str, began: str
) -> None:
    name = "inbound_event_id" if kind is Kind.INBOUND else "delivery"
    found = {"event": event, name: pending(kind).key, "reason": reason, "until": at(40).isoformat()}
    looks = [found | {"time": at(n).isoformat()} for n in (0, 20)]
    lasts = sentences(pending(kind), lines=tuple(looks))["waiting"]
    assert lasts.startswith(begins)
    assert "checked 2 times" in lasts
    assert lasts.endswith("next check at 12:00:40 UTC.")
    over = replace(done(kind), attempts_log=(Attempt(at(50), 1, "accepted"),), started_at=at(49), finished_at=at(50))
    told = [moment for moment in build([over], looks).events if moment.what == "waiting"]
    assert [(moment.at, moment.sentence.startswith(began)) for moment in told] == [(NOW, True)]
    assert "next check" not in told[0].sentence


INVALID_PAYLOAD = {"type": "invalid", "given": 5}


def test_replies_that_cannot_be_sent_are_not_counted_among_those_to_send() -> None:
    bad = reply(0, state=State.DEAD, reason="invalid", last_error="It is wrong.", payload=INVALID_PAYLOAD)
    given_up = reply(2, state=State.DROPPED, reason="discarded", payload=INVALID_PAYLOAD, finished_at=NOW)
    dead_for_another_reason = reply(3, state=State.DEAD, reason="permanent", finished_at=NOW)
    records = [replace(EVENT, plan_size=4), bad, reply(1), given_up, dead_for_another_reason]
    said = {
        moment.what: moment.sentence
        for moment in build(
            records, (line(event="outbound_enqueued", inbound_event_id=EVENT.key, outbound_enqueued=4),)
        ).events
    }
    assert said["done"] == "Handled: 2 of 4 replies to send; 2 cannot be sent. (enqueued 2)"
    said = {
        moment.what: moment.sentence
        for moment in build(
            records, (line(event="outbound_enqueued", inbound_event_id=EVENT.key, outbound_enqueued=1),)
        ).events
    }
    assert said["done"].endswith("(enqueued 1)")


def test_a_type_of_metas_that_is_called_invalid_can_be_sent() -> None:
    records = [replace(EVENT, plan_size=1), reply(0, payload={"type": "invalid", "content": {}})]
    assert [m.sentence for m in build(records).events if m.what == "done"] == ["Handled: 1 reply to send."]


@pytest.mark.parametrize("reason", ["provider_probe", "backend_probe"])
def test_wait_after_one_lost_answer_does_not_claim_an_outage(reason: str) -> None:
    for over, verb in ((False, "Waiting for a probe"), (True, "Waited for a probe")):
        said = waited(reason, 1, NOW, NOW, None, over)
        assert verb in said
        assert not re.search("down|unreachable|does not answer|did not answer", said)
    assert build([pending()], (waiting(0, reason),)).replies[0].why == "waiting"


def test_forty_checks_are_one_wait() -> None:
    events = build([pending()], [waiting(n, until=n + 1) for n in range(40)]).events
    (moment,) = [moment for moment in events if moment.what == "waiting"]
    assert moment.at == NOW
    assert moment.sentence == (
        "Waiting for the message before it; checked 40 times, the last at 12:00:39 UTC; next check at 12:00:40 UTC."
    )


def test_finished_wait_is_shown_in_the_past_tense() -> None:
    record = replace(done(), attempts_log=(Attempt(at(50), 1, "accepted"),), started_at=at(49))
    said = sentences(record, lines=(waiting(0, until=1), waiting(1, until=3)))["waiting"]
    assert said == "Waited for the message before it; checked 2 times, the last at 12:00:01 UTC."


def two(before: Delivery, then: Delivery) -> tuple[Delivery, Delivery]:
    """A reply and the one that goes after it."""
    return replace(before, key="a" * 40), replace(then, key="b" * 40, after="a" * 40)


@pytest.mark.parametrize("end", [dead, dropped], ids=["dead", "dropped"])
@pytest.mark.parametrize("then", [pending, done], ids=["it waits still", "it was sent since"])
def test_reply_released_by_an_unsent_predecessor_has_the_time(end: Any, then: Any) -> None:
    before, record = two(replace(end(), finished_at=at(-5)), replace(then(), started_at=at(-2)))
    told = [moment for moment in build([before, record]).events if moment.what == "released"]
    assert [(moment.at, moment.delivery) for moment in told] == [(at(-5), record.key)]
    assert is_a_sentence(told[0].sentence)


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (done(), pending()),
        (pending(), pending()),
        (replace(dead(), finished_at=at(-1)), replace(done(), started_at=at(-3))),
        (replace(dead(), finished_at=at(-1)), replace(dead(), started_at=None, finished_at=at(-3))),
    ],
    ids=["it was sent", "it is still on its way", "the other had gone before", "the other had ended before"],
)
def test_reply_not_delayed_by_a_predecessors_end_shows_no_release(before: Delivery, then: Delivery) -> None:
    assert "released" not in {moment.what for moment in build(two(before, then)).events}


def test_reply_that_goes_before_one_that_did_not_end_says_so() -> None:
    before, record = two(pending(), replace(done(), started_at=at(9), overtook="a" * 40))
    told = [moment for moment in build([before, record]).events if moment.what == "overtook"]
    assert [moment.delivery for moment in told] == [record.key]
    assert told[0].sentence.startswith("The message before it did not end in time.")


def test_message_that_overtook_says_so_before_it_is_sent() -> None:
    record = done(attempts_log=(Attempt(at(10), 1, "accepted"),), started_at=at(9), overtook="a" * 40)
    told = [(moment.what, moment.at) for moment in build([record]).events if moment.what in ("overtook", "accepted")]
    assert told == [("overtook", at(9)), ("accepted", at(10))]


def test_event_that_goes_before_one_that_was_not_handled_says_so() -> None:
    record = replace(done(Kind.INBOUND), started_at=at(9), overtook="a" * 40)
    told = [moment for moment in build([record]).events if moment.what == "overtook"]
    assert [moment.sentence.partition(" was ")[0] for moment in told] == ["An earlier message of this customer"]


def deaths_of(before: Delivery, *seconds: float) -> list[dict[str, Any]]:
    died = line(event="dead_lettered", delivery=before.key, reason="permanent")
    return [died | {"time": at(second).isoformat()} for second in seconds]


def releases(before: Delivery, record: Delivery, *deaths: float) -> list[datetime]:
    """When the second of two was let go, by the records and the deaths in the log."""
    events = build([before, record], deaths_of(before, *deaths)).events
    return [moment.at for moment in events if (moment.what, moment.delivery) == ("released", record.key)]


DECISIONS: dict[str, Callable[[Delivery], Any]] = {
    "discarded": lambda letter: discard(letter, Limits(), at(40), "a wrong number"),
    "replayed": lambda letter: replay(letter, Limits(), at(40)),
    "found to have been sent": lambda letter: replay(with_receipts(letter, SENT), Limits(), at(40)),
}


@pytest.mark.parametrize("decision", DECISIONS)
def test_release_by_a_dead_predecessor_stays_after_an_operator_decides(decision: str) -> None:
    before, record = two(replace(dead(), finished_at=at(-5)), replace(done(), started_at=at(-2)))
    decided = DECISIONS[decision](before).write
    assert releases(decided, record, -5) == [at(-5)]


def test_waiting_reply_was_released_when_its_predecessor_became_dead() -> None:
    before, record = two(replace(dead(), finished_at=at(-5)), pending())
    discarded = discard(before, Limits(), at(40)).write
    assert discarded is not None
    assert releases(discarded, record, -5) == [at(-5)]
    assert releases(discarded, record) == [at(40)], "without a log its end is all that is known"


def test_reply_that_waits_again_for_a_replayed_one_is_not_released() -> None:
    before, record = two(replace(dead(), finished_at=at(-5)), pending())
    replayed = replay(before, Limits(), at(40)).write
    assert replayed is not None
    assert releases(replayed, record, -5) == []
    sent = replace(replayed, state=State.DONE, finished_at=at(50))
    assert releases(sent, replace(record, started_at=at(60), state=State.LEASED), -5) == [], "it was sent after all"


def test_predecessor_dead_again_releases_no_reply_that_was_released_before() -> None:
    tries = (Attempt(at(-2), 1, "retry"), Attempt(at(90), 2, "accepted"))
    before, record = two(replace(dead(), finished_at=at(80)), replace(done(), started_at=at(89), attempts_log=tries))
    assert releases(before, record, -5, 80) == [at(-5)]


def test_waits_for_other_reasons_or_attempts_are_separated() -> None:
    record = tried("retry", "retry")
    looks = (waiting(1), waiting(2, "blocked"), waiting(3, "blocked"), waiting(11, "blocked"), waiting(12, "blocked"))
    moments = [moment for moment in build([record], looks).events if moment.what == "waiting"]
    assert [moment.at for moment in moments] == [at(1), at(2), at(11)]
    assert [moment.sentence.startswith("Waiting") for moment in moments] == [False, False, True]


def test_checks_while_in_doubt_are_a_wait_for_the_receipt() -> None:
    record = tried("lost", state=State.IN_DOUBT, doubt_until=at(200))
    looks = [waiting(n, None, event="outbound_in_doubt", hop=n) for n in (1, 2)]
    settled = waiting(0, None, event="outbound_in_doubt", verdict="lost")
    (moment,) = [moment for moment in build([record], [settled, *looks]).events if moment.what == "waiting"]
    assert moment.sentence == "Waiting for a delivery receipt; checked 2 times, the last at 12:00:02 UTC."


SHOWN = (
    *("blocked", "limited", "WHATSAPP_REAUTH_REQUIRED", "provider_down"),
    *("suspended", "sender_removed", "credentials_unavailable"),
)


@pytest.mark.parametrize("reason", SHOWN)
def test_message_without_attempts_has_the_reason_of_its_wait(reason: str) -> None:
    (reply,) = build([pending()], [waiting(0, reason)]).replies
    assert (reply.shown, reply.why) == ("pending", reason)


@pytest.mark.parametrize("answer", ["limited", "credential_refused", "blocked", "provider_down", "retry"])
@pytest.mark.parametrize("reason", [*SHOWN, "predecessor", "paced", "provider_probe", "something newer"])
def test_tried_message_has_the_reason_of_its_last_wait(answer: str, reason: str) -> None:
    """As its tenant is suspended after its number was refused, so that the summary says what the last moment says."""
    timeline = build([tried(answer)], [waiting(5, "WHATSAPP_REAUTH_REQUIRED"), waiting(9, reason)])
    assert timeline.replies[0].why == (reason if reason in SHOWN else "waiting")
    assert timeline.events[-1].sentence.startswith(sentences(pending(), lines=(waiting(9, reason),))["waiting"][:-1])


@pytest.mark.parametrize("answer", ["limited", "blocked", "provider_down"])
def test_answer_that_is_newer_than_the_wait_is_the_reason(answer: str) -> None:
    record = tried("retry", answer)
    assert build([record], [waiting(5, "suspended")]).replies[0].why == answer
    assert build([record]).replies[0].why == answer


def test_suspension_does_not_hide_that_a_message_is_in_doubt() -> None:
    record = tried("lost", state=State.IN_DOUBT, doubt_until=at(200))
    assert build([record], [waiting(9, "suspended")]).replies[0].why == "in_doubt"


def test_past_reason_to_wait_is_not_the_current_one() -> None:
    (reply,) = build([tried("retry")], [waiting(-5, "blocked")]).replies
    assert reply.why == "waiting"


def duplicate(seconds: float) -> Any:
    return waiting(seconds, None, event="inbound_duplicate", inbound_event_id=EVENT.key, delivery=None)


def test_duplicate_is_read_from_the_log() -> None:
    timeline = build([EVENT], [duplicate(0)])
    (moment,) = [moment for moment in timeline.events if moment.what == "duplicate"]
    assert (moment.at, moment.delivery, moment.sentence) == (NOW, EVENT.key, "Duplicate received; not processed again.")


def test_duplicates_are_counted() -> None:
    (moment,) = [one for one in build([EVENT], map(duplicate, (9, 0, 5))).events if one.what == "duplicate"]
    assert moment.at == NOW
    assert moment.sentence == "3 duplicates received, the last at 12:00:09 UTC; not processed again."


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([2], "Handled: 2 replies to send. (enqueued 2)"),
        ([1], "Handled: 2 replies to send. (enqueued 1)"),
        ([0], "Handled: 2 replies to send. (enqueued 0)"),
        ([1.0, 2.0], "Handled: 2 replies to send. (enqueued 2)"),
        ([2, 1], "Handled: 2 replies to send. (enqueued 2)"),
        ([None], "Handled: 2 replies to send."),
        ([], "Handled: 2 replies to send."),
    ],
)
def test_handled_event_has_the_number_of_enqueued_replies(numbers: list[Any], said: str) -> None:
    found = {"event": "outbound_enqueued", "inbound_event_id": EVENT.key}
    lines = [line(**found, outbound_planned=2, outbound_enqueued=number) for number in numbers]
    others = line(**{**found, "inbound_event_id": "0d" * 20}, outbound_enqueued=9)
    (done,) = [m.sentence for m in build([EVENT, reply(0), reply(1)], (*lines, others)).events if m.what == "done"]
    assert done == said


def test_other_log_lines_do_not_change_the_timeline() -> None:
    assert build([EVENT], [line(event="outbound_sent")]) == build([EVENT])


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"event": "inbound_duplicate", "inbound_event_id": EVENT.key},
        {"event": "inbound_duplicate", "inbound_event_id": EVENT.key, "time": "soon"},
        {"event": "inbound_duplicate", "inbound_event_id": EVENT.key, "time": "2026-03-01T12:00:00"},
        {"event": ["inbound_duplicate"], "time": "2026-03-01T12:00:00Z"},
        {"event": "nothing of ours", "time": "2026-03-01T12:00:00Z"},
    ],
)
def test_foreign_log_line_is_ignored(odd: dict[str, Any]) -> None:
    assert build([EVENT], [odd]) == build([EVENT])


# ---- where only the logs are left


def test_event_without_a_record_is_shown_from_the_logs() -> None:
    lines = [
        line(event="inbound_new", inbound_event_id=EVENT.key, correlation_id="correlation-1"),
        duplicate(10),
        duplicate(20),
        waiting(30, None, event="outbound_failed", code=131047),
    ]
    timeline = from_log_lines(lines, explain)
    assert timeline is not None
    assert (timeline.shown, timeline.correlation_id, timeline.replies) == ("gone", "correlation-1", ())
    assert [moment.sentence for moment in timeline.events] == [
        "New event stored.",
        "Duplicate event received; not processed again (2 times, the last at 12:00:20 UTC).",
        "The message could not be sent; it is a dead letter now. "
        "Meta refused it: the customer's last message is more than 24 hours old. (code 131047)",
    ]


def test_a_code_in_the_log_is_explained_by_the_provider_that_the_line_names() -> None:
    lines = [waiting(30, None, event="outbound_failed", code=7, provider=name) for name in ("meta", "other")]
    timeline = from_log_lines(lines[:1], lambda provider, code, _: f"{provider} said {code}.")
    assert timeline is not None
    assert timeline.events[0].sentence.endswith("it is a dead letter now. meta said 7. (code 7)")
    timeline = from_log_lines(lines[1:], lambda provider, code, _: f"{provider} said {code}.")
    assert timeline is not None
    assert timeline.events[0].sentence.endswith("it is a dead letter now. other said 7. (code 7)")


def test_code_is_explained_once_from_the_logs_alone() -> None:
    lines = [waiting(n, None, event=event, code=131047) for n, event in enumerate(("outbound_failed", "dead_lettered"))]
    timeline = from_log_lines(lines, explain)
    assert timeline is not None
    meaning = explain("meta", 131047, "") or ""
    assert meaning
    assert [meaning in moment.sentence for moment in timeline.events] == [True, False]
    assert all("(code 131047)" in moment.sentence for moment in timeline.events)


def test_empty_logs_without_a_record_give_no_timeline() -> None:
    assert from_log_lines([]) is None


def test_remark_follows_the_first_sentence_of_an_event_and_not_of_a_reply() -> None:
    timeline = build([EVENT, reply(0)], remark=lambda record: f"A remark on {record.key}.")
    said = [moment.sentence for moment in timeline.events if "A remark" in moment.sentence]
    assert said == [f"{RECEIVED} A remark on {EVENT.key}."]
    assert build([EVENT], remark=lambda _: None).events[0].sentence == RECEIVED
