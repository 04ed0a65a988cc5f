"""A message costs the same in a large conversation, at a sender with many contacts; docs/reliability.md: full runs."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.domain.record import Delivery
from shared.stores import codec, conversation_codec
from shared.stores.codec import Plain
from tests.contract.full_size_contents import contacts, conversation_of, messages
from tests.contract.full_size_runs import MESSAGES, PAGE, PAGES, Result, Size, faults_of, run
from tests.contract.full_size_stores import STORES, sqlite
from tests.support.whole_pipeline import NUMBER, USER_ID, WholePipeline

SIZE = Size(contacts=1000, messages=300)
FOR_EACH = {"sqlite": ("steps",), "redis": ("commands", "values"), "firestore": ("reads",)}
"""What each item of a page costs one of, at least."""


@pytest.mark.parametrize("store", STORES)
def test_message_costs_the_same_in_a_large_conversation_among_many(store: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as counted:
        result = run(counted, SIZE)
    assert faults_of(result) == []
    assert list(result.empty) == [*MESSAGES, *PAGES]
    assert min(result.full[page][unit] for page in PAGES for unit in FOR_EACH[store]) >= PAGE
    assert min(sum(result.full[step].values()) for step in MESSAGES) > 0
    if store != "firestore":  # the size of the emulator's process says little of so few
        assert min(result.per_contact, result.per_message) > 500


def test_step_that_costs_one_more_is_a_fault_and_a_search_may_cost_some() -> None:
    before = {MESSAGES[1]: {"commands": 60, "values": 50}, PAGES[1]: {"commands": 28, "values": 92}}
    after = {MESSAGES[1]: {"commands": 60, "values": 51}, PAGES[1]: {"commands": 35, "values": 99}}
    result = Result(SIZE, before, after, 0, 0, 0)
    assert faults_of(result) == [
        "it is handled and ends, with a reply: 60 commands, 51 values, and 60 commands, 50 values in an empty store"
    ]
    assert faults_of(replace(result, full=before)) == []


def test_contents_have_the_fields_of_what_the_services_write(tmp_path: Path) -> None:
    with sqlite(tmp_path) as counted:
        pipeline = WholePipeline(counted.store)
        for _ in range(2):
            event = pipeline.receive()
            reply = pipeline.handle(event)
            pipeline.send(reply)
        written = counted.store.conversation_entries([conversation_of(USER_ID), conversation_of(NUMBER)])
        records = [counted.store.get(task.key) for task in (reply, event)]
    filled = list(contacts(0, 1))
    assert [set_fields(conversation_codec.encode(entry)) for entry in filled] == [
        set_fields(conversation_codec.encode(entry)) for entry in written.values()
    ]
    assert [shape(record) for record in messages(0, 2)] == [shape(record) for record in records]


def set_fields(plain: Mapping[str, Any]) -> set[str]:
    return {name for name, value in plain.items() if value not in (None, [], {})}


def shape(record: Delivery | None) -> tuple[set[str], list[set[str]]]:
    assert record
    plain: Plain = codec.encode(record)
    return set_fields(plain), [set_fields(attempt) for attempt in plain["attempts_log"]]
