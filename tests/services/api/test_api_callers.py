"""Who may call the API, and how every refusal looks."""

import hmac
import json
import statistics
import time
from io import BytesIO
from typing import Any

import pytest
from gunicorn.http.errors import InvalidChunkSize

from services.api.callers import needs_of
from services.api.main import WITHOUT_KEY
from services.api.rate_limits import BURST, RateLimits
from shared.domain.errors import PomboError, QueueUnavailable, StoreUnavailable, UnknownState
from shared.domain.tenants import Scope
from shared.operations.keys import parse_key, revoke_key
from shared.tenants.api_keys import LOOKS_PER_SECOND
from tests.support import parts
from tests.support.api_service import NO_KEY, ApiService, problem
from tests.support.parts import SENDER

MESSAGE = {"to": "+15550002222", "text": "Your appointment is at nine."}
SOME_ID = "0a" * 20
UNKNOWN_KEY = f"pombo_{'0' * 16}_{'0' * 64}"


def id_of(key: str) -> str:
    presented = parse_key(key)
    assert presented is not None
    return presented.id


def wrong_secret(key: str) -> str:
    return f"{key[:-1]}{'0' if key[-1] != '0' else '1'}"


def guessed(number: int) -> str:
    return f"pombo_{number:016x}_{'0' * 64}"


def revoked(api: ApiService) -> str:
    key = api.key()
    revoke_key(api.store.port, api.clock, id_of(key))
    return key


class BadChunks(BytesIO):
    """What gunicorn gives an app to read if the chunks of a body are not valid."""

    def readinto(self, _: Any) -> int:
        raise InvalidChunkSize(b"zz")  # type: ignore[no-untyped-call]


def chunked(stream: Any) -> dict[str, Any]:
    """A JSON body without a length, as gunicorn hands it to the app."""
    environ = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    return {"input_stream": stream, "content_type": "application/json", "environ_overrides": environ}


# ---- unauthorized


def test_missing_wrong_unknown_and_revoked_keys_get_the_same_answer(api: ApiService) -> None:
    keys = [NO_KEY, "pombo_x", UNKNOWN_KEY, wrong_secret(api.key()), revoked(api)]
    answers = [api.call("GET", f"/v1/messages/{SOME_ID}", key=key) for key in keys]
    assert {(answer.status_code, answer.data) for answer in answers} == {(401, answers[0].data)}
    assert {answer.headers["WWW-Authenticate"] for answer in answers} == {"Bearer"}
    assert answers[0].get_json()["code"] == "UNAUTHORIZED"


def test_wrong_unknown_and_revoked_keys_take_one_look_and_one_comparison(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, compared, compare = [UNKNOWN_KEY, wrong_secret(api.key()), revoked(api)], list[str](), hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append(one) or compare(one, other))
    for key in keys:
        api.store.calls.clear()
        compared.clear()
        api.call("GET", f"/v1/messages/{SOME_ID}", key=key)
        assert (len(compared), len(api.store.calls)) == (1, 1)
        api.call("GET", f"/v1/messages/{SOME_ID}", key=key)
        assert (len(compared), len(api.store.calls)) == (2, 1), "the second time no look at all"


def test_wrong_unknown_and_revoked_keys_are_refused_in_the_same_time(api: ApiService) -> None:
    """Of the processor, once each is in the cache; a read of the store more would show."""
    keys = [UNKNOWN_KEY, wrong_secret(api.key()), revoked(api)]
    took: dict[str, list[int]] = {key: [] for key in keys}
    for _ in range(120):
        for key in keys:
            began = time.thread_time_ns()
            refused = api.app.test_client().get("/v1/messages", headers={"Authorization": f"Bearer {key}"})
            took[key].append(time.thread_time_ns() - began)
            assert refused.status_code == 401
    usual = [statistics.median(of[20:]) for of in took.values()]
    assert max(usual) < 1.2 * min(usual)


def test_revoked_key_is_refused_after_five_seconds(api: ApiService) -> None:
    key = api.key()
    assert api.call("GET", f"/v1/messages/{SOME_ID}", key=key).status_code == 404
    revoke_key(api.store.port, api.clock, id_of(key))
    api.clock.go(5)
    assert api.call("GET", f"/v1/messages/{SOME_ID}", key=key).status_code == 401


@pytest.mark.parametrize("header", ["Basic abc", "Bearer", "Bearer  ", "pombo_x"])
def test_any_other_authorization_header_is_unauthorized(api: ApiService, header: str) -> None:
    answer = api.call("GET", f"/v1/messages/{SOME_ID}", key=NO_KEY, headers={"Authorization": header})
    assert problem(answer) == (401, "UNAUTHORIZED", None)


def test_scheme_of_the_header_may_have_any_case(api: ApiService) -> None:
    headers = {"Authorization": f"bearer {api.key()}"}
    assert api.call("GET", f"/v1/messages/{SOME_ID}", key=NO_KEY, headers=headers).status_code == 404


def test_body_is_not_read_before_the_key_is_checked(api: ApiService) -> None:
    assert problem(api.call("POST", "/v1/messages", key=NO_KEY, data=b"x" * (2 << 20)))[1] == "UNAUTHORIZED"


def test_wrong_key_stores_nothing(api: ApiService) -> None:
    api.call("POST", "/v1/messages", MESSAGE, key=wrong_secret(api.key()))
    assert (api.store.asked("create"), api.made) == ([], [])


@pytest.mark.parametrize("name", ["key", "api_key", "ApiKey", "access_token", "token", "authorization"])
def test_key_in_the_query_is_refused_even_beside_a_valid_one(api: ApiService, name: str) -> None:
    key = api.key()
    answer = api.call("POST", f"/v1/messages?{name}={key}", MESSAGE, key=key)
    assert problem(answer) == (400, "INVALID_REQUEST", name.lower())
    assert key not in answer.text
    assert api.made == []


def test_flood_of_guesses_is_told_to_wait_and_stops_nobody_with_a_key(api: ApiService) -> None:
    key = api.key()
    api.call("GET", f"/v1/messages/{SOME_ID}", key=key)
    answers = [api.call("GET", "/v1/x", key=guessed(number)) for number in range(500)]
    assert {answer.status_code for answer in answers} == {401, 503}
    assert len(api.store.asked("entries")) == LOOKS_PER_SECOND, "the key's own among them"
    assert problem(answers[-1]) == (503, "UNAVAILABLE", None)
    assert answers[-1].headers["Retry-After"] == "1"
    api.clock.seconds += 5  # the key is looked up again, while the flood goes on
    for number in range(500, 600):
        api.call("GET", "/v1/x", key=guessed(number))
    assert api.call("GET", f"/v1/messages/{SOME_ID}", key=key).status_code == 404


def test_guessed_id_stays_bounded_when_it_is_looked_up_again(api: ApiService) -> None:
    first, others = range(LOOKS_PER_SECOND), range(LOOKS_PER_SECOND, 2 * LOOKS_PER_SECOND)
    assert {api.call("GET", "/v1/x", key=guessed(number)).status_code for number in first} == {401}
    api.clock.seconds += 5
    assert {api.call("GET", "/v1/x", key=guessed(number)).status_code for number in others} == {401}
    assert {api.call("GET", "/v1/x", key=guessed(number)).status_code for number in first} == {503}


# ---- forbidden


@pytest.mark.parametrize(
    ("method", "path", "scopes", "lacks"),
    [
        ("POST", "/v1/messages", (Scope.READ, Scope.MANAGE, Scope.READ_DEAD), "send"),
        ("POST", "/v1/messages/batch", (Scope.READ,), "send"),
        ("POST", f"/v1/messages/{SOME_ID}/cancel", (Scope.READ,), "send"),
        ("GET", f"/v1/messages/{SOME_ID}", (Scope.SEND, Scope.MANAGE), "read"),
    ],
)
def test_key_without_the_scope_is_forbidden(
    api: ApiService, method: str, path: str, scopes: tuple[Scope, ...], lacks: str
) -> None:
    body: Any = MESSAGE if path == "/v1/messages" else {"messages": [MESSAGE]} if "batch" in path else None
    answer = api.call(method, path, body, key=api.key("default", *scopes))
    assert problem(answer) == (403, "FORBIDDEN", None)
    assert lacks in answer.get_json()["detail"]
    assert api.made == []


def test_key_without_the_scope_learns_nothing_of_its_body(api: ApiService) -> None:
    key = api.key("default", Scope.READ)
    for body in ({"to": 1}, {}, {"nothing": "of ours"}):
        assert problem(api.call("POST", "/v1/messages", body, key=key)) == (403, "FORBIDDEN", None)
    answer = api.call("POST", "/v1/messages", data=b"{", content_type="text/plain", key=key)
    assert problem(answer) == (403, "FORBIDDEN", None)
    assert problem(api.call("GET", "/v1/keys?limit=x", key=key)) == (403, "FORBIDDEN", None)


def test_operators_route_refuses_a_tenants_key_before_its_body(api: ApiService) -> None:
    key = api.key("default", *Scope)
    assert problem(api.call("POST", "/v1/tenants", {"id": 1}, key=key)) == (403, "FORBIDDEN", None)
    assert problem(api.call("PATCH", "/v1/tenants/default", {"id": 1}, key=key)) == (403, "FORBIDDEN", None)
    assert problem(api.call("PATCH", "/v1/tenants/bakery", {"id": 1}, key=key)) == (404, "NOT_FOUND", None)


def test_every_route_says_what_it_needs_of_a_key_or_is_open(api: ApiService) -> None:
    for rule in api.app.url_map.iter_rules():
        is_open = rule.rule in WITHOUT_KEY or rule.rule.startswith("/docs")
        assert (needs_of(api.app.view_functions[rule.endpoint]) is None) is is_open, rule


def test_route_that_does_not_say_what_it_needs_is_not_served(api: ApiService, monkeypatch: pytest.MonkeyPatch) -> None:
    def unmarked() -> str:
        raise AssertionError("It was served.")

    endpoint, _ = api.app.url_map.bind("").match("/v1/keys", "GET")
    monkeypatch.setitem(api.app.view_functions, endpoint, unmarked)
    headers = {"Authorization": f"Bearer {api.key()}"}
    assert problem(api.app.test_client().get("/v1/keys", headers=headers)) == (500, "UNEXPECTED", None)


# ---- requests that no route takes


@pytest.mark.parametrize("path", ["/v1/nothing", "/nothing", "/v1//messages", "/static/main.py"])
def test_unknown_path_is_a_problem_document(api: ApiService, path: str) -> None:
    assert problem(api.call("GET", path)) == (404, "NOT_FOUND", None)


@pytest.mark.parametrize(("method", "allow"), [("DELETE", "GET, HEAD"), ("OPTIONS", "GET, HEAD")])
def test_other_method_is_a_problem_document_that_names_the_allowed_ones(
    api: ApiService, method: str, allow: str
) -> None:
    answer = api.call(method, f"/v1/messages/{SOME_ID}")
    assert problem(answer) == (405, "METHOD_NOT_ALLOWED", None)
    assert answer.headers["Allow"] == allow


def test_body_beyond_a_megabyte_is_too_large(api: ApiService) -> None:
    blanks = b" " * ((1 << 20) - 2)
    answer = api.call("POST", "/v1/messages", data=b"{" + blanks + b" }", content_type="application/json")
    assert problem(answer) == (413, "TOO_LARGE", None)
    answer = api.call("POST", "/v1/messages", data=b"{" + blanks + b"}", content_type="application/json")
    assert problem(answer) == (400, "INVALID_REQUEST", "to")


@pytest.mark.parametrize("size", [1 << 20, 1 << 21])
def test_chunked_body_beyond_a_megabyte_is_too_large_and_not_cut_off(api: ApiService, size: int) -> None:
    body = json.dumps(MESSAGE).encode() + b" " * size
    assert problem(api.call("POST", "/v1/messages", **chunked(BytesIO(body)))) == (413, "TOO_LARGE", None)
    assert api.store.asked("create") == []


def test_chunked_body_is_read_to_its_end(api: ApiService) -> None:
    answer = api.call("POST", "/v1/messages", **chunked(BytesIO(json.dumps(MESSAGE).encode())))
    assert answer.status_code == 202


def test_chunks_that_are_not_valid_are_the_callers_fault(api: ApiService) -> None:
    answer = api.call("POST", "/v1/messages", **chunked(BadChunks()))
    assert problem(answer) == (400, "INVALID_REQUEST", None)


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_body_that_is_not_declared_as_json_is_unsupported(api: ApiService, content_type: str | None) -> None:
    answer = api.call("POST", "/v1/messages", data=b"{}", content_type=content_type)
    assert problem(answer) == (415, "UNSUPPORTED_MEDIA_TYPE", None)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("length", ["2", None], ids=["with its length", "in chunks"])
def test_any_body_must_be_declared_as_json(api: ApiService, method: str, length: str | None) -> None:
    path = "/v1/tenants/acme" if method == "PATCH" else f"/v1/messages/{SOME_ID}/cancel"
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    given = {"CONTENT_LENGTH": length} if length else {"CONTENT_LENGTH": "", **chunked}
    key = api.key(None)
    answer = api.call(method, path, key=key, data=b"{}", content_type="text/plain", environ_overrides=given)
    assert problem(answer) == (415, "UNSUPPORTED_MEDIA_TYPE", None)


@pytest.mark.parametrize("body", [b"{", b"[]", b'"{}"', b"1", b"null", b"\xff", b"[" * 100_000, b'{"to":"\\ud800"}'])
def test_body_that_is_no_json_object_is_invalid(api: ApiService, body: bytes) -> None:
    answer = api.call("POST", "/v1/messages", data=body, content_type="application/json")
    assert problem(answer) == (400, "INVALID_REQUEST", "body")


def test_missing_body_is_invalid(api: ApiService) -> None:
    assert problem(api.call("POST", "/v1/messages")) == (400, "INVALID_REQUEST", "body")


@pytest.mark.parametrize("id", ["x", "0A" * 20, "0a" * 19, "0a" * 21])
def test_id_that_cannot_exist_is_invalid(api: ApiService, id: str) -> None:
    assert problem(api.call("GET", f"/v1/messages/{id}")) == (400, "INVALID_REQUEST", "id")


# ---- too many requests


def test_access_log_names_the_key_that_makes_too_many_requests(
    api: ApiService, capfd: pytest.CaptureFixture[str]
) -> None:
    key = api.key()
    with parts.logged():
        for _ in range(101):
            api.call("GET", f"/v1/messages/{SOME_ID}", key=key)
    (*_, line) = parts.lines(capfd.readouterr().out)
    assert (line["http_status"], line["key"], line["tenant"]) == (429, id_of(key), "default")


def test_key_may_make_100_requests_at_once_and_50_a_second(api: ApiService) -> None:
    key, other = api.key(), api.key()
    get = f"/v1/messages/{SOME_ID}"
    assert {api.call("GET", get, key=key).status_code for _ in range(100)} == {404}
    refused = api.call("GET", get, key=key)
    assert problem(refused) == (429, "RATE_LIMITED", None)
    assert refused.headers["Retry-After"] == "1"
    assert api.call("GET", get, key=other).status_code == 404, "another key"
    api.clock.go(0.5)
    answers = [api.call("GET", get, key=key).status_code for _ in range(26)]
    assert answers == [404] * 25 + [429]


def test_body_of_a_request_too_many_is_not_read(api: ApiService) -> None:
    key = api.key()
    for _ in range(BURST):
        api.call("GET", f"/v1/messages/{SOME_ID}", key=key)
    answer = api.call("POST", "/v1/messages", key=key, data=b"{", content_type="application/json")
    assert problem(answer) == (429, "RATE_LIMITED", None)


def test_key_that_was_quiet_longest_makes_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.api.rate_limits.MOST", 2)
    limits = RateLimits(lambda: 0)
    for key in ("first", "second", "third"):
        assert [limits.take(key) for _ in range(BURST + 1)] == [0] * BURST + [1]
    assert [limits.take(key) for key in ("second", "third", "first")] == [1, 1, 0]


# ---- unavailable


@pytest.mark.parametrize("error", [StoreUnavailable(), UnknownState()])
def test_store_that_is_away_is_a_503_with_retry_after_and_a_log_line(
    api: ApiService, error: PomboError, capfd: pytest.CaptureFixture[str]
) -> None:
    key = api.key()
    api.call("GET", f"/v1/messages/{SOME_ID}", key=key)
    api.is_down(api.store, error)
    with parts.logged():
        answer = api.call("POST", "/v1/messages", MESSAGE, key=key)
    assert problem(answer) == (503, "UNAVAILABLE", None)
    assert answer.headers["Retry-After"] == "5"
    faults = [line for line in parts.lines(capfd.readouterr().out) if line["event"] != "api_answered"]
    assert [(line["event"], line["severity"], line["reason"]) for line in faults] == [
        ("unexpected_error", "WARNING", error.code)
    ]


def test_key_that_cannot_be_looked_up_is_a_503(api: ApiService) -> None:
    key = api.key()
    api.is_down(api.store, StoreUnavailable())
    assert problem(api.call("GET", f"/v1/messages/{SOME_ID}", key=key)) == (503, "UNAVAILABLE", None)


def test_retry_with_its_key_goes_through_once_the_queue_is_back(api: ApiService) -> None:
    key, headers = api.key(), {"Idempotency-Key": "order-17"}
    api.is_down(api.queue, QueueUnavailable())
    assert problem(api.call("POST", "/v1/messages", MESSAGE, key=key, headers=headers)) == (503, "UNAVAILABLE", None)
    api.queue.before = lambda *_: None
    assert api.call("POST", "/v1/messages", MESSAGE, key=key, headers=headers).status_code == 202
    assert len({task.name for task, _ in api.made}) == 1


# ---- unexpected


def test_unexpected_error_tells_the_caller_nothing_of_it(api: ApiService) -> None:
    key = api.key()
    api.call("GET", f"/v1/messages/{SOME_ID}", key=key)
    api.is_down(api.store, RuntimeError(f"SELECT of {SENDER}"), "get")
    answer = api.app.test_client().get(f"/v1/messages/{SOME_ID}", headers={"Authorization": f"Bearer {key}"})
    assert problem(answer) == (500, "UNEXPECTED", None)
    assert SENDER not in answer.text


# ---- the document


def test_document_and_its_page_need_no_key_and_no_network(api: ApiService) -> None:
    document = api.call("GET", "/openapi.json", key=NO_KEY).get_json()
    assert document["openapi"] == "3.1.0"
    assert set(document["components"]["schemas"]) >= {"NewMessage", "ProblemDocument"}
    page = api.call("GET", "/docs/swagger", key=NO_KEY)
    assert (page.status_code, "http://" in page.text, "https://" in page.text) == (200, False, False)


@pytest.mark.parametrize("path", ["/livez", "/startz", "/readyz"])
def test_health_of_the_process_needs_no_key(api: ApiService, path: str) -> None:
    assert api.call("GET", path, key=NO_KEY).status_code == 200
