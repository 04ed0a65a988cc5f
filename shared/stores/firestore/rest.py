"""The webhook service's calls to Firestore, over REST: they cost a fifth of the gRPC library's processor time.

https://cloud.google.com/firestore/docs/reference/rest (2026-11). A batch whose answer was lost may have been
applied, and the writes of its retry are then refused.
"""

from collections.abc import Collection, Sequence
from typing import Any

import orjson

from shared.domain.errors import StoreUnavailable
from shared.net.async_http import CallFailed
from shared.net.patience import OutOfPatience, Patience
from shared.net.rest_client import NoToken, Refused, RestClient, Token
from shared.stores.firestore.errors import CONTENTION, QUICK, InvalidWrite
from shared.stores.firestore.records import Document
from shared.stores.firestore.rest_json import JsonWrite, document_of

HOST = "firestore.googleapis.com"

CONNECTIONS = 12
"""Batches are few: this leaves room for reads of what exists already, and of the registry."""

OWNER = NoToken(b"Authorization: Bearer owner\r\n")
"""The emulator takes BatchWrite only from an administrator."""


class FirestoreRest:
    """A database. Documents are named relative to it. All calls raise StoreUnavailable."""

    def __init__(self, project: str, database: str, emulator: str | None, token: Token) -> None:
        self._database = f"projects/{project}/databases/{database}"
        self.root = f"{self._database}/documents"
        self._client = RestClient(HOST, emulator, OWNER if emulator else token, CONNECTIONS)
        path = f"/v1/{self.root}"
        self._batch_write, self._commit, self._batch_get = (
            self._client.post(f"{path}:{method}") for method in ("batchWrite", "commit", "batchGet")
        )

    def patience(self, longest: float = CONTENTION) -> Patience:
        """The patience of an operation that begins now."""
        return self._client.patience(longest)

    async def batch(self, writes: Sequence[JsonWrite], patience: Patience) -> list[int]:
        """Make each write separately, at most 500 and one per document. Returns the gRPC status code of each. Raises
        InvalidWrite if one write makes Firestore refuse the batch; others may have been made (the emulator, 2026-11).
        """
        try:
            answer = await self._call(self._batch_write, _writes(writes), patience, len(writes) <= QUICK)
            codes = [status.get("code", 0) for status in answer["status"]]
        except Refused as refused:
            if refused.code == "INVALID_ARGUMENT":
                raise InvalidWrite from refused
            raise unavailable(refused) from refused
        except (AttributeError, KeyError, TypeError) as error:
            raise unreadable() from error
        if len(codes) != len(writes):
            raise unreadable()
        return codes

    async def commit(self, write: JsonWrite, patience: Patience) -> None:
        """Commit a blind write: it has no precondition that could fail."""
        try:
            await self._call(self._commit, _writes([write]), patience)
        except Refused as refused:
            raise unavailable(refused) from refused

    async def read(self, names: Collection[str], patience: Patience) -> dict[str, Document]:
        """The documents that exist, by name."""
        request = orjson.dumps({"documents": [f"{self.root}/{name}" for name in names]})
        try:
            answer = await self._call(self._batch_get, request, patience, len(names) <= QUICK)
            found = [document_of(one["found"], self.root) for one in answer if "missing" not in one]
        except Refused as refused:
            raise unavailable(refused) from refused
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise unreadable() from error
        return {document.name: document for document in found}

    async def pause(self, patience: Patience, cause: Exception) -> None:
        """Wait before an operation is retried. Raises StoreUnavailable once its patience is over."""
        try:
            await self._client.pause(patience, cause)
        except OutOfPatience as error:
            raise unavailable(cause) from error

    def close(self) -> None:
        """No other call may follow."""
        self._client.close()

    async def _call(self, start: bytes, body: bytes, patience: Patience, quick: bool = True) -> Any:
        """Raises StoreUnavailable and Refused."""
        try:
            return orjson.loads(await self._client.call(start, body, patience, quick))
        except OutOfPatience as error:
            raise unavailable(error.__cause__) from error
        except CallFailed as error:
            raise unavailable(error) from error
        except orjson.JSONDecodeError as error:
            raise unreadable() from error


def unavailable(cause: BaseException | None) -> StoreUnavailable:
    """Names an error of ours, which holds nothing of a document, or only the class of another."""
    known = str(cause) if isinstance(cause, Refused | CallFailed) else type(cause).__name__
    return StoreUnavailable(f"The store cannot be reached: {known.rstrip('.')}.")


def unreadable() -> StoreUnavailable:
    return StoreUnavailable("The store's answer is unreadable.")


def _writes(writes: Sequence[JsonWrite]) -> bytes:
    return b'{"writes":[%b]}' % b",".join([write.json for write in writes])
