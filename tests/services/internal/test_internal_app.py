"""The private service over HTTP: who may ask and for what, its health, and what its log says."""

import io
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from shared.domain.errors import RegistryUnreadable, StoreUnavailable
from shared.domain.record import Delivery, Kind, State, Task
from shared.domain.tasks import CHECK_BODY, task_body
from tests.support import parts
from tests.support.internal_service import FINAL, Make, Service, said
from tests.support.parts import TOKEN, a_reply, an_event, ended

# ---- who may ask, and for what

ROUTES = ["process_inbound", "process_outbound", "sweep", "drain"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x"])
def test_without_the_internal_token_nothing_is_read(
    service: Service, route: str, token: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    headers = {} if token is None else {"X-Internal-Token": token}
    answer = service.client.post(f"/internal/{route}", data=b"c4n4ry", headers=headers)
    assert (answer.status_code, answer.json) == (403, {"error": "forbidden"})
    assert service.internal.store.calls == []
    line = said(capfd, "task_refused")
    assert (line["reason"], line["cause"]) == ("forbidden", "token")


TASK_ROUTES = ["process_inbound", "process_outbound", "drain"]


@pytest.mark.parametrize("route", TASK_ROUTES)
def test_internal_token_alone_makes_no_task_where_queues_have_an_identity(
    make: Make, route: str, capfd: pytest.CaptureFixture[str]
) -> None:
    service = make(TASKS_SERVICE_ACCOUNT="tasks@example.com", SCHEDULER_SERVICE_ACCOUNT="scheduler@example.com")
    answer = service.client.post(f"/internal/{route}", data=b"c4n4ry", headers={"X-Internal-Token": TOKEN})
    assert (answer.status_code, said(capfd, "task_refused")["cause"]) == (403, "no_identity")


@pytest.mark.parametrize("route", TASK_ROUTES)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"c4n4ry"', b"\xff", b'{"v":1}', b'{"c4n4ry":1}', b"[" * 90_000, b"9" * 9000]
)
def test_invalid_task_body_is_refused_and_never_quoted(
    service: Service, route: str, body: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = service.client.post(f"/internal/{route}", data=body, headers={"X-Internal-Token": TOKEN})
    assert answer.status_code == 400
    assert answer.json["error"] == "task_invalid"
    assert "c4n4ry" not in answer.text
    assert service.internal.store.calls == []
    assert "c4n4ry" not in json.dumps(said(capfd, "task_refused"))


def test_token_check_is_refused_as_an_invalid_task_without_a_warning(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    headers = {"X-Internal-Token": TOKEN}
    answer = service.client.post("/internal/process_inbound", json=dict(CHECK_BODY), headers=headers)
    assert (answer.status_code, answer.json["error"]) == (400, "task_invalid")
    assert service.internal.store.calls == []
    assert said(capfd, "task_refused")["severity"] == "INFO"
    service.client.post("/internal/process_inbound", json={**CHECK_BODY, "more": 1}, headers=headers)
    assert said(capfd, "task_refused")["severity"] == "WARNING"


def test_a_body_larger_than_any_task_is_refused(service: Service) -> None:
    body = b" " * (100 * 1024 + 1)
    answer = service.client.post("/internal/process_inbound", data=body, headers={"X-Internal-Token": TOKEN})
    assert answer.status_code == 413


class _Breaks(io.RawIOBase):
    """A body that fails while it is read, as gunicorn's does: it broke off, or is chunked wrongly."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:  # noqa: ARG002 - nothing is read
        raise OSError("The chunk has no size.")


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_breaks_off_is_the_callers_fault(service: Service, is_chunked: bool) -> None:
    length: dict[str, object] = {"wsgi.input_terminated": True} if is_chunked else {"CONTENT_LENGTH": "100"}
    answer = service.client.post(
        "/internal/process_inbound",
        headers={"X-Internal-Token": TOKEN},
        environ_overrides={"wsgi.input": io.BufferedReader(_Breaks()), **length},
    )
    assert (answer.status_code, answer.json) == (400, {"error": "bad_request"})
    assert service.internal.store.calls == []


@pytest.mark.parametrize("kind", list(Kind))
def test_task_of_a_newer_version_is_left_to_that_version(service: Service, kind: Kind) -> None:
    body = {**task_body(Task.of(an_event())), "v": 3}
    answer = service.client.post(f"/internal/process_{kind}", json=body, headers={"X-Internal-Token": TOKEN})
    assert (answer.status_code, answer.json) == (409, {"state": "unknown"})


@pytest.mark.parametrize("record", [an_event(), a_reply()], ids=["event", "reply"])
def test_a_record_of_a_state_that_a_newer_version_wrote_is_left_alone(
    service: Service, record: Delivery, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    service.put(record)
    db = sqlite3.connect(tmp_path / "pombo.sqlite")
    with db:
        db.execute("UPDATE records SET body = json_set(body, '$.state', 'resting')")
    db.close()
    assert service.arrive(record) == (409, {"state": "unknown"})
    assert said(capfd, "state_unknown")["severity"] == "WARNING"


@pytest.mark.parametrize("record", [an_event(), a_reply()], ids=["event", "reply"])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreUnavailable(), 503, "store_unavailable"),
        (RegistryUnreadable(), 409, "registry_unreadable"),
        (ValueError("c4n4ry"), 500, "unexpected"),
    ],
    ids=["away", "one tenant's entry", "a bug"],
)
def test_a_store_that_fails_before_the_lease_is_answered_without_a_trace_of_it(
    service: Service, record: Delivery, error: Exception, status: int, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    service.put(record)
    service.internal.store.before = lambda *_: error
    assert service.arrive(record) == (status, {"error": code})
    assert service.get(record) == record
    line = said(capfd, "unexpected_error")
    is_outage = status != 500
    assert line["severity"] == ("WARNING" if is_outage else "ERROR"), "an outage is no fault of the code's"
    assert ("stack_trace" in line) is not is_outage
    assert line["correlation_id"] == record.correlation_id
    assert "c4n4ry" not in json.dumps(line)


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"])
@pytest.mark.parametrize("route", ROUTES)
def test_another_method_is_not_allowed(service: Service, route: str, method: str) -> None:
    answer = service.client.open(f"/internal/{route}", method=method)
    assert (answer.status_code, answer.json) == (405, {"error": "method_not_allowed"})


@pytest.mark.parametrize(
    "path", ["/", "/internal", "/webhooks/whatsapp", "/internal/process_inbound/", "/internal//sweep", "//livez"]
)
def test_any_other_path_is_not_found(service: Service, path: str) -> None:
    answer = service.client.post(path, headers={"X-Internal-Token": TOKEN})
    assert (answer.status_code, answer.json) == (404, {"error": "not_found"})


# ---- health


def test_process_is_alive_until_all_its_handlers_hang(service: Service) -> None:
    assert (service.client.get("/livez").status_code, service.client.get("/livez").json) == (200, {"status": "ok"})
    hung = service.internal.parts.handler._hung
    hung.begin("acme")
    assert service.client.get("/livez").status_code == 200
    hung.begin("globex")
    assert (service.client.get("/livez").status_code, service.client.get("/livez").json) == (
        503,
        {"status": "exhausted"},
    )


@pytest.mark.parametrize("gone", ["store", "queue"])
def test_service_is_ready_while_store_and_queue_answer(service: Service, gone: str) -> None:
    assert service.client.get("/readyz").json["services"] == {"store": "connected", "queue": "connected"}
    getattr(service.internal, gone).before = lambda *_: StoreUnavailable()
    for path, status in (("/readyz", 503), ("/health", 200)):
        answer = service.client.get(path)
        assert answer.status_code == status
        assert answer.json["status"] == "degraded"
        assert answer.json["services"][gone] == "unavailable"
        assert answer.json["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    ("gone", "store", "code"), [(None, "connected", 200), ("queue", "connected", 200), ("store", "unavailable", 503)]
)
def test_service_starts_once_the_store_answers_with_any_queue_state(
    service: Service, gone: str | None, store: str, code: int
) -> None:
    if gone:
        getattr(service.internal, gone).before = lambda *_: StoreUnavailable()
    answer = service.client.get("/startz")
    assert (answer.status_code, answer.json["services"]) == (code, {"store": store})
    assert answer.json["status"] == ("ok" if code == 200 else "degraded")


# ---- what the log says


def test_one_log_line_describes_the_whole_send(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    record = service.put(a_reply())
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "X-CloudTasks-TaskRetryCount": "3"}
    service.process(Task.of(record), **headers)
    (line,) = parts.lines(capfd.readouterr().out)
    assert line["event"] == "outbound_sent"
    assert {name: line[name] for name in ("delivery", "correlation_id", "tenant", "stage", "attempt", "state")} == {
        "delivery": record.key,
        "correlation_id": record.correlation_id,
        "tenant": "default",
        "stage": "outbound",
        "attempt": 1,
        "state": "done",
    }
    assert (line["task_name"], line["retry_count"], line["generation"]) == (Task.of(record).name, 3, 0)
    assert line["logging.googleapis.com/trace"] == f"projects/pombo-local/traces/{trace}"


@pytest.mark.parametrize(
    ("header", "logged"),
    [
        ("outbound-t000", "outbound-t000"),
        ("outbound-t019", "outbound-t019"),
        ("inbound-t000", "inbound-t000"),
        ("outbound", "outbound"),
        ("outbound-t020", "outbound"),
        ("15550002222", "outbound"),
        ("", "outbound"),
    ],
    ids=["the first", "the last", "of events", "shared", "beyond the last", "of another name", "absent"],
)
def test_line_names_the_numbered_queue_that_a_task_came_from(
    service: Service, header: str, logged: str, capfd: pytest.CaptureFixture[str]
) -> None:
    service.process(Task.of(service.put(a_reply())), **{"X-CloudTasks-QueueName": header})
    (line,) = parts.lines(capfd.readouterr().out)
    assert line["queue"] == logged


@pytest.mark.parametrize("retries", ["", "-1", "many", "9" * 50, "٣"])
def test_untrusted_header_breaks_no_log_line(service: Service, retries: str, capfd: pytest.CaptureFixture[str]) -> None:
    record = service.put(a_reply())
    body = json.dumps(task_body(Task.of(record)))
    answer = service.client.post(
        "/internal/process_outbound",
        data=body,
        headers={"X-Internal-Token": TOKEN},
        environ_overrides={"HTTP_X_CLOUDTASKS_TASKRETRYCOUNT": retries},
    )
    assert answer.status_code == 200
    assert "retry_count" not in said(capfd, "outbound_sent")


def test_finishing_line_counts_planned_and_enqueued_replies(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    service.handler.answer = lambda _: ["one", "two"]
    service.arrive(service.put(an_event()))
    line = said(capfd, "inbound_processing_finished")
    assert (line["outbound_planned"], line["outbound_enqueued"], line["state"]) == (2, 2, "done")


@pytest.mark.parametrize("record", [an_event(provider="another"), a_reply(provider="another")], ids=["event", "reply"])
def test_a_record_of_a_provider_without_a_channel_here_is_left_alone(
    service: Service, provider: parts.Provider, record: Delivery
) -> None:
    """As one that a newer version wrote: a release that knows the provider finds it as it was."""
    service.put(record)
    assert service.process(Task.of(record)) == (409, {"state": "unknown"})
    assert service.get(record) == record
    assert (service.handler.called, provider.requests) == ([], [])


@pytest.mark.parametrize("hop", [0, 3])
@pytest.mark.parametrize("state", FINAL)
@pytest.mark.parametrize("kind", list(Kind))
def test_a_final_record_of_a_provider_without_a_channel_here_is_answered_200(
    service: Service, provider: parts.Provider, kind: Kind, state: State, hop: int
) -> None:
    """Its task would else be retried until the queue drops it, and nothing is left to do."""
    make = an_event if kind is Kind.INBOUND else a_reply
    record = service.put(make(provider="another", **ended(state)))
    before = service.get(record)
    assert service.process(replace(Task.of(record), hop=hop)) == (200, {"state": state})
    assert service.get(record) == before
    assert (service.handler.called, provider.requests) == ([], [])
