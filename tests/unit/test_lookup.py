"""Lookup of ids: in full, by their first characters, and what came for a number that is nobody's."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.domain.identity import is_id_prefix, message_event_id
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind
from shared.domain.tenants import Sender
from shared.operations.lookup import MATCHES, Ambiguous, LookupResult, Match, find
from shared.stores.sqlite.store import SqliteStore
from tests.support.builders import NOW, at, done, dropped, pending

SENDER, STRANGER = "100000000000001", "123456123"
KEY, CORRELATION = "abcdef01" + "0" * 32, "4f1c2a90-the-correlation"
TEST_BUTTON = "ABGGFlA5Fpa"
"""The message id of Meta's Test button."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "pombo.sqlite", Limits(), lambda: NOW)
    yield store
    store.close()


def put(store: SqliteStore, record: Delivery, **changes: Any) -> Delivery:
    record = replace(record, **changes)
    store.create(record)
    return record


def look(store: SqliteStore, id: str) -> LookupResult | None:
    return find(store, id, ["meta", "other"], [Sender("default", "other", SENDER), Sender("default", "meta", SENDER)])


def event(store: SqliteStore, **changes: Any) -> Delivery:
    return put(store, pending(Kind.INBOUND), **({"key": KEY, "correlation_id": CORRELATION} | changes))


@pytest.mark.parametrize("given", [KEY, KEY[:8], KEY[:9], KEY[:39]])
def test_a_key_is_known_by_eight_or_more_of_its_characters(store: SqliteStore, given: str) -> None:
    record = event(store)
    assert look(store, given) == LookupResult(KEY, [record])


@pytest.mark.parametrize("given", [CORRELATION, CORRELATION[:8], CORRELATION[:-1]])
def test_a_correlation_id_is_known_by_its_beginning_and_leads_to_all_its_records(
    store: SqliteStore, given: str
) -> None:
    record = event(store)
    reply = put(store, pending(), correlation_id=CORRELATION)
    assert look(store, given) == LookupResult(CORRELATION, [record, reply])


def test_a_part_of_a_replys_key_names_the_reply_among_all_records_of_its_event(store: SqliteStore) -> None:
    record, reply = event(store), put(store, pending(), key="9f" * 20, correlation_id=CORRELATION)
    assert look(store, "9f9f9f9f") == LookupResult(reply.key, [record, reply])


@pytest.mark.parametrize("given", [KEY[:7], CORRELATION[:7], KEY[1:], KEY.upper(), "", "%", "a" * 65, "abcdef01%"])
def test_fewer_characters_or_others_lead_to_nothing(store: SqliteStore, given: str) -> None:
    event(store)
    assert look(store, given) is None


@pytest.mark.parametrize(
    ("text", "may"),
    [("a" * 7, False), ("a" * 8, True), ("a" * 64, True), ("a" * 65, False), ("aaaa.aaaa", False), ("aaaa~aaa", False)],
)
def test_id_prefix_has_8_to_64_valid_characters(text: str, may: bool) -> None:
    assert is_id_prefix(text) is may


def test_a_message_id_of_whatsapp_is_known_as_a_whole_alone(store: SqliteStore) -> None:
    came = event(store, key=message_event_id("meta", SENDER, "wamid.HBgLcame"))
    reply = put(store, done(), key="9f" * 20, correlation_id=CORRELATION, provider_id="wamid.HBgLsent")
    for id in ("wamid.HBgLcame", "wamid.HBgLsent"):
        assert look(store, id) == LookupResult(id, [came, reply])
        assert look(store, id[:-1]) is None


def test_exact_id_wins_over_longer_ids_with_that_prefix(store: SqliteStore) -> None:
    short = event(store, correlation_id="order-2026")
    event(store, key="1" * 40, correlation_id="order-2026-2")
    assert look(store, "order-2026") == LookupResult("order-2026", [short])


def test_an_ambiguous_id_is_shown_with_kinds_and_times(store: SqliteStore) -> None:
    event(store, received_at=at(1))
    put(store, pending(), key="abcdef01" + "1" * 32, correlation_id="abcdef01-mine", received_at=at(2))
    with pytest.raises(Ambiguous) as caught:
        look(store, "abcdef01")
    assert caught.value.matches == [
        Match("abcdef01-mine", "correlation id", at(2)),
        Match(KEY, "event", at(1)),
        Match("abcdef01" + "1" * 32, "message", at(2)),
    ]
    assert not caught.value.more


@pytest.mark.parametrize(("number", "shown", "more"), [(MATCHES, MATCHES, False), (MATCHES + 1, MATCHES, True)])
def test_ten_matches_are_shown_at_most(store: SqliteStore, number: int, shown: int, more: bool) -> None:
    for n in range(number):
        event(store, key=f"abcdef01{n:032}")
    with pytest.raises(Ambiguous) as caught:
        look(store, "abcdef01")
    assert (len(caught.value.matches), caught.value.more) == (shown, more)


def test_many_records_of_one_event_are_one_match(store: SqliteStore) -> None:
    for n in range(20):
        event(store, key=f"{n:040}")
    found = look(store, CORRELATION[:8])
    assert found is not None
    assert len(found.records) == 20


def test_match_of_a_newer_version_is_still_shown(store: SqliteStore) -> None:
    event(store, received_at=at(1))
    state: Any = "parked"
    event(store, key="abcdef01" + "9" * 32, state=state)
    with pytest.raises(Ambiguous) as caught:
        look(store, "abcdef01")
    assert caught.value.matches[1] == Match("abcdef01" + "9" * 32, "cannot be read", None)


class Forgetful(SqliteStore):
    """Names ids whose records have just gone."""

    def ids_with_prefix(self, prefix: str, limit: int) -> list[str]:
        return ["abcdef01" + "8" * 32, *super().ids_with_prefix(prefix, limit)]


def test_id_whose_record_was_deleted_meanwhile_is_not_a_match(tmp_path: Path) -> None:
    store = Forgetful(tmp_path / "pombo.sqlite", Limits(), lambda: NOW)
    assert look(store, "abcdef01") is None
    record = event(store)
    assert look(store, "abcdef01") == LookupResult(KEY, [record])
    store.close()


def test_message_for_an_unknown_sender_is_found_by_its_full_message_id(store: SqliteStore) -> None:
    for n in range(150):
        put(store, dropped(Kind.INBOUND), key=f"{n:040}", correlation_id=f"other-{n}", sender=STRANGER,
            reason="unknown_sender")  # fmt: skip
    key = message_event_id("meta", STRANGER, TEST_BUTTON)
    record = put(
        store, dropped(Kind.INBOUND), key=key, correlation_id="theirs-01", sender=STRANGER, reason="unknown_sender"
    )
    assert look(store, TEST_BUTTON) == LookupResult(TEST_BUTTON, [record])
    assert look(store, TEST_BUTTON[:-1]) is None


def test_id_that_is_known_reads_no_senders(store: SqliteStore) -> None:
    """A deployment may have thousands, at a read each."""
    event(store)
    put(store, done(), key="9f" * 20, provider="meta", provider_id="wamid.HBgLsent")

    def senders() -> Iterator[Sender]:
        pytest.fail("the senders were listed")
        yield

    for id in (KEY, KEY[:8], CORRELATION, CORRELATION[:8], "wamid.HBgLsent"):
        assert find(store, id, ["meta"], senders()) is not None


def test_message_id_is_found_at_a_sender_of_any_tenant(store: SqliteStore) -> None:
    came = event(store, key=message_event_id("meta", STRANGER, "wamid.HBgLother"), tenant="bakery")
    ours, theirs = Sender("default", "meta", SENDER), Sender("bakery", "meta", STRANGER)
    assert find(store, "wamid.HBgLother", ["meta"], [ours]) is None
    assert find(store, "wamid.HBgLother", ["meta"], [ours, theirs]) == LookupResult("wamid.HBgLother", [came])
