"""The routes of health: one that anyone may poll, and those with a key, of a tenant or of the whole deployment."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from services.api import health_types as types
from services.api.cached import Cached
from services.api.callers import needs, the_caller
from services.api.dead_letter_views import as_preview
from services.api.message_views import Read
from services.api.problems import NOT_FOUND, Problem, responses
from shared.domain.counters import Figures
from shared.domain.dead_letters import DeadLetter
from shared.domain.errors import PomboError, UnknownState
from shared.domain.record import Delivery, State
from shared.domain.tenants import Scope
from shared.operations.health import (
    CRITICAL_MARK,
    HIGH_WATER_MARK,
    Health,
    QueueHealth,
    Status,
    events_waiting,
    messages_waiting,
)

TAG = Tag(name="Health", description="Whether messages flow, and how fast.")
KEY: list[dict[str, list[str]]] = [{"key": []}]
FRESH_SECONDS = 10.0
"""How old the answer to anyone may be: it costs the store some ten reads."""

NO_STORE = "Pombo cannot reach its store."


@dataclass(frozen=True, slots=True)
class HealthParts:
    """What these routes need. `read`: the message in a stored event, None if it has none."""

    health: Health
    read: Read


def routes(parts: HealthParts) -> APIBlueprint:
    """The routes /health/whatsapp, what is below it, and /v1/admin/health."""
    made = APIBlueprint("health", __name__, abp_tags=[TAG])
    health = parts.health
    whole = lambda: _or_unreachable(lambda: _whole(health.of_deployment()))  # noqa: E731
    of_deployment = Cached(whole, FRESH_SECONDS, health.clock.monotonic)

    @made.get("/health/whatsapp", responses={200: types.WhatsappHealth})
    def whatsapp() -> Response:
        """Show whether messages flow; for anyone, and 10 s old at most. The answer is always 200."""
        return jsonify(of_deployment())

    @made.get("/health/whatsapp/detailed", responses={200: types.DetailedHealth} | responses(), security=KEY)
    @needs(Scope.READ)
    def detailed(query: types.TenantQuery) -> Response:
        """Show the queue and each number."""
        return jsonify(_or_unreachable(lambda: _detailed(health.of(_tenant(health, query)))))

    @made.get("/health/whatsapp/dlq", responses={200: types.LettersState} | responses(), security=KEY)
    @needs(Scope.READ)
    def dlq(query: types.LettersQuery) -> Response:
        """Show the newest dead letters; with the scope dead:read also how their texts begin."""
        tenant = _tenant(health, query)
        may_preview = Scope.READ_DEAD in the_caller().scopes
        letters = health.dead_letters(tenant, query.limit)
        items = [_letter(one, health.store.get(one.key) if may_preview else None, parts) for one in letters.newest]
        return jsonify({"dlq_depth": letters.depth, "items": items})

    @made.get("/v1/admin/health", responses={200: types.AdminHealth} | responses(), security=KEY)
    @needs(Scope.READ)
    def admin(query: types.TenantQuery) -> Response:
        """Show what waits and what failed, and the last hour in figures."""
        return jsonify(_admin(health, _tenant(health, query)))

    return made


def _tenant(health: Health, query: types.TenantQuery) -> str | None:
    """The tenant whose health the caller may see; None for the whole deployment. Raises Problem."""
    chosen = the_caller().chosen(query.tenant)
    if query.tenant is not None and chosen is not None and health.tenants.tenant(chosen) is None:
        raise Problem(NOT_FOUND)
    return chosen


def _or_unreachable(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Raises Problem."""
    try:
        return read()
    except (PomboError, UnknownState):
        details = _details("")
        unknown = dict.fromkeys(("queue_depth", "dlq_depth", "connected"))
        return {"status": Status.UNHEALTHY.value, **unknown, "details": details, "error": NO_STORE}


def _whole(found: QueueHealth) -> dict[str, Any]:
    return {
        "status": found.status.value,
        "queue_depth": found.depth,
        "dlq_depth": found.dead,
        "connected": found.connected,
        "details": _details(found.senders[0].sender.id if found.senders else ""),
    }


def _details(instance: str) -> dict[str, Any]:
    marks = {"queue_high_water_mark": HIGH_WATER_MARK, "queue_critical_mark": CRITICAL_MARK}
    return {"instance": instance, **marks}


def _detailed(found: QueueHealth) -> dict[str, Any]:
    senders = [
        types.SenderState(
            sender=one.sender.id,
            tenant=one.sender.tenant,
            provider=one.sender.provider,
            connected=one.reason is None,
            reason=one.reason,
        ).model_dump()
        for one in found.senders
    ]
    counts = {
        "webhook_events_pending_count": events_waiting(found.load),
        "outbox_pending_count": messages_waiting(found.load),
        "scheduled_count": found.load.scheduled,
        "oldest_pending_seconds": found.oldest_pending_seconds,
    }
    return {**_whole(found), **counts, "senders": senders}


def _letter(letter: DeadLetter, record: Delivery | None, parts: HealthParts) -> dict[str, Any]:
    """`record`: the whole record, for a caller who may see its content."""
    preview = as_preview(record, parts.read).text if record else None
    content = {"preview": preview, "last_error": record.last_error} if record else {}
    state = types.LetterState(
        id=letter.key,
        tenant=letter.tenant,
        direction=letter.kind.value,
        correlation_id=letter.correlation_id,
        error=letter.error,
        code=letter.code,
        attempts=letter.tries,
        dead_at=letter.at,
        replay=letter.replays.value,
        **content,
    )
    return state.model_dump(mode="json", exclude=None if record else {"preview", "last_error"})


def _admin(health: Health, tenant: str | None) -> dict[str, Any]:
    found = health.statistics(tenant)
    state = types.AdminHealth(
        webhook_events_pending_count=events_waiting(found.load),
        outbox_pending_count=messages_waiting(found.load),
        outbox_failed_count=found.load.messages.get(State.DEAD, 0),
        webhook_events_failed_count=found.load.events.get(State.DEAD, 0),
        scheduled_count=found.load.scheduled,
        oldest_pending_seconds=found.oldest_pending_seconds,
        tenants=[types.TenantFigures(tenant=id, **_hour(its)) for id, its in found.by_tenant.items()],
        **_hour(found.figures),
    )
    return state.model_dump()


def _hour(figures: Figures) -> dict[str, Any]:
    """The figures under the names of the API."""
    named = {"sent": "sent_last_1h", "failed": "failed_last_1h", "send_success_rate": "send_success_rate_last_1h"}
    return {named.get(name, name): value for name, value in asdict(figures).items()}
