"""The API load: send the plan's API messages as a careful program does, each with an Idempotency-Key.

A program may get no answer at all, because the process was killed, or 503. It then repeats the same request.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from cli.chaos.api_plan import ApiMessage
from cli.chaos.backpressure import Backpressure
from cli.chaos.businesses import Business

CALLERS = 8
"""Requests under way at most: more programs than a killed process keeps waiting."""

ANSWER_SECONDS = 10.0
"""Longer than the API takes if the store or the queue is away, and shorter than a stall."""

AGAIN_SECONDS = 0.2
LOOK_EVERY = 0.5

PATIENCE = 180.0
"""Seconds. A request that has no answer after so many repetitions never gets one."""

TRY_AGAIN = (429, 503)


@dataclass(frozen=True, slots=True)
class ApiSent:
    """What a program knows of its message at the end. `answered`: of all its requests. `cancelled`: the API said that
    it never will be sent. `fault`: a sentence about an answer that it must not get. `repetitions`: of requests that
    were not answered, or answered 503.
    """

    message: ApiMessage
    send_at: datetime | None = None
    answered: bool = True
    cancelled: bool = False
    fault: str | None = None
    repetitions: int = 0


def client_of(url: str) -> httpx.Client:
    """A client of the API at this address."""
    return httpx.Client(base_url=url, timeout=ANSWER_SECONDS, trust_env=False)


class ApiLoad:
    """Runs in a separate thread. `sent` is complete once `run` has returned."""

    def __init__(
        self,
        messages: Sequence[ApiMessage],
        http: httpx.Client,
        businesses: Sequence[Business],
        backpressure: Backpressure,
    ) -> None:
        self._messages = messages
        self._businesses = businesses
        self._backpressure = backpressure
        self._http = http
        self.sent: list[ApiSent] = []

    def run(self, keys: Sequence[str], over: threading.Event) -> None:
        """Send until all messages are sent, or until `over` is set. `keys`: the API key of each business."""
        began = time.monotonic()
        with self._http, ThreadPoolExecutor(CALLERS, thread_name_prefix="pombo-chaos-api") as callers:
            for message in self._messages:
                over.wait(max(0.0, began + message.at - time.monotonic()))
                while not self._backpressure.wait(LOOK_EVERY) and not over.is_set():
                    pass
                if over.is_set():
                    return
                callers.submit(self._send, message, keys[message.tenant], over)

    def _send(self, message: ApiMessage, key: str, over: threading.Event) -> None:
        program = Program(message, self._businesses[message.tenant], self._http, key, over)
        self.sent.append(program.run())


class _Unanswered(Exception):
    """The run was stopped, or patience is at its end."""


class _Unexpected(Exception):
    """An answer that the API must not give here."""


class Program:
    """One message's program. It makes the very same request each time: another body would be another message."""

    def __init__(
        self, message: ApiMessage, business: Business, http: httpx.Client, key: str, over: threading.Event
    ) -> None:
        self._message, self._http, self._over = message, http, over
        self._id = message.key(business.tenant)
        self._authorization = {"Authorization": f"Bearer {key}"}
        self._send_at = datetime.now(UTC) + timedelta(seconds=message.ahead) if message.ahead else None
        self._body: Mapping[str, Any] = {
            "from": business.sender,
            "to": f"+{message.contact}",
            "type": message.reply.type,
            "content": message.reply.body,
            **({"send_at": self._send_at.isoformat()} if self._send_at else {}),
        }
        self._repetitions = 0

    def run(self) -> ApiSent:
        answered, cancelled, fault = True, False, None
        try:
            first = self._accepted()
            if self._message.cancelled:
                cancelled = self._cancelled()
            if self._message.repeated and self._accepted() != first:
                raise _Unexpected("The API answered a repeated request otherwise than the first one.")
        except _Unanswered:
            answered = False
        except _Unexpected as error:
            fault = str(error)
        return ApiSent(self._message, self._send_at, answered, cancelled, fault, self._repetitions)

    def _accepted(self) -> bytes:
        headers = {**self._authorization, "Idempotency-Key": self._message.idempotency_key}
        answer = self._answer(lambda: self._http.post("/v1/messages", json=self._body, headers=headers))
        if answer.status_code != 202:
            raise _Unexpected(f"The API refused a message with {answer.status_code}.")
        if answer.json()["id"] != self._id:
            raise _Unexpected("The API accepted a message under another id than that of its Idempotency-Key.")
        return answer.content

    def _cancelled(self) -> bool:
        """False if it was too late: the message is being sent, or was."""
        path = f"/v1/messages/{self._id}/cancel"
        answer = self._answer(lambda: self._http.post(path, headers=self._authorization))
        if answer.status_code not in (200, 409):
            raise _Unexpected(f"The API answered a cancellation with {answer.status_code}.")
        return answer.status_code == 200

    def _answer(self, ask: Callable[[], httpx.Response]) -> httpx.Response:
        deadline = time.monotonic() + PATIENCE
        while not self._over.is_set() and time.monotonic() < deadline:
            try:
                answer = ask()
            except httpx.TransportError:
                pass
            else:
                if answer.status_code not in TRY_AGAIN:
                    return answer
            self._repetitions += 1
            self._over.wait(AGAIN_SECONDS)
        raise _Unanswered
