"""The control address: where a test decides what happens in the simulated world, and asks what happened.

    POST   /control/inbound     a customer writes: {"from"|"user_id", "type", "content" with "batch"?, or "contents":
                                […], "id"?, "times"?, "rebatch"?, "fields"?, "phone_number_id"?} → {"message_ids": […]}
    GET    /control/ledger      every accepted message, oldest first; DELETE clears it, and the calls
    GET    /control/calls       every API call: {"at", "call", "type", "status", "code"}; status null: dropped; call is
                                message, read, typing, management (type: "get debug_token" …), refused, or other: an
                                invalid call that a provider fault hit
    POST   /control/faults      one fault (local/faults.py); GET lists those with uses left, DELETE ends them all
    GET    /control/faults/made how many faults were made so far: {"send error": 3}; clearing keeps it
    GET    /control/webhooks    {"pending", "delivered", "attempts", "given_up"}; DELETE drops the pending
    POST   /control/webhooks    redeliver now every webhook that failed and waits → {"hurried"}
    POST   /control/webhook     sign the raw body and deliver it once, now → {"status", "body"}; status
                                null: no answer
    POST   /control/senders     a number: {"phone_number_id", "waba", "token", "display"?, "subscribed"?}; GET lists
                                all, DELETE {"phone_number_id"} removes one, without a body all that were added
    POST   /control/tokens      an access token: {"token", "state"?: valid|expired|revoked, "replace"?: its successor,
                                "accounts"?, "scopes"?, "app_id"?, "target_ids"?, "expires_at"?,
                                "data_access_expires_at"?}
    POST   /control/account_update  news of an account: {"waba", "event", "fields"?}, as a signed webhook
    GET    /control/oidc-certs  the certificates that the tasks emulator wrote

An invalid request is answered 400 with one sentence. There is no password: it listens on loopback only, and refuses a
web page's requests with 403 (local/origin_check.py). It is served on a separate port, which stays open, and on Graph's,
which a fault may close.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from local.faults import FaultBook, fault_from
from local.whatsapp import account_orders
from local.whatsapp.accounts import Accounts
from local.whatsapp.customer_actions import order_from
from local.whatsapp.graph_api import GraphPort
from local.whatsapp.http_transport import Request, Response, json_answer
from local.whatsapp.simulator_store import SimulatorStore
from local.whatsapp.webhook_delivery import WebhookDeliveries
from local.whatsapp.webhook_payloads import message_ids


@dataclass(frozen=True, slots=True)
class ControlApi:
    store: SimulatorStore
    deliveries: WebhookDeliveries
    faults: FaultBook
    port: GraphPort
    sender: str
    accounts: Accounts
    certs: Path

    async def handle(self, request: Request) -> Response:
        routes: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]] = {
            ("POST", "/control/inbound"): self._inbound,
            ("GET", "/control/ledger"): self._ledger,
            ("DELETE", "/control/ledger"): self._clear_ledger,
            ("GET", "/control/calls"): self._calls,
            ("POST", "/control/faults"): self._add_fault,
            ("GET", "/control/faults"): self._active_faults,
            ("DELETE", "/control/faults"): self._clear_faults,
            ("GET", "/control/faults/made"): self._made_faults,
            ("GET", "/control/webhooks"): self._webhooks,
            ("DELETE", "/control/webhooks"): self._forget_webhooks,
            ("POST", "/control/webhooks"): self._hurry_webhooks,
            ("POST", "/control/webhook"): self._webhook,
            ("POST", "/control/senders"): self._add_sender,
            ("GET", "/control/senders"): self._senders,
            ("DELETE", "/control/senders"): self._remove_senders,
            ("POST", "/control/tokens"): self._change_token,
            ("POST", "/control/account_update"): self._account_update,
            ("GET", "/control/oidc-certs"): self._certs,
        }
        route = routes.get((request.method, request.path))
        if route is None:
            return json_answer(404, {"error": f"There is no {request.method} at this control address."})
        try:
            return await route(request)
        except ValueError as error:
            return json_answer(400, {"error": str(error)})

    async def _inbound(self, request: Request) -> Response:
        order = order_from(_document(request), self.sender)
        ids = order.message_ids()
        self.store.remember(ids)
        number = self.accounts.addressee(order.sender)
        if self.accounts.is_subscribed(number.account):
            self.deliveries.add(order.webhooks(ids, number))
        return json_answer(200, {"message_ids": ids})

    async def _add_sender(self, request: Request) -> Response:
        account_orders.add_sender(self.accounts, _document(request))
        return json_answer(200, {})

    async def _senders(self, _: Request) -> Response:
        return json_answer(200, account_orders.shown_senders(self.accounts))

    async def _remove_senders(self, request: Request) -> Response:
        self.accounts.remove(account_orders.sender_to_remove(_document(request) if request.body else {}))
        return json_answer(200, {})

    async def _change_token(self, request: Request) -> Response:
        account_orders.change_token(self.accounts, _document(request))
        return json_answer(200, {})

    async def _account_update(self, request: Request) -> Response:
        self.deliveries.add([account_orders.account_update(_document(request))])
        return json_answer(200, {})

    async def _ledger(self, _: Request) -> Response:
        return json_answer(200, self.store.ledger())

    async def _clear_ledger(self, _: Request) -> Response:
        self.store.clear_ledger()
        return json_answer(200, {})

    async def _calls(self, _: Request) -> Response:
        return json_answer(200, self.store.calls())

    async def _add_fault(self, request: Request) -> Response:
        fault = fault_from(_document(request))
        self.faults.add(fault)
        await self.port.settle()
        return json_answer(200, asdict(fault))

    async def _active_faults(self, _: Request) -> Response:
        return json_answer(200, [asdict(fault) for fault in self.faults.active()])

    async def _made_faults(self, _: Request) -> Response:
        return json_answer(200, self.faults.made())

    async def _clear_faults(self, _: Request) -> Response:
        self.faults.clear()
        await self.port.settle()
        return json_answer(200, {})

    async def _webhooks(self, _: Request) -> Response:
        return json_answer(200, {"pending": self.deliveries.pending, **self.store.counts()})

    async def _hurry_webhooks(self, _: Request) -> Response:
        return json_answer(200, {"hurried": self.deliveries.hurry()})

    async def _forget_webhooks(self, _: Request) -> Response:
        self.deliveries.forget()
        return json_answer(200, {})

    async def _webhook(self, request: Request) -> Response:
        self.store.remember(message_ids(request.body))
        status, body = await self.deliveries.post(request.body)
        return json_answer(200, {"status": status, "body": body.decode("utf-8", "replace")})

    async def _certs(self, _: Request) -> Response:
        try:
            return Response(200, self.certs.read_bytes())
        except FileNotFoundError:
            return json_answer(404, {"error": "The tasks emulator has not written its certificates yet."})


def _document(request: Request) -> object:
    try:
        return json.loads(request.body)
    except (ValueError, RecursionError):
        raise ValueError("The body must be JSON.") from None
