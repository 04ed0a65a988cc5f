"""Several numbers in the simulator: their tokens and accounts, the calls that connect one, and news of an account."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.whatsapp.accounts import APP_ID
from local.whatsapp.webhook_payloads import ACCOUNT_ID, PORTFOLIO_ID
from tests.support.whatsapp_harness import CUSTOMER, SECRET, SENDER, TOKEN, Simulator, Webhook, message, running, until

APP_TOKEN = f"{APP_ID}|{SECRET}"
NUMBER, ACCOUNT, OTHERS_TOKEN = "100000000000002", "300000000000002", "token-of-the-second"
SCOPES = ["whatsapp_business_management", "whatsapp_business_messaging"]
GONE = (100, 33)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Simulator, Webhook]]:
    with running(tmp_path_factory.mktemp("simulator"), "--receipt-delays", "0,0,0") as started:
        yield started


@pytest.fixture
def simulator(world: tuple[Simulator, Webhook]) -> Simulator:
    simulator, webhook = world
    simulator.quiet()
    simulator.control("DELETE", "ledger")
    simulator.control("DELETE", "senders")
    usual = {"scopes": SCOPES, "target_ids": True, "app_id": APP_ID, "expires_at": 0}
    simulator.control("POST", "tokens", {"token": TOKEN, "accounts": [ACCOUNT_ID]})
    simulator.control("POST", "tokens", {"token": OTHERS_TOKEN, "accounts": []} | usual)
    webhook.posts.clear()
    return simulator


@pytest.fixture
def webhook(world: tuple[Simulator, Webhook]) -> Webhook:
    return world[1]


@pytest.fixture
def second(simulator: Simulator) -> Simulator:
    add(simulator)
    return simulator


def add(simulator: Simulator, **fields: Any) -> None:
    sender = {"phone_number_id": NUMBER, "waba": ACCOUNT, "token": OTHERS_TOKEN}
    simulator.control("POST", "senders", sender | fields)


def send(simulator: Simulator, number: str = NUMBER, token: str = OTHERS_TOKEN) -> tuple[int, Any]:
    answer = simulator.call(message(text={"body": "hi"}), token, f"/v25.0/{number}/messages")
    return answer.status_code, answer.json().get("error", {}).get("code")


def graph(simulator: Simulator, method: str, path: str, token: str = OTHERS_TOKEN, **query: Any) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    content = query.pop("content", None)
    answer = simulator.client.request(
        method, f"{simulator.address}/v25.0/{path}", params=query, headers=headers, content=content
    )
    return answer.json()


def refusal(answer: Any) -> tuple[int, int | None]:
    return answer["error"]["code"], answer["error"].get("error_subcode")


# ---- sends and webhooks of a second number


def test_each_number_sends_with_its_own_token(second: Simulator) -> None:
    assert send(second) == (200, None)
    assert send(second, SENDER, TOKEN) == (200, None)
    assert send(second, NUMBER, TOKEN) == (401, 190)
    assert send(second, SENDER, OTHERS_TOKEN) == (401, 190)
    assert [entry["phone_number_id"] for entry in second.ledger()] == [NUMBER, SENDER]


def test_webhooks_name_the_number_and_its_account(simulator: Simulator, webhook: Webhook) -> None:
    add(simulator, display="15550003333")
    simulator.inbound(phone_number_id=NUMBER)
    send(simulator)
    simulator.inbound()
    simulator.quiet()
    posts = {(json.loads(post.body)["entry"][0]["id"], *post.value["metadata"].values()) for post in webhook.posts}
    assert posts == {(ACCOUNT, "15550003333", NUMBER), (ACCOUNT_ID, "15550001111", SENDER)}
    assert sorted(webhook.receipts) == ["delivered", "read", "sent"]


def test_split_redelivery_keeps_the_account(second: Simulator, webhook: Webhook) -> None:
    second.inbound(phone_number_id=NUMBER, batch=4, times=3, rebatch=True)
    second.quiet()
    assert len(webhook.posts) > 3
    assert {json.loads(post.body)["entry"][0]["id"] for post in webhook.posts} == {ACCOUNT}


def test_unsubscribed_account_gets_no_webhooks(simulator: Simulator, webhook: Webhook) -> None:
    graph(simulator, "DELETE", f"{ACCOUNT}/subscribed_apps")
    add(simulator, waba="300000000000003", subscribed=False)
    simulator.inbound(phone_number_id=NUMBER)
    send(simulator)
    simulator.inbound()
    until(lambda: webhook.messages, "the message to the other account")
    simulator.quiet()
    assert len(webhook.posts) == 1
    graph(simulator, "POST", "300000000000003/subscribed_apps")
    simulator.inbound(phone_number_id=NUMBER)
    until(lambda: len(webhook.messages) == 2, "the message once it is subscribed")


def test_removed_number_exists_no_more(second: Simulator) -> None:
    add(second, phone_number_id="100000000000003")
    second.control("DELETE", "senders", {"phone_number_id": NUMBER})
    assert send(second) == (400, 100)
    assert send(second, "100000000000003") == (200, None)
    second.control("DELETE", "senders")
    listed = second.control("GET", "senders")
    assert listed == [
        {"phone_number_id": SENDER, "waba": ACCOUNT_ID, "display": "15550001111", "subscribed": True},
    ]


def test_numbers_and_tokens_survive_a_kill(tmp_path: Path) -> None:
    with running(tmp_path / "data") as (simulator, _):
        add(simulator)
        simulator.control("POST", "tokens", {"token": TOKEN, "state": "revoked"})
        simulator.kill()
        simulator.start()
        assert send(simulator) == (200, None)
        assert send(simulator, SENDER, TOKEN) == (401, 190)


def test_token_of_an_earlier_environment_is_not_valid(tmp_path: Path) -> None:
    with running(tmp_path / "data") as (simulator, _):
        simulator.kill()
        simulator.environment["WHATSAPP_ACCESS_TOKEN"] = "another"
        simulator.start()
        assert send(simulator, SENDER, TOKEN) == (401, 190)
        assert send(simulator, SENDER, "another") == (200, None)


# ---- tokens


@pytest.mark.parametrize(("state", "subcode"), [("expired", 463), ("revoked", 460)])
def test_ended_token_is_refused_with_its_subcode(second: Simulator, state: str, subcode: int) -> None:
    second.control("POST", "tokens", {"token": OTHERS_TOKEN, "state": state})
    answer = second.call(message(text={"body": "hi"}), OTHERS_TOKEN, f"/v25.0/{NUMBER}/messages")
    assert refusal(answer.json()) == (190, subcode)
    assert refusal(graph(second, "GET", f"{ACCOUNT}/phone_numbers")) == (190, subcode)
    second.control("POST", "tokens", {"token": OTHERS_TOKEN, "state": "valid"})
    assert send(second) == (200, None)


def test_replaced_token_is_revoked_and_its_successor_has_the_same_access(second: Simulator) -> None:
    second.control("POST", "tokens", {"token": OTHERS_TOKEN, "replace": "successor"})
    assert send(second) == (401, 190)
    assert send(second, token="successor") == (200, None)


def test_token_without_a_permission_is_refused(second: Simulator) -> None:
    second.control("POST", "tokens", {"token": OTHERS_TOKEN, "scopes": ["whatsapp_business_management"]})
    assert send(second) == (403, 10)
    assert graph(second, "GET", f"{ACCOUNT}/phone_numbers")["data"]
    second.control("POST", "tokens", {"token": OTHERS_TOKEN, "scopes": ["whatsapp_business_messaging"]})
    assert send(second) == (200, None)
    assert refusal(graph(second, "GET", f"{ACCOUNT}/phone_numbers")) == (200, None)


# ---- debug_token


def test_debug_token_tells_what_a_token_may_do(second: Simulator) -> None:
    data = graph(second, "GET", "debug_token", APP_TOKEN, input_token=OTHERS_TOKEN)["data"]
    assert (data["app_id"], data["is_valid"], data["expires_at"]) == (APP_ID, True, 0)
    assert data["scopes"] == SCOPES
    assert data["granular_scopes"] == [{"scope": scope, "target_ids": [ACCOUNT]} for scope in SCOPES]


def test_debug_token_may_leave_out_the_accounts(second: Simulator) -> None:
    second.control("POST", "tokens", {"token": OTHERS_TOKEN, "target_ids": False, "app_id": "1", "expires_at": 9})
    data = graph(second, "GET", "debug_token", APP_TOKEN, input_token=OTHERS_TOKEN)["data"]
    assert all("target_ids" not in granted for granted in data["granular_scopes"])
    assert (data["app_id"], data["expires_at"], data["is_valid"]) == ("1", 9, False)


def test_debug_token_answers_200_for_an_unknown_token(simulator: Simulator) -> None:
    answer = simulator.client.get(
        f"{simulator.address}/v25.0/debug_token",
        params={"input_token": "unknown"},
        headers={"Authorization": f"Bearer {APP_TOKEN}"},
    )
    assert answer.status_code == 200
    data = answer.json()["data"]
    assert (data["is_valid"], data["scopes"], data["error"]["code"]) == (False, [], 190)


@pytest.mark.parametrize("token", [f"{APP_ID}|wrong", f"1|{SECRET}", OTHERS_TOKEN, ""])
def test_debug_token_needs_the_apps_own_token(simulator: Simulator, token: str) -> None:
    answer = simulator.client.get(
        f"{simulator.address}/v25.0/debug_token",
        params={"input_token": TOKEN},
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )
    assert refusal(answer.json()) == (190, None)


def test_no_token_is_logged_or_in_the_calls(second: Simulator) -> None:
    graph(second, "GET", "debug_token", APP_TOKEN, input_token=OTHERS_TOKEN)
    graph(second, "GET", f"{ACCOUNT}/phone_numbers", "unknown-token")
    told = second.log_text() + json.dumps(second.control("GET", "calls")) + json.dumps(second.control("GET", "senders"))
    assert OTHERS_TOKEN not in told
    assert SECRET not in told
    assert "unknown-token" not in told


# ---- accounts


def test_numbers_of_an_account_come_in_pages(simulator: Simulator) -> None:
    ids = [f"10000000000010{n}" for n in range(5)]
    for id in ids:
        add(simulator, phone_number_id=id)
    found, after = [], ""
    while True:
        page = graph(simulator, "GET", f"{ACCOUNT}/phone_numbers", limit=2, after=after, fields="display_phone_number")
        assert all(set(number) == {"id", "display_phone_number"} for number in page["data"])
        found += [number["id"] for number in page["data"]]
        if "next" not in page["paging"]:
            break
        after = page["paging"]["cursors"]["after"]
    assert found == ids


def test_number_is_shown_to_a_token_of_its_account(second: Simulator) -> None:
    assert graph(second, "GET", NUMBER, fields="verified_name") == {"id": NUMBER, "verified_name": "Pombo"}
    assert refusal(graph(second, "GET", SENDER)) == GONE
    assert refusal(graph(second, "GET", "100000000000099")) == GONE


def test_account_that_the_token_may_not_see_looks_absent(second: Simulator) -> None:
    for account in (ACCOUNT_ID, "300000000000099"):
        assert refusal(graph(second, "GET", f"{account}/phone_numbers")) == GONE
        assert refusal(graph(second, "POST", f"{account}/subscribed_apps")) == GONE


def test_business_portfolio_has_no_numbers(second: Simulator) -> None:
    answer = graph(second, "GET", f"{PORTFOLIO_ID}/phone_numbers")
    assert refusal(answer) == (100, None)
    assert "node type (Business)" in answer["error"]["message"]


def test_app_is_subscribed_listed_and_unsubscribed(simulator: Simulator) -> None:
    add(simulator, waba="300000000000004", subscribed=False)
    path = "300000000000004/subscribed_apps"
    assert graph(simulator, "GET", path) == {"data": []}
    assert graph(simulator, "POST", path) == {"success": True}
    (app,) = graph(simulator, "GET", path)["data"]
    assert app["whatsapp_business_api_data"]["id"] == APP_ID
    assert graph(simulator, "DELETE", path) == {"success": True}
    assert graph(simulator, "GET", path) == {"data": []}


@pytest.mark.parametrize("body", ['{"override_callback_uri": "https://a.example"}', "override_callback_uri=https://a"])
def test_override_before_the_subscription_is_refused(simulator: Simulator, body: str) -> None:
    add(simulator, waba="300000000000005", subscribed=False)
    path = "300000000000005/subscribed_apps"
    graph(simulator, "DELETE", path)
    answer = graph(simulator, "POST", path, content=body)
    assert refusal(answer) == (100, None)
    assert answer["error"]["message"].startswith("(#100) Before override the current callback uri")
    graph(simulator, "POST", path)
    assert graph(simulator, "POST", path, content=body) == {"success": True}
    assert graph(simulator, "GET", path)["data"][0]["override_callback_uri"].startswith("https://a")


@pytest.mark.parametrize("path", ["nothing/here", f"{NUMBER}/messages", "debug_token/x"])
def test_unknown_calls_are_refused(second: Simulator, path: str) -> None:
    assert refusal(graph(second, "GET", path)) == (2500, None)
    answer = second.client.get(f"{second.address}/v19.0/{ACCOUNT}/phone_numbers")
    assert refusal(answer.json()) == (2500, None)


# ---- news of an account


def test_account_news_name_the_account_and_are_signed(simulator: Simulator, webhook: Webhook) -> None:
    order = {"waba": ACCOUNT, "event": "ACCOUNT_DELETED", "fields": {"country": "BR"}}
    simulator.control("POST", "account_update", order)
    simulator.quiet()
    (post,) = webhook.posts
    entry = json.loads(post.body)["entry"][0]
    assert post.is_signed
    assert (entry["id"], entry["changes"][0]["field"]) == (ACCOUNT, "account_update")
    assert post.value == {"event": "ACCOUNT_DELETED", "country": "BR"}


def test_partner_news_name_the_portfolio_and_the_account_in_their_value(simulator: Simulator, webhook: Webhook) -> None:
    simulator.control("POST", "account_update", {"waba": ACCOUNT, "event": "PARTNER_REMOVED"})
    simulator.quiet()
    (post,) = webhook.posts
    assert json.loads(post.body)["entry"][0]["id"] == PORTFOLIO_ID
    assert post.value["waba_info"]["waba_id"] == ACCOUNT


INVALID: dict[str, tuple[str, Any]] = {
    "a sender without a token": ("senders", {"phone_number_id": NUMBER, "waba": ACCOUNT}),
    "a sender with an unknown field": (
        "senders",
        {"phone_number_id": NUMBER, "waba": ACCOUNT, "token": "t", "colour": "red"},
    ),
    "a list": ("senders", []),
    "a token's unknown state": ("tokens", {"token": "t", "state": "tired"}),
    "a token's accounts that are a number": ("tokens", {"token": "t", "accounts": 1}),
    "no event": ("account_update", {"waba": ACCOUNT}),
    "a text for fields": ("account_update", {"waba": ACCOUNT, "event": "X", "fields": "y"}),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_order_is_refused_with_a_sentence(simulator: Simulator, name: str) -> None:
    path, document = INVALID[name]
    answer = simulator.client.post(f"{simulator.control_address}/control/{path}", json=document)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")


def test_outage_of_the_provider_meets_management_calls(second: Simulator) -> None:
    second.fault(on="provider", kind="error", status=503, code=2)
    assert refusal(graph(second, "GET", f"{ACCOUNT}/phone_numbers")) == (2, None)
    assert graph(second, "GET", f"{ACCOUNT}/phone_numbers")["data"]
    assert CUSTOMER not in second.log_text()
