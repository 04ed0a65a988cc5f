"""process_outbound over HTTP: what becomes of a message by what the provider answers, and when."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.marks import Outage
from shared.domain.record import State, Task
from tests.support import parts
from tests.support.internal_service import LAST, Make, Service, note, said
from tests.support.parts import NOW, PERSON, a_reply, doubtful, error

# ---- process_outbound: what the provider says


def test_a_message_is_sent_with_our_key_and_settled_with_the_providers_id(
    service: Service, provider: parts.Provider
) -> None:
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "done"})
    assert provider.requests == [
        {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": f"+{PERSON}",
            "type": "text",
            "text": {"body": "hello to you"},
            "biz_opaque_callback_data": f"pombo1.{record.key}.0.{record.correlation_id}",
        }
    ]
    after = service.get(record)
    assert (after.state, after.provider_id, after.attempt) == (State.DONE, "wamid.accepted", 1)
    assert after.expire_at == NOW + timedelta(days=35)


def test_unreadable_2xx_is_accepted(service: Service, provider: parts.Provider) -> None:
    provider.answers.append((200, b"<html>"))
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "done"})
    assert service.get(record).provider_id is None


LOST = {
    "no answer": (0, b""),
    "a page": (502, b"<html>"),
    "code 1": error(1, 500),
    "code 131000": error(131000, 500),
    "an unknown code with 5xx": error(999999, 503),
    "a 4xx that cannot be read": (400, b"<html>"),
}


SILENT = {"no answer", "a page"}
"""Nothing of them speaks of this message."""


@pytest.mark.parametrize("name", LOST)
def test_lost_answer_is_a_doubt_and_the_same_task_returns(
    service: Service, provider: parts.Provider, name: str
) -> None:
    provider.answers.append(LOST[name])
    record = service.put(a_reply())
    assert service.arrive(record) == (503, {"state": "in_doubt"})
    after = service.get(record)
    assert (after.state, after.doubts, after.generation, after.attempt) == (State.IN_DOUBT, 1, 0, 1)
    assert service.made == []
    assert service.marks.down == (Outage(NOW) if name in SILENT else None), "the next message probes"
    assert service.arrive(record) == (200, {"state": "in_doubt"})
    assert len(provider.requests) == 1


DOWN = {"a plain 429": (429, b"slow down"), "code 2": error(2, 503), "code 131016": error(131016, 500)}


@pytest.mark.parametrize("name", DOWN)
def test_provider_outage_costs_no_attempt(service: Service, provider: parts.Provider, name: str) -> None:
    provider.answers.append(DOWN[name])
    record = service.put(a_reply())
    assert service.arrive(record) == (503, {"state": "pending"})
    after = service.get(record)
    assert (after.generation, after.attempt, after.throttled, after.doubts) == (0, 0, 1, 0)
    assert (after.due_at, after.sweep_at) == (NOW + timedelta(seconds=10), NOW + timedelta(seconds=40))
    assert service.made == []
    assert service.marks.down == Outage(NOW + timedelta(seconds=10), timedelta(seconds=10))
    assert service.arrive(record) == (200, {"state": "waiting"})
    assert service.made == [(replace(Task.of(record), hop=1), after.due_at)], "the task that comes back waits"
    assert len(provider.requests) == 1


@pytest.mark.parametrize("name", DOWN)
@pytest.mark.parametrize(("asked", "seconds"), [("90", 90), ("0", 10), ("soon", 10)])
def test_retry_after_is_the_least_wait_and_binds_the_sweep(
    service: Service, provider: parts.Provider, name: str, asked: str, seconds: int
) -> None:
    provider.answers.append(DOWN[name])
    provider.headers["Retry-After"] = asked
    record = service.put(a_reply())
    answer = service.post(Task.of(record))
    assert (answer.status_code, answer.json, "Retry-After" in answer.headers) == (503, {"state": "pending"}, False)
    after, wait = service.get(record), timedelta(seconds=seconds)
    assert (after.due_at, after.sweep_at) == (NOW + wait, NOW + wait + timedelta(seconds=30))
    service.internal.clock.go(seconds - 1)
    assert service.internal.parts.sweep().enqueued == 0


@pytest.mark.parametrize(
    "answer", [error(1, 503), error(130429, 429), error(131026)], ids=["lost", "limited", "refused"]
)
def test_no_response_has_a_retry_after_for_the_queue(
    service: Service, provider: parts.Provider, answer: tuple[int, Any]
) -> None:
    """A limit's wait is the due time of a new task; a doubt's is its window."""
    provider.answers.append(answer)
    provider.headers["Retry-After"] = "90"
    assert "Retry-After" not in service.post(Task.of(service.put(a_reply()))).headers


def test_unreachable_provider_leaves_the_message_pending(make: Make) -> None:
    service = make(WHATSAPP_API_BASE_URL="http://127.0.0.1:9")
    answer = service.post(Task.of(service.put(a_reply())))
    assert (answer.status_code, answer.json) == (503, {"state": "pending"})
    assert "Retry-After" not in answer.headers


def test_failed_last_attempt_is_dead(service: Service, provider: parts.Provider) -> None:
    provider.answers.append(error(999999, 400, is_transient=True))
    record = service.put(a_reply(attempt=LAST - 1))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert service.get(record).reason == "attempts"


LAST_ATTEMPTS = {
    "refused": (0, error(131026, 400), "outbound_failed"),
    "retry": (LAST - 1, error(999999, 400, is_transient=True), "outbound_failed"),
    "retry before the last": (LAST - 2, error(999999, 400, is_transient=True), "outbound_rescheduled"),
}


@pytest.mark.parametrize("name", LAST_ATTEMPTS)
def test_last_attempt_is_logged_as_outbound_failed_once_the_message_is_dead(
    service: Service, provider: parts.Provider, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    attempts, answer, event = LAST_ATTEMPTS[name]
    provider.answers.append(answer)
    service.arrive(service.put(a_reply(attempt=attempts)))
    assert said(capfd, event)["attempt"] == attempts + 1


def test_outage_does_not_use_up_the_last_attempt(service: Service, provider: parts.Provider) -> None:
    provider.answers.append(error(2, 503))
    record = service.put(a_reply(attempt=LAST - 1))
    assert service.arrive(record) == (503, {"state": "pending"})
    assert service.get(record).attempt == LAST - 1


IN_SUCCESS = {
    "refused": (error(131026, 200), (400, "dead")),
    "limited": (error(130429, 200), (200, "rescheduled")),
    "blocked": (error(368, 200), (200, "rescheduled")),
    "credential": (error(190, 200), (200, "rescheduled")),
    "retry counts as lost": (error(2494100, 200), (503, "in_doubt")),
    "down counts as lost": (error(131016, 200), (503, "in_doubt")),
}


@pytest.mark.parametrize("name", IN_SUCCESS)
def test_graph_error_in_a_2xx_is_that_errors_verdict(service: Service, provider: parts.Provider, name: str) -> None:
    answer, (status, state) = IN_SUCCESS[name]
    provider.answers.append(answer)
    told = service.arrive(service.put(a_reply()))
    assert (told[0], told[1]["state"]) == (status, state)
    assert (service.marks.down is not None) is (name == "down counts as lost")


def test_transient_error_of_one_message_is_retried_with_our_backoff(service: Service, provider: parts.Provider) -> None:
    provider.answers.append(error(999999, 400, is_transient=True))
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.state, after.generation, after.attempt) == (State.PENDING, 1, 1)
    assert service.made == [(Task.of(after), NOW + timedelta(seconds=10))]


@pytest.mark.parametrize(("code", "seconds"), [(130429, 1.5), (131056, 1), (80007, 60), (4, 60), (131057, 45)])
def test_a_limit_spends_no_attempt(service: Service, provider: parts.Provider, code: int, seconds: float) -> None:
    provider.answers.append(error(code))
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.attempt, after.throttled, after.generation) == (0, 1, 1)
    assert service.made == [(Task.of(after), NOW + timedelta(seconds=seconds))]


@pytest.mark.parametrize("code", [0, 3, 10, 102, 190, 200, 299, 467, 131005])
def test_a_refused_credential_holds_the_sender_until_there_is_another(
    service: Service, make: Make, provider: parts.Provider, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    provider.answers.append(error(code, 401))
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.attempt, after.generation, after.due_at) == (0, 1, NOW + timedelta(minutes=10))
    assert said(capfd, "tenant_needs_reauth")["severity"] == "ERROR"
    other = service.put(a_reply(2))
    assert service.arrive(other) == (200, {"state": "waiting"})
    assert len(provider.requests) == 1
    reconnected = make(WHATSAPP_ACCESS_TOKEN="another-token")
    assert reconnected.arrive(other) == (200, {"state": "done"})


@pytest.mark.parametrize("answer", [error(131031, 403), error(368), error(100, error_subcode=33)], ids=str)
def test_a_blocked_sender_waits_and_the_first_send_after_it_is_the_probe(
    service: Service, provider: parts.Provider, answer: tuple[int, Any]
) -> None:
    provider.answers.append(answer)
    record = service.put(a_reply())
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.attempt, after.generation, after.due_at) == (0, 1, NOW + timedelta(minutes=10))
    assert service.arrive(service.put(a_reply(2))) == (200, {"state": "waiting"})
    service.internal.clock.go(601)
    assert service.arrive(after) == (200, {"state": "done"})
    assert service.marks.block is None


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [(error(131026), 400, 131026), (error(131047), 400, 131047), (error(999999, 404), 400, 999999)],
    ids=str,
)
def test_permanently_refused_message_is_dead_and_reported_once(
    service: Service, provider: parts.Provider, answer: tuple[int, Any], status: int, code: int,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    provider.answers.append(answer)
    record = service.put(a_reply())
    assert service.arrive(record) == (status, {"state": "dead", "error": "whatsapp_permanent_error", "code": code})
    assert service.get(record).reason == "permanent"
    line = said(capfd, "dead_lettered")
    assert (line["severity"], line["code"]) == ("ERROR", code)
    assert service.arrive(record) == (200, {"state": "dead"})
    assert len(provider.requests) == 1


def test_permanent_refusal_returns_502_when_provider_answered_5xx(service: Service, provider: parts.Provider) -> None:
    provider.answers.append(error(131026, 500))
    assert service.arrive(service.put(a_reply())) == (
        502,
        {"state": "dead", "error": "whatsapp_permanent_error", "code": 131026},
    )


# ---- process_outbound: time


@pytest.mark.parametrize(
    ("fields", "state", "attempt"), [({}, "pending", 0), (doubtful(-1), "in_doubt", 1)], ids=["pending", "in_doubt"]
)
@pytest.mark.parametrize("why", ["too late to begin", "shutdown"])
def test_send_that_cannot_begin_in_time_restores_the_record(
    service: Service, provider: parts.Provider, fields: dict[str, Any], state: str, attempt: int, why: str
) -> None:
    record = service.put(a_reply(**fields))
    if why == "shutdown":
        service.internal.parts.shutdown.begin()
    else:  # a machine that stood still: the lease's commit took half a minute
        service.internal.store.after = lambda name, *_: service.internal.clock.go(30) if name == "change" else None
    assert service.arrive(record) == (409, {"state": state})
    after = service.get(record)
    assert (after.state, after.attempt, after.token, after.generation) == (state, attempt, None, 0)
    assert after.doubt_until == record.doubt_until
    assert service.asked_of(provider) == (["probe"] if fields else [])
    down = service.marks.down
    assert (down is not None and down.until <= service.internal.clock.at and down.claim is None) is bool(fields)


def test_receipt_during_a_send_whose_answer_is_lost_settles_it(service: Service, provider: parts.Provider) -> None:
    record = service.put(a_reply())
    provider.answers.append((0, b""))
    provider.during = lambda _: note(service, record)
    assert service.arrive(record) == (503, {"state": "in_doubt"})
    assert service.arrive(record) == (200, {"state": "done"})
    assert len(provider.requests) == 1


def test_send_of_a_message_that_a_receipt_settled_is_logged_as_sent(
    service: Service, provider: parts.Provider, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also without an id in the answer, when there is nothing left to write."""
    record = service.put(a_reply())
    provider.answers.append((200, b"{}"))
    provider.during = lambda _: note(service, record)
    assert service.arrive(record) == (200, {"state": "done"})
    assert said(capfd, "outbound_sent")["status"] == "success"


@pytest.mark.parametrize(
    "answer", [error(131026), error(999999, 400, is_transient=True)], ids=["refused", "the last attempt"]
)
def test_receipt_during_a_permanent_refusal_wins(
    service: Service, provider: parts.Provider, answer: tuple[int, Any]
) -> None:
    record = service.put(a_reply(attempt=LAST - 1))
    provider.answers.append(answer)
    provider.during = lambda _: note(service, record)
    assert service.arrive(record) == (200, {"state": "done"})
