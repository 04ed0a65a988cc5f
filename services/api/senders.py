"""The routes of senders: a tenant's numbers, connected by an access token that the provider accepts."""

from collections.abc import Callable
from typing import Any

from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from services.api import registry_types as types
from services.api.callers import Caller, needs, the_caller
from services.api.problems import INVALID_REQUEST, NOT_FOUND, OF_A_BODY, Problem, responses
from services.api.registry_parts import RegistryParts, page
from shared.domain.errors import UnknownState
from shared.domain.marks import Marks
from shared.domain.onboarding import NoSuchNumber, OnboardingRefused
from shared.domain.tenants import Order, Scope, Sender
from shared.operations.connect import Connected
from shared.operations.senders import Auth, auth_of
from shared.pipeline.registry import EntryKind
from shared.tenants.entries import is_gone, read_sender, sender_name

TAG = Tag(name="Senders", description="The numbers of tenants, and whether each can send.")


def routes(parts: RegistryParts) -> APIBlueprint:
    """The routes below /v1/senders."""
    made = APIBlueprint("senders", __name__, url_prefix="/v1/senders", abp_tags=[TAG], abp_security=[{"key": []}])

    @made.post("", responses={201: types.SenderConnected} | responses(*OF_A_BODY))
    @needs(Scope.MANAGE)
    def add(body: types.NewSender) -> tuple[Response, int]:
        """Connect a number by its access token. A number that another tenant has is answered like an unknown one."""
        caller = the_caller()
        tenant = caller.chosen(body.tenant)
        if tenant is None:
            raise Problem(INVALID_REQUEST, "tenant is missing: an operator's key is for all.", "tenant")
        sender = Sender(tenant, body.provider, body.id, body.account, body.display, order=Order(body.order))
        claim = parts.claims.add if caller.tenant is None else parts.claims.add_own
        connected = _accepted(lambda: claim(sender, body.token.get_secret_value()))
        return jsonify(_connected(parts, connected)), 201

    @made.get("", responses={200: types.SendersShown} | responses())
    @needs(Scope.READ)
    def list_senders(query: types.RegistryQuery) -> Response:
        """List numbers, in the order of their ids, without the environment's."""
        tenant = the_caller().chosen(query.tenant)
        return page(parts, EntryKind.SENDER, tenant, query, lambda sender: _shown(sender, _auth(parts, sender)))

    @made.get("/<id>", responses={200: types.SenderShown} | responses())
    @needs(Scope.READ)
    def show(path: types.SenderPath) -> Response:
        """Show a number, and whether it can send. The provider is not asked."""
        sender = _found(parts, path.id, the_caller())
        return jsonify(_shown(sender, _auth(parts, sender)))

    @made.post("/<id>/reconnect", responses={200: types.SenderConnected} | responses(*OF_A_BODY))
    @needs(Scope.MANAGE)
    def reconnect(path: types.SenderPath, body: types.NewToken) -> Response:
        """Give a number another access token, checked with the provider, and send what waits."""
        sender = _found(parts, path.id, the_caller())
        token = body.token.get_secret_value()
        return jsonify(_connected(parts, _accepted(lambda: parts.claims.reconnect(sender, token, parts.start_drain))))

    return made


def _accepted(claim: Callable[[], Connected]) -> Connected:
    """Raises Problem if the provider does not accept the token for this number."""
    try:
        return claim()
    except NoSuchNumber as error:
        raise Problem(NOT_FOUND, error.sentence, "id") from error
    except OnboardingRefused as error:
        raise Problem(INVALID_REQUEST, error.sentence, "token") from error


def _found(parts: RegistryParts, id: str, caller: Caller) -> Sender:
    """Raises Problem: what another tenant has does not exist for the caller."""
    ours = next((sender for sender in parts.environment if sender.id == id), None)
    (entry,) = (None,) if ours else parts.registry.entries([sender_name(id)])
    sender = ours or (read_sender(entry) if entry and not is_gone(entry) else None)
    if sender is None or not caller.may_see(sender.tenant):
        raise Problem(NOT_FOUND)
    return sender


def _auth(parts: RegistryParts, sender: Sender) -> Auth | None:
    try:
        marks: Marks = parts.store.marks(sender.id)
    except UnknownState:
        return None
    return auth_of(marks)


def _connected(parts: RegistryParts, connected: Connected) -> dict[str, Any]:
    shown = _shown(connected.sender, _auth(parts, connected.sender))
    made = types.SenderConnected(**shown, token_expires_at=connected.checked.expires_at)
    return made.model_dump(mode="json")


def _shown(sender: Sender, auth: Auth | None) -> dict[str, Any]:
    pace = sender.pace
    shown = types.SenderShown(
        id=sender.id,
        tenant=sender.tenant,
        provider=sender.provider,
        provider_id=sender.provider_id,
        account=sender.account,
        display=sender.display,
        order=sender.order,
        pace=types.PaceShown(per_second=pace.per_second, burst=pace.burst) if pace else None,
        auth=types.AuthShown(state=auth.state, code=auth.code, since=auth.since) if auth else None,
        created_at=sender.created_at,
    )
    return shown.model_dump(mode="json")
