"""Dead letters: which records are some, what is told of them, and which of them a filter means."""

from collections import Counter
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import pytest

from cli.dead import show
from cli.dead.list import as_lines, letter_as_dict
from cli.dead.preview import Preview
from cli.dead.show import replay_sentence
from shared.domain.dead_letters import ERRORS, DeadLetter, DeadLetterFilter, Replays, dead_letter
from shared.domain.delivery.answers import NotAllowed
from shared.domain.delivery.operator import replay
from shared.domain.listings import Listing, mark_of
from shared.domain.record import Attempt, Delivery, Kind, Receipts, State
from tests.support.builders import DELIVERED, FAILED, LIMITS, NOW, SENT, STATES, at, dead, done, dropped, pending

# ---- which

LETTERS = {
    "dead(permanent)": (
        dead(reason="permanent", attempts_log=(Attempt(at(-10), 1, "refused", 131026),)),
        ("permanent", 131026, Replays.AGAIN),
    ),
    "dead(attempts)": (
        dead(attempts_log=(Attempt(at(-10), 8, "retry", 131016),)),
        ("attempts", 131016, Replays.AGAIN),
    ),
    "dead(waited), refused in the round before": (
        dead(reason="waited", round=1, attempt=0, attempts_log=(Attempt(at(-90), 1, "refused", 131026),)),
        ("waited", None, Replays.AGAIN),
    ),
    "dead(waited), for the credential": (
        dead(reason="waited", attempts_log=(Attempt(at(-90), 1, "credential_refused", 190),)),
        ("waited", 190, Replays.AGAIN),
    ),
    "dead(in_doubt)": (dead(reason="in_doubt", doubts=2), ("in_doubt", None, Replays.MAY_DOUBLE)),
    "dead(in_doubt), confirmed since": (
        dead(reason="in_doubt", doubts=2, receipts={0: SENT}),
        ("in_doubt", None, Replays.DONE),
    ),
    "dead(error)": (dead(Kind.INBOUND, reason="error"), ("error", None, Replays.AGAIN)),
    "dead(unparsable)": (dead(Kind.INBOUND, reason="unparsable"), ("unparsable", None, Replays.AGAIN)),
    "dead(invalid)": (
        dead(reason="invalid", attempt=0, last_error="It is empty."),
        ("invalid", None, Replays.NEVER),
    ),
    "dropped(unknown_sender)": (
        dropped(Kind.INBOUND, reason="unknown_sender"),
        ("unknown_sender", None, Replays.AGAIN),
    ),
    "done, refused later": (done(receipts={0: FAILED}), ("refused", 131026, Replays.AGAIN)),
    "done, sent and refused later": (done(receipts={0: SENT.merged(FAILED)}), ("refused", 131026, Replays.AGAIN)),
    "done after a doubt, refused later": (
        done(doubts=1, receipts={0: FAILED}),
        ("refused", 131026, Replays.MAY_DOUBLE),
    ),
}
NO_LETTERS = {
    **{f"{kind} {name}": make() for kind in Kind for name, make in STATES[kind].items() if name != "dead"},
    "done, failed and then delivered": done(receipts={0: FAILED.merged(DELIVERED)}),
    "done, failed in the round before": done(round=1, receipts={0: FAILED}),
    "dropped(discarded)": dropped(reason="discarded"),
}


@pytest.mark.parametrize("name", LETTERS)
def test_dead_letter_has_its_error_code_and_replay_result(name: str) -> None:
    record, said = LETTERS[name]
    letter = dead_letter(record)
    assert letter is not None
    assert (letter.error, letter.code, letter.replays) == said
    assert letter.error in ERRORS


@pytest.mark.parametrize("name", LETTERS)
def test_replay_does_what_the_dead_letter_predicts(name: str) -> None:
    record, (_, _, replays) = LETTERS[name]
    if replays is Replays.NEVER:
        with pytest.raises(NotAllowed, match="It is empty"):
            replay(record, LIMITS, NOW, may_double=True)
        return
    if replays is Replays.MAY_DOUBLE:
        with pytest.raises(NotAllowed, match="--may-double"):
            replay(record, LIMITS, NOW)
    step = replay(record, LIMITS, NOW, may_double=True)
    assert step.write is not None
    assert step.write.state is (State.DONE if replays is Replays.DONE else State.PENDING)


@pytest.mark.parametrize("name", NO_LETTERS)
def test_record_that_needs_no_operator_is_not_a_dead_letter(name: str) -> None:
    assert dead_letter(NO_LETTERS[name]) is None


@pytest.mark.parametrize(
    ("record", "when"),
    [
        (dead(finished_at=at(-10)), at(-10)),
        (done(finished_at=at(-10), receipts={0: Receipts(failed=at(-2))}), at(-2)),
        (done(finished_at=at(-10), receipts={0: Receipts(failed=datetime.fromtimestamp(0, NOW.tzinfo))}), at(-10)),
        (dead(finished_at=None), at(-60)),
    ],
    ids=["its end", "the receipt", "a receipt of an unknown time", "no end is known"],
)
def test_dead_letter_has_the_time_of_its_failure(record: Delivery, when: datetime) -> None:
    letter = dead_letter(record)
    assert letter is not None
    assert letter.at == when


FAILED_BY = Attempt(at(-5), 8, "handler_failed", error="KeyError: 'c4n4ry'", error_type="KeyError")


@pytest.mark.parametrize(
    ("record", "error_type"),
    [
        (dead(Kind.INBOUND, reason="error", attempts_log=(FAILED_BY,)), "KeyError"),
        (dead(Kind.INBOUND, reason="error", attempts_log=(FAILED_BY, replace(FAILED_BY, error_type=None))), None),
        (dead(Kind.INBOUND, reason="error"), None),
        (dead(Kind.INBOUND, reason="attempts", attempts_log=(FAILED_BY,)), None),
        (dead(Kind.INBOUND, reason="waited", round=1, attempts_log=(FAILED_BY,)), None),
    ],
    ids=["its last try", "no exception", "an older version's", "cut off since", "of a round before"],
)
def test_handler_dead_letter_has_the_type_of_the_last_exception(record: Delivery, error_type: str | None) -> None:
    letter = dead_letter(record)
    assert letter is not None
    assert letter.error_type == error_type


def test_dead_letter_contains_nothing_private() -> None:
    record = dead(
        contact="15550002222",
        payload={"body": "c4n4ry"},
        last_error="c4n4ry",
        reason="error",
        attempts_log=(FAILED_BY,),
        provider_id="wamid.c4n4ry",
        sender="1555",
    )
    told = {field.name: str(getattr(dead_letter(record), field.name)) for field in fields(DeadLetter)}
    assert not [name for name, value in told.items() if "c4n4ry" in value or "1555" in value]


# ---- where they are listed


@pytest.mark.parametrize(
    ("record", "mark"),
    [
        (pending(round=1, attempt=0), Listing.REPLAYED),
        (pending(round=1, attempt=1), None),
        (pending(attempt=0), None),
        (pending(round=1, receipts={0: FAILED}), Listing.REPLAYED),
        (done(receipts={0: FAILED}), Listing.REFUSED),
        (done(receipts={0: DELIVERED}), None),
        (done(round=1, receipts={0: FAILED}), None),
        (dead(), None),
        (dropped(Kind.INBOUND, reason="unknown_sender"), Listing.UNKNOWN_SENDER),
        (dropped(Kind.INBOUND, reason="spam"), None),
    ],
)
def test_record_has_the_mark_of_its_listing_or_none(record: Delivery, mark: Listing | None) -> None:
    assert mark_of(record) is mark


@pytest.mark.parametrize("name", LETTERS)
def test_every_dead_letter_is_in_the_listing_it_names(name: str) -> None:
    record, _ = LETTERS[name]
    letter = dead_letter(record)
    assert letter is not None
    found = Listing.DEAD if record.state is State.DEAD else mark_of(record)
    assert letter.listing is found


# ---- which of them

LETTER = DeadLetter("k" * 40, Kind.OUTBOUND, "default", "correlation-1", "permanent", 131026, NOW, 1, 0, Replays.AGAIN)


@pytest.mark.parametrize(
    ("given", "matches"),
    [
        ({}, True),
        ({"tenant": "default"}, True),
        ({"tenant": "another"}, False),
        ({"since": NOW}, True),
        ({"since": at(1)}, False),
        ({"until": NOW}, True),
        ({"until": at(-1)}, False),
        ({"errors": frozenset({"permanent"})}, True),
        ({"errors": frozenset({131026})}, True),
        ({"errors": frozenset({"in_doubt", 131026})}, True),
        ({"errors": frozenset({"in_doubt", 131047})}, False),
        ({"kind": Kind.OUTBOUND}, True),
        ({"kind": Kind.INBOUND}, False),
        ({"tenant": "default", "kind": Kind.INBOUND}, False),
    ],
)
def test_filter_matches_only_when_every_part_matches(given: dict[str, Any], matches: bool) -> None:
    assert DeadLetterFilter(**given).matches(LETTER) is matches
    assert DeadLetterFilter(**given).restricts is bool(given)


def test_dead_letter_without_code_matches_no_code_filter() -> None:
    assert not DeadLetterFilter(errors=frozenset({131026})).matches(replace(LETTER, code=None))


@pytest.mark.parametrize(
    ("given", "listings"),
    [
        ({}, {Listing.DEAD, Listing.REFUSED}),
        ({"kind": Kind.INBOUND}, {Listing.DEAD}),
        ({"errors": frozenset({131026})}, {Listing.DEAD, Listing.REFUSED}),
        ({"errors": frozenset({"refused"})}, {Listing.REFUSED}),
        ({"errors": frozenset({"in_doubt"})}, {Listing.DEAD}),
        ({"errors": frozenset({"unknown_sender"})}, {Listing.UNKNOWN_SENDER}),
        ({"errors": frozenset({"unknown_sender", "error"})}, {Listing.UNKNOWN_SENDER, Listing.DEAD}),
    ],
)
def test_only_listings_that_can_hold_matches_are_searched(given: dict[str, Any], listings: set[Listing]) -> None:
    assert set(DeadLetterFilter(**given).listings) == listings


def test_replay_sentence_depends_on_may_double() -> None:
    record = dead(reason="in_doubt", doubts=2)
    letter = dead_letter(record)
    assert "needs --may-double" in replay_sentence(record, letter, may_double=False)
    assert replay_sentence(record, letter, may_double=True) == "A replay retries it in round 1; it may arrive twice."


def test_preview_separates_replayed_from_skipped() -> None:
    refused = dead_letter(dead(reason="permanent", attempts_log=(Attempt(at(-10), 1, "refused", 131026),)))
    doubt = dead_letter(dead(reason="in_doubt", doubts=2))
    assert refused
    assert doubt
    assert list(Preview.of_replay([refused, refused, doubt], may_double=False).as_lines()) == [
        "2 would be replayed: permanent (131026) 2.",
        "1 would be skipped: a copy may have arrived, and --may-double was not given.",
    ]
    assert list(Preview.of_replay([refused, refused, doubt], may_double=True).as_lines()) == [
        "3 would be replayed: permanent (131026) 2, in_doubt 1.",
        "1 may arrive twice.",
    ]


def test_preview_without_replays_does_nothing() -> None:
    doubt = dead_letter(dead(reason="in_doubt", doubts=2))
    assert doubt
    assert Preview.of_replay([doubt], may_double=False).does_nothing
    assert not Preview.of_replay([doubt], may_double=True).does_nothing


def test_preview_skips_invalid_messages_and_asks_no_confirmation() -> None:
    invalid = dead_letter(dead(reason="invalid", last_error="It is empty."))
    assert invalid
    preview = Preview.of_replay([invalid], may_double=True)
    assert list(preview.as_lines()) == ["1 would be skipped: the messages are invalid and cannot be sent."]
    assert preview.does_nothing
    assert list(Preview.of_discard([invalid]).as_lines()) == ["1 would be discarded: invalid 1."]


def test_handler_dead_letter_shows_type_line_and_function_of_each_attempt() -> None:
    last = replace(FAILED_BY, place="handlers/mine.py:7", function="book")
    record = dead(Kind.INBOUND, reason="error", attempts_log=(replace(last, attempt=7, error_type="OSError"), last))
    assert ": error (KeyError)" in next(iter(show.as_lines(record, [])))
    told = show.as_dict(record, [])
    assert told["error_type"] == "KeyError"
    assert [(one["error_type"], one["place"], one["function"]) for one in told["attempts"]] == [
        ("OSError", "handlers/mine.py:7", "book"),
        ("KeyError", "handlers/mine.py:7", "book"),
    ]
    assert show.as_dict(pending(), [])["error_type"] is None


def test_dead_letter_line_shows_the_exception_type_of_the_handler() -> None:
    letter = dead_letter(dead(Kind.INBOUND, reason="error", attempts_log=(FAILED_BY,)))
    assert letter is not None
    _, line, counts = "\n".join(as_lines([letter], Counter({("error", None): 1}), 0, False)).splitlines()
    assert "  error (KeyError)  " in line
    assert counts == "1 dead: error 1."
    assert letter_as_dict(letter)["error_type"] == "KeyError"


@pytest.mark.parametrize(
    ("replays", "word"),
    [(Replays.AGAIN, "yes"), (Replays.DONE, "arrived"), (Replays.MAY_DOUBLE, "may double"), (Replays.NEVER, "no")],
)
def test_dead_letter_line_ends_with_the_result_of_a_replay(replays: Replays, word: str) -> None:
    letter = replace(LETTER, replays=replays)
    lines = "\n".join(as_lines([letter], Counter({("permanent", 131026): 1}), 0, False)).splitlines()
    assert lines[1].rpartition(letter.correlation_id)[2].strip() == word
    assert lines[0].endswith("  REPLAY")
