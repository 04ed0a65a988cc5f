"""gRPC methods: serves the calls of a Google service by their names, because its client library has no servicer."""

from collections.abc import Callable, Mapping
from typing import Any

import grpc

ProtoMessage = Any
"""A protobuf message; the generated classes have no types."""

Methods = Mapping[str, tuple[ProtoMessage, Callable[[ProtoMessage], ProtoMessage]]]
"""The calls by their names in the reference: the type of the request, and what answers it."""

_grpc: Any = grpc  # has no types


class CallRefused(Exception):
    """A call that is refused; the server turns it into its gRPC status."""

    def __init__(self, code: grpc.StatusCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


def serve(server: Any, service: str, methods: Methods) -> None:
    """Let a gRPC server answer these methods of the service; it answers UNIMPLEMENTED for any other."""
    handlers = {name: _handler(request, answer) for name, (request, answer) in methods.items()}
    server.add_generic_rpc_handlers((_grpc.method_handlers_generic_handler(service, handlers),))


def _handler(request: ProtoMessage, answer: Callable[[ProtoMessage], ProtoMessage]) -> Any:
    def respond(message: ProtoMessage, context: Any) -> ProtoMessage:
        try:
            return answer(message)
        except CallRefused as refused:
            context.abort(refused.code, refused.sentence)

    return _grpc.unary_unary_rpc_method_handler(
        respond,
        request_deserializer=request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )
