"""Receipts: the provider's word, which commutes, repeats harmlessly, and counts for its own round only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.deadline import Deadline
from shared.domain.events import Parsed, ReceiptBlock, ReceiptReceived
from shared.domain.identity import sender_id
from shared.domain.record import Delivery, Kind, ReceiptKind, Receipts, State
from shared.pipeline.accept import Accept
from shared.pipeline.channels import Channels
from shared.pipeline.intake import Incoming
from shared.pipeline.receipts import blocks, note_all
from shared.tenants.environment import EnvironmentTenants
from tests.support.builders import (
    DELIVERED,
    EVERY_RECEIPT,
    FAILED,
    LIMITS,
    NOW,
    PLAYED,
    READ,
    SENT,
    STATES,
    at,
    pending,
)
from tests.support.event_loop import Asynchronous, complete
from tests.support.pipelines import Channel, Clock, Queue, Store, lines_of

BOUNDED = settings(max_examples=100, deadline=None, derandomize=True, database=None)

# ---- what they say


@pytest.mark.parametrize(
    ("receipts", "reached", "positive", "any_at_all"),
    [
        pytest.param(Receipts(), False, False, False, id="none"),
        pytest.param(SENT, False, True, True, id="sent"),
        pytest.param(DELIVERED, True, True, True, id="delivered"),
        pytest.param(READ, True, True, True, id="read"),
        pytest.param(PLAYED, True, True, True, id="played"),
        pytest.param(FAILED, False, False, True, id="failed proves the handover"),
        pytest.param(SENT.merged(FAILED), False, True, True, id="sent, failed"),
        pytest.param(DELIVERED.merged(FAILED), True, True, True, id="delivered, failed"),
        pytest.param(Receipts(provider_ids=frozenset({"h"})), False, False, False, id="an id alone says nothing"),
    ],
)
def test_receipts_have_reached_positive_and_any(
    receipts: Receipts, reached: bool, positive: bool, any_at_all: bool
) -> None:
    assert (receipts.reached, receipts.positive, receipts.any) == (reached, positive, any_at_all)


# ---- together

TIMES = st.none() | st.integers(0, 3).map(lambda minutes: NOW + timedelta(minutes=minutes))
SOME_RECEIPTS = st.builds(
    Receipts,
    sent=TIMES,
    delivered=TIMES,
    read=TIMES,
    played=TIMES,
    failed=TIMES,
    failed_code=st.sampled_from([None, 0, 131026, 131047]),
    provider_ids=st.frozensets(st.sampled_from("abc"), max_size=2),
).map(lambda said: said if said.failed else Receipts(said.sent, said.delivered, said.read, said.played))


@BOUNDED
@given(SOME_RECEIPTS, SOME_RECEIPTS, SOME_RECEIPTS)
def test_receipts_commute_associate_and_repeat_harmlessly(a: Receipts, b: Receipts, c: Receipts) -> None:
    assert a.merged(b) == b.merged(a)
    assert a.merged(b).merged(c) == a.merged(b.merged(c))
    assert a.merged(a) == a
    assert a.merged(b).merged(a) == a.merged(b)
    assert a.merged(Receipts()) == a


@BOUNDED
@given(SOME_RECEIPTS, SOME_RECEIPTS)
def test_merging_receipts_removes_none(a: Receipts, b: Receipts) -> None:
    both = a.merged(b)
    assert both.any is (a.any or b.any)
    assert both.positive is (a.positive or b.positive)
    assert both.reached is (a.reached or b.reached)
    assert both.provider_ids == a.provider_ids | b.provider_ids


def test_receipts_out_of_order_end_the_same() -> None:
    ends = set()
    for order in permutations(EVERY_RECEIPT.values()):
        said = Receipts()
        for receipt in order:
            said = said.merged(receipt)
        ends.add(said)
    assert len(ends) == 1


def test_earlier_of_two_receipts_of_a_kind_stays() -> None:
    both = Receipts(delivered=at(9)).merged(Receipts(delivered=at(3), sent=at(1)))
    assert both == Receipts(delivered=at(3), sent=at(1))


def test_a_failure_keeps_the_code_that_came_with_it() -> None:
    early, late = Receipts(failed=at(1), failed_code=131026), Receipts(failed=at(2), failed_code=1)
    assert early.merged(late) == late.merged(early) == early


# ---- of the record's own round only


@pytest.mark.parametrize("word", EVERY_RECEIPT)
def test_only_receipts_of_the_current_round_count(word: str) -> None:
    receipt = EVERY_RECEIPT[word]
    assert pending(round=1, receipts={1: receipt}).current_receipts == receipt
    assert pending(round=1, receipts={0: receipt, 2: receipt}).current_receipts == Receipts()
    assert pending().current_receipts == Receipts()


@pytest.mark.parametrize("state", STATES[Kind.OUTBOUND])
def test_a_receipt_never_assigns_state(state: str) -> None:
    plain = STATES[Kind.OUTBOUND][state]()
    for receipt in EVERY_RECEIPT.values():
        noted = STATES[Kind.OUTBOUND][state](receipts={0: receipt})
        assert (noted.state, noted.final, noted.leased_at(NOW)) == (plain.state, plain.final, plain.leased_at(NOW))
        assert noted.finished


# ---- failed receipts


def receipt(code: int | None = 131042, seconds: float = 0, **more: Any) -> ReceiptReceived:
    """A failed one, as the channel reads it."""
    concerns = code in (131042, 368, 190)
    given = {"provider": "meta", "sender": "1", "provider_id": "wamid.1", "kind": ReceiptKind.FAILED, "at": at(seconds)}
    return ReceiptReceived(**({**given, "code": code, "echo": ECHO, "concerns_sender": concerns} | more))


KEY = "0f" * 20
ECHO = f"pombo1.{KEY}.0.correlation_1"
PRIVATE = "15550002222"


def test_latest_block_of_each_sender_in_a_post_counts() -> None:
    others = (
        replace(receipt(131047), sender="3"),
        replace(receipt(None), sender="3"),
    )
    posted = [
        receipt(368, 5),
        receipt(131042, 9, echo=None),
        receipt(190, 7),
        receipt(131047, 99),
        receipt(368, 1, sender="2"),
        receipt(368, 2, sender="1", provider="twilio"),
        *others,
    ]
    for order in (posted, posted[::-1]):
        assert blocks(order) == {
            ("meta", "1"): ReceiptBlock(131042, at(9), None),
            ("meta", "2"): ReceiptBlock(368, at(1), KEY),
            ("twilio", "1"): ReceiptBlock(368, at(2), KEY),
        }
    assert blocks([]) == {}


@pytest.mark.parametrize(
    ("echo", "is_known", "names"),
    [
        (ECHO, True, ["receipt_failed"]),
        (ECHO, False, ["receipt_unknown", "receipt_failed"]),
        (None, False, ["receipt_failed"]),
        ("somebody else's", False, ["receipt_failed"]),
    ],
)
@pytest.mark.parametrize("code", [131042, 131047, None])
@pytest.mark.parametrize("together", [1, 3])
def test_every_failed_receipt_logs_one_line_without_private_data(
    caplog: pytest.LogCaptureFixture,
    echo: str | None,
    is_known: bool,
    names: list[str],
    code: int | None,
    together: int,
) -> None:
    lines = lines_of(caplog)
    note(*[receipt(code, echo=echo, sender=PRIVATE, provider_id="wamid.private")] * together, is_known=is_known)
    found = lines("receipt_failed", "receipt_applied", "receipt_unknown")
    assert [line["event"] for line in found] == names * together
    for line in found:
        if line["event"] == "receipt_failed":
            assert (line["event_type"], line.get("code")) == ("failed", code)
            assert line.get("delivery") == (KEY if echo == ECHO else None)
    assert not any(word in str(found) for word in (PRIVATE, "wamid"))
    assert {record.levelname for record in caplog.records} == {"WARNING"}


@pytest.mark.parametrize("kind", [kind for kind in ReceiptKind if kind is not ReceiptKind.FAILED])
def test_positive_receipt_is_not_logged_as_failed(caplog: pytest.LogCaptureFixture, kind: ReceiptKind) -> None:
    lines = lines_of(caplog)
    note(receipt(None, kind=kind))
    assert lines("receipt_failed") == []
    assert len(lines("receipt_applied")) == 1


@pytest.mark.parametrize("codes", [(131042, 368, 368), (131047, None)], ids=["about the sender", "about the message"])
def test_the_receipts_of_one_post_write_one_mark_for_each_sender(tmp_path: Path, codes: tuple[int | None, ...]) -> None:
    clock = Clock()
    store = Store(tmp_path, clock)
    events = [receipt(code, seconds, echo=None) for seconds, code in enumerate(codes)]

    class Posted(Channel):
        def verify(self, incoming: Incoming) -> None: ...

        def parse(self, incoming: Incoming) -> Parsed:  # noqa: ARG002 - of the port
            return Parsed(tuple(events), {})

    tenants, channels = EnvironmentTenants.of(("meta", "1")), Channels({"meta": Posted()})
    accept = Accept(Asynchronous(store), Asynchronous(Queue()), tenants, channels, LIMITS, clock)  # type: ignore[arg-type]
    complete(accept(Incoming("meta", "POST", "/webhooks/whatsapp", {}, b"")))
    concerns = 131042 in codes
    assert store.asked["note_receipt_block"] == concerns
    assert store.marks(sender_id("meta", "1")).receipt_block == (ReceiptBlock(368, at(2)) if concerns else None)


@dataclass
class Noted:
    """A store that knows the record, or does not."""

    is_known: bool

    def note_receipts(self, receipts: Sequence[Any], _: Any) -> list[bool]:
        return [self.is_known or echo is None for echo, _ in receipts]

    def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None: ...


def note(*receipts: ReceiptReceived, is_known: bool = True) -> None:
    """As in one POST; with nothing else in it, so that nothing asks for the time."""
    store: Any = Noted(is_known)
    complete(note_all(receipts, Asynchronous(store), Deadline.of_webhook(lambda: 0.0)))


# ---- what a record says of itself


@pytest.mark.parametrize("state", State)
def test_only_done_dropped_and_dead_are_final(state: State) -> None:
    assert pending(state=state).final is (state in ("done", "dropped", "dead"))


@pytest.mark.parametrize(
    ("record", "held"),
    [
        pytest.param(pending(state=State.LEASED, lease_until=at(1)), True, id="until it runs out"),
        pytest.param(pending(state=State.LEASED, lease_until=NOW), False, id="not at its very end"),
        pytest.param(pending(state=State.LEASED, lease_until=None), False, id="not without an end"),
        pytest.param(pending(state=State.IN_DOUBT, lease_until=at(1)), False, id="not in another state"),
    ],
)
def test_lease_holds_until_its_end(record: Delivery, held: bool) -> None:
    assert record.leased_at(NOW) is held


@pytest.mark.parametrize(("moment", "due"), [(None, True), (at(-1), True), (NOW, True), (at(1), False)])
def test_a_record_is_due_from_its_due_at_on(moment: object, due: bool) -> None:
    assert pending(due_at=moment).due(NOW) is due


def test_store_version_does_not_affect_record_equality() -> None:
    assert pending(version=1) == pending(version=2)
