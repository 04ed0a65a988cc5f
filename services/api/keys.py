"""The routes of API keys: make, list and revoke them."""

from typing import Any

from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from services.api import registry_types as types
from services.api.callers import needs, the_caller
from services.api.problems import FORBIDDEN, NOT_FOUND, OF_A_BODY, Problem, responses
from services.api.registry_parts import RegistryParts, page
from shared.domain.tenants import ApiKey, Scope
from shared.operations.keys import add_key, revoke_key
from shared.pipeline.registry import EntryKind
from shared.tenants.entries import key_name, read_key

TAG = Tag(name="Keys", description="API keys. A key's secret is shown once.")


def routes(parts: RegistryParts) -> APIBlueprint:
    """The routes below /v1/keys."""
    made = APIBlueprint("keys", __name__, url_prefix="/v1/keys", abp_tags=[TAG], abp_security=[{"key": []}])

    @made.post("", responses={201: types.KeyMade} | responses(*OF_A_BODY))
    @needs(Scope.MANAGE)
    def add(body: types.NewKey) -> tuple[Response, int]:
        """Make a key of a tenant, or with an operator's key another operator's. It is shown only now."""
        caller = the_caller()
        tenant, scopes = caller.chosen(body.tenant), frozenset(map(Scope, body.scopes))
        if scopes - caller.scopes:
            lacking = ", ".join(sorted(scopes - caller.scopes))
            raise Problem(FORBIDDEN, f"The API key lacks {lacking}, and so cannot give it to another.")
        key, text = add_key(parts.registry, parts.clock, tenant, scopes)
        return jsonify({**_shown(key), "key": text}), 201

    @made.get("", responses={200: types.KeysShown} | responses())
    @needs(Scope.MANAGE)
    def list_keys(query: types.RegistryQuery) -> Response:
        """List keys without their secrets, in the order of their ids, also those that were revoked."""
        return page(parts, EntryKind.KEY, the_caller().chosen(query.tenant), query, _shown)

    @made.post("/<id>/revoke", responses={200: types.KeyShown} | responses(*OF_A_BODY))
    @needs(Scope.MANAGE)
    def revoke(path: types.KeyPath) -> Response:
        """End a key: it is refused within 5 seconds. Again: the same answer."""
        caller = the_caller()
        (entry,) = parts.registry.entries([key_name(path.id)])
        if entry is None or not caller.may_see(read_key(entry).tenant):
            raise Problem(NOT_FOUND)
        return jsonify(_shown(revoke_key(parts.registry, parts.clock, path.id)))

    return made


def _shown(key: ApiKey) -> dict[str, Any]:
    shown = types.KeyShown(
        id=key.id,
        tenant=key.tenant,
        scopes=sorted(key.scopes),
        created_at=key.created_at,
        revoked_at=key.revoked_at,
    )
    return shown.model_dump(mode="json")
