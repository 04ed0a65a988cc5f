"""The calls to Firestore, each with its timeout and retries.

Based on these facts (google-cloud-firestore 2.34, read in its source, 2026-09): by default a commit may take 60 s and
is then repeated for 60 more, a read 300. Transactions take neither timeout nor retry, so this code uses none. A commit
whose answer was lost may have been applied, and its retry is then refused: on LostRace the caller reads what is stored.
`Conflict` stands for both AlreadyExists and Aborted.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from shared.domain.errors import StoreUnavailable
from shared.net.grpc_client import GrpcClient
from shared.net.patience import OutOfPatience, Patience
from shared.stores.firestore.errors import CONTENTION, QUICK, InvalidWrite, LostRace, unavailable
from shared.stores.firestore.records import Write, time_of, version_of

if TYPE_CHECKING:
    from google.cloud.firestore_v1.services.firestore import FirestoreClient

T = TypeVar("T")


def pause(patience: Patience, cause: Exception) -> None:
    """Wait before an operation is retried. Raises StoreUnavailable once its patience is over."""
    try:
        patience.pause(cause)
    except OutOfPatience as error:
        raise unavailable(cause) from error


class FirestoreRpc:
    """A database, connected when first used. Documents are named relative to it. All calls raise StoreUnavailable."""

    def __init__(self, project: str, database: str, emulator: str | None) -> None:
        self._database = f"projects/{project}/databases/{database}"
        self._root = f"{self._database}/documents"
        self._client = GrpcClient(_load, emulator)
        self._closed = False

    def patience(self) -> Patience:
        """The patience of an operation that begins now."""
        return self._guarded(lambda: self._client.patience(CONTENTION))

    def commit(self, writes: Sequence[Write], patience: Patience) -> list[int]:
        """Commit all writes or none. Returns each document's new version. Raises LostRace and InvalidWrite."""
        from google.api_core import exceptions

        request = {"database": self._database, "writes": [self._absolute(write) for write in writes]}
        sent = 0

        def send(client: "FirestoreClient", timeout: float) -> Any:
            nonlocal sent
            sent += 1
            return client.commit(request=request, retry=None, timeout=timeout)

        try:
            response = self._call(send, patience)
        except (exceptions.AlreadyExists, exceptions.FailedPrecondition, exceptions.NotFound) as error:
            raise LostRace(is_repeated=sent > 1) from error
        except exceptions.InvalidArgument as error:
            raise InvalidWrite from error
        except exceptions.GoogleAPICallError as error:
            raise unavailable(error) from error
        return [version_of(result.update_time) for result in type(response).pb(response).write_results]

    def read(self, names: Collection[str], patience: Patience) -> dict[str, Any]:
        """The documents that exist, by name."""
        found, _ = self._read(names, patience)
        return {document.name.removeprefix(f"{self._root}/"): document for document in found}

    def time(self, name: str, patience: Patience) -> datetime:
        """The database's clock, read from its answer about the document of this name, which need not exist."""
        return self._read([name], patience)[1]

    def query(self, query: Mapping[str, Any], patience: Patience) -> list[Any]:
        """The documents that a structured query finds."""
        request = {"parent": self._root, "structured_query": query}
        responses = self._stream(
            lambda client, timeout: client.run_query(request=request, retry=None, timeout=timeout), patience
        )
        return [response.document for response in responses if response.HasField("document")]

    def reference(self, name: str) -> dict[str, str]:
        """A document's name as a value in a query."""
        return {"reference_value": f"{self._root}/{name}"}

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

    def _read(self, names: Collection[str], patience: Patience) -> tuple[list[Any], datetime]:
        request = {"database": self._database, "documents": [f"{self._root}/{name}" for name in names]}
        responses = self._stream(
            lambda client, timeout: client.batch_get_documents(request=request, retry=None, timeout=timeout),
            patience,
            quick=len(names) <= QUICK,
        )
        found = [response.found for response in responses if response.HasField("found")]
        return found, time_of(responses[-1].read_time)

    def _stream(
        self,
        start: Callable[["FirestoreClient", float], Iterable[Any]],
        patience: Patience,
        quick: bool = False,
    ) -> list[Any]:
        """The complete answer of a streaming call. If the stream breaks off, it starts over."""
        from google.api_core import exceptions

        def collect(client: "FirestoreClient", timeout: float) -> list[Any]:
            return [type(response).pb(response) for response in start(client, timeout)]

        try:
            return self._call(collect, patience, quick)
        except exceptions.GoogleAPICallError as error:
            raise unavailable(error) from error

    def _call(self, work: Callable[["FirestoreClient", float], T], patience: Patience, quick: bool = True) -> T:
        """Raises StoreUnavailable, and the library's own error if the server understood the call and refused it."""
        return self._guarded(lambda: self._client.call(work, patience, quick))

    def _guarded(self, call: Callable[[], T]) -> T:
        from google.auth.exceptions import GoogleAuthError

        if self._closed:
            raise StoreUnavailable("The store is closed.")
        try:
            return call()
        except OutOfPatience as error:
            raise unavailable(error.__cause__) from error
        except (GoogleAuthError, OSError) as error:
            raise unavailable(error) from error
        except ValueError as error:  # grpc raises it if the channel was closed in the meantime
            if not self._closed:
                raise
            raise unavailable(error) from error

    def _absolute(self, write: Write) -> Write:
        if "delete" in write:
            return write | {"delete": f"{self._root}/{write['delete']}"}
        return write | {"update": write["update"] | {"name": f"{self._root}/{write['update']['name']}"}}


def _load() -> tuple[type["FirestoreClient"], Any]:
    from google.cloud.firestore_v1.services.firestore import FirestoreClient
    from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

    return FirestoreClient, FirestoreGrpcTransport
