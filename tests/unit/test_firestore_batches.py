"""A batch with an invalid write or with one document twice, and what a closed connection raises: without Firestore."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.domain.errors import StoreUnavailable
from shared.domain.record import ReceiptKind
from shared.stores.firestore.batches import Made, NotStored, write_each
from shared.stores.firestore.connection import FirestoreRpc
from shared.stores.firestore.errors import InvalidWrite, LostRace
from shared.stores.firestore.records import noting
from shared.stores.firestore.rest_json import JsonWrite


class Rest:
    """Answers batches with these codes, or refuses them, and then each write as it is told."""

    def __init__(self, *alone: Exception | None, codes: Sequence[Sequence[int]] = ()) -> None:
        self.alone = list(alone)
        self.codes = list(codes)
        self.batches: list[list[str]] = []

    def patience(self, _: float) -> None: ...

    async def batch(self, writes: Sequence[JsonWrite], _: Any) -> Sequence[int]:
        self.batches.append([write.name for write in writes])
        if not self.codes:
            raise InvalidWrite
        return self.codes.pop(0)

    async def commit(self, *_: Any) -> None:
        error = self.alone.pop(0)
        if error:
            raise error


def written(rest: Any, *names: str) -> list[Made | Exception]:
    return asyncio.run(write_each(rest, [JsonWrite(name, b"{}") for name in names]))


def test_writes_of_a_refused_batch_are_made_one_by_one() -> None:
    away = StoreUnavailable()
    refused, invalid, one, unknown = written(Rest(LostRace(), InvalidWrite(), None, away), *"abcd")
    assert (refused, one) == (Made.REFUSED, Made.WRITTEN)
    assert isinstance(invalid, NotStored)
    assert unknown is away


def test_no_batch_has_one_document_twice() -> None:
    rest = Rest(codes=[[0, 0], [6, 14], [5]])
    assert written(rest, *"abaab") == [Made.WRITTEN, Made.WRITTEN, Made.REFUSED, Made.REFUSED, Made.TRY_AGAIN]
    assert rest.batches == [["a", "b"], ["a", "b"], ["a"]]


@pytest.mark.parametrize("code", [1, 2, 4, 8, 10, 13, 14])
def test_transient_code_means_that_the_write_is_tried_again(code: int) -> None:
    assert written(Rest(codes=[[code]]), "a") == [Made.TRY_AGAIN]


@pytest.mark.parametrize("code", [3, 7, 11, 12, 15, 16, 99])
def test_any_other_code_is_a_permanent_refusal(code: int) -> None:
    (found,) = written(Rest(codes=[[code]]), "a")
    assert isinstance(found, NotStored)


@pytest.mark.parametrize("is_closed", [False, True])
def test_value_error_is_an_outage_only_after_the_connection_was_closed(is_closed: bool) -> None:
    """grpc raises it for a channel that was closed; any other is a mistake of ours."""
    rpc = FirestoreRpc("a-project", "pombo", "127.0.0.1:1")

    def call() -> None:
        if is_closed:
            rpc.close()
        raise ValueError("wrong")

    with pytest.raises(StoreUnavailable if is_closed else ValueError) as raised:
        rpc._guarded(call)
    assert isinstance(raised.value, StoreUnavailable) is is_closed


def test_path_of_a_receipt_is_quoted_and_needs_no_escapes() -> None:
    write = noting("a" * 40, 0, ReceiptKind.FAILED, datetime(2026, 3, 1, tzinfo=UTC), 131026, "b" * 40)
    (transform,) = write["update_transforms"]
    assert transform["field_path"] == f"receipts.`0`.`failed.{'b' * 40}.131026`"
