"""A gRPC server in front of the Firestore emulator: it passes calls on and records each, or answers with an error.

It sees what every client library finally sends: the method, the deadline, the bytes.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.cloud.firestore_v1.types import BatchGetDocumentsRequest, CommitRequest, RunQueryResponse

UNARY = frozenset({"Commit"})
_SERVICE = "/google.firestore.v1.Firestore/"
PRIVATE = "15550002222"
"""Text that an error of the server may contain."""


@dataclass(frozen=True)
class Call:
    """One RPC as it arrived."""

    method: str
    seconds: float
    """Its deadline in seconds, from when it arrived."""
    request: bytes

    @property
    def writes(self) -> int:
        return len(CommitRequest.deserialize(self.request).writes) if self.method in UNARY else 0

    @property
    def reads(self) -> int:
        is_read = self.method == "BatchGetDocuments"
        return len(BatchGetDocumentsRequest.deserialize(self.request).documents) if is_read else 0


@dataclass
class Middleman:
    """Use it in a `with`; `address` is where it serves."""

    target: str
    calls: list[Call] = field(default_factory=list)
    errors: list[grpc.StatusCode] = field(default_factory=list)
    """The codes of the next answers; these calls do not reach the emulator."""
    always: grpc.StatusCode | None = None
    """The code of every answer after those."""
    answer: Callable[[bytes], bytes] = lambda answer: answer
    """Changes an answer that comes in one part."""
    answered: int = 0
    """Bytes of all streamed answers."""
    timeout: float = 20
    """Seconds that the emulator may take for a call."""
    found: int = 0
    """Documents in the answers to queries."""

    def __enter__(self) -> "Middleman":
        self._channel = grpc.insecure_channel(self.target)
        self._server = grpc.server(ThreadPoolExecutor(16), handlers=[self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()
        self._channel.close()

    def service(self, details: Any) -> Any:
        """grpc's lookup of the handler for a method. Here one handler serves every method, as bytes."""
        method = details.method.removeprefix(_SERVICE)

        def one(request: bytes, context: Any) -> bytes:
            return next(iter(self._pass_on(method, request, context)))

        def many(request: bytes, context: Any) -> Iterator[bytes]:
            yield from self._pass_on(method, request, context)

        if method in UNARY:
            return grpc.unary_unary_rpc_method_handler(one)
        return grpc.unary_stream_rpc_method_handler(many)

    def _pass_on(self, method: str, request: bytes, context: Any) -> Iterator[bytes]:
        self.calls.append(Call(method, context.time_remaining(), request))
        code = self.errors.pop(0) if self.errors else self.always
        if code is not None:
            context.abort(code, f"c4n4ry {PRIVATE}")
        try:
            if method in UNARY:
                metadata = [(key, value) for key, value in context.invocation_metadata() if key == "authorization"]
                yield self.answer(
                    self._channel.unary_unary(_SERVICE + method)(request, timeout=self.timeout, metadata=metadata)
                )
            else:
                for part in self._channel.unary_stream(_SERVICE + method)(request, timeout=self.timeout):
                    self.answered += len(part)
                    self.found += method == "RunQuery" and "document" in RunQueryResponse.deserialize(part)
                    yield part
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
