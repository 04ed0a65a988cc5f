"""A call to a process of this machine: what is sent, what comes back, and what it raises without an answer."""

import json
import socket

import pytest

from local.http_call import NO_ANSWER, call
from tests.support.parts import free_port
from tests.support.tasks_harness import a_target


def test_document_is_sent_as_json_with_the_headers_and_the_query() -> None:
    with a_target() as service:
        status, body = call("POST", f"{service.url}/a/b?c=d", document={"e": 1}, headers={"X-F": "g"}, timeout=5)
        (seen,) = service.received
    assert status == 200
    assert isinstance(body, bytes)
    assert (seen.method, seen.path) == ("POST", "/a/b?c=d")
    assert (seen.headers["Content-Type"], seen.headers["X-F"]) == ("application/json", "g")
    assert json.loads(seen.body) == {"e": 1}


def test_call_without_a_document_has_no_body() -> None:
    with a_target() as service:
        call("POST", service.url, timeout=5)
        (seen,) = service.received
    assert (seen.path, seen.body, seen.headers["Content-Length"]) == ("/", b"", "0")


def test_answer_of_any_status_is_an_answer() -> None:
    with a_target() as service:
        service.answer = lambda _: 503
        assert call("GET", service.url, timeout=5)[0] == 503


@pytest.mark.parametrize("url", ["http://127.0.0.1:{free}", "http://127.0.0.1:99999", "http://127.0.0.1:{silent}"])
def test_call_that_nobody_answers_raises_what_its_callers_expect(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NO_ANSWER):
        call("GET", url.format(free=free_port(), silent=silent.getsockname()[1]), timeout=0.2)
