"""The routes of tenants, for operators. A tenant's own key sees its tenant alone."""

from dataclasses import replace
from typing import Any

from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from services.api import registry_types as types
from services.api.callers import needs, the_caller
from services.api.problems import INVALID_REQUEST, NOT_FOUND, OF_A_BODY, Problem, responses
from services.api.registry_parts import RegistryParts, page
from shared.domain.drains import RESUMED
from shared.domain.limits import DoubtPolicy
from shared.domain.tenants import Scope, Tenant
from shared.operations import registry as operations
from shared.pipeline.registry import EntryKind

TAG = Tag(name="Tenants", description="The businesses of this deployment.")


def routes(parts: RegistryParts) -> APIBlueprint:
    """The routes below /v1/tenants."""
    made = APIBlueprint("tenants", __name__, url_prefix="/v1/tenants", abp_tags=[TAG], abp_security=[{"key": []}])

    @made.post("", responses={201: types.TenantShown} | responses(*OF_A_BODY))
    @needs(Scope.MANAGE, operator=True)
    def add(body: types.NewTenant) -> tuple[Response, int]:
        """Add a tenant, with the pair of queues that serves the fewest."""
        tenant = Tenant(body.id, body.name)
        return jsonify(_shown(operations.add_tenant(parts.registry, parts.clock, tenant, parts.pairs))), 201

    @made.get("", responses={200: types.TenantsShown} | responses())
    @needs(Scope.READ)
    def list_tenants(query: types.RegistryQuery) -> Response:
        """List tenants, in the order of their ids. The tenant of the environment has no entry."""
        caller = the_caller()
        tenant = caller.chosen(query.tenant)
        if tenant is not None:
            found = parts.registry_tenant(tenant)
            return jsonify({"items": [_shown(found)] if found else [], "next": None})
        return page(parts, EntryKind.TENANT, None, query, _shown)

    @made.get("/<id>", responses={200: types.TenantShown} | responses())
    @needs(Scope.READ)
    def show(path: types.TenantPath) -> Response:
        """Show a tenant."""
        if not the_caller().may_see(path.id):
            raise Problem(NOT_FOUND)
        found = parts.registry_tenant(path.id)
        if found is None:
            raise Problem(NOT_FOUND)
        return jsonify(_shown(found))

    @made.patch("/<id>", responses={200: types.TenantShown} | responses(*OF_A_BODY))
    @needs(Scope.MANAGE, operator=True)
    def change(path: types.TenantPath, body: types.ChangedTenant) -> Response:
        """Change a tenant's name or in-doubt policy. All services use the change within 5 seconds."""
        if body.name is None and body.in_doubt is None:
            raise Problem(INVALID_REQUEST, "Give what to change: name or in_doubt.", "body")

        def changed(before: Tenant) -> Tenant:
            name = before.name if body.name is None else body.name
            return replace(before, name=name, in_doubt=_policy(before, body.in_doubt))

        return jsonify(_shown(operations.set_tenant(parts.registry, parts.clock, path.id, changed)))

    @made.post("/<id>/suspend", responses={200: types.TenantShown} | responses(*OF_A_BODY))
    @needs(Scope.MANAGE, operator=True)
    def suspend(path: types.TenantPath) -> Response:
        """Let a tenant's messages wait. What its customers write is still received and handled."""
        return jsonify(_shown(operations.suspend(parts.registry, parts.clock, path.id)))

    @made.post("/<id>/resume", responses={200: types.TenantShown} | responses(*OF_A_BODY))
    @needs(Scope.MANAGE, operator=True)
    def resume(path: types.TenantPath) -> Response:
        """End a suspension, and send what waits."""
        tenant = operations.resume(parts.registry, parts.clock, path.id)
        senders = operations.entries_of(parts.registry, EntryKind.SENDER, path.id)
        parts.start_drain(*(entry.name.id for entry in senders), reason=RESUMED)
        return jsonify(_shown(tenant))

    @made.delete("/<id>", responses={200: types.Removed} | responses())
    @needs(Scope.MANAGE, operator=True)
    def remove(path: types.TenantPath) -> Response:
        """Remove a tenant that has no numbers, no keys in force, no open records and no dead letters.

        The secret of its own backend stays, because this service may delete none: the answer names it.
        """
        gone = operations.remove_tenant(parts.registry, parts.store, parts.clock, path.id)
        removed = types.Removed(id=gone.id, handler_secret=gone.handler.secret if gone.handler else None)
        return jsonify(removed.model_dump(mode="json"))

    return made


def _policy(before: Tenant, given: str | None) -> DoubtPolicy | None:
    if given is None:
        return before.in_doubt
    return None if given == "deployment" else DoubtPolicy(given)


def _shown(tenant: Tenant) -> dict[str, Any]:
    shown = types.TenantShown(
        id=tenant.id,
        name=tenant.name,
        state=tenant.state,
        queue=tenant.queue,
        in_doubt=tenant.in_doubt,
        handler_url=tenant.handler.url if tenant.handler else None,
        created_at=tenant.created_at,
    )
    return shown.model_dump(mode="json")
