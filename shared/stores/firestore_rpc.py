"""The calls to Firestore: each with a deadline of its own, made again for as long as it makes sense.

Facts this rests on (google-cloud-firestore 2.34, read in its source, 2026-09): by default a commit may take 60 s and is
then repeated for 60 more, a read 300; transactions take neither timeout nor retry, so there are none here. A commit
whose answer was lost may have been applied, and is then refused when it is made again: whoever gets LostRace looks what
is there. `Conflict` is AlreadyExists and Aborted at once.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from shared.domain.errors import StoreUnavailable
from shared.stores.firestore_documents import Write, time_of, version_of
from shared.wire.grpc_client import GrpcClient

if TYPE_CHECKING:
    from google.cloud.firestore_v1.services.firestore import FirestoreClient

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds without an answer, to this operation or another of the process, after which the store counts as unreachable;
a healthy call takes tens of milliseconds. With the queue's 2.2 s this keeps the webhook's answer under 5 s.
"""

CONTENTION = 10.0
"""Seconds that one operation may take while there are answers, though only to say that another one was quicker."""

_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
_LEAST = 0.05
"""Seconds. A try with less than that left is not worth making."""


class LostRace(Exception):
    """What a write was to find is not what is there: another one came between, or this very one went through."""


class Patience:
    """How long one operation goes on: until nothing was answered for PATIENCE, and CONTENTION at most."""

    def __init__(self, last_answer: Callable[[], float]) -> None:
        self._began = time.monotonic()
        self._last_answer = last_answer
        self._pauses = 0

    @property
    def left(self) -> float:
        """Seconds; none, or less than none, when it is over."""
        last_sign = max(self._began, self._last_answer())
        return min(self._began + CONTENTION, last_sign + PATIENCE) - time.monotonic()

    def pause(self, cause: Exception) -> None:
        """Wait before the next try, longer each time and never twice the same. Raises StoreUnavailable at the end."""
        pause = random.uniform(0.2, 1) * min(_LONGEST_PAUSE, _PAUSE * 2**self._pauses)  # noqa: S311 — no secret
        self._pauses += 1
        if self.left <= pause + _LEAST:
            raise unavailable(cause) from cause
        time.sleep(pause)


def unavailable(cause: Exception) -> StoreUnavailable:
    """By the name of its class alone: what a library says of it may hold a document's name or content."""
    return StoreUnavailable(f"The store cannot be reached: {type(cause).__name__}.")


class FirestoreRpc:
    """A database, connected when first used. Documents are named relative to it. All calls raise StoreUnavailable."""

    def __init__(self, project: str, database: str, emulator: str | None) -> None:
        self._database = f"projects/{project}/databases/{database}"
        self._root = f"{self._database}/documents"
        self._client = GrpcClient(_load, emulator)
        self._closed = False
        self._answered = 0.0

    def patience(self) -> Patience:
        """That of an operation that begins now. The time to connect, which is ours, is no part of it."""
        self._connected()
        return Patience(lambda: self._answered)

    def commit(self, writes: Sequence[Write], patience: Patience) -> list[int]:
        """All of the writes or none of them; the version of each document then. Raises LostRace."""
        from google.api_core import exceptions

        request = {"database": self._database, "writes": [self._absolute(write) for write in writes]}
        try:
            response = self._call(
                lambda client, timeout: client.commit(request=request, retry=None, timeout=timeout), patience
            )
        except (exceptions.AlreadyExists, exceptions.FailedPrecondition, exceptions.NotFound) as error:
            raise LostRace from error
        return [version_of(result.update_time) for result in type(response).pb(response).write_results]

    def read(self, names: Iterable[str], patience: Patience) -> dict[str, Any]:
        """Those of the documents that exist, by name."""
        found, _ = self._read(names, patience)
        return {document.name.removeprefix(f"{self._root}/"): document for document in found}

    def time(self, name: str, patience: Patience) -> datetime:
        """The database's clock, as it is told with the document of this name, or with its absence."""
        return self._read([name], patience)[1]

    def query(self, query: Mapping[str, Any], patience: Patience) -> list[Any]:
        """The documents that a structured query finds."""
        request = {"parent": self._root, "structured_query": query}
        responses = self._stream(
            lambda client, timeout: client.run_query(request=request, retry=None, timeout=timeout), patience
        )
        return [response.document for response in responses if response.HasField("document")]

    def count(self, query: Mapping[str, Any], patience: Patience) -> int:
        """How many documents a structured query finds."""
        counting = {"structured_query": query, "aggregations": [{"alias": "n", "count": {}}]}
        request = {"parent": self._root, "structured_aggregation_query": counting}
        responses = self._stream(
            lambda client, timeout: client.run_aggregation_query(request=request, retry=None, timeout=timeout),
            patience,
        )
        return sum(int(response.result.aggregate_fields["n"].integer_value) for response in responses)

    def close(self) -> None:
        """No other call may follow."""
        self._closed = True
        self._client.close()

    # ---- one call

    def _read(self, names: Iterable[str], patience: Patience) -> tuple[list[Any], datetime]:
        request = {"database": self._database, "documents": [f"{self._root}/{name}" for name in names]}
        responses = self._stream(
            lambda client, timeout: client.batch_get_documents(request=request, retry=None, timeout=timeout), patience
        )
        found = [response.found for response in responses if response.HasField("found")]
        return found, time_of(responses[-1].read_time)

    def _stream(self, start: Callable[["FirestoreClient", float], Iterable[Any]], patience: Patience) -> list[Any]:
        """The whole of an answer that comes in parts; again from the start where it breaks off."""
        from google.api_core import exceptions

        def collect(client: "FirestoreClient", timeout: float) -> list[Any]:
            return [type(response).pb(response) for response in start(client, timeout)]

        try:
            return self._call(collect, patience)
        except exceptions.GoogleAPICallError as error:
            raise unavailable(error) from error

    def _call(self, work: Callable[["FirestoreClient", float], T], patience: Patience) -> T:
        """Raises, besides StoreUnavailable, whatever says that the call was understood and refused."""
        from google.api_core import exceptions

        passing = (
            exceptions.ServiceUnavailable,
            exceptions.DeadlineExceeded,
            exceptions.InternalServerError,
            exceptions.Unknown,
            exceptions.ResourceExhausted,
            exceptions.Cancelled,
        )
        while True:
            began = time.monotonic()
            client = self._connected()
            try:
                result = work(client, patience.left)
                self._answered = time.monotonic()
                return result
            except (exceptions.AlreadyExists, exceptions.FailedPrecondition, exceptions.NotFound):
                self._answered = time.monotonic()
                raise
            except exceptions.Aborted as error:
                self._answered = time.monotonic()
                patience.pause(error)
            except passing as error:
                if isinstance(error, exceptions.DeadlineExceeded) and self._answered < began:
                    self._client.leave(client)
                patience.pause(error)
            except exceptions.GoogleAPIError as error:
                raise unavailable(error) from error
            except ValueError as error:  # grpc's word on a channel that was closed meanwhile
                if not self._closed:
                    raise
                raise unavailable(error) from error

    def _absolute(self, write: Write) -> Write:
        return write | {"update": write["update"] | {"name": f"{self._root}/{write['update']['name']}"}}

    def _connected(self) -> "FirestoreClient":
        from google.auth.exceptions import GoogleAuthError

        if self._closed:
            raise StoreUnavailable("The store is closed.")
        try:
            return self._client.get()
        except (GoogleAuthError, OSError) as error:
            raise unavailable(error) from error


def _load() -> tuple[type["FirestoreClient"], Any]:
    from google.cloud.firestore_v1.services.firestore import FirestoreClient
    from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

    return FirestoreClient, FirestoreGrpcTransport
