"""A batch with an invalid write, and what a closed connection raises: without a Firestore."""

from datetime import UTC, datetime
from typing import Any

import pytest

from shared.domain.errors import StoreUnavailable
from shared.domain.record import ReceiptKind
from shared.stores.firestore.batches import Made, NotStored, write_each
from shared.stores.firestore.connection import FirestoreRpc, InvalidWrite, LostRace
from shared.stores.firestore.records import noting


class Rpc:
    """Refuses the batch, and then each write as it is told."""

    def __init__(self, *alone: Exception | None) -> None:
        self.alone = list(alone)

    def batch(self, *_: Any) -> Any:
        raise InvalidWrite

    def commit(self, *_: Any) -> None:
        error = self.alone.pop(0)
        if error:
            raise error


def test_writes_of_a_refused_batch_are_made_one_by_one() -> None:
    away = StoreUnavailable()
    rpc: Any = Rpc(LostRace(), InvalidWrite(), None, away)
    refused, invalid, written, unknown = write_each(rpc, [{}] * 4, None)  # type: ignore[arg-type]
    assert (refused, written) == (Made.REFUSED, Made.WRITTEN)
    assert isinstance(invalid, NotStored)
    assert unknown is away


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
