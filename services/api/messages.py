"""The routes of messages: send one or many, look at one, cancel it."""

from dataclasses import dataclass
from typing import Any

from flask import Response, jsonify, request
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag
from pydantic import ValidationError

from services.api import access_log
from services.api import message_types as types
from services.api.callers import Caller, needs, the_caller
from services.api.lists import encoded, time_and_key
from services.api.message_views import Read, as_listed, as_message
from services.api.new_messages import NewMessages, body_hash
from services.api.problems import (
    IDEMPOTENCY_CONFLICT,
    INVALID_REQUEST,
    NOT_CANCELLABLE,
    NOT_FOUND,
    OF_A_BODY,
    UNAVAILABLE,
    Problem,
    document,
    of_validation,
    problem_of,
    responses,
)
from shared.bootstrap.channels import read_message
from shared.domain.guards import REAUTH_REQUIRED, SENDER_BLOCKED
from shared.domain.record import Delivery, Kind
from shared.domain.tenants import Scope
from shared.operations.history import HistoryFilter, history
from shared.operations.messages import Cancel
from shared.operations.timeline.sentences import Explain
from shared.pipeline.accept_message import AcceptMessage
from shared.pipeline.ports import Store, Tenants

TAG = Tag(name="Messages", description="Send messages, see where each is, and take back one that waits.")


@dataclass(frozen=True, slots=True)
class MessageParts:
    """What these routes need."""

    store: Store
    new_messages: NewMessages
    accept: AcceptMessage
    cancel: Cancel
    explain: Explain
    read: Read = read_message


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as its caller sent it: the body as JSON, and the headers that matter."""

    caller: Caller
    raw: Any
    key: str | None
    correlation_id: str | None


def routes(parts: MessageParts) -> APIBlueprint:
    """The routes below /v1/messages."""
    made = APIBlueprint("messages", __name__, url_prefix="/v1/messages", abp_tags=[TAG], abp_security=[{"key": []}])

    @made.post(
        "",
        responses={202: types.AcceptedMessage}
        | responses(*OF_A_BODY, REAUTH_REQUIRED, SENDER_BLOCKED, IDEMPOTENCY_CONFLICT),
    )
    @needs(Scope.SEND)
    def send(body: types.NewMessage, header: types.IdempotencyHeaders) -> tuple[Response, int]:
        """Store a message and queue it.

        It is sent at once, or at its time. Give an Idempotency-Key, and repeat the request with it until it is
        answered: it then counts once.
        """
        caller = the_caller()
        sent = Sent(caller, request.get_json(), header.idempotency_key, header.correlation_id)
        return jsonify(_accepted(parts, sent, body)), 202

    @made.post("/batch", responses={200: types.BatchResults} | responses(*OF_A_BODY))
    @needs(Scope.SEND)
    def send_many(body: types.NewMessages, header: types.IdempotencyHeaders) -> Response:
        """Store up to 100 messages; each succeeds or fails by itself.

        The key of each is the Idempotency-Key, a colon, and its place from 0.
        """
        caller = the_caller()
        results: list[dict[str, Any]] = []
        for place, raw in enumerate(body.messages):
            key = f"{header.idempotency_key}:{place}" if header.idempotency_key else None
            # If the store or the queue is away, the rest would wait for it as long again.
            is_away = bool(results) and results[-1].get("code") == UNAVAILABLE
            sent = Sent(caller, raw, key, header.correlation_id)
            results.append(results[-1] if is_away else _result(parts, sent))
        return jsonify({"results": results})

    @made.get("", responses={200: types.ListedMessages} | responses())
    @needs(Scope.READ)
    def list_messages(query: types.MessagesQuery) -> Response:
        """List a tenant's messages, in both directions, the newest first."""
        caller = the_caller()
        wanted = _wanted(parts.new_messages.tenants, caller, query)
        page = history(parts.store, wanted, time_and_key(query.cursor), query.limit)
        items = [as_listed(record, parts.read) for record in page.records]
        return jsonify({"items": items, "next": encoded(page.ends_at)})

    @made.get("/<id>", responses={200: types.Message} | responses())
    @needs(Scope.READ)
    def show(path: types.MessagePath) -> Response:
        """Show a message, in either direction, with its timeline."""
        record = _found(parts.store, path.id, the_caller())
        return jsonify(as_message(record, parts.explain, parts.read))

    @made.post("/<id>/cancel", responses={200: types.Message} | responses(*OF_A_BODY, NOT_CANCELLABLE))
    @needs(Scope.SEND)
    def cancel(path: types.MessagePath) -> Response:
        """Take back a message that waits. One that is being sent, or was, is not cancellable."""
        record = parts.cancel(path.id, seen=_found(parts.store, path.id, the_caller()))
        return jsonify(as_message(record, parts.explain, parts.read))

    return made


def _result(parts: MessageParts, sent: Sent) -> dict[str, Any]:
    """What became of one message of a batch. A fault of one does not stop the others."""
    try:
        return {"status": 202, **_accepted(parts, sent, types.NewMessage.model_validate(sent.raw))}
    except ValidationError as error:
        return document(of_validation(error))
    except Exception as error:  # noqa: BLE001 - the one place that maps errors to problems knows each
        return document(problem_of(error))


def _accepted(parts: MessageParts, sent: Sent, body: types.NewMessage) -> dict[str, Any]:
    """The answer of a message that is stored: the same, byte for byte, however often it is asked for."""
    record = _stored(parts, sent, body)
    access_log.about(record)
    return types.AcceptedMessage(id=record.key, correlation_id=record.correlation_id).model_dump()


def _stored(parts: MessageParts, sent: Sent, body: types.NewMessage) -> Delivery:
    """The message as it was stored first. A repeated request is answered also if it would be refused by now, because
    its number was removed. Raises Problem and the errors of AcceptMessage.
    """
    try:
        wanted = parts.new_messages.request(sent.caller, body, sent.raw, sent.key, sent.correlation_id)
    except Problem:
        tenant, key = sent.caller.tenant, sent.key
        stored = parts.accept.repeated(tenant, key, body_hash(sent.raw)) if tenant and key else None
        if stored is None:
            raise
        return stored
    return parts.accept(wanted)


def _found(store: Store, id: str, caller: Caller) -> Delivery:
    """Raises Problem: another tenant's message does not exist for the caller."""
    record = store.get(id)
    if record is None or not caller.may_see(record.tenant):
        raise Problem(NOT_FOUND)
    access_log.about(record)
    return record


def _wanted(tenants: Tenants, caller: Caller, query: types.MessagesQuery) -> HistoryFilter:
    """Raises Problem and RegistryUnavailable."""
    tenant = caller.chosen(query.tenant)
    if tenant is None:
        raise Problem(INVALID_REQUEST, "tenant is missing: an operator's key is for all.", "tenant")
    if caller.tenant is None and tenants.tenant(tenant) is None:
        raise Problem(NOT_FOUND, field="tenant")
    if query.since and query.until and query.since > query.until:
        raise Problem(INVALID_REQUEST, "since is later than until.", "since")
    kind = Kind(query.direction) if query.direction else None
    return HistoryFilter(tenant, query.since, query.until, query.state, kind)
