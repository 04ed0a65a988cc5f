"""The routes of dead letters: list them, replay or discard one, or those that match a filter."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag

from services.api import access_log
from services.api import dead_letter_types as types
from services.api.callers import Caller, needs, the_caller
from services.api.dead_letter_views import as_letter, as_preview
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
from shared.operations.letters_page import LetterPages, LettersPage
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Queue, Store, Tenants

TAG = Tag(name="Dead letters", description="Deliveries that failed, and wait for a decision.")
NO_LETTER = "It is no dead letter."
MAY_DOUBLE = "A copy may have arrived: give may_double to replay it."
NO_SELECTION = "Give a filter, or all: true for every dead letter, not both."

Decide = Callable[[Delivery], Decision]


@dataclass(frozen=True, slots=True)
class DeadLetterParts:
    """What these routes need."""

    store: Store
    pages: LetterPages
    replay: Replay
    discard: Discard
    read: Read = read_message

    @classmethod
    def of(cls, store: Store, queue: Queue, tenants: Tenants, limits: Limits, clock: Clock) -> Self:
        """The parts over these ports."""
        pages, discard = LetterPages(store, clock.monotonic), Discard(store, limits, clock, because="")
        return cls(store, pages, Replay(store, queue, tenants, limits, clock), discard)


def routes(parts: DeadLetterParts) -> APIBlueprint:
    """The routes below /v1/dead-letters."""
    made = APIBlueprint(
        "dead_letters", __name__, url_prefix="/v1/dead-letters", abp_tags=[TAG], abp_security=[{"key": []}]
    )

    @made.get("", responses={200: types.Letters} | responses())
    @needs(Scope.READ)
    def list_letters(query: types.LettersQuery) -> Response:
        """List dead letters, the newest first. With the scope dead:read each has a preview of its content."""
        caller = the_caller()
        page = _page(parts, _wanted(caller, query), query)
        items = [_as_listed(parts, caller, letter) for letter in page.letters]
        return jsonify({"items": items, **_end(page)})

    @made.post("/replay", responses={200: types.LettersDecided} | responses(*OF_A_BODY))
    @needs(Scope.SEND)
    def replay_letters(body: types.ReplayLetters) -> Response:
        """Retry the dead letters that match, the newest first and at most `limit`; repeat it with `next` for more."""
        return _decide_page(parts, the_caller(), body, lambda one: _replay(parts, one, body))

    @made.post("/discard", responses={200: types.LettersDecided} | responses(*OF_A_BODY))
    @needs(Scope.SEND)
    def discard_letters(body: types.DiscardLetters) -> Response:
        """Give up the dead letters that match, the newest first and at most `limit`; repeat it with `next` for more."""
        return _decide_page(parts, the_caller(), body, lambda one: _discard(parts, one, body))

    @made.post("/<id>/replay", responses={200: types.LetterDecided} | responses(*OF_A_BODY))
    @needs(Scope.SEND)
    def replay_letter(path: types.LetterPath, body: types.ReplayLetter) -> Response:
        """Retry a dead letter. With dry_run the answer has what a replay would do."""
        caller = the_caller()
        record = _found(parts.store, path.id, caller)
        return jsonify(_decided(parts, caller, record, _replay(parts, record, body), body.dry_run))

    @made.post("/<id>/discard", responses={200: types.LetterDecided} | responses(*OF_A_BODY))
    @needs(Scope.SEND)
    def discard_letter(path: types.LetterPath, body: types.DiscardLetter) -> Response:
        """Give up a dead letter. With dry_run the answer has what a discard would do."""
        caller = the_caller()
        record = _found(parts.store, path.id, caller)
        return jsonify(_decided(parts, caller, record, _discard(parts, record, body), body.dry_run))

    return made


def _wanted(caller: Caller, given: types.LettersQuery) -> DeadLetterFilter:
    """Raises Problem."""
    if given.since and given.until and given.since > given.until:
        raise Problem(INVALID_REQUEST, "since is later than until.", "since")
    errors = frozenset(int(error) if error.removeprefix("-").isdecimal() else error for error in given.error or ())
    kind = Kind(given.direction) if given.direction else None
    return DeadLetterFilter(caller.chosen(given.tenant), given.since, given.until, errors, kind, given.sender)


def _page(parts: DeadLetterParts, wanted: DeadLetterFilter, given: types.LettersQuery) -> LettersPage:
    """Raises Problem."""
    after = time_and_key(given.cursor)
    return parts.pages.page(wanted, (after[0], after[1]) if after else None, given.limit)


def _end(page: LettersPage) -> dict[str, Any]:
    return {"next": encoded(page.ends_at), "complete": page.is_whole}


def _decide_page(
    parts: DeadLetterParts, caller: Caller, body: types.ReplayLetters | types.DiscardLetters, decide: Decide
) -> Response:
    """Decide about each letter of a page. A fault ends it: the same request may be repeated. Raises Problem."""
    wanted = _wanted(caller, body)
    if replace(wanted, tenant=body.tenant).restricts == body.all:
        raise Problem(INVALID_REQUEST, NO_SELECTION, "all")
    page = _page(parts, wanted, body)
    items = []
    for letter in page.letters:
        record = _readable(parts.store, letter.key)
        if record is not None and dead_letter(record) is not None:  # otherwise it was decided about meanwhile
            access_log.about(record)
            items.append(_decided(parts, caller, record, decide(record), body.dry_run))
    return jsonify({"items": items, **_end(page)})


def _replay(parts: DeadLetterParts, record: Delivery, given: types.ReplayLetter) -> Decision:
    expected = _would_replay(record, given.may_double)
    if given.dry_run or expected.done is Done.SKIPPED:
        return expected
    return replace(parts.replay, may_double=given.may_double)(record.key)


def _discard(parts: DeadLetterParts, record: Delivery, given: types.DiscardLetter) -> Decision:
    if given.dry_run:
        return Decision(Done.DISCARDED) if record.state is State.DEAD else Decision(Done.SKIPPED, NOT_DEAD)
    return replace(parts.discard, because=given.reason.strip())(record.key)


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
    preview = as_preview(record, parts.read) if Scope.READ_DEAD in caller.scopes else None
    shown = types.LetterDecided(
        id=record.key,
        outcome=decision.done,
        why=decision.why,
        dry_run=dry_run,
        letter=as_letter(letter, preview) if letter else None,
    )
    return shown.model_dump(mode="json", exclude_none=True)


def _as_listed(parts: DeadLetterParts, caller: Caller, letter: DeadLetter) -> dict[str, Any]:
    """A preview costs a read: a listing brings no content."""
    record = _readable(parts.store, letter.key) if Scope.READ_DEAD in caller.scopes else None
    preview = as_preview(record, parts.read) if record else None
    return as_letter(letter, preview).model_dump(mode="json", exclude_none=True)


def _readable(store: Store, key: str) -> Delivery | None:
    """None also for what only a newer version can read."""
    try:
        return store.get(key)
    except UnknownState:
        return None
