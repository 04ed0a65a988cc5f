"""The server: takes the calls of google.cloud.tasks.v2.CloudTasks over gRPC, on loopback only.

google-cloud-tasks ships no servicer, so the methods are registered by name, with the message types of its own stubs.
gRPC itself answers UNIMPLEMENTED for any other method.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from local.tasks.protobuf import ProtoMessage
from local.tasks.refusals import CallRefused

SERVICE = "google.cloud.tasks.v2.CloudTasks"
_grpc: Any = grpc  # has no types
Server = Any

CALLS_AT_ONCE = 16
"""Threads that answer calls. A call is a millisecond of work; more threads would only wait for the interpreter."""

Methods = Mapping[str, tuple[ProtoMessage, Callable[[ProtoMessage], ProtoMessage]]]


class CannotListen(Exception):
    """The port is in use."""


def start_server(methods: Methods, port: int) -> tuple[Server, str]:
    """A running server and its address; port 0 takes a free one."""
    # Without so_reuseport=0 a second emulator would share the port and get every other connection.
    server = _grpc.server(ThreadPoolExecutor(CALLS_AT_ONCE), options=[("grpc.so_reuseport", 0)])
    handlers = {name: _handler(request, answer) for name, (request, answer) in methods.items()}
    server.add_generic_rpc_handlers((_grpc.method_handlers_generic_handler(SERVICE, handlers),))
    try:
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
    except RuntimeError as error:
        raise CannotListen(f"Cannot listen on 127.0.0.1:{port}; is another program using it?") from error
    server.start()
    return server, f"127.0.0.1:{bound}"


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
