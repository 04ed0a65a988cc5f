"""Guards: what keeps a message from its lease, for how long, and what a refusal leaves behind."""

from datetime import timedelta

import pytest

from shared.domain.guards import Block, Go, Guard, TenantMarks, Wait, next_block, outbound_guard, predecessor_finished
from shared.domain.limits import Backoff
from shared.domain.record import Delivery, Kind
from tests.unit.builders import (
    EVERY_RECEIPT,
    FAILED,
    LIMITS,
    NOW,
    STATES,
    at,
    done,
    pending,
)

SENDER, OTHER_SENDER = "100000000000001", "100000000000002"
IN_USE, FORMER = "fingerprint-in-use", "fingerprint-of-before"
MINUTES = timedelta(minutes=1)


def block(until: float, wait: float = 600) -> Block:
    return Block(at(until), timedelta(seconds=wait), 368)


def guard(marks: TenantMarks, finished: bool = True, hop: int = 0) -> Guard:
    return outbound_guard(marks, IN_USE, finished, SENDER, hop, LIMITS, NOW)


REAUTH = Wait("WHATSAPP_REAUTH_REQUIRED", at(600))
BLOCKED = Wait("blocked", at(600))


@pytest.mark.parametrize(
    ("marks", "finished", "expected"),
    [
        pytest.param(TenantMarks(), True, Go(), id="nothing is in the way"),
        pytest.param(TenantMarks(IN_USE), True, REAUTH, id="the credential in use was refused: 10 min"),
        pytest.param(TenantMarks(FORMER), True, Go(), id="another credential was refused: it is the reconnect"),
        pytest.param(
            TenantMarks(None, {SENDER: block(1)}), True, Wait("blocked", at(1)), id="blocked for a moment more"
        ),
        pytest.param(
            TenantMarks(None, {SENDER: block(20_000)}), True, BLOCKED, id="the sender is blocked for long: 10 min"
        ),
        pytest.param(TenantMarks(None, {SENDER: block(0)}), True, Go(), id="its block has passed: the probe goes"),
        pytest.param(TenantMarks(None, {OTHER_SENDER: block(500)}), True, Go(), id="another sender is blocked"),
        pytest.param(TenantMarks(), False, Wait("predecessor", at(1)), id="its predecessor is not finished"),
        pytest.param(TenantMarks(IN_USE, {SENDER: block(500)}), False, REAUTH, id="all three: the credential first"),
        pytest.param(TenantMarks(None, {SENDER: block(900)}), False, BLOCKED, id="blocked before the predecessor"),
    ],
)
def test_the_first_guard_that_is_false(marks: TenantMarks, finished: bool, expected: Guard) -> None:
    assert guard(marks, finished) == expected


@pytest.mark.parametrize(("hop", "wait"), list(enumerate((1, 2, 4, 8, 16, 32, 32, 32))))
def test_waiting_for_a_predecessor_slows_down(hop: int, wait: int) -> None:
    assert guard(TenantMarks(), finished=False, hop=hop) == Wait("predecessor", at(wait))


@pytest.mark.parametrize("hop", [0, 1, 100])
def test_waiting_for_a_person_does_not_grow(hop: int) -> None:
    assert guard(TenantMarks(IN_USE), hop=hop) == REAUTH
    assert guard(TenantMarks(None, {SENDER: block(900)}), hop=hop) == BLOCKED


# ---- blocks

BACKOFF = Backoff(10 * MINUTES, 2, 360 * MINUTES)


def test_the_first_block_lasts_ten_minutes() -> None:
    assert next_block(TenantMarks(), SENDER, 131031, BACKOFF, NOW) == Block(at(600), 10 * MINUTES, 131031)


def test_a_block_doubles_only_once_the_old_one_has_passed() -> None:
    standing = block(1, wait=1200)
    assert next_block(TenantMarks(None, {SENDER: standing}), SENDER, 131031, BACKOFF, NOW) == standing

    passed = TenantMarks(None, {SENDER: block(0, wait=1200)})
    assert next_block(passed, SENDER, 131031, BACKOFF, NOW) == Block(at(2400), 40 * MINUTES, 131031)


def test_a_block_of_another_sender_does_not_count() -> None:
    marks = TenantMarks(None, {OTHER_SENDER: block(0, wait=1200)})
    assert next_block(marks, SENDER, 368, BACKOFF, NOW) == Block(at(600), 10 * MINUTES, 368)


def test_blocks_grow_to_six_hours() -> None:
    marks, now, minutes = TenantMarks(), NOW, []
    for _ in range(8):
        following = next_block(marks, SENDER, 368, LIMITS.waits.block, now)
        minutes.append(following.wait / MINUTES)
        assert following.until == now + following.wait
        marks, now = TenantMarks(None, {SENDER: following}), following.until
    assert minutes == [10, 20, 40, 80, 160, 320, 360, 360]


# ---- order

REPLY = pending(after="0d" * 20)


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
    assert predecessor_finished(REPLY, predecessor) is finished


@pytest.mark.parametrize("other", [None, pending(), done()], ids=["nothing", "pending", "done"])
def test_a_reply_without_a_predecessor_waits_for_nobody(other: Delivery | None) -> None:
    assert predecessor_finished(pending(after=None), other)
