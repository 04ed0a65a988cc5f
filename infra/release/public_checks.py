"""Checks of the public services, asked from outside: each is connected, and refuses strangers."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import NamedTuple

from infra.release.tools import Refused

READY_SECONDS = 90.0
"""A first request starts an instance, and a new address may be unknown for a while."""

ANSWER_SECONDS = 20


class RefusedRequest(NamedTuple):
    """A request of a stranger, and the status that must answer it."""

    what: str
    path: str
    body: bytes | None
    status: int


REFUSED: Mapping[str, tuple[RefusedRequest, ...]] = {
    "webhook": (
        RefusedRequest(
            "a handshake with a wrong token",
            "/webhooks/whatsapp?hub.mode=subscribe&hub.verify_token=none-that-is-right&hub.challenge=1",
            None,
            403,
        ),
        RefusedRequest("an unsigned webhook", "/webhooks/whatsapp", b"{}", 403),
    ),
    "api": (
        RefusedRequest("a list of messages without a key", "/v1/messages", None, 401),
        RefusedRequest("a message without a key", "/v1/messages", b"{}", 401),
    ),
}
"""What each public service must refuse. A service that is not here is private."""


def check(service: str, url: str, longest: float = READY_SECONDS, pause: float = 1.0) -> str:
    """Raises Refused unless the service is ours, reaches its store and its queue, and refuses strangers."""
    deadline = time.monotonic() + longest
    # Not /readyz: some paths that end in z are Google's own (https://cloud.google.com/run/docs/known-issues).
    while not is_connected(*(answer := ask(f"{url}/health"))):
        if time.monotonic() + pause > deadline:
            raise Refused(
                f"{url}/health answers {answer[0] or 'nothing'}, and not that its store and its queue are connected: "
                "docs/deploy.md, step 8, says how to read the log."
            )
        time.sleep(pause)
    check_refusals(service, url, f"The {service} service")
    return f"The {service} service reaches its store and its queue, and refuses strangers."


def check_refusals(service: str, url: str, who: str) -> None:
    """Raises Refused if a stranger's request is answered otherwise than it must be. `who` begins the sentence."""
    for one in REFUSED[service]:
        status, _ = ask(f"{url}{one.path}", one.body)
        if status != one.status:
            raise Refused(f"{who} answers {status or 'nothing'} to {one.what}, and must answer {one.status}.")


def ask(url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """The answer's status, 0 where there is none, and body."""
    request = urllib.request.Request(url, body, dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""
    except OSError:
        return 0, b""


def is_connected(status: int, body: bytes) -> bool:
    """Whether an answer of /health says that the store and the queue, and nothing less, are connected."""
    try:
        words = json.loads(body).get("services") if status == 200 else None
    except (ValueError, AttributeError):
        return False
    return bool(words == {"store": "connected", "queue": "connected"})
