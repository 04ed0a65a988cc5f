"""What a handler drops, whatever it says: its words are never taken for a reason of ours."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shared.domain.dead_letters import ERRORS, DeadLetterFilter, dead_letter, is_letter
from shared.domain.delivery.answers import NotAllowed
from shared.domain.delivery.operator import discard, replay
from shared.domain.delivery.settle import settle
from shared.domain.listings import Listing, mark_of
from shared.domain.record import Attempt, Delivery, Kind, State
from shared.domain.verdicts import Dropped
from shared.operations.dead_letters import find
from shared.operations.timeline.records import moments
from shared.operations.timeline.sentences import DEAD, DROPPED
from shared.stores.codec import decode, encode, from_json, to_json
from tests.support.builders import LIMITS, MINE, NO_JITTER, NOW, at, dropped, leased
from tests.support.pipelines import Clock, Store

OURS = sorted({*ERRORS, *DEAD, *DROPPED, "invalid", "cancelled", "collected", "handler"})
WORDS = [*OURS, "", "He wrote in Latin."]
each_word = pytest.mark.parametrize("words", WORDS)


def now_dropped(words: str) -> Delivery:
    """As this version leaves it."""
    step = settle(leased(Kind.INBOUND, token=MINE), MINE, Dropped(words), LIMITS, NOW, NO_JITTER)
    assert step.write is not None
    return step.write


def once_dropped(words: str) -> Delivery:
    """As an earlier version left it: the handler's words as the reason."""
    return dropped(Kind.INBOUND, reason=words, attempts_log=(Attempt(at(-10), 1, "dropped"),))


each_version = pytest.mark.parametrize("drop", [now_dropped, once_dropped], ids=["now", "as it was stored once"])


@each_word
def test_handler_drop_stores_its_own_reason_and_the_handlers_text(words: str) -> None:
    record = now_dropped(words)
    assert (record.state, record.reason, record.metadata) == (State.DROPPED, "handler", {"handler_said": words})
    assert record.expire_at == NOW + LIMITS.inbound_retention


@each_version
@each_word
def test_handler_drop_is_not_a_dead_letter_and_cannot_be_replayed(drop: Callable[[str], Delivery], words: str) -> None:
    record = drop(words)
    assert (mark_of(record), dead_letter(record), is_letter(record)) == (None, None, False)
    with pytest.raises(NotAllowed):
        replay(record, LIMITS, NOW)
    with pytest.raises(NotAllowed):
        discard(record, LIMITS, NOW)


@each_version
@each_word
def test_timeline_of_a_handler_drop_has_the_reason(drop: Callable[[str], Delivery], words: str) -> None:
    told = [one.sentence for one in moments(drop(words), "", lambda *_: None, (), {}, None) if one.what == "dropped"]
    why = words.rstrip(".")
    assert told == [f"The handler dropped it: {why}." if words else "The handler dropped it."]


@each_version
@each_word
def test_handler_drop_survives_encoding(drop: Callable[[str], Delivery], words: str) -> None:
    record = drop(words)
    assert decode(from_json(to_json(encode(record)))) == record


@each_version
@pytest.mark.parametrize("words", OURS)
def test_handler_drop_is_in_no_list_of_dead_letters(
    drop: Callable[[str], Delivery], words: str, tmp_path: Path
) -> None:
    store = Store(tmp_path, Clock())
    stranger = dropped(Kind.INBOUND, key="5" * 40, reason="unknown_sender", tenant="")
    for record in (replace(drop(words), key="d" * 40), stranger):
        store.create(record)
    found = [letter.key for page in find(store, DeadLetterFilter(errors=frozenset(ERRORS))) for letter in page.letters]
    assert found == [stranger.key]
    assert Listing.UNKNOWN_SENDER in DeadLetterFilter(errors=frozenset(ERRORS)).listings


@pytest.mark.parametrize("tenant", ["", "default"])
def test_our_own_drop_is_still_recognised(tenant: str) -> None:
    fresh = dropped(Kind.INBOUND, reason="unknown_sender", tenant=tenant)
    replayed = replace(fresh, attempts_log=(Attempt(at(-10), 1, "unknown_sender"),), round=1)
    for record in (fresh, replayed):
        assert (mark_of(record), is_letter(record)) == (Listing.UNKNOWN_SENDER, True)
    given_up = dropped(Kind.INBOUND, reason="discarded", attempts_log=(Attempt(at(-10), 8, "handler_failed"),))
    assert discard(given_up, LIMITS, NOW).write is None


def test_handler_drop_preserves_other_metadata() -> None:
    held = leased(Kind.INBOUND, token=MINE, metadata={"order": "1"})
    step = settle(held, MINE, Dropped("spam"), LIMITS, NOW, NO_JITTER)
    assert step.write is not None
    assert step.write.metadata == {"order": "1", "handler_said": "spam"}
