"""Every code of Meta's, answered to a real send: what becomes of the message, of its number and of its tenant."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from local.whatsapp.errors import status_of
from services.task_responses import STATUS
from shared.channels.meta.codes import Meaning, table
from shared.domain.delivery.answers import Answer
from shared.domain.record import Delivery, State, Task
from shared.domain.send_errors import (
    AccessDenied,
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    ProviderUnavailable,
    SenderBlocked,
    SendRefused,
    TryLater,
)
from tests.support import parts
from tests.support.parts import NOW, InternalParts, Provider, a_reply, error

CODES = [(int(name.partition("-")[0]), meaning) for name, meaning in table()]
LEAST = {130429: 1.5, 131056: 1, 131057: 45, 132069: 3600, 133015: 300, 134101: 600}
"""Seconds until the next try, in the middle of their jitter, where they are not the class's own."""

USUAL = {LimitReached: 60, TryLater: 10, AccessDenied: 600, CredentialInvalid: 600, SenderBlocked: 600}


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with parts.a_provider() as provider:
        yield provider


@pytest.fixture
def internal(tmp_path: Path, provider: Provider) -> Iterator[InternalParts]:
    provider.answers.clear()
    provider.requests.clear()
    with parts.logged():
        made = parts.internal_parts(tmp_path, queue=parts.NoQueue(), WHATSAPP_API_BASE_URL=provider.url)
        yield made
    made.parts.process_outbound.channels["meta"].close()
    made.store.port.close()


def send(internal: InternalParts, record: Delivery) -> tuple[Answer, Delivery]:
    """A task for this record comes; the answer, and the record afterwards."""
    internal.store.port.create(record)
    answer = internal.parts.process_outbound(Task.of(record))
    after = internal.store.port.get(record.key)
    assert after is not None
    return answer, after


def wait(record: Delivery) -> float:
    assert record.due_at is not None
    return (record.due_at - NOW).total_seconds()


@pytest.mark.parametrize(("code", "meaning"), CODES, ids=[str(code) for code, _ in CODES])
def test_code_follows_its_class(internal: InternalParts, provider: Provider, code: int, meaning: Meaning) -> None:
    provider.answers.append(error(code, status_of(code)))

    answer, record = send(internal, a_reply())

    marks = parts.marks_of(internal.store.port)
    assert [attempt.code for attempt in record.attempts_log] == [code]
    assert (marks.refused is not None) is issubclass(meaning.error, CredentialInvalid)
    assert (marks.block is not None) is (meaning.error is SenderBlocked)
    assert (marks.down is not None) is (meaning.error is ProviderUnavailable)
    if marks.refused:
        assert marks.refused.until == (NOW + timedelta(hours=2) if meaning.error is AccessDenied else None)
    told: tuple[Any, ...] = (STATUS[answer.result], record.state, record.attempt, record.reason)
    if meaning.error is SendRefused:
        assert told == (502 if status_of(code) >= 500 else 400, State.DEAD, 1, "permanent")
        assert answer.code == code
    elif meaning.error is AnswerLost:
        assert told == (503, State.IN_DOUBT, 1, None)
    elif meaning.error is ProviderUnavailable:
        assert told == (503, State.PENDING, 0, None)
        assert wait(record) == 10
    else:
        given_back = meaning.error is not TryLater
        assert told == (200, State.PENDING, 0 if given_back else 1, None)
        assert wait(record) == LEAST.get(code, USUAL[meaning.error])


def test_every_class_has_codes() -> None:
    assert {meaning.error for _, meaning in CODES} == {
        *(
            AccessDenied,
            AnswerLost,
            CredentialInvalid,
            LimitReached,
            ProviderUnavailable,
            SenderBlocked,
            SendRefused,
            TryLater,
        )
    }


@pytest.mark.parametrize(
    ("answer", "state", "status"),
    [
        (error(999_001, 400), State.DEAD, 400),
        (error(999_001, 500), State.IN_DOUBT, 503),
        (error(999_001, 400, is_transient=True), State.PENDING, 200),
        (error(999_001, 500, is_transient=True), State.PENDING, 200),
    ],
    ids=["4xx", "5xx", "4xx, transient", "5xx, transient"],
)
def test_an_unknown_code_follows_the_rule(
    internal: InternalParts, provider: Provider, answer: Any, state: State, status: int
) -> None:
    provider.answers.append(answer)
    told, record = send(internal, a_reply())
    assert (record.state, STATUS[told.result], record.attempts_log[-1].code) == (state, status, 999_001)


# ---- calls: read and typing

CALL = {"payload": {"type": "typing", "content": {"message_id": "wamid.1"}, "reply_to": None, "to": "+15550002222"}}


def test_accepted_call_is_done_without_an_id(internal: InternalParts, provider: Provider) -> None:
    provider.answers.append((200, {"success": True}))
    answer, record = send(internal, a_reply(**CALL))
    assert (STATUS[answer.result], record.state, record.provider_id) == (200, State.DONE, None)
    assert provider.requests == [
        {
            "messaging_product": "whatsapp",
            "status": "read",
            "message_id": "wamid.1",
            "typing_indicator": {"type": "text"},
        }
    ]


LOST: dict[str, tuple[int, Any]] = {
    "code 1": error(1),
    "code 131000": error(131000, 500),
    "an unknown code with 500": error(999_001, 500),
}
OUTAGE: dict[str, tuple[int, Any]] = {
    "the connection breaks": (0, b""),
    "a bad gateway": (502, b"<html>"),
    "a server error without a body": (500, b""),
}


@pytest.mark.parametrize("name", [*LOST, *OUTAGE])
def test_a_call_whose_answer_was_lost_is_made_again(
    internal: InternalParts, provider: Provider, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """By our backoff. Where the provider said nothing at all it is down, and the call costs no attempt."""
    is_outage = name in OUTAGE
    provider.answers.append({**LOST, **OUTAGE}[name])
    answer, record = send(internal, a_reply(**CALL))
    assert (STATUS[answer.result], record.state, record.doubts) == (503 if is_outage else 200, State.PENDING, 0)
    assert (record.attempt, record.generation) == ((0, 0) if is_outage else (1, 1))
    assert record.attempts_log[-1].answer == ("provider_down" if is_outage else "retry")
    assert wait(record) == 10
    assert "outbound_in_doubt" not in parts.events(capfd.readouterr().out)

    internal.clock.go(15 if is_outage else 10)  # a call lets messages probe first
    again = internal.parts.process_outbound(Task.of(record))
    assert (STATUS[again.result], again.state) == (200, "done")
    assert len(provider.requests) == (3 if is_outage else 2), "a probe goes before it"


def test_a_call_whose_worker_was_lost_is_made_again(internal: InternalParts, provider: Provider) -> None:
    expired = parts.held(-1, **CALL)
    answer, record = send(internal, a_reply(**expired))
    assert (STATUS[answer.result], record.state, record.attempt, len(provider.requests)) == (200, State.DONE, 2, 1)


def test_a_call_on_a_message_that_meta_does_not_know_is_dead(internal: InternalParts, provider: Provider) -> None:
    provider.answers.append(error(131009))
    answer, record = send(internal, a_reply(**CALL))
    assert (STATUS[answer.result], record.state, record.reason) == (400, State.DEAD, "permanent")


def test_a_call_waits_for_the_message_before_it(internal: InternalParts, provider: Provider) -> None:
    before = a_reply(2, **parts.doubtful(200))
    internal.store.port.create(before)
    answer, record = send(internal, a_reply(**CALL, after=before.key))
    assert (answer.state, record.state, provider.requests) == ("waiting", State.PENDING, [])


def test_a_least_wait_of_metas_is_scaled_with_ours(tmp_path: Path, provider: Provider) -> None:
    provider.answers[:] = [error(133015)]
    with parts.logged():
        internal = parts.internal_parts(
            tmp_path, queue=parts.NoQueue(), WHATSAPP_API_BASE_URL=provider.url, TIME_SCALE="20"
        )
        _, record = send(internal, a_reply())
    internal.parts.process_outbound.channels["meta"].close()
    internal.store.port.close()
    assert record.due_at == NOW + timedelta(minutes=5) / 20
