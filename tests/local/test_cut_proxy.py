"""The proxy that chaos and the contract suites put before a store: what it passes on, and what it keeps."""

import socket
import threading
from collections.abc import Iterator

import pytest

from local.faulty_proxy import FaultyProxy


@pytest.fixture
def proxy() -> Iterator[FaultyProxy]:
    """Before a server that says back what it hears."""

    def echo(connection: socket.socket) -> None:
        with connection:
            while heard := connection.recv(1024):
                connection.sendall(heard)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    server = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    with FaultyProxy("127.0.0.1", server.getsockname()[1]) as proxy:
        yield proxy
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def ask(proxy: FaultyProxy) -> bytes:
    """What comes back; nothing where the connection ends."""
    try:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
            connection.sendall(b"hello")
            return connection.recv(1024)
    except ConnectionError:
        return b""


def test_open_proxy_forwards_everything(proxy: FaultyProxy) -> None:
    assert (proxy.is_open, ask(proxy)) == (True, b"hello")


def test_cut_proxy_ends_every_connection_until_restored(proxy: FaultyProxy) -> None:
    proxy.cut()
    assert (proxy.is_open, ask(proxy)) == (False, b"")
    proxy.restore()
    assert (proxy.is_open, ask(proxy)) == (True, b"hello")


def test_an_answer_is_swallowed_once(proxy: FaultyProxy) -> None:
    proxy.swallow_next_answer()
    assert [ask(proxy), ask(proxy)] == [b"", b"hello"]
    assert proxy.swallowed == 1


def test_pending_swallow_can_be_cancelled(proxy: FaultyProxy) -> None:
    proxy.swallow_next_answer()
    proxy.swallow_no_more()
    assert (ask(proxy), proxy.swallowed) == (b"hello", 0)
