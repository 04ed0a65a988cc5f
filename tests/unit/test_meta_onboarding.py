"""Connecting a number at Meta, against a scripted Graph on this machine: what is asked, and what each answer means."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from shared import logs
from shared.channels.meta.onboarding import PAGES, App, MetaOnboarding
from shared.domain.limits import PostTimes
from shared.domain.onboarding import Checked, OnboardingRefused, OnboardingUnavailable
from shared.net.egress_policy import ANYWHERE

DATA = Path(__file__).parents[1] / "data" / "onboarding"
SIGNUP = json.loads((DATA / "embedded_signup_finished.json").read_text())["data"]
NO_TARGETS = json.loads((DATA / "token_without_target_ids.json").read_text())
BEFORE_OVERRIDE = json.loads((DATA / "override_before_subscription.json").read_text())
ACCOUNT, NUMBER, PORTFOLIO = SIGNUP["waba_id"], SIGNUP["phone_number_id"], SIGNUP["business_id"]
TOKEN = "EAAG/the+secret=token%20"
APP = App("1", "the-app-secret")
PATIENT = PostTimes(*[timedelta(seconds=20)] * 4)

INSPECT, NUMBERS, APPS = "debug_token", f"{ACCOUNT}/phone_numbers", f"{ACCOUNT}/subscribed_apps"
SCOPES = ["whatsapp_business_management", "whatsapp_business_messaging"]


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    bearer: str
    body: bytes


@dataclass
class Graph:
    """Answers each call with the next of its answers, the last one again and again: (status, document)."""

    answers: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def says(self, call: str, *answers: Any, status: int = 200) -> None:
        self.answers[call] = [(status, answer) for answer in answers]

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[int, bytes]:
        parts = urlsplit(target)
        path = parts.path.removeprefix("/v25.0/")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.asked.append(Asked(method, path, query, headers["Authorization"].removeprefix("Bearer "), body))
        left = self.answers[path] if method == "GET" else self.answers[f"{method} {path}"]
        status, document = left.pop(0) if len(left) > 1 else left[0]
        return status, document if isinstance(document, bytes) else json.dumps(document).encode()


def _handler(graph: Graph) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content = graph.answer(self.command, self.path, self.headers, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = respond

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    return Handler


def token_data(**fields: Any) -> dict[str, Any]:
    granted = [{"scope": scope, "target_ids": [ACCOUNT]} for scope in SCOPES]
    data = {"app_id": "1", "is_valid": True, "expires_at": 0, "scopes": SCOPES, "granular_scopes": granted}
    return {"data": data | fields}


def numbers(*ids: str, after: str | None = None) -> dict[str, Any]:
    data = [{"id": id, "display_phone_number": "+1 555-000-1111"} for id in ids]
    paging = {"cursors": {"after": after or "last"}} | ({"next": "https://attacker.example/"} if after else {})
    return {"data": data, "paging": paging}


def error(code: int, subcode: int | None = None, **fields: Any) -> dict[str, Any]:
    text = f"Malformed access token {TOKEN}"
    return {"error": {"message": text, "code": code} | ({"error_subcode": subcode} if subcode else {}) | fields}


@pytest.fixture
def graph() -> Iterator[Graph]:
    graph = Graph()
    graph.says(INSPECT, token_data())
    graph.says(NUMBERS, numbers(NUMBER))
    graph.says(f"POST {APPS}", {"success": True})
    graph.says(APPS, {"data": [{"whatsapp_business_api_data": {"id": "1", "name": "Pombo"}}]})
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(graph))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    graph.url = f"http://127.0.0.1:{server.server_port}"
    yield graph
    server.shutdown()
    server.server_close()


@pytest.fixture
def meta(graph: Graph) -> Iterator[MetaOnboarding]:
    meta = onboarding(graph.url)
    yield meta
    meta.close()


def onboarding(url: str, app: App | None = APP, times: PostTimes = PATIENT, **given: Any) -> MetaOnboarding:
    return MetaOnboarding(app=app, base_url=url, version="v25.0", times=times, **({"reach": ANYWHERE} | given))


def refused(meta: MetaOnboarding, account: str = ACCOUNT, number: str = NUMBER, token: str = TOKEN) -> str:
    """The sentence, which must not contain a secret."""
    with pytest.raises(OnboardingRefused) as raised:
        meta.check(number, account, token)
    assert not raised.value.retryable
    assert token not in str(raised.value) or not token
    return raised.value.sentence


# ---- what is asked


def test_token_is_inspected_with_the_apps_token_in_the_header(graph: Graph, meta: MetaOnboarding) -> None:
    assert meta.check(NUMBER, ACCOUNT, TOKEN) == Checked("+1 555-000-1111")
    inspect, listed = graph.asked
    assert (inspect.path, inspect.query, inspect.bearer) == (INSPECT, {"input_token": TOKEN}, "1|the-app-secret")
    assert (listed.path, listed.bearer) == (NUMBERS, TOKEN)
    assert "access_token" not in listed.query


def test_check_changes_nothing_at_meta(graph: Graph, meta: MetaOnboarding) -> None:
    meta.check(NUMBER, ACCOUNT, TOKEN)
    assert {asked.method for asked in graph.asked} == {"GET"}


def test_token_is_not_in_log_lines_of_any_level(
    graph: Graph, meta: MetaOnboarding, capfd: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.configure("DEBUG")
        meta.check(NUMBER, ACCOUNT, TOKEN)
        meta.subscribe(ACCOUNT, TOKEN)
    finally:
        root.handlers[:], root.level = handlers, level
    told = "".join(capfd.readouterr())
    assert TOKEN not in told
    assert "input_token" not in told


def test_app_is_not_shown_with_its_secret(meta: MetaOnboarding) -> None:
    assert "the-app-secret" not in repr(APP)


def test_without_an_app_only_the_number_is_checked(graph: Graph) -> None:
    meta = onboarding(graph.url, app=None)
    assert meta.check(NUMBER, ACCOUNT, TOKEN) == Checked("+1 555-000-1111")
    meta.subscribe(ACCOUNT, TOKEN)
    meta.close()
    assert [asked.path for asked in graph.asked] == [NUMBERS, APPS, APPS]


def test_times_at_which_the_token_ends_are_returned(graph: Graph, meta: MetaOnboarding) -> None:
    graph.says(INSPECT, token_data(expires_at=1790416800, data_access_expires_at=1798192800))
    checked = meta.check(NUMBER, ACCOUNT, TOKEN)
    assert checked.expires_at == datetime(2026, 9, 26, 10, tzinfo=UTC)
    assert checked.data_access_expires_at == datetime.fromtimestamp(1798192800, UTC)


def test_latest_time_that_can_be_represented_is_returned(graph: Graph, meta: MetaOnboarding) -> None:
    graph.says(INSPECT, token_data(expires_at=253_402_300_799))
    assert meta.check(NUMBER, ACCOUNT, TOKEN).expires_at == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize("expires_at", [0, None, "soon", -1, True, 253_402_300_800], ids=str)
def test_time_that_is_none_counts_as_never(graph: Graph, meta: MetaOnboarding, expires_at: Any) -> None:
    graph.says(INSPECT, token_data(expires_at=expires_at))
    assert meta.check(NUMBER, ACCOUNT, TOKEN).expires_at is None


# ---- which token is accepted


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        pytest.param({"is_valid": False, "error": {"code": 190, "message": TOKEN}}, "is invalid", id="invalid"),
        pytest.param({"app_id": "2"}, "another Meta app", id="another app"),
        pytest.param({"app_id": None}, "another Meta app", id="no app"),
        pytest.param({"scopes": SCOPES[:1]}, "lacks whatsapp_business_messaging.", id="no messages"),
        pytest.param({"scopes": SCOPES[1:]}, "lacks whatsapp_business_management.", id="no management"),
        pytest.param({"scopes": None}, "lacks whatsapp_business_management and whatsapp_business_m", id="no scopes"),
    ],
)
def test_unusable_token_is_refused_with_the_reason(
    graph: Graph, meta: MetaOnboarding, fields: dict[str, Any], sentence: str
) -> None:
    graph.says(INSPECT, token_data(**fields))
    assert sentence in refused(meta)
    assert [asked.path for asked in graph.asked] == [INSPECT]


def test_app_id_and_accounts_may_be_numbers(graph: Graph, meta: MetaOnboarding) -> None:
    granted = [{"scope": SCOPES[0], "target_ids": [int(ACCOUNT), "7"]}]
    graph.says(INSPECT, token_data(app_id=1, granular_scopes=granted))
    graph.says(NUMBERS, {"data": [{"id": int(NUMBER)}]})
    assert meta.check(NUMBER, ACCOUNT, TOKEN) == Checked("")


def test_token_without_listed_accounts_is_accepted_if_the_account_answers(graph: Graph, meta: MetaOnboarding) -> None:
    graph.says(INSPECT, NO_TARGETS)
    meta.check(NUMBER, ACCOUNT, TOKEN)
    graph.says(NUMBERS, error(100, 33), status=400)
    assert "no access to this WhatsApp Business account" in refused(meta)


@pytest.mark.parametrize("ids", [[], None, "all"], ids=str)
def test_list_of_accounts_that_says_nothing_counts_as_absent(graph: Graph, meta: MetaOnboarding, ids: Any) -> None:
    graph.says(INSPECT, token_data(granular_scopes=[{"scope": SCOPES[0], "target_ids": ids}]))
    meta.check(NUMBER, ACCOUNT, TOKEN)


@pytest.mark.parametrize("scope", SCOPES)
def test_each_permission_must_cover_the_account(graph: Graph, meta: MetaOnboarding, scope: str) -> None:
    granted = [{"scope": each, "target_ids": ["7"] if each == scope else [ACCOUNT]} for each in SCOPES]
    graph.says(INSPECT, token_data(granular_scopes=granted))
    assert "no access to this WhatsApp Business account" in refused(meta)


def test_accounts_of_other_permissions_do_not_count(graph: Graph, meta: MetaOnboarding) -> None:
    graph.says(INSPECT, token_data(granular_scopes=[{"scope": "catalog_management", "target_ids": ["7"]}]))
    meta.check(NUMBER, ACCOUNT, TOKEN)


def test_portfolio_id_in_place_of_the_account_is_refused_with_what_to_give(graph: Graph, meta: MetaOnboarding) -> None:
    sentence = refused(meta, account=PORTFOLIO)
    assert "(waba_id), not that of the business portfolio (business_id)" in sentence
    graph.says(INSPECT, NO_TARGETS)
    graph.says(f"{PORTFOLIO}/phone_numbers", error(100), status=400)
    assert refused(meta, account=PORTFOLIO) == sentence


@pytest.mark.parametrize("account", ["", "acme", "1/2", "1?x=2", "٣", "1" * 33])
def test_account_that_is_no_id_is_refused_without_a_call(graph: Graph, meta: MetaOnboarding, account: str) -> None:
    assert "all digits" in refused(meta, account=account)
    assert graph.asked == []


@pytest.mark.parametrize("token", ["", "two words", "line\n", "ünicode"])
def test_text_that_is_no_token_is_refused_without_a_call(graph: Graph, meta: MetaOnboarding, token: str) -> None:
    assert "no token has" in refused(meta, token=token)
    assert graph.asked == []


# ---- which number


def test_number_may_be_on_any_page(graph: Graph, meta: MetaOnboarding) -> None:
    graph.says(NUMBERS, numbers("1", after="a"), numbers("2", after="b"), numbers(NUMBER))
    meta.check(NUMBER, ACCOUNT, TOKEN)
    pages = [asked.query.get("after") for asked in graph.asked if asked.path == NUMBERS]
    assert pages == [None, "a", "b"]


def test_number_of_another_account_is_refused(graph: Graph, meta: MetaOnboarding) -> None:
    graph.says(NUMBERS, numbers("1", after="a"), numbers("2"))
    assert "no such phone number ID" in refused(meta)


def test_endless_pages_are_not_read_for_ever(graph: Graph, meta: MetaOnboarding) -> None:
    graph.says(NUMBERS, numbers("1", after="a"))
    assert "no such phone number ID" in refused(meta)
    assert len(graph.asked) == 1 + PAGES


# ---- refusals and outages


@pytest.mark.parametrize(
    ("code", "subcode", "sentence"),
    [
        (190, 463, "rejected the access token (code 190)"),
        (0, None, "rejected the access token (code 0)"),
        (10, None, "lacks a permission on this account (code 10)"),
        (200, None, "lacks a permission on this account (code 200)"),
        (100, 33, "no access to this WhatsApp Business account"),
        (100, None, "no access to this WhatsApp Business account"),
        (33, None, "no access to this WhatsApp Business account"),
        (368, None, "blocked the WhatsApp account for a policy violation (code 368)"),
        (99999, None, "a reason that Pombo does not know (code 99999)"),
    ],
)
def test_refusal_by_code_says_what_to_do(
    graph: Graph, meta: MetaOnboarding, code: int, subcode: int | None, sentence: str
) -> None:
    graph.says(NUMBERS, error(code, subcode), status=400)
    assert sentence in refused(meta)
    with pytest.raises(OnboardingRefused) as raised:
        meta.check(NUMBER, ACCOUNT, TOKEN)
    assert raised.value.provider_code == code


@pytest.mark.parametrize("code", [1, 101, 190])
def test_wrong_app_secret_is_named_as_the_cause(graph: Graph, meta: MetaOnboarding, code: int) -> None:
    graph.says(INSPECT, error(code), status=400)
    assert "META_APP_SECRET" in refused(meta)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (503, error(2)),
        (500, error(1)),
        (400, error(4)),
        (400, error(80008)),
        (400, error(99999, is_transient=True)),
        (500, error(99999)),
        (500, b""),
        (429, b"slow down"),
        (403, b"<html>proxy</html>"),
        (200, b"<html>proxy</html>"),
        (300, token_data()),
        (200, {}),
        (200, []),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.parametrize("call", [INSPECT, NUMBERS])
def test_outage_and_limits_are_to_be_tried_again(
    graph: Graph, meta: MetaOnboarding, call: str, status: int, answer: Any
) -> None:
    graph.says(call, answer, status=status)
    with pytest.raises(OnboardingUnavailable) as raised:
        meta.check(NUMBER, ACCOUNT, TOKEN)
    assert raised.value.retryable
    assert "Try again later." in raised.value.sentence
    assert TOKEN not in raised.value.sentence


def test_debug_token_without_a_verdict_is_to_be_tried_again(graph: Graph, meta: MetaOnboarding) -> None:
    graph.says(INSPECT, {"data": {"app_id": "1"}})
    with pytest.raises(OnboardingUnavailable):
        meta.check(NUMBER, ACCOUNT, TOKEN)


def test_graph_that_refuses_connections_is_unavailable() -> None:
    with pytest.raises(OnboardingUnavailable, match="cannot be reached") as raised:
        onboarding("http://127.0.0.1:9").check(NUMBER, ACCOUNT, TOKEN)
    told: BaseException | None = raised.value
    while told is not None:
        assert TOKEN not in repr(told)
        told = told.__cause__


def test_silent_graph_is_given_up_within_the_time(graph: Graph) -> None:
    release = threading.Event()
    real = graph.answer

    def slow(*given: Any) -> tuple[int, bytes]:
        release.wait(20)
        return real(*given)

    graph.answer = slow  # type: ignore[method-assign]
    hasty = PostTimes(read=timedelta(seconds=0.2), total=timedelta(seconds=0.5))
    meta, began = onboarding(graph.url, times=hasty), time.monotonic()
    with pytest.raises(OnboardingUnavailable):
        meta.check(NUMBER, ACCOUNT, TOKEN)
    assert time.monotonic() - began < 10
    release.set()
    meta.close()


def test_private_addresses_are_refused_by_default(graph: Graph) -> None:
    meta = MetaOnboarding(app=APP, base_url=graph.url, version="v25.0")
    with pytest.raises(OnboardingUnavailable):
        meta.check(NUMBER, ACCOUNT, TOKEN)
    assert graph.asked == []


# ---- the subscription


def test_subscription_is_made_without_a_body_and_then_looked_at(graph: Graph, meta: MetaOnboarding) -> None:
    """A first call with an override is refused by Meta."""
    meta.subscribe(ACCOUNT, TOKEN)
    assert [(asked.method, asked.path, asked.body, asked.query) for asked in graph.asked] == [
        ("POST", APPS, b"", {}),
        ("GET", APPS, b"", {}),
    ]
    assert {asked.bearer for asked in graph.asked} == {TOKEN}


def test_refused_subscription_is_not_success(graph: Graph, meta: MetaOnboarding) -> None:
    graph.says(f"POST {APPS}", BEFORE_OVERRIDE, status=400)
    with pytest.raises(OnboardingRefused, match="waba_id"):
        meta.subscribe(ACCOUNT, TOKEN)


@pytest.mark.parametrize("listed", [[], [{"whatsapp_business_api_data": {"id": "2"}}], [{"other": 1}]], ids=str)
def test_subscription_that_meta_does_not_list_is_to_be_tried_again(
    graph: Graph, meta: MetaOnboarding, listed: list[Any]
) -> None:
    graph.says(APPS, {"data": listed})
    with pytest.raises(OnboardingUnavailable, match="does not list the app"):
        meta.subscribe(ACCOUNT, TOKEN)


def test_connections_can_be_opened_again(graph: Graph, meta: MetaOnboarding) -> None:
    meta.check(NUMBER, ACCOUNT, TOKEN)
    meta.close()
    meta.check(NUMBER, ACCOUNT, TOKEN)
