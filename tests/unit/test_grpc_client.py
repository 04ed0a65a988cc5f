"""The one gRPC client of a process: what it is made of, and when it is made anew."""

import os
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import DeadlineExceeded

from shared.net.grpc_client import OPTIONS, GrpcClient
from shared.net.patience import FIRST_TRY


class Made:
    """Stands for Google's client, its transport and gRPC: what each was given."""

    def __init__(self) -> None:
        self.clients: list[object] = []
        self.options: list[list[tuple[str, Any]]] = []

    def load(self) -> tuple[Any, Any]:
        return self._client, self

    def create_channel(self, options: list[tuple[str, Any]]) -> str:
        self.options.append(options)
        return "channel"

    def insecure_channel(self, address: str, options: list[tuple[str, Any]]) -> str:
        self.options.append(options)
        return address

    def __call__(self, channel: str) -> str:
        return f"transport over {channel}"

    def _client(self, transport: str) -> object:
        self.clients.append(transport)
        return object()


def test_a_process_connects_once() -> None:
    made = Made()
    client: GrpcClient[object] = GrpcClient(made.load, None)
    assert client.get() is client.get()
    assert made.clients == ["transport over channel"]


def test_forked_process_opens_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    client: GrpcClient[object] = GrpcClient(made.load, None)
    before = client.get()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert client.get() is not before
    assert client.get() is client.get()
    assert len(made.clients) == 2


def test_connection_has_all_our_options() -> None:
    made = Made()
    GrpcClient(made.load, None).get()
    assert made.options == [list(OPTIONS)]
    assert dict(OPTIONS) == {
        "grpc.initial_reconnect_backoff_ms": 100,
        "grpc.max_reconnect_backoff_ms": 500,
        "grpc.keepalive_time_ms": 30_000,
        "grpc.use_local_subchannel_pool": 1,
    }


def test_a_connection_to_an_emulator_goes_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    monkeypatch.setattr(grpc, "insecure_channel", made.insecure_channel)
    GrpcClient(made.load, "127.0.0.1:9").get()
    assert made.options == [[*OPTIONS, ("grpc.enable_http_proxy", 0)]]
    assert made.clients == ["transport over 127.0.0.1:9"]


# ---- the timeout of each try


def test_first_call_of_a_process_has_all_of_the_patience() -> None:
    given: list[float] = []
    client: GrpcClient[object] = GrpcClient(Made().load, None)
    client.call(lambda _, seconds: given.append(seconds), client.patience())
    client.call(lambda _, seconds: given.append(seconds), client.patience())
    assert given[0] > FIRST_TRY
    assert given[1] == FIRST_TRY, "the service answers quickly"


def test_second_try_after_a_timeout_has_the_rest_of_the_patience() -> None:
    given: list[float] = []
    client: GrpcClient[object] = GrpcClient(Made().load, None)
    client.call(lambda _, seconds: given.append(seconds), client.patience())

    def work(_: object, seconds: float) -> None:
        given.append(seconds)
        if len(given) == 2:
            raise DeadlineExceeded("no answer")

    client.call(work, client.patience())
    assert given[1] == FIRST_TRY
    assert given[2] > FIRST_TRY
