"""Marks: breaker, block, refused credential and backend, each by what an attempt saw, was elected to, and was answered.

docs/outages.md has the rules; a case is named by the answer or by the mark that it is about.
"""

from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from shared.domain import marks
from shared.domain.events import ReceiptBlock
from shared.domain.identity import backend_id, sender_id
from shared.domain.limits import Limits
from shared.domain.marks import (
    BackendAnswered,
    BackendFailed,
    Block,
    Credential,
    Disconnected,
    Marks,
    Outage,
    RefusedCredential,
)
from shared.domain.verdicts import (
    Accepted,
    Blocked,
    BlockScope,
    CredentialRefused,
    Limited,
    LimitScope,
    Lost,
    ProviderDown,
    Refused,
    Released,
    Retry,
    SendVerdict,
)
from tests.support.builders import LIMITS, MINE, NO_JITTER, NOW, OTHERS, at

IN_USE, FORMER, ANOTHER = "fingerprint-in-use", "fingerprint-of-before", "fingerprint-of-another"
NONE = Marks()
DOWN, BLOCK, REFUSED = frozenset({"down"}), frozenset({"block"}), frozenset({"refused"})
ALL = DOWN | BLOCK | REFUSED
HOURS = timedelta(hours=1)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def down(until: float, wait: float = 40, claim: str | None = None, by: str | None = None) -> Outage:
    return Outage(at(until), seconds(wait), claim, by)


def block(until: float, wait: float = 600, claim: str | None = None, **more: Any) -> Block:
    return Block(at(until), seconds(wait), 131042, claim, **more)


def refused(until: float | None, claim: str | None = None, code: int = 131005, fp: str = IN_USE) -> RefusedCredential:
    return RefusedCredential(fp, code, at(-9000), None if until is None else at(until), claim)


EVERY = Marks(down(0), block(0), refused(0))


def after(
    verdict: SendVerdict,
    seen: Marks,
    current: Marks | None = None,
    answered: bool | None = None,
    fingerprint: str = IN_USE,
    jitter: float = NO_JITTER,
    limits: Limits = LIMITS,
) -> Marks:
    """The marks after my attempt with this verdict. An outage and a release are no answer."""
    is_answered = not (marks.is_outage(verdict) or isinstance(verdict, Released)) if answered is None else answered
    given = seen if current is None else current
    return marks.after_send(given, seen, verdict, is_answered, fingerprint, MINE, limits, NOW, jitter)


OUTAGES: list[SendVerdict] = [ProviderDown(), ProviderDown(2, seconds(9)), Lost(outage=True), Lost(2, outage=True)]
ANSWERS: list[SendVerdict] = [
    Accepted("wamid.1"),
    Accepted(None),
    Retry(131053),
    Limited(LimitScope.RATE, 130429),
    CredentialRefused(190),
    Blocked(BlockScope.SENDER, 368),
    Refused(131026),
    Refused(None),
    Lost(131000),
    Lost(999_001),
]


# ---- whose they are


def test_mark_ids_are_hashes_of_sender_or_address() -> None:
    ids = {sender_id("meta", "1"), sender_id("meta", "2"), sender_id("twilio", "1"), backend_id("https://a/")}
    assert len(ids) == 4
    assert all(len(id) == 40 for id in ids)
    assert sender_id("meta", "1") == sender_id("meta", "1")


def test_version_of_marks_does_not_affect_equality() -> None:
    assert replace(EVERY, version=1) == replace(EVERY, version=2)


@pytest.mark.parametrize("until", [None, 1])
def test_a_mark_holds_until_its_end_and_for_ever_without_one(until: float | None) -> None:
    assert marks.holds(refused(until), NOW)
    assert not marks.holds(refused(0), NOW)
    assert not marks.holds(None, NOW)


# ---- what makes the breaker's mark


@pytest.mark.parametrize("verdict", [ProviderDown(), ProviderDown(2)])
@pytest.mark.parametrize("jitter", [0, 1])
def test_provider_outage_opens_the_breaker_for_ten_seconds(verdict: SendVerdict, jitter: float) -> None:
    assert after(verdict, NONE, jitter=jitter) == Marks(down=Outage(at(10), seconds(10)))


@pytest.mark.parametrize("verdict", [Lost(outage=True), Lost(131016, outage=True)])
def test_a_lost_answer_makes_the_next_message_probe(verdict: SendVerdict) -> None:
    assert after(verdict, NONE) == Marks(down=Outage(NOW))


@pytest.mark.parametrize("verdict", [*ANSWERS, Released()], ids=repr)
def test_any_other_verdict_opens_no_breaker(verdict: SendVerdict) -> None:
    assert after(verdict, NONE).down is None


@pytest.mark.parametrize("verdict", [*OUTAGES, *ANSWERS, Released()], ids=repr)
@pytest.mark.parametrize("current", [None, down(9), down(80, claim=OTHERS), down(-1), down(80, claim=MINE)])
def test_changed_breaker_is_left_alone(verdict: SendVerdict, current: Outage | None) -> None:
    for seen in (None, down(5), down(80, claim=MINE)):
        if seen != current:
            assert after(verdict, Marks(down=seen), Marks(down=current)).down == current


@pytest.mark.parametrize("verdict", [*OUTAGES, *ANSWERS, Released()], ids=repr)
@pytest.mark.parametrize("mark", [down(9), down(-1), down(80, claim=OTHERS)])
def test_an_attempt_that_is_not_elected_changes_no_breaker(verdict: SendVerdict, mark: Outage) -> None:
    assert after(verdict, Marks(down=mark)).down == mark


# ---- one is elected


@pytest.mark.parametrize("names", [DOWN, BLOCK, REFUSED, DOWN | BLOCK, ALL])
def test_an_elected_attempt_claims_what_it_asked_for_and_nothing_else(names: frozenset[str]) -> None:
    won = marks.claimed(EVERY, EVERY, names, MINE, at(90))
    assert marks.is_elected(won, names, MINE)
    assert not marks.is_elected(won, names, OTHERS)
    for field in ("down", "block", "refused"):
        mark = getattr(EVERY, field)
        expected = replace(mark, until=at(90), claim=MINE) if field in names else mark
        assert getattr(won, field) == expected


@pytest.mark.parametrize(
    "current",
    [
        NONE,
        replace(EVERY, down=down(1)),
        replace(EVERY, down=down(90, claim=OTHERS)),
        replace(EVERY, block=None),
        replace(EVERY, block=block(90, claim=OTHERS)),
        replace(EVERY, refused=refused(90, OTHERS)),
    ],
)
def test_an_election_is_lost_when_one_of_its_marks_has_changed(current: Marks) -> None:
    assert marks.claimed(current, EVERY, ALL, MINE, at(90)) == current
    assert not marks.is_elected(current, ALL, MINE)


def test_unclaimed_mark_can_change_during_an_election() -> None:
    current = replace(EVERY, block=None, credential=Credential(ANOTHER, NOW), receipt_block=ReceiptBlock(368, NOW))
    won = marks.claimed(current, EVERY, DOWN, MINE, at(90))
    assert marks.is_elected(won, DOWN, MINE)
    assert replace(won, down=current.down) == current


def test_a_message_in_doubt_claims_a_breaker_that_is_closed() -> None:
    won = marks.claimed(NONE, NONE, DOWN, MINE, at(90))
    assert won == Marks(down=Outage(at(90), claim=MINE))
    assert marks.is_elected(won, DOWN, MINE)
    assert marks.claimed(won, NONE, DOWN, OTHERS, at(90)) == won, "two of them"


@pytest.mark.parametrize("names", [BLOCK, REFUSED])
def test_claim_creates_no_block_or_refusal_that_was_removed(names: frozenset[str]) -> None:
    assert marks.claimed(NONE, NONE, names, MINE, at(90)) == NONE
    assert not marks.is_elected(NONE, names, MINE)


def test_an_own_claim_reported_refused_is_recognised() -> None:
    won = marks.claimed(EVERY, EVERY, ALL, MINE, at(90))
    again = marks.claimed(won, EVERY, ALL, MINE, at(91))
    assert again == won
    assert marks.is_elected(again, ALL, MINE)


@pytest.mark.parametrize("gone", ["down", "block", "refused"])
def test_attempt_that_lost_one_of_its_claims_is_not_elected(gone: str) -> None:
    """A reconnect or the provider's own word may have come between a write and its answer."""
    current = replace(marks.claimed(EVERY, EVERY, ALL, MINE, at(90)), **{gone: None})
    again = marks.claimed(current, EVERY, ALL, MINE, at(91))
    assert again == current
    assert not marks.is_elected(again, ALL, MINE)


ELECTED = Marks(
    down(90, claim=MINE), block(90, claim=MINE), refused(90, MINE), Credential(IN_USE, at(-9)), ReceiptBlock(368, NOW)
)
TAKEN = Marks(down(90, claim=OTHERS), block(90, claim=OTHERS), refused(90, OTHERS))


def test_claims_are_given_back_at_once_and_those_of_others_stay() -> None:
    free = marks.given_back(ELECTED, MINE, NOW)
    assert free == replace(ELECTED, down=down(0), block=block(0), refused=refused(0))
    assert marks.given_back(TAKEN, MINE, NOW) == TAKEN
    assert marks.given_back(NONE, MINE, NOW) == NONE
    assert marks.given_back(free, MINE, at(1)) == free, "once"


def test_an_answered_probe_with_nothing_to_send_closes_the_breaker_alone() -> None:
    closed = marks.answered_without_send(ELECTED, MINE, NOW)
    assert closed == replace(ELECTED, down=None, block=block(0), refused=refused(0))
    assert marks.answered_without_send(TAKEN, MINE, NOW) == TAKEN
    assert marks.answered_without_send(NONE, MINE, NOW) == NONE


@pytest.mark.parametrize("verdict", OUTAGES, ids=repr)
@pytest.mark.parametrize(
    ("wait", "doubled"), [(0, 10), (10, 20), (20, 40), (40, 80), (80, 160), (160, 300), (300, 300), (1, 10)]
)
@pytest.mark.parametrize(("jitter", "share"), [(0, 0.8), (0.5, 1), (1, 1.2)])
def test_a_trial_that_is_lost_or_down_doubles_the_wait(
    verdict: SendVerdict, wait: float, doubled: float, jitter: float, share: float
) -> None:
    """10 s to 5 min, ±20 %; what is remembered of the wait is without jitter."""
    seen = Marks(down=down(90, wait, MINE))
    assert after(verdict, seen, jitter=jitter).down == Outage(at(doubled * share), seconds(doubled))


@pytest.mark.parametrize("verdict", ANSWERS, ids=repr)
@pytest.mark.parametrize("wait", [0, 10, 300])
def test_any_answer_to_the_trial_closes_the_breaker_also_a_refusal(verdict: SendVerdict, wait: float) -> None:
    assert after(verdict, Marks(down=down(90, wait, MINE))).down is None


@pytest.mark.parametrize(
    "verdict", [Released(), Released(resend=True), Retry(), CredentialRefused(0), Lost()], ids=repr
)
def test_a_trial_that_never_reached_the_provider_gives_the_claim_back(verdict: SendVerdict) -> None:
    """Shut down, too late to begin, a reply that makes no request, no usable token: the provider said nothing."""
    assert after(verdict, Marks(down=down(90, 40, MINE)), answered=False).down == down(0, 40)


@pytest.mark.parametrize(
    ("verdict", "said"), [(ProviderDown(), True), (Lost(outage=True), True), *((v, False) for v in ANSWERS)]
)
def test_only_a_total_refusal_and_a_lost_answer_indicate_an_outage(verdict: SendVerdict, said: bool) -> None:
    assert marks.is_outage(verdict) is said


# ---- blocks


def test_the_first_block_lasts_ten_minutes() -> None:
    assert after(Blocked(BlockScope.SENDER, 131031), NONE).block == Block(at(600), seconds(600), 131031)


def test_a_block_stands_until_it_has_passed_and_doubles_then() -> None:
    for standing in (block(1), block(80, claim=OTHERS)):
        assert after(Blocked(BlockScope.SENDER, 131031), Marks(block=standing)).block == standing
        assert after(Blocked(BlockScope.SENDER, 131031), NONE, Marks(block=standing)).block == standing
    assert after(Blocked(BlockScope.SENDER, 131031), Marks(block=block(0, 1200))).block == Block(
        at(2400), seconds(2400), 131031
    )


def test_blocks_grow_to_six_hours() -> None:
    found, now, minutes = NONE, NOW, []
    for _ in range(8):
        won = marks.claimed(found, found, BLOCK, MINE, now + seconds(90)) if found.block else found
        found = marks.after_send(won, won, Blocked(BlockScope.SENDER, 368), True, IN_USE, MINE, LIMITS, now, NO_JITTER)
        assert found.block is not None
        assert (found.block.until, found.block.claim) == (now + found.block.wait, None)
        minutes.append(found.block.wait / timedelta(minutes=1))
        now = found.block.until
    assert minutes == [10, 20, 40, 80, 160, 320, 360, 360]


def test_the_probe_of_a_block_doubles_it_when_it_is_refused_again() -> None:
    assert after(Blocked(BlockScope.SENDER, 368), Marks(block=block(80, 1200, MINE))).block == Block(
        at(2400), seconds(2400), 368
    )


@pytest.mark.parametrize(
    "mark", [block(80, claim=MINE), block(0), block(80, claim=MINE, by_receipt=True, confirming=True)]
)
def test_an_accepted_send_lifts_a_block(mark: Block) -> None:
    assert after(Accepted("wamid.1"), Marks(block=mark)).block is None


def test_an_accepted_send_lifts_no_block_that_came_meanwhile() -> None:
    for current in (block(600), block(0), block(80, claim=OTHERS)):
        assert after(Accepted("wamid.1"), NONE, Marks(block=current)).block == current
        assert after(Accepted("wamid.1"), Marks(block=block(80, claim=MINE)), Marks(block=current)).block == current
    assert after(Accepted("wamid.1"), Marks(block=block(80, claim=MINE)), NONE).block is None


OTHER_VERDICTS = [v for v in [*OUTAGES, *ANSWERS, Released()] if not isinstance(v, Blocked | Accepted)]


@pytest.mark.parametrize("verdict", OTHER_VERDICTS, ids=repr)
def test_a_probe_of_a_block_with_another_answer_is_given_back(verdict: SendVerdict) -> None:
    """It says nothing of the block: the next message probes, and the block grows no longer."""
    assert after(verdict, Marks(block=block(80, 1200, MINE))).block == block(0, 1200)
    assert after(verdict, Marks(block=block(80, 1200, OTHERS))).block == block(80, 1200, OTHERS)
    assert after(verdict, Marks(block=block(9))).block == block(9)


@pytest.mark.parametrize("verdict", [*OUTAGES, *ANSWERS, Released()], ids=repr)
def test_verdict_changes_only_its_own_mark(verdict: SendVerdict) -> None:
    others = {"credential": Credential(IN_USE, at(-9), FORMER), "receipt_block": ReceiptBlock(131042, NOW, "k")}
    found = after(verdict, Marks(**others))
    assert (found.credential, found.receipt_block) == (others["credential"], others["receipt_block"])
    assert (found.block is not None) is isinstance(verdict, Blocked)
    assert (found.refused is not None) is isinstance(verdict, CredentialRefused)


def test_provider_notice_lifts_a_block_and_a_receipt_block() -> None:
    assert marks.unblocked(ELECTED) == replace(ELECTED, block=None, receipt_block=None)


# ---- news of the account


REMOVED = Disconnected("PARTNER_REMOVED", at(0))


def test_disconnected_account_is_noted_beside_all_other_marks() -> None:
    assert marks.account_disconnected(ELECTED, "PARTNER_REMOVED", at(0)) == replace(ELECTED, disconnected=REMOVED)
    assert marks.is_troubled(marks.account_disconnected(Marks(), "PARTNER_REMOVED", at(0)))


@pytest.mark.parametrize(("since", "is_noted"), [(-1, True), (0, True), (1, False)])
def test_news_from_before_the_credential_in_use_disconnects_nothing(since: int, is_noted: bool) -> None:
    before = Marks(credential=Credential(IN_USE, at(since)))
    assert (marks.account_disconnected(before, "PARTNER_REMOVED", at(0)) != before) is is_noted


def test_first_disconnection_counts_until_the_account_is_connected() -> None:
    before = Marks(disconnected=REMOVED)
    assert marks.account_disconnected(before, "ACCOUNT_DELETED", at(9)) == before


@pytest.mark.parametrize(("when", "is_lifted"), [(-1, False), (0, True), (1, True)])
def test_connected_account_lifts_an_earlier_disconnection_and_any_block(when: int, is_lifted: bool) -> None:
    found = marks.account_connected(replace(ELECTED, disconnected=REMOVED), at(when))
    expected = replace(ELECTED, block=None, receipt_block=None, credential=Credential(IN_USE, at(when)))
    assert found == replace(expected, disconnected=None if is_lifted else REMOVED)


def test_connected_account_leaves_a_later_connection_as_it_is() -> None:
    before = Marks(credential=Credential(IN_USE, at(9), FORMER))
    assert marks.account_connected(before, at(0)) == before
    assert marks.account_connected(Marks(), at(0)) == Marks()


# ---- blocks by receipt


BY_RECEIPT = Block(at(600), seconds(600), 131042, by_receipt=True)


def heard(seen: Marks, began: float | None = -30, code: int = 131042, at_: float = -5, now: datetime = NOW) -> Marks:
    noted = replace(seen, receipt_block=ReceiptBlock(code, at(at_), "a-key"))
    return marks.of_receipt(noted, None if began is None else at(began), LIMITS, now)


@pytest.mark.parametrize("code", [131042, 368, 190, 10])
def test_a_receipt_about_the_sender_blocks_it_and_never_asks_for_a_reconnect(code: int) -> None:
    assert heard(NONE, code=code) == Marks(block=replace(BY_RECEIPT, code=code))


def test_a_receipt_doubles_a_block_that_has_passed_and_leaves_one_that_stands() -> None:
    doubled = Block(at(2400), seconds(2400), 131042, by_receipt=True)
    assert heard(Marks(block=block(0, 1200))) == Marks(block=doubled)
    assert heard(Marks(block=block(0, 1200, by_receipt=True))) == Marks(block=doubled)
    assert heard(Marks(block=block(-900, 21600))).block == Block(at(21600), seconds(21600), 131042, by_receipt=True)
    for standing in (block(1), block(1, by_receipt=True), block(80, claim=OTHERS, by_receipt=True)):
        assert heard(Marks(block=standing)) == Marks(block=standing)


def test_a_receipt_while_an_accepted_send_is_being_confirmed_doubles_the_block() -> None:
    """131042 comes after a 200: this is the word that the accepted send was waiting for."""
    for until in (60, 1, 0, -900):
        confirming = block(until, 1200, by_receipt=True, confirming=True)
        assert heard(Marks(block=confirming)).block == Block(at(2400), seconds(2400), 131042, by_receipt=True)


@pytest.mark.parametrize("wait", [600, 21600])
def test_a_block_by_receipt_is_lifted_by_a_send_accepted_a_minute_after_another(wait: float) -> None:
    seen = Marks(block=block(80, wait, MINE, by_receipt=True))
    first = after(Accepted("wamid.1"), seen)
    assert first.block == block(60, wait, by_receipt=True, confirming=True)
    won = marks.claimed(first, first, BLOCK, MINE, at(150))
    assert after(Accepted("wamid.2"), won).block is None


def test_a_block_by_receipt_that_an_answer_confirms_grows_on() -> None:
    seen = Marks(block=block(80, 1200, MINE, by_receipt=True))
    found = after(Blocked(BlockScope.SENDER, 131042), seen).block
    assert found is not None
    assert (found.until, found.wait, found.confirming) == (at(2400), seconds(2400), False)


@pytest.mark.parametrize(
    ("began", "received", "counts"),
    [
        pytest.param(-11, -5, False, id="its last attempt began before this credential"),
        pytest.param(-10, -5, True, id="its last attempt began with this credential"),
        pytest.param(-9, -5, True, id="its last attempt began after it"),
        pytest.param(-11, 5, False, id="the attempt counts, not the receipt"),
        pytest.param(None, -5, True, id="no attempt known: the receipt's own time, after"),
        pytest.param(None, -12, False, id="no attempt known: the receipt's own time, before"),
        pytest.param(None, -10.5, True, id="the provider tells whole seconds"),
        pytest.param(-5, -12, False, id="replayed since: the receipt is of the attempt before"),
    ],
)
def test_a_receipt_of_an_old_connection_blocks_nothing(began: float | None, received: float, counts: bool) -> None:
    seen = Marks(credential=Credential(IN_USE, at(-10)))
    found = heard(seen, began, at_=received)
    assert found == (replace(seen, block=BY_RECEIPT) if counts else seen)
    assert heard(replace(seen, block=block(0, 1200)), began, at_=received).receipt_block is None


def test_without_a_receipt_nothing_changes() -> None:
    assert marks.of_receipt(EVERY, at(-9), LIMITS, NOW) == EVERY


# ---- credentials


@pytest.mark.parametrize("code", [0, 190, 102, 467])
def test_a_credential_that_is_dead_is_never_probed(code: int) -> None:
    assert after(CredentialRefused(code), NONE).refused == RefusedCredential(IN_USE, code, NOW)


@pytest.mark.parametrize("code", [3, 10, 200, 299, 131005])
def test_curable_credential_is_probed_every_two_hours(code: int) -> None:
    first = after(CredentialRefused(code, curable=True), NONE)
    assert first.refused == RefusedCredential(IN_USE, code, NOW, NOW + 2 * HOURS)
    claimed = Marks(refused=refused(80, MINE))
    again = after(CredentialRefused(code, curable=True), claimed)
    assert again == first, "a refusal sets since = now"
    assert after(CredentialRefused(190), claimed).refused == RefusedCredential(IN_USE, 190, NOW)


@pytest.mark.parametrize("fingerprint", [IN_USE, FORMER])
def test_accepted_send_clears_only_the_refusal_of_its_own_credential(fingerprint: str) -> None:
    seen = Marks(refused=refused(80, OTHERS))
    assert (after(Accepted("w"), seen, fingerprint=fingerprint).refused is None) is (fingerprint == IN_USE)
    assert after(Accepted("w"), NONE, seen).refused == seen.refused, "it came meanwhile"


@pytest.mark.parametrize(
    "verdict",
    [v for v in [*OUTAGES, *ANSWERS, Released()] if not isinstance(v, Accepted | CredentialRefused)],
    ids=repr,
)
def test_a_probe_of_a_credential_with_another_answer_is_given_back(verdict: SendVerdict) -> None:
    assert after(verdict, Marks(refused=refused(80, MINE))).refused == refused(0)
    assert after(verdict, Marks(refused=refused(80, OTHERS))).refused == refused(80, OTHERS)


def test_changed_refusal_is_left_alone() -> None:
    for seen, current in ((NONE, Marks(refused=refused(None))), (Marks(refused=refused(80, MINE)), NONE)):
        assert after(CredentialRefused(190), seen, current).refused == current.refused


def in_use(seen: Marks, fingerprint: str = IN_USE, now: datetime = NOW) -> Marks:
    return marks.of_credential_in_use(seen, fingerprint, now)


def test_the_first_send_records_its_credential() -> None:
    assert in_use(NONE) == Marks(credential=Credential(IN_USE, NOW))
    assert in_use(in_use(NONE), now=at(9)) == in_use(NONE), "since then"
    assert in_use(NONE, "") == NONE, "no credential is none in use"


def test_another_credential_is_a_reconnect() -> None:
    """The refused mark goes, the block is over and will be probed, and what receipts say of before counts no more."""
    before = Marks(
        down(9), block(900, 1200), refused(None, fp=FORMER), Credential(FORMER, at(-99)), ReceiptBlock(368, NOW)
    )
    connected = in_use(before)
    assert connected == Marks(down(9), block(0, 1200), None, Credential(IN_USE, NOW, FORMER), ReceiptBlock(368, NOW))
    assert marks.of_receipt(connected, at(-9), LIMITS, NOW).block == block(0, 1200)


def test_a_reconnect_takes_the_claim_of_a_block_and_leaves_one_that_is_over() -> None:
    known = Credential(FORMER, at(-99))
    assert in_use(Marks(block=block(80, claim=OTHERS), credential=known)).block == block(0)
    assert in_use(Marks(block=block(-9, claim=OTHERS), credential=known)).block == block(-9, claim=OTHERS)


def test_a_refusal_of_the_credential_in_use_stays() -> None:
    assert in_use(Marks(refused=refused(None), credential=Credential(FORMER, at(-99)))).refused == refused(None)
    assert in_use(Marks(refused=refused(None, fp=FORMER))).refused is None


@pytest.mark.parametrize("fingerprint", [IN_USE, FORMER])
def test_during_a_rollout_neither_credential_is_a_reconnect(fingerprint: str) -> None:
    rolling = Marks(block=block(900), refused=refused(None), credential=Credential(IN_USE, at(-9), FORMER))
    assert in_use(rolling, fingerprint) == rolling
    third = in_use(rolling, ANOTHER)
    assert third.credential == Credential(ANOTHER, NOW, IN_USE)
    assert (third.block, third.refused) == (block(0), None)


@pytest.mark.parametrize("current", [None, refused(80, OTHERS)])
def test_refusal_of_a_replaced_credential_is_not_noted(current: RefusedCredential | None) -> None:
    verdict = CredentialRefused(190, replaced=True)
    assert after(verdict, Marks(refused=current)).refused == current
    assert after(verdict, Marks(refused=refused(80, MINE))).refused == refused(0), "the claim is given back"


# ---- news of the account, and credentials that nobody sends with

CUT_OFF = Disconnected("PARTNER_REMOVED", at(-9))


def test_first_report_of_a_disconnection_is_kept() -> None:
    cut_off = marks.account_disconnected(NONE, "PARTNER_REMOVED", at(-9))
    assert cut_off == Marks(disconnected=CUT_OFF)
    assert marks.account_disconnected(cut_off, "ACCOUNT_DELETED", NOW) == cut_off


@pytest.mark.parametrize(("since", "holds"), [(-10, True), (-9, True), (-8, False)])
def test_late_report_about_the_former_connection_disconnects_nothing(since: float, holds: bool) -> None:
    known = Marks(credential=Credential(IN_USE, at(since)))
    assert (marks.account_disconnected(known, "PARTNER_REMOVED", at(-9)).disconnected == CUT_OFF) is holds


@pytest.mark.parametrize(("at_", "lifts"), [(-10, False), (-9, True), (0, True)])
def test_report_of_a_connection_lifts_an_earlier_disconnection(at_: float, lifts: bool) -> None:
    connected = marks.account_connected(Marks(disconnected=CUT_OFF, block=block(9)), at(at_))
    assert connected == Marks(disconnected=None if lifts else CUT_OFF)


def test_new_credential_ends_a_disconnection_and_the_first_one_does_not() -> None:
    assert in_use(Marks(disconnected=CUT_OFF, credential=Credential(FORMER, at(-99)))).disconnected is None
    assert in_use(Marks(disconnected=CUT_OFF)).disconnected == CUT_OFF


@pytest.mark.parametrize(
    ("known", "refusal", "fingerprint", "lifts"),
    [
        (Credential(FORMER, at(-9)), FORMER, IN_USE, True),
        (Credential(IN_USE, at(-9), FORMER), FORMER, IN_USE, True),
        (Credential(IN_USE, at(-9), FORMER), IN_USE, IN_USE, False),
        (Credential(IN_USE, at(-9), FORMER), IN_USE, FORMER, False),
        (Credential(FORMER, at(-9)), FORMER, "", False),
        (None, FORMER, IN_USE, True),
    ],
    ids=["a new one", "noted late", "in use", "an older revision's", "none", "never sent"],
)
def test_refusal_is_lifted_where_another_credential_is_in_use(
    known: Credential | None, refusal: str, fingerprint: str, lifts: bool
) -> None:
    before = Marks(refused=refused(None, fp=refusal), credential=known)
    found = marks.lifted(before, fingerprint, NOW)
    assert (found.refused is None) is lifts
    assert marks.is_reconnected(before, found) is lifts


@pytest.mark.parametrize(
    ("before", "found", "said"),
    [
        (NONE, NONE, False),
        (Marks(refused=refused(None)), NONE, True),
        (Marks(disconnected=CUT_OFF), NONE, True),
        (Marks(refused=refused(None), disconnected=CUT_OFF), Marks(disconnected=CUT_OFF), False),
        (Marks(refused=refused(None)), Marks(refused=refused(0)), False),
        (Marks(block=block(9)), NONE, False),
    ],
    ids=["sound", "refusal lifted", "account connected", "account still cut off", "still refused", "a block"],
)
def test_a_sender_is_reconnected_once_nothing_cuts_it_off(before: Marks, found: Marks, said: bool) -> None:
    assert marks.is_reconnected(before, found) is said


# ---- backends

TOOK, TOOK_NOTHING = BackendFailed(took=True), BackendFailed(took=False)
ANSWERED = BackendAnswered()


def called(
    outcome: BackendAnswered | BackendFailed,
    seen: Outage | None,
    current: Outage | None,
    event: str = "this",
    jitter: float = NO_JITTER,
) -> Outage | None:
    found = marks.after_call(Marks(down=current), Marks(down=seen), outcome, event, MINE, LIMITS, NOW, jitter)
    assert found == Marks(down=found.down)
    return found.down


@pytest.mark.parametrize(
    ("outcome", "made"),
    [
        pytest.param(TOOK, Outage(NOW, by="this"), id="answer lost: the next try of this event is the trial"),
        pytest.param(TOOK_NOTHING, Outage(at(10), seconds(10), by="this"), id="took nothing: 10 s"),
        pytest.param(ANSWERED, None, id="answered"),
    ],
)
def test_the_first_failure_of_a_backend_marks_it_by_its_event(outcome: Any, made: Outage | None) -> None:
    assert called(outcome, None, None) == made


@pytest.mark.parametrize(
    "mark",
    [
        down(9),
        down(9, by="this"),
        down(9, by="another"),
        down(0),
        down(80, claim=MINE),
        down(80, claim=MINE, by="this"),
    ],
)
def test_an_answer_deletes_the_mark_that_was_seen(mark: Outage) -> None:
    assert called(ANSWERED, mark, mark) is None


@pytest.mark.parametrize("current", [down(80, claim=MINE), down(80, claim=MINE, by="another")])
def test_an_answer_to_the_trial_deletes_the_mark_though_another_failure_changed_it(current: Outage) -> None:
    assert called(ANSWERED, down(80, claim=MINE, by="this"), current) is None


@pytest.mark.parametrize("current", [down(9), down(9, by="another"), down(80, claim=OTHERS)])
def test_an_answer_deletes_no_mark_that_came_or_changed_meanwhile(current: Outage) -> None:
    assert called(ANSWERED, None, current) == current
    assert called(ANSWERED, down(5), current) == current


@pytest.mark.parametrize("outcome", [TOOK, TOOK_NOTHING, ANSWERED])
@pytest.mark.parametrize("seen", [down(9), down(0, by="another"), down(80, claim=MINE)])
def test_deleted_backend_mark_stays_deleted(outcome: Any, seen: Outage) -> None:
    assert called(outcome, seen, None) is None


@pytest.mark.parametrize("outcome", [TOOK, TOOK_NOTHING])
@pytest.mark.parametrize("by", [None, "this"])
@pytest.mark.parametrize(("wait", "doubled"), [(0, 10), (10, 20), (160, 300), (300, 300)])
@pytest.mark.parametrize(("jitter", "share"), [(0, 0.8), (0.5, 1), (1, 1.2)])
def test_a_backends_trial_that_fails_doubles_the_wait(
    outcome: Any, by: str | None, wait: float, doubled: float, jitter: float, share: float
) -> None:
    elected = down(90, wait, MINE, by)
    expected = Outage(at(doubled * share), seconds(doubled), by=by)
    assert called(outcome, elected, elected, jitter=jitter) == expected


@pytest.mark.parametrize(
    ("mark", "outcome", "joint"),
    [
        (down(300, 300, by="another"), TOOK, down(300, 300)),
        (down(300, 300, by="another"), TOOK_NOTHING, down(300, 300)),
        (down(-5, 0, by="another"), TOOK, down(-5, 0)),
        (down(-5, 0, by="another"), TOOK_NOTHING, down(10, 10)),
        (down(80, 20, OTHERS, by="another"), TOOK_NOTHING, down(80, 20, OTHERS)),
    ],
)
@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "came meanwhile"])
def test_the_failure_of_a_second_event_makes_it_an_outage_of_all(
    mark: Outage, outcome: Any, joint: Outage, is_seen: bool
) -> None:
    assert called(outcome, mark if is_seen else None, mark) == joint


@pytest.mark.parametrize("outcome", [TOOK, TOOK_NOTHING])
@pytest.mark.parametrize("mark", [down(9), down(9, by="this"), down(80, claim=OTHERS), down(-1)])
def test_a_late_failure_changes_no_mark_that_holds_it_back_already(outcome: Any, mark: Outage) -> None:
    assert called(outcome, None, mark) == mark
    assert called(outcome, mark, mark) == mark


@pytest.mark.parametrize(("by", "said"), [(None, True), ("this", True), ("another", False)])
def test_a_mark_of_one_event_holds_back_that_one_alone(by: str | None, said: bool) -> None:
    assert marks.holds_back(down(9, by=by), "this") is said
    assert not marks.holds_back(None, "this")


def test_a_backend_has_no_mark_but_the_breaker() -> None:
    assert {field.name for field in fields(Marks)} == {
        "down", "block", "refused", "credential", "receipt_block", "disconnected", "bucket", "limited", "version"
    }  # fmt: skip
