"""Webhook checks: the public service, asked from outside: it is connected, and refuses who is not Meta."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping

from infra.release.tools import Refused

READY_SECONDS = 90.0
"""A first request starts an instance, and a new address may be unknown for a while."""

ANSWER_SECONDS = 20
WRONG_HANDSHAKE = "hub.mode=subscribe&hub.verify_token=none-that-is-right&hub.challenge=1"


def check(webhook_url: str, longest: float = READY_SECONDS, pause: float = 1.0) -> str:
    """Raises Refused unless it is ours, reaches its store and its queues, and refuses a stranger."""
    health = f"{webhook_url.removesuffix('/webhooks/whatsapp')}/health"
    deadline = time.monotonic() + longest
    while not is_connected(*(answer := ask(health))):
        if time.monotonic() + pause > deadline:
            raise Refused(
                f"{health} answers {answer[0] or 'nothing'}, and not that its store and its queue are connected: "
                "docs/deploy.md, step 8, says how to read the log."
            )
        time.sleep(pause)
    for what, status in (
        ("a handshake with a wrong token", ask(f"{webhook_url}?{WRONG_HANDSHAKE}")[0]),
        ("an unsigned webhook", ask(webhook_url, b"{}")[0]),
    ):
        if status != 403:
            raise Refused(f"The webhook answers {status or 'nothing'} to {what}, and must answer 403.")
    return "The webhook reaches its store and its queue, and refuses who is not Meta."


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
