"""The calls to Firestore: each with a deadline of its own, made again for as long as it makes sense.

Facts this rests on (google-cloud-firestore 2.34, read in its source, 2026-09): by default a commit may take 60 s and is
then repeated for 60 more, a read 300; transactions take neither timeout nor retry, so there are none here. A commit
whose answer was lost may have been applied, and is then refused when it is made again: whoever gets LostRace looks what
is there. `Conflict` is AlreadyExists and Aborted at once.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from shared.domain.errors import StoreUnavailable
from shared.net.grpc_client import GrpcClient, OutOfPatience, Patience
from shared.stores.firestore.records import Write, time_of, version_of

if TYPE_CHECKING:
    from google.cloud.firestore_v1.services.firestore import FirestoreClient

T = TypeVar("T")

CONTENTION = 10.0
"""Seconds that one operation may take while there are answers, though only to say that another one was quicker."""


QUICK = 10
"""Documents that are read or written within milliseconds."""


class LostRace(Exception):
    """What a write was to find is not what is there: another one came between, or this very one went through."""


class InvalidWrite(StoreUnavailable):
    """The store refuses a write as invalid."""


def unavailable(cause: BaseException | None) -> StoreUnavailable:
    """By the name of its class alone: what a library says of it may hold a document's name or content."""
    return StoreUnavailable(f"The store cannot be reached: {type(cause).__name__}.")


def pause(patience: Patience, cause: Exception) -> None:
    """Wait before an operation begins anew. Raises StoreUnavailable once its patience is over."""
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
        # The emulator takes BatchWrite of an administrator alone; to the real service the credential says who calls.
        self._administrator = [("authorization", "Bearer owner")] if emulator else []
        self._closed = False

    def patience(self) -> Patience:
        """That of an operation that begins now."""
        return self._guarded(lambda: self._client.patience(CONTENTION))

    def commit(self, writes: Sequence[Write], patience: Patience) -> list[int]:
        """All of the writes or none of them; the version of each document then. Raises LostRace and InvalidWrite."""
        from google.api_core import exceptions

        request = {"database": self._database, "writes": [self._absolute(write) for write in writes]}
        try:
            response = self._call(
                lambda client, timeout: client.commit(request=request, retry=None, timeout=timeout), patience
            )
        except (exceptions.AlreadyExists, exceptions.FailedPrecondition, exceptions.NotFound) as error:
            raise LostRace from error
        except exceptions.InvalidArgument as error:
            raise InvalidWrite from error
        except exceptions.GoogleAPICallError as error:
            raise unavailable(error) from error
        return [version_of(result.update_time) for result in type(response).pb(response).write_results]

    def batch(self, writes: Sequence[Write], patience: Patience) -> list[int]:
        """Each of the writes by itself, at most 500 of them and one for a document; the gRPC status code of each.
        Raises InvalidWrite where the batch is refused because of one of them; others may have been made (the emulator,
        2026-11).
        """
        from google.api_core import exceptions

        request = {"database": self._database, "writes": [self._absolute(write) for write in writes]}
        try:
            response = self._call(
                lambda client, timeout: client.batch_write(
                    request=request, retry=None, timeout=timeout, metadata=self._administrator
                ),
                patience,
                quick=len(writes) <= QUICK,
            )
        except exceptions.InvalidArgument as error:
            raise InvalidWrite from error
        except exceptions.GoogleAPICallError as error:
            raise unavailable(error) from error
        return [status.code for status in type(response).pb(response).status]

    def read(self, names: Collection[str], patience: Patience) -> dict[str, Any]:
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
        """The whole of an answer that comes in parts; again from the start where it breaks off."""
        from google.api_core import exceptions

        def collect(client: "FirestoreClient", timeout: float) -> list[Any]:
            return [type(response).pb(response) for response in start(client, timeout)]

        try:
            return self._call(collect, patience, quick)
        except exceptions.GoogleAPICallError as error:
            raise unavailable(error) from error

    def _call(self, work: Callable[["FirestoreClient", float], T], patience: Patience, quick: bool = True) -> T:
        """Raises, besides StoreUnavailable, whatever says that the call was understood and refused."""
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
        except ValueError as error:  # grpc's word on a channel that was closed meanwhile
            if not self._closed:
                raise
            raise unavailable(error) from error

    def _absolute(self, write: Write) -> Write:
        return write | {"update": write["update"] | {"name": f"{self._root}/{write['update']['name']}"}}


def _load() -> tuple[type["FirestoreClient"], Any]:
    from google.cloud.firestore_v1.services.firestore import FirestoreClient
    from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

    return FirestoreClient, FirestoreGrpcTransport
