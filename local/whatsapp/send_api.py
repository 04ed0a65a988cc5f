"""The send API: the one Graph call that matters here, POST /{version}/{phone_number_id}/messages.

A request is first checked as Meta would; only one that would be accepted can meet a fault on send. An accepted message
is in the ledger, with its receipts' webhooks, before the response is sent.
"""

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any

from local.faults import Fault, FaultBook
from local.whatsapp import graph_calls, receipts
from local.whatsapp.accounts import SEND, Accounts
from local.whatsapp.errors import (
    APP_PERMISSION,
    INVALID_REQUEST,
    OBJECT_GONE,
    PROVIDER_DOWN,
    TOKEN,
    UNKNOWN_PATH,
    GraphError,
)
from local.whatsapp.graph_api import down, error_answer
from local.whatsapp.http_transport import Request, Response, json_answer
from local.whatsapp.log import log
from local.whatsapp.management_api import admitted, bearer_of
from local.whatsapp.messages import ReadCall, SentMessage, parse_call, unknown_message
from local.whatsapp.simulator_store import SimulatorStore
from local.whatsapp.webhook_delivery import WebhookDeliveries
from local.whatsapp.webhook_payloads import BusinessNumber, new_wamid, rfc3339


@dataclass(frozen=True, slots=True)
class Account:
    """The environment's number at Meta, our app, and how soon Meta writes its receipts (seconds after it accepted)."""

    phone_number_id: str
    access_token: str
    version: str
    receipt_delays: tuple[float, float, float]
    app_id: str


@dataclass(frozen=True, slots=True)
class SendApi:
    account: Account
    accounts: Accounts
    store: SimulatorStore
    deliveries: WebhookDeliveries
    faults: FaultBook

    async def handle(self, request: Request) -> Response | None:
        """Answer one request; None closes the connection."""
        path = graph_calls.MESSAGES.fullmatch(request.path)
        if path is None or request.method != "POST":
            return _refusal(GraphError(UNKNOWN_PATH, "This call does not exist here."))
        try:
            sender = self._admit(request, path[1], path[2])
            call = parse_call(graph_calls.fields_of(request.body))
        except GraphError as error:
            log("call_refused", "Rejected the request, as Meta would.", code=error.code)
            return self._noted(_refusal(error), "refused", code=error.code)
        if isinstance(call, SentMessage):
            return await self._send(call, sender)
        return await self._typing(sender) if call.type == "typing" else self._read(call)

    def _admit(self, request: Request, version: str, id: str) -> BusinessNumber:
        """The number, if the token is one for its account."""
        if version != self.account.version:
            raise GraphError(UNKNOWN_PATH, f"This simulator supports only {self.account.version}.")
        token = admitted(self.accounts, bearer_of(request))
        sender = self.accounts.number(id)
        if sender is None:
            raise GraphError(INVALID_REQUEST, "There is no such phone number id.", subcode=OBJECT_GONE)
        if sender.account not in token.accounts:
            raise GraphError(TOKEN, "The access token is not one for this number.")
        if SEND not in token.scopes:
            raise GraphError(APP_PERMISSION, "", message="(#10) Application does not have permission for this action")
        return sender

    def _read(self, call: ReadCall) -> Response | None:
        """The message must exist. Faults on send do not apply: the call may be a probe."""
        if self.store.knows(call.message_id):
            return self._noted(json_answer(200, {"success": True}), "read", "read")
        error = unknown_message()
        return self._noted(_refusal(error), "read", "read", error.code)

    async def _typing(self, sender: BusinessNumber) -> Response | None:
        """Only a fault whose match names the type applies: others are meant for messages. The message may be unknown
        here: its webhook may have been signed elsewhere.
        """
        facts = {"type": "typing", "phone_number_id": sender.id}
        fault = self.faults.take("send", facts, named="type")
        if fault and fault.kind == "error":
            return self._noted(error_answer(fault), "typing", "typing", fault.code)
        if fault and fault.kind == "slow":
            await asyncio.sleep(fault.delay)
        elif fault:
            return self._noted(None, "typing", "typing")
        return self._noted(json_answer(200, {"success": True}), "typing", "typing")

    async def _send(self, message: SentMessage, sender: BusinessNumber) -> Response | None:
        facts = {"to": message.given, "type": message.type, "phone_number_id": sender.id}
        fault = self.faults.take("send", facts)
        if fault and fault.kind == "error":
            return self._noted(error_answer(fault), "message", message.type, fault.code)
        if fault and fault.kind == "refuse":
            return self._noted(down(fault), "message", message.type, PROVIDER_DOWN)
        if fault and fault.kind == "drop":
            return self._noted(None, "message", message.type)
        wamid = new_wamid(message.contact, outbound=True)
        dropped = fault is not None and fault.kind == "accept_then_drop"
        row = self._accept(message, sender, wamid, graph_calls.line("message", message.type, None if dropped else 200))
        if fault and fault.kind == "slow":
            await asyncio.sleep(fault.delay)
        if dropped:
            return None
        answer = json_answer(200, _accepted(message, wamid))
        return replace(answer, handed=lambda: self.store.answered(row, rfc3339(time.time())))

    def _accept(self, message: SentMessage, sender: BusinessNumber, wamid: str, call: dict[str, Any]) -> int:
        now = time.time()

        def take(kind: str, named: bool) -> Fault | None:
            facts = {"to": message.given, "type": kind, "phone_number_id": sender.id}
            return self.faults.take("receipt", facts, named="type" if named else None)

        steps = receipts.plan(message.type, self.account.receipt_delays, take)
        is_subscribed = self.accounts.is_subscribed(sender.account)
        webhooks = receipts.webhooks(sender, message, wamid, steps, now) if is_subscribed else []
        row, ids = self.store.accept(_entry(message, sender, wamid, now), webhooks, call)
        self.deliveries.scheduled(ids, webhooks)
        return row

    def _noted(
        self, answer: Response | None, call: str, kind: str | None = None, code: int | None = None
    ) -> Response | None:
        self.store.note_call(graph_calls.line(call, kind, answer.status if answer else None, code))
        return answer


def _refusal(error: GraphError) -> Response:
    return json_answer(error.http_status, error.document())


def _accepted(message: SentMessage, wamid: str) -> dict[str, Any]:
    contact = {"wa_id": message.wa_id} if message.wa_id else {"user_id": message.recipient}
    status = {"message_status": "accepted"} if message.type == "template" else {}
    contacts = [{"input": message.given, **contact}]
    return {"messaging_product": "whatsapp", "contacts": contacts, "messages": [{"id": wamid, **status}]}


def _entry(message: SentMessage, sender: BusinessNumber, wamid: str, now: float) -> dict[str, Any]:
    """The ledger's row: `to` is the number that Meta sends to, which differs if the plus was missing."""
    return {
        "phone_number_id": sender.id,
        "key": _key(message.echo),
        "echo": message.echo,
        "to": f"+{message.wa_id}" if message.wa_id else None,
        "recipient": message.recipient,
        "type": message.type,
        "body": message.body,
        "wamid": wamid,
        "accepted_at": rfc3339(now),
    }


def _key(echo: str | None) -> str | None:
    """The second part of `pombo1.<key>.<round>.<correlation_id>`."""
    parts = (echo or "").split(".")
    return parts[1] if len(parts) == 4 and parts[0] == "pombo1" else None
