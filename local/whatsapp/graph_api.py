"""The provider: the Graph API as a whole. When it is down, every call meets the fault before anything is checked."""

import asyncio
import math
import time
from dataclasses import dataclass, field, replace

from local.faults import Fault, FaultBook
from local.whatsapp import graph_calls
from local.whatsapp.errors import PROVIDER_DOWN, GraphError
from local.whatsapp.http_transport import Handle, Request, Response, json_answer
from local.whatsapp.listener import Listener
from local.whatsapp.simulator_store import SimulatorStore

LOOK_SECONDS = 0.1
"""Seconds by which a fault, or Graph's port, may lag behind: shorter than every timeout, and cheap."""

MET_BY_CALLS = frozenset({"error", "refuse", "hang"})

HTML_ERROR = b"<!DOCTYPE html><html><head><title>Error</title></head><body>Sorry, something went wrong.</body></html>\n"
"""The answer of Graph's front end when Graph itself cannot answer."""


@dataclass(frozen=True, slots=True)
class GraphApi:
    """Answers each call with a fault of the provider, or lets `graph` answer it."""

    faults: FaultBook
    store: SimulatorStore
    graph: Handle

    async def handle(self, request: Request) -> Response | None:
        call, facts = graph_calls.described(request)
        fault = self.faults.take("provider", facts, MET_BY_CALLS)
        if fault is None:
            return await self.graph(request)
        answer, code = None, None
        if fault.kind == "error":
            answer, code = error_answer(fault), fault.code
        elif fault.kind == "refuse":
            answer, code = down(fault), PROVIDER_DOWN
        self.store.note_call(graph_calls.line(call, facts.get("type"), answer.status if answer else None, code))
        if answer is None:
            await self._hang(fault, request)
        return answer

    async def _hang(self, fault: Fault, request: Request) -> None:
        """Return when the fault's seconds are over, faults were cleared, or the client disconnected."""
        end = time.monotonic() + (math.inf if fault.seconds is None else fault.seconds)
        before = self.faults.clearings
        while (left := end - time.monotonic()) > 0 and not request.is_abandoned():
            await asyncio.sleep(min(LOOK_SECONDS, left))
            if self.faults.clearings > before:
                return


@dataclass(frozen=True, slots=True)
class GraphPort:
    """Opens and closes Graph's port according to the stored faults, which survive a restart."""

    listener: Listener
    faults: FaultBook
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def settle(self) -> None:
        """Open or close the port now."""
        async with self._lock:
            if self.faults.unreachable():
                await self.listener.close()
            else:
                await self.listener.open()

    async def run(self) -> None:
        """Follow the faults until cancelled: an outage ends by itself."""
        while True:
            await self.settle()
            await asyncio.sleep(LOOK_SECONDS)


def down(fault: Fault) -> Response:
    """Meta's answer while it is down: like a refused connection, it proves that Meta did not accept the message."""
    error = GraphError(PROVIDER_DOWN, "The service is temporarily down.", 503)
    return replace(json_answer(error.http_status, error.document()), headers=_retry_after(fault))


def error_answer(fault: Fault) -> Response:
    """Meta's error if the fault has a code; otherwise a proxy's answer: text for 4xx, HTML for 5xx. A provider that is
    down answers a plain 500 with an empty body.
    """
    headers = _retry_after(fault)
    if fault.code is not None:
        error = GraphError(fault.code, "A fault was injected.", fault.status, fault.subcode, fault.transient)
        return replace(json_answer(error.http_status, error.document()), headers=headers)
    status = fault.status or 500
    if status < 500:
        return Response(status, b"Request refused.\n", "text/plain", headers)
    if fault.on == "provider" and status == 500:
        return Response(status, b"", "text/plain", headers)
    return Response(status, HTML_ERROR, "text/html; charset=utf-8", headers)


def _retry_after(fault: Fault) -> dict[str, str]:
    return {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
