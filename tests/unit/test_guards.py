"""Guards: what keeps a message or an event from its lease, for how long, and who is elected to go."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.events import ReceiptBlock
from shared.domain.guards import (
    Elect,
    Go,
    Guard,
    Wait,
    disconnected,
    inbound_guard,
    is_down,
    outbound_guard,
    predecessor_finished,
    was_passed_over,
)
from shared.domain.marks import Block, Disconnected, Marks, Outage, RefusedCredential
from shared.domain.record import Attempt, Delivery, Kind, Task
from tests.support.builders import (
    EVERY_RECEIPT,
    FAILED,
    LIMITS,
    NOW,
    STATES,
    at,
    done,
    dropped,
    leased,
    past_doubt,
    pending,
)

IN_USE, FORMER = "fingerprint-in-use", "fingerprint-of-before"
REAUTH_REQUIRED = "WHATSAPP_REAUTH_REQUIRED"
BEFORE = pending(key="0d" * 20)
FRESH = pending(after=BEFORE.key)
DOUBTED = pending(after="0d" * 20, doubts=1)
IN_DOUBT = past_doubt(after="0d" * 20)


def down(until: float, claim: str | None = None, wait: float = 10, by: str | None = None) -> Outage:
    return Outage(at(until), timedelta(seconds=wait), claim, by)


def block(until: float, claim: str | None = None) -> Block:
    return Block(at(until), timedelta(seconds=600), 368, claim)


def refused(until: float | None, claim: str | None = None, fingerprint: str = IN_USE) -> RefusedCredential:
    return RefusedCredential(fingerprint, 190, at(-60), None if until is None else at(until), claim)


def guard(marks: Marks, record: Delivery = FRESH, finished: bool = True, hop: int = 0) -> Guard:
    before = None if finished else BEFORE
    return outbound_guard(marks, IN_USE, record, before, replace(Task.of(record), hop=hop), LIMITS, NOW)


def elect(*claims: str, why: str, unclear: bool = False) -> Elect:
    return Elect(frozenset(claims), why, unclear)


NOTHING = Marks()
CUT_OFF = Disconnected("PARTNER_REMOVED", at(-9))
REAUTH, BLOCKED = Wait(REAUTH_REQUIRED, at(600)), Wait("blocked", at(600))
OPEN = Marks(down=down(40))


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        pytest.param(Marks(), Go(), id="nothing is in the way"),
        pytest.param(Marks(refused=refused(None)), REAUTH, id="refused for good: looked at again in 10 min"),
        pytest.param(Marks(refused=refused(7200)), REAUTH, id="refused until its probe: looked at again in 10 min"),
        pytest.param(Marks(refused=refused(7)), Wait(REAUTH_REQUIRED, at(7)), id="refused: no hop past its probe"),
        pytest.param(Marks(refused=refused(80, "x")), Wait(REAUTH_REQUIRED, at(15)), id="refused, being probed: 15 s"),
        pytest.param(Marks(refused=refused(7, "x")), Wait(REAUTH_REQUIRED, at(7)), id="refused, its claim runs out"),
        pytest.param(Marks(refused=refused(0)), elect("refused", why=REAUTH_REQUIRED), id="refused, to be probed"),
        pytest.param(
            Marks(refused=refused(0, "x")), elect("refused", why=REAUTH_REQUIRED), id="refused, claim run out"
        ),
        pytest.param(Marks(refused=refused(None, fingerprint=FORMER)), Go(), id="another credential was refused"),
        pytest.param(Marks(disconnected=CUT_OFF), REAUTH, id="account disconnected: 10 min"),
        pytest.param(Marks(disconnected=CUT_OFF, refused=refused(7)), REAUTH, id="disconnected comes before refused"),
        pytest.param(Marks(block=block(1)), Wait("blocked", at(1)), id="blocked for a moment more"),
        pytest.param(Marks(block=block(20_000)), BLOCKED, id="blocked for long: 10 min"),
        pytest.param(Marks(block=block(80, "x")), Wait("blocked", at(15)), id="blocked, being probed: 15 s"),
        pytest.param(Marks(block=block(7, "x")), Wait("blocked", at(7)), id="blocked, its claim runs out"),
        pytest.param(Marks(block=block(0)), elect("block", why="blocked"), id="its block has passed: one probes"),
        pytest.param(Marks(block=block(-900, "x")), elect("block", why="blocked"), id="blocked, claim run out"),
        pytest.param(OPEN, Wait("provider_down", at(40)), id="breaker open: hop to its end"),
        pytest.param(Marks(down=down(80, "x")), Wait("provider_down", at(15)), id="breaker claimed: 15 s"),
        pytest.param(Marks(down=down(0)), elect("down", why="provider_down"), id="breaker over: one probes"),
        pytest.param(Marks(down=down(0, wait=0)), elect("down", why="provider_probe"), id="an answer was lost: probe"),
        pytest.param(
            Marks(down=down(80, "x", wait=0)), Wait("provider_probe", at(15)), id="an answer was lost, one probes: 15 s"
        ),
        pytest.param(Marks(down=down(-1, "x")), elect("down", why="provider_down"), id="breaker, claim run out"),
        pytest.param(
            Marks(down=down(0), block=block(0), refused=refused(0)),
            elect("down", "block", "refused", why=REAUTH_REQUIRED),
            id="all are over: all are claimed",
        ),
    ],
)
def test_first_false_guard_decides(marks: Marks, expected: Guard) -> None:
    assert guard(marks) == expected


@pytest.mark.parametrize(
    ("withheld", "until"), [("suspended", 600), ("sender_removed", 600), ("credentials_unavailable", 60)]
)
def test_what_the_registry_withholds_waits_before_all_marks(withheld: str, until: float) -> None:
    marks = Marks(down=down(9), block=block(9), refused=refused(9), disconnected=CUT_OFF)
    for record, unclear in ((FRESH, False), (IN_DOUBT, True)):
        found = outbound_guard(marks, IN_USE, record, BEFORE, Task.of(record), LIMITS, NOW, withheld)
        assert found == Wait(withheld, at(until), unclear)


@pytest.mark.parametrize(
    ("marks", "finished", "expected"),
    [
        (Marks(down=down(9), block=block(9), refused=refused(9)), False, REAUTH_REQUIRED),
        (Marks(down=down(9), block=block(9), refused=refused(0)), False, "blocked"),
        (Marks(down=down(9), block=block(0), refused=refused(0)), False, "provider_down"),
        (Marks(down=down(0), block=block(0), refused=refused(0)), False, "predecessor"),
        (Marks(down=down(9)), True, "provider_down"),
        (Marks(block=block(9)), True, "blocked"),
    ],
)
def test_guards_run_in_order_and_a_waiting_message_claims_nothing(marks: Marks, finished: bool, expected: str) -> None:
    found = guard(marks, finished=finished)
    assert isinstance(found, Wait)
    assert found.why == expected


@pytest.mark.parametrize(("hop", "wait"), list(enumerate((0.3, 0.6, 1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 38.4))))
def test_waiting_for_a_predecessor_slows_down(hop: int, wait: float) -> None:
    assert guard(Marks(), finished=False, hop=hop) == Wait("predecessor", at(wait), alone_since=NOW)


def waiting_since(
    seconds: float, marks: Marks = NOTHING, record: Delivery = FRESH, before: Delivery | None = None
) -> Guard:
    """The guard of a message that waits for the one before it, and has waited for it alone since then."""
    task = replace(Task.of(record), hop=9, alone_since=at(seconds))
    return outbound_guard(marks, IN_USE, record, before or BEFORE, task, LIMITS, NOW)


def test_message_waits_ten_minutes_for_the_one_before_it_and_then_goes() -> None:
    assert waiting_since(-500) == Wait("predecessor", at(38.4), alone_since=at(-500))
    assert waiting_since(-590) == Wait("predecessor", at(10), alone_since=at(-590))
    assert waiting_since(-600) == Go(overtakes=FRESH.after)


def test_message_never_overtakes_one_that_is_being_sent() -> None:
    being_sent = leased(key=BEFORE.key, lease_until=at(9))
    assert waiting_since(-600, before=being_sent) == Wait("predecessor", at(38.4), alone_since=at(-600))
    assert waiting_since(-600, before=replace(being_sent, lease_until=at(-1))) == Go(overtakes=FRESH.after)


def test_patience_begins_anew_after_another_wait() -> None:
    for marks in (Marks(down=down(9)), Marks(block=block(9)), Marks(refused=refused(9))):
        found = waiting_since(-600, marks)
        assert isinstance(found, Wait)
        assert found.alone_since is None


def test_message_that_overtakes_still_probes() -> None:
    assert waiting_since(-600, Marks(down=down(0))) == Elect(
        frozenset({"down"}), "provider_down", overtakes=FRESH.after
    )


def test_message_whose_predecessor_has_ended_overtakes_nothing() -> None:
    assert guard(Marks()) == Go(None)


@pytest.mark.parametrize("hop", [0, 1, 100])
def test_waiting_for_a_mark_does_not_grow(hop: int) -> None:
    assert guard(Marks(refused=refused(None)), hop=hop) == REAUTH
    assert guard(Marks(block=block(900)), hop=hop) == BLOCKED
    assert guard(OPEN, hop=hop) == Wait("provider_down", at(40))


# ---- messages that may have arrived


@pytest.mark.parametrize("record", [DOUBTED, IN_DOUBT], ids=["pending after a doubt", "in_doubt"])
def test_a_message_with_a_doubt_always_probes_before_it_is_sent(record: Delivery) -> None:
    assert guard(Marks(), record) == elect("down", why="provider_probe")
    assert guard(Marks(block=block(0)), record) == elect("block", "down", why="blocked")
    assert guard(Marks(refused=refused(0)), record) == elect("refused", "down", why=REAUTH_REQUIRED)


@pytest.mark.parametrize("record", [DOUBTED, IN_DOUBT], ids=["pending after a doubt", "in_doubt"])
@pytest.mark.parametrize(("until", "wait"), [(40, 100), (0, 60), (-59, 1), (-60, None), (-3600, None)])
def test_a_message_with_a_doubt_probes_a_minute_later_than_others(
    record: Delivery, until: float, wait: float | None
) -> None:
    """So that a fresh message is the trial."""
    unclear = record is IN_DOUBT
    expected = elect("down", why="provider_down", unclear=unclear)
    found = guard(Marks(down=down(until)), record)
    assert found == (expected if wait is None else Wait("provider_down", at(wait), unclear))
    assert isinstance(guard(Marks(down=down(until))), Wait if until > 0 else Elect)


def test_a_message_with_a_doubt_looks_again_in_15_s_while_another_probes() -> None:
    assert guard(Marks(down=down(80, "x")), DOUBTED) == Wait("provider_down", at(15))
    assert guard(Marks(down=down(80, "x")), IN_DOUBT) == Wait("provider_down", at(15), unclear=True)


@pytest.mark.parametrize(
    ("marks", "finished"),
    [
        (Marks(refused=refused(None)), True),
        (Marks(block=block(9)), True),
        (Marks(), True),
        (Marks(), False),
    ],
)
def test_a_doubt_is_unclear_only_while_the_breaker_is_marked(marks: Marks, finished: bool) -> None:
    for mark in (None, down(9), down(-90), down(-90, "x"), down(-90, wait=0)):
        marked = Marks(down=mark, block=marks.block, refused=marks.refused)
        found = guard(marked, IN_DOUBT, finished)
        assert isinstance(found, Wait | Elect)
        assert found.unclear is (mark is not None)
        fresh = guard(marked, FRESH, finished)
        assert isinstance(fresh, Go) or not fresh.unclear


def test_only_an_election_of_the_breaker_asks_for_a_probe() -> None:
    assert elect("down", why="x").probe
    assert elect("down", "block", why="x").probe
    assert not elect("block", "refused", why="x").probe


def test_call_after_one_lost_answer_waits_for_a_probe_without_blaming_outage() -> None:
    """WhatsApp may be well: a lost answer alone opens the breaker, and its receipt does not close it."""
    call = pending(payload={"type": "typing"})
    assert guard(Marks(down=down(-6, wait=0)), call) == Wait("provider_probe", at(9))
    assert guard(Marks(down=down(-6)), call) == Wait("provider_down", at(9))


# ---- backends


def an_event(**changes: Any) -> Delivery:
    return pending(**{"key": "this", "kind": Kind.INBOUND, **changes})


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        pytest.param(None, Go(), id="no mark"),
        pytest.param(down(9), Wait("backend_down", at(9)), id="open: hop to its end"),
        pytest.param(down(80, "x"), Wait("backend_down", at(15)), id="claimed: 15 s"),
        pytest.param(down(0), elect("down", why="backend_down"), id="over: one is the trial"),
        pytest.param(down(-1, "x"), elect("down", why="backend_down"), id="claim run out"),
        pytest.param(down(9, by="this"), Wait("backend_down", at(9)), id="made by this event: it waits"),
        pytest.param(down(0, by="this"), elect("down", why="backend_down"), id="made by this event: it is the trial"),
        pytest.param(down(0, wait=0), elect("down", why="backend_probe"), id="answers were lost: one is the trial"),
        pytest.param(down(80, "x", wait=0), Wait("backend_probe", at(15)), id="answers were lost, one probes: 15 s"),
        pytest.param(down(9, by="another"), Go(), id="made by another event: this one goes"),
        pytest.param(down(80, "x", by="another"), Go(), id="made by another event, which probes"),
    ],
)
def test_an_event_waits_for_its_backend(mark: Outage | None, expected: Guard) -> None:
    assert inbound_guard(mark, an_event(), LIMITS, NOW) == expected


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        pytest.param(down(0), Wait("backend_down", at(15)), id="over: a fresh event is the trial"),
        pytest.param(down(-61), elect("down", why="backend_down"), id="no fresh one came"),
        pytest.param(down(80, "x"), Wait("backend_down", at(15)), id="claimed: 15 s"),
        pytest.param(down(0, by="this"), elect("down", why="backend_down"), id="it alone has failed"),
        pytest.param(down(9, by="another"), Go(), id="made by another event"),
    ],
)
def test_retried_event_leaves_the_trial_to_a_fresh_one(mark: Outage, expected: Guard) -> None:
    """Several poisonous events would else keep the breaker open for all the others."""
    tried = an_event(attempts_log=(Attempt(at(-60), 1, "backend_down"),))
    assert inbound_guard(mark, tried, LIMITS, NOW) == expected


# ---- what the marks say of a sender

GONE = Disconnected("PARTNER_REMOVED", NOW)


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        (Marks(), None),
        (Marks(refused=refused(None)), "needs_reauth"),
        (Marks(refused=refused(-9), block=block(9)), "needs_reauth"),
        (Marks(disconnected=GONE), "disconnected"),
        (Marks(disconnected=GONE, refused=refused(None)), "disconnected"),
        (Marks(disconnected=GONE, block=block(9)), "disconnected"),
        (Marks(block=block(9)), "blocked"),
        (Marks(block=block(-9)), "blocked"),
        (Marks(receipt_block=ReceiptBlock(131042, NOW)), "blocked"),
        (Marks(receipt_block=ReceiptBlock(190, NOW)), "blocked"),
        (Marks(down=down(9)), None),
    ],
)
def test_a_sender_is_disconnected_by_its_block_or_its_credential(marks: Marks, said: str | None) -> None:
    assert disconnected(marks, marks.refused is not None) == said


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        pytest.param(None, False, id="no mark"),
        pytest.param(down(9), True, id="open"),
        pytest.param(down(-9), True, id="over, and not probed yet"),
        pytest.param(down(0, wait=0), False, id="one lost answer, not probed yet"),
        pytest.param(down(-300), False, id="nobody probed it for long, so nothing is known"),
    ],
)
def test_breaker_is_down_only_while_its_mark_holds(mark: Outage | None, said: bool) -> None:
    assert is_down(Marks(down=mark), LIMITS, NOW) is said


# ---- order


@pytest.mark.parametrize(
    ("predecessor", "finished"),
    [
        pytest.param(None, True, id="missing counts as finished"),
        *(
            pytest.param(make(), make().final, id=f"{state} without a receipt")
            for state, make in STATES[Kind.OUTBOUND].items()
        ),
        *(
            pytest.param(make(receipts={0: receipts}), True, id=f"{state} with a {word} receipt")
            for state, make in STATES[Kind.OUTBOUND].items()
            for word, receipts in EVERY_RECEIPT.items()
        ),
        pytest.param(pending(round=1, receipts={0: FAILED}), False, id="pending with a receipt of an older round"),
    ],
)
def test_a_reply_waits_until_the_one_before_it_is_finished(predecessor: Delivery | None, finished: bool) -> None:
    assert predecessor_finished(FRESH, predecessor) is finished


@pytest.mark.parametrize("other", [None, pending(), done()], ids=["nothing", "pending", "done"])
def test_reply_without_predecessor_does_not_wait(other: Delivery | None) -> None:
    assert predecessor_finished(pending(after=None), other)


GONE = dropped(after="0" * 40, started_at=None)


@pytest.mark.parametrize(
    ("record", "was"),
    [
        pytest.param(GONE, True, id="cancelled before its turn"),
        pytest.param(replace(GONE, after=None), False, id="there is none before it"),
        pytest.param(replace(GONE, started_at=NOW), False, id="was tried"),
        pytest.param(replace(GONE, receipts={0: FAILED}), False, id="is with the provider"),
        pytest.param(pending(after="0" * 40, started_at=None), False, id="is not at its end"),
    ],
)
def test_only_a_message_that_ended_before_its_turn_is_looked_behind(record: Delivery, was: bool) -> None:
    assert was_passed_over(record) is was
