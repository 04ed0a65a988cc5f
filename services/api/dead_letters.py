"""The routes of dead letters: list them, replay or discard one."""

from dataclasses import dataclass, replace
from typing import Any, Self

from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from services.api import access_log
from services.api import dead_letter_types as types
from services.api.callers import Caller, caller_with
from services.api.lists import encoded, time_and_key
from services.api.message_views import Read
from services.api.problems import INVALID_REQUEST, NOT_FOUND, OF_A_BODY, Problem, responses
from shared.bootstrap.channels import read_message
from shared.domain.dead_letters import DeadLetter, DeadLetterFilter, Replays, dead_letter, why_never
from shared.domain.delivery.answers import NOT_DEAD
from shared.domain.errors import UnknownState
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State
from shared.domain.tenants import Scope
from shared.operations.dead_letters import Decision, Discard, Done, Replay
from shared.operations.letters_page import newest, position
from shared.operations.timeline import build as timeline
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Queue, Store, Tenants

TAG = Tag(name="Dead letters", description="Deliveries that failed, and wait for a decision.")
PREVIEWED = 200
"""Characters of a text."""

NO_LETTER = "It is no dead letter."
MAY_DOUBLE = "A copy may have arrived: give may_double to replay it."


@dataclass(frozen=True, slots=True)
class DeadLetterParts:
    """What these routes need."""

    store: Store
    replay: Replay
    discard: Discard
    read: Read = read_message

    @classmethod
    def of(cls, store: Store, queue: Queue, tenants: Tenants, limits: Limits, clock: Clock) -> Self:
        """The parts over these ports."""
        return cls(store, Replay(store, queue, tenants, limits, clock), Discard(store, limits, clock, because=""))


def routes(parts: DeadLetterParts) -> APIBlueprint:
    """The routes below /v1/dead-letters."""
    made = APIBlueprint(
        "dead_letters", __name__, url_prefix="/v1/dead-letters", abp_tags=[TAG], abp_security=[{"key": []}]
    )

    @made.get("", responses={200: types.Letters} | responses())
    def list_letters(query: types.LettersQuery) -> Response:
        """List dead letters, the newest first. With the scope dead:read each has a preview of its content."""
        caller = caller_with(Scope.READ)
        after = time_and_key(query.cursor)
        found = newest(parts.store, _wanted(caller, query), (after[0], after[1]) if after else None, query.limit)
        items = [_as_letter(parts, caller, letter) for letter in found]
        return jsonify({"items": items, "next": encoded(position(found[-1])) if len(found) == query.limit else None})

    @made.post("/<id>/replay", responses={200: types.LetterDecided} | responses(*OF_A_BODY))
    def replay_letter(path: types.LetterPath, body: types.ReplayLetter) -> Response:
        """Retry a dead letter. With dry_run the answer has what a replay would do."""
        caller = caller_with(Scope.SEND)
        record = _found(parts.store, path.id, caller)
        expected = _would_replay(record, body.may_double)
        if body.dry_run or expected.done is Done.SKIPPED:
            return jsonify(_decided(parts, caller, record, expected, body.dry_run))
        decision = replace(parts.replay, may_double=body.may_double)(record.key)
        return jsonify(_decided(parts, caller, record, decision, dry_run=False))

    @made.post("/<id>/discard", responses={200: types.LetterDecided} | responses(*OF_A_BODY))
    def discard_letter(path: types.LetterPath, body: types.DiscardLetter) -> Response:
        """Give up a dead letter. With dry_run the answer has what a discard would do."""
        caller = caller_with(Scope.SEND)
        record = _found(parts.store, path.id, caller)
        if body.dry_run:
            would = Decision(Done.DISCARDED) if record.state is State.DEAD else Decision(Done.SKIPPED, NOT_DEAD)
            return jsonify(_decided(parts, caller, record, would, dry_run=True))
        decision = replace(parts.discard, because=body.reason.strip())(record.key)
        return jsonify(_decided(parts, caller, record, decision, dry_run=False))

    return made


def _wanted(caller: Caller, query: types.LettersQuery) -> DeadLetterFilter:
    if query.since and query.until and query.since > query.until:
        raise Problem(INVALID_REQUEST, "since is later than until.", "since")
    errors = frozenset(int(error) if error.removeprefix("-").isdecimal() else error for error in query.error or ())
    kind = Kind(query.direction) if query.direction else None
    return DeadLetterFilter(caller.chosen(query.tenant), query.since, query.until, errors, kind, query.sender)


def _found(store: Store, id: str, caller: Caller) -> Delivery:
    """Raises Problem: what another tenant has does not exist for the caller."""
    record = store.get(id)
    if record is None or not caller.may_see(record.tenant):
        raise Problem(NOT_FOUND)
    access_log.about(record)
    return record


def _would_replay(record: Delivery, may_double: bool) -> Decision:
    """What a replay would do with this record."""
    letter = dead_letter(record)
    if letter is None:
        is_replayed = record.round > 0 and not record.final
        return Decision(Done.REPLAYED) if is_replayed else Decision(Done.SKIPPED, NO_LETTER)
    match letter.replays:
        case Replays.NEVER:
            return Decision(Done.SKIPPED, why_never(record))
        case Replays.MAY_DOUBLE if not may_double:
            return Decision(Done.SKIPPED, MAY_DOUBLE)
        case Replays.DONE:
            return Decision(Done.DONE)
        case _:
            return Decision(Done.REPLAYED)


def _decided(
    parts: DeadLetterParts, caller: Caller, record: Delivery, decision: Decision, dry_run: bool
) -> dict[str, Any]:
    letter = dead_letter(record)
    shown = types.LetterDecided(
        id=record.key,
        outcome=decision.done,
        why=decision.why,
        dry_run=dry_run,
        letter=_letter(letter, _preview(parts, record) if Scope.READ_DEAD in caller.scopes else None)
        if letter
        else None,
    )
    return shown.model_dump(mode="json", exclude_none=True)


def _as_letter(parts: DeadLetterParts, caller: Caller, letter: DeadLetter) -> dict[str, Any]:
    """A preview costs a read: a listing brings no content."""
    preview = None
    if Scope.READ_DEAD in caller.scopes:
        record = _readable(parts.store, letter.key)
        preview = _preview(parts, record) if record else None
    return _letter(letter, preview).model_dump(mode="json", exclude_none=True)


def _readable(store: Store, key: str) -> Delivery | None:
    try:
        return store.get(key)
    except UnknownState:
        return None


def _letter(letter: DeadLetter, preview: types.Preview | None) -> types.Letter:
    return types.Letter(
        id=letter.key,
        direction=letter.kind.value,
        tenant=letter.tenant,
        sender=letter.sender,
        correlation_id=letter.correlation_id,
        error=letter.error,
        code=letter.code,
        error_type=letter.error_type,
        at=letter.at,
        attempts=letter.tries,
        round=letter.round,
        replay=letter.replays,
        preview=preview,
    )


def _preview(parts: DeadLetterParts, record: Delivery) -> types.Preview:
    built = timeline.build([record], read=parts.read)
    reply = built.replies[0] if built.replies else None
    text = reply.text if reply else built.came.text if built.came else None
    kind = reply.type if reply else (built.came.type or built.came.kind) if built.came else ""
    kind = kind or str(record.payload.get("field", ""))
    return types.Preview(contact=record.contact, type=kind, text=text[:PREVIEWED] if text else None)
