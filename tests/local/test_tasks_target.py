"""One call on an HTTP target, by itself, because deadlines of a real task are no shorter than 15 seconds."""

import http.server
import socket
import threading
import time
from contextlib import closing, contextmanager

import pytest

from local.tasks.http_target import NO_ANSWER_IN_TIME, UNREACHABLE, Call, HttpTarget
from local.tasks.task_table import TargetResponse
from tests.support.tasks_harness import a_target, wait_until


def call(url: str, deadline: float = 5.0) -> Call:
    return Call("POST", url, {"X-Test": "1"}, b"{}", deadline)


@pytest.fixture
def http_target():
    with closing(HttpTarget()) as http_target:
        yield http_target


@pytest.fixture
def target():
    with a_target() as target:
        yield target


def test_answer_after_the_deadline_is_ignored(http_target, target):
    """Task.dispatch_deadline: the request "is cancelled"; recorded by aertje/cloud-tasks-emulator
    (dispatch/http-timeout): the next attempt's previous response is 504."""
    ended = []

    def answer_late(_):
        wait_until(lambda: ended)
        return 200

    target.answer = answer_late
    started = time.monotonic()
    assert http_target.call(call(target.url, deadline=0.2)) == NO_ANSWER_IN_TIME == TargetResponse(504, responded=False)
    assert 0.2 <= time.monotonic() - started < 1
    ended.append(True)
    wait_until(lambda: not target.running)  # the worker went on: Cloud Tasks only stops listening


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://127.0.0.1:99999/", "http://[nonsense", "http:///"])
def test_a_target_that_cannot_be_called_is_unreachable(http_target, url):
    assert http_target.call(call(url)) == UNREACHABLE


def test_a_retry_after_comes_with_its_answer(http_target, target):
    target.headers = {"retry-after": "7"}
    assert http_target.call(call(target.url)) == TargetResponse(200, responded=True, retry_after="7")


def test_a_connection_is_used_again(http_target, target):
    for _ in range(3):
        assert http_target.call(call(target.url)) == TargetResponse(200, responded=True)
    assert len(http_target._idle[("http", target.url.removeprefix("http://"))]) == 1


@contextmanager
def a_server_that_hangs_up():
    """Answers one request on each connection as if it were kept open, and then closes it."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            requests.append(self.client_address)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.wfile.flush()
            self.close_connection = True

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()
        thread.join()


def test_a_connection_that_the_target_closed_is_not_used_again(http_target):
    """Otherwise a task would seem to fail whenever its target's keep-alive ran out."""
    with a_server_that_hangs_up() as (url, requests):
        for number in range(1, 4):
            assert http_target.call(call(url)).status == 200
            assert len(requests) == number
            (connections,) = http_target._idle.values()
            wait_until(lambda connections=connections: all(is_readable(idle.sock) for _, idle in connections))


def is_readable(sock: socket.socket) -> bool:
    sock.settimeout(0.01)
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except TimeoutError:
        return False


def test_calls_from_many_threads_do_not_mix(http_target, target):
    answers = []

    def run(number):
        answers.append(http_target.call(call(f"{target.url}/{number}")).status)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 40
    assert sorted(int(request.path[1:]) for request in target.received) == list(range(40))


def test_cut_off_request_is_distinguished_from_an_unsent_one(http_target):
    """Whoever counts what a kill interrupted wants to know; to the queue both are 503 without a response."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def hang_up():
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        cut_off = http_target.call(call(url))
        thread.join()
    never_sent = http_target.call(call(url))
    assert (cut_off.status, cut_off.responded, cut_off.broken) == (503, False, True)
    assert (never_sent.status, never_sent.responded, never_sent.broken) == (503, False, False)
