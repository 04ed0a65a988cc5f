"""Tenants, senders and keys through the API, by the code of the command line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.api.registry_parts import RegistryParts
from shared.bootstrap.api import build_api
from shared.channels.meta.onboarding import MetaOnboarding
from shared.domain.errors import QueueUnavailable, SecretsUnavailable
from shared.domain.identity import credential_fingerprint, sender_id
from shared.domain.marks import Credential, RefusedCredential
from shared.domain.onboarding import OnboardingUnavailable
from shared.domain.tenants import Scope, TenantHandler
from shared.operations.registry import set_tenant
from shared.operations.senders import remove_sender
from tests.support.api_service import ApiService, ids, problem
from tests.support.parts import SENDER

NUMBER, ACCOUNT, TOKEN = "201", "9201", "EAAG-token-of-the-bakery"
CLAIM = {"provider": "meta", "id": NUMBER, "account": ACCOUNT, "token": TOKEN}
DEFAULT_SENDER = sender_id("meta", SENDER)


def post(api: ApiService, path: str, body: Any = None, key: str | None = None) -> Any:
    return api.call("POST", path, body, key=api.key(None) if key is None else key)


def test_parts_are_those_that_the_settings_name(tmp_path: Path) -> None:
    settings = {"TENANT_QUEUES": "7", "WHATSAPP_PHONE_NUMBER_ID": SENDER}
    parts = RegistryParts.of(build_api({"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), **settings}))
    assert (parts.pairs, [sender.id for sender in parts.environment]) == (7, [DEFAULT_SENDER])
    assert isinstance(parts.claims.connect.onboarding, MetaOnboarding)


# ---- tenants


def test_operator_adds_shows_changes_and_removes_a_tenant(api: ApiService) -> None:
    key = api.key(None)
    added = post(api, "/v1/tenants", {"id": "bakery", "name": "Ana's bakery"}, key)
    assert added.status_code == 201
    assert (added.get_json()["queue"], added.get_json()["state"]) == (0, "active")
    changed = api.call("PATCH", "/v1/tenants/bakery", {"in_doubt": "hold"}, key=key).get_json()
    assert (changed["in_doubt"], changed["name"]) == ("hold", "Ana's bakery")
    changed = api.call("PATCH", "/v1/tenants/bakery", {"in_doubt": "deployment", "name": ""}, key=key).get_json()
    assert (changed["in_doubt"], changed["name"]) == (None, "")
    assert api.call("GET", "/v1/tenants/bakery", key=key).get_json() == changed
    assert api.call("DELETE", "/v1/tenants/bakery", key=key).get_json() == {"id": "bakery", "handler_secret": None}
    assert problem(api.call("GET", "/v1/tenants/bakery", key=key)) == (404, "NOT_FOUND", None)


def test_secret_that_a_removed_tenant_leaves_is_named(api: ApiService) -> None:
    api.tenant("bakery")
    handler = TenantHandler("https://bakery.example/pombo", "pombo-handler-bakery")
    set_tenant(api.store.port, api.clock, "bakery", lambda tenant: replace(tenant, handler=handler))
    removed = api.call("DELETE", "/v1/tenants/bakery", key=api.key(None)).get_json()
    assert removed == {"id": "bakery", "handler_secret": "pombo-handler-bakery"}


def test_tenants_are_listed_in_the_order_of_their_ids(api: ApiService) -> None:
    key = api.key(None)
    for name in ("clinic", "bakery", "school"):
        api.tenant(name)
    first = api.call("GET", "/v1/tenants?limit=2", key=key).get_json()
    second = api.call("GET", f"/v1/tenants?limit=2&cursor={first['next']}", key=key).get_json()
    assert (ids(first["items"]), ids(second["items"]), second["next"]) == (["bakery", "clinic"], ["school"], None)


def test_suspended_tenant_is_resumed_and_what_waits_is_woken(api: ApiService) -> None:
    (sender,) = api.tenant("bakery", NUMBER)
    key = api.key(None)
    assert [post(api, "/v1/tenants/bakery/suspend", key=key).get_json()["state"] for _ in range(2)] == ["suspended"] * 2
    assert post(api, "/v1/tenants/bakery/resume", key=key).get_json()["state"] == "active"
    ((drain,),) = api.queue.asked("ensure_drain")
    assert (drain.sender, drain.reason) == (sender.id, "resumed"), "its number may still be unable to send"
    assert (drain.since - api.store.port.time()).total_seconds() == pytest.approx(6, abs=2)


def test_resume_counts_although_the_queue_is_down(api: ApiService) -> None:
    api.tenant("bakery", NUMBER)
    api.is_down(api.queue, QueueUnavailable())
    assert post(api, "/v1/tenants/bakery/resume").status_code == 200


def test_tenant_that_still_has_something_is_not_removed(api: ApiService) -> None:
    api.tenant("bakery", NUMBER)
    answer = api.call("DELETE", "/v1/tenants/bakery", key=api.key(None))
    assert problem(answer) == (400, "INVALID_REQUEST", None)
    assert "1 sender" in answer.get_json()["detail"]


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("id", {}),
        ("id", {"id": "Bakery"}),
        ("id", {"id": "default"}),
        ("id", {"id": "-x"}),
        ("name", {"id": "bakery", "name": "x" * 201}),
        ("name", {"id": "bakery", "name": "a\nb"}),
        ("handler", {"id": "bakery", "handler": "https://x.example"}),
    ],
)
def test_bad_field_of_a_tenant_is_named(api: ApiService, field: str, body: dict[str, Any]) -> None:
    assert problem(post(api, "/v1/tenants", body)) == (400, "INVALID_REQUEST", field)


@pytest.mark.parametrize(("field", "body"), [("body", {}), ("in_doubt", {"in_doubt": "x"}), ("queue", {"queue": 3})])
def test_bad_change_of_a_tenant_is_named(api: ApiService, field: str, body: dict[str, Any]) -> None:
    api.tenant("bakery")
    answer = api.call("PATCH", "/v1/tenants/bakery", body, key=api.key(None))
    assert problem(answer) == (400, "INVALID_REQUEST", field)


def test_tenants_key_sees_its_tenant_alone_and_changes_none(api: ApiService) -> None:
    api.tenant("bakery")
    api.tenant("clinic")
    key = api.key("bakery")
    assert ids(api.call("GET", "/v1/tenants", key=key).get_json()["items"]) == ["bakery"]
    assert api.call("GET", "/v1/tenants/bakery", key=key).status_code == 200
    for id in ("clinic", "nobody"):
        assert problem(api.call("GET", f"/v1/tenants/{id}", key=key)) == (404, "NOT_FOUND", None)
        assert problem(post(api, f"/v1/tenants/{id}/suspend", key=key)) == (404, "NOT_FOUND", None)
    for answer in (
        post(api, "/v1/tenants", {"id": "school"}, key),
        post(api, "/v1/tenants/bakery/suspend", key=key),
        post(api, "/v1/tenants/bakery/resume", key=key),
        api.call("PATCH", "/v1/tenants/bakery", {"name": "x"}, key=key),
        api.call("DELETE", "/v1/tenants/bakery", key=key),
    ):
        assert problem(answer) == (403, "FORBIDDEN", None)


# ---- senders


def test_number_is_connected_by_a_token_that_is_never_shown(api: ApiService) -> None:
    api.tenant("bakery")
    api.provider.numbers[ACCOUNT, NUMBER] = TOKEN
    answer = post(api, "/v1/senders", CLAIM | {"tenant": "bakery"})
    shown = answer.get_json()
    assert answer.status_code == 201
    assert (shown["tenant"], shown["provider_id"], shown["auth"]["state"]) == ("bakery", NUMBER, "connected")
    assert (shown["display"], shown["token_expires_at"] is None) == ("+1 555 000 0001", False)
    assert list(api.provider.secrets.values()) == [TOKEN]
    assert api.store.port.marks(shown["id"]).credential.fingerprint == credential_fingerprint(TOKEN)
    listing = api.call("GET", "/v1/senders", key=api.key(None))
    assert ids(listing.get_json()["items"]) == [shown["id"]]
    assert TOKEN not in answer.text + listing.text


@pytest.mark.parametrize(("said", "order"), [({}, "contact"), ({"order": "sender"}, "sender")])
def test_number_sends_in_order_to_each_contact_unless_asked_otherwise(
    api: ApiService, said: dict[str, str], order: str
) -> None:
    api.tenant("bakery")
    api.provider.numbers[ACCOUNT, NUMBER] = TOKEN
    connected = post(api, "/v1/senders", CLAIM | said, api.key("bakery")).get_json()
    assert api.call("GET", f"/v1/senders/{connected['id']}", key=api.key("bakery")).get_json()["order"] == order


def test_tenant_connects_a_number_that_the_provider_confirms(api: ApiService) -> None:
    api.tenant("bakery")
    api.provider.numbers[ACCOUNT, NUMBER] = TOKEN
    assert post(api, "/v1/senders", CLAIM, api.key("bakery")).get_json()["tenant"] == "bakery"


def test_taken_number_is_answered_like_one_that_does_not_exist(api: ApiService) -> None:
    api.tenant("bakery")
    api.tenant("clinic", "301")
    key = api.key("bakery")
    api.provider.numbers["9301", "301"] = api.provider.numbers["900", SENDER] = TOKEN
    taken = post(api, "/v1/senders", CLAIM | {"id": "301", "account": "9301"}, key)
    ours = post(api, "/v1/senders", CLAIM | {"id": SENDER, "account": "900"}, key)
    unknown = post(api, "/v1/senders", CLAIM, key)
    assert problem(unknown) == (404, "NOT_FOUND", "id")
    assert taken.data == ours.data == unknown.data
    assert api.provider.calls == ["check"] * 3, "the provider is asked each time, and nothing is subscribed"
    assert api.provider.secrets == {}


@pytest.mark.parametrize(("tenant", "account", "number"), [("bakery", ACCOUNT, NUMBER), ("default", "900", SENDER)])
def test_number_that_the_tenant_has_already_is_refused_as_its_own(
    api: ApiService, tenant: str, account: str, number: str
) -> None:
    api.tenant("bakery", NUMBER)
    api.provider.numbers[account, number] = TOKEN
    again = post(api, "/v1/senders", CLAIM | {"id": number, "account": account}, api.key(tenant))
    assert problem(again) == (400, "INVALID_REQUEST", "id")
    assert "already" in again.get_json()["detail"]


def test_operator_reads_who_has_a_taken_number_before_the_provider_is_asked(api: ApiService) -> None:
    api.tenant("bakery")
    api.tenant("clinic", "301")
    answer = post(api, "/v1/senders", CLAIM | {"id": "301", "account": "9301", "tenant": "bakery"})
    assert problem(answer)[:2] == (400, "INVALID_REQUEST")
    assert "clinic" in answer.get_json()["detail"]
    assert api.provider.calls == []


def test_refused_token_is_named_and_nothing_is_kept(api: ApiService) -> None:
    api.tenant("bakery")
    api.provider.numbers[ACCOUNT, NUMBER] = "another"
    for key, tenant in ((api.key(None), {"tenant": "bakery"}), (api.key("bakery"), {})):
        answer = post(api, "/v1/senders", CLAIM | tenant, key)
        assert problem(answer) == (400, "INVALID_REQUEST", "token")
        assert TOKEN not in answer.text
    assert api.provider.secrets == {}


def test_provider_that_does_not_answer_is_a_503(api: ApiService) -> None:
    api.tenant("bakery")
    for error, who in ((OnboardingUnavailable(), "WhatsApp"), (SecretsUnavailable(), "secrets")):
        api.provider.error = error
        answer = post(api, "/v1/senders", CLAIM | {"tenant": "bakery"})
        assert problem(answer) == (503, "UNAVAILABLE", None)
        assert who in answer.get_json()["detail"], "neither the store nor the queue is at fault"


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("provider", {"provider": "acme"}),
        ("id", {"id": "+15550001111"}),
        ("account", {"account": ""}),
        ("token", {"token": ""}),
        ("token", {"token": 7}),
        ("token", {"token": "x" * 4097}),
        ("order", {"order": "any"}),
        ("display", {"display": "a\x07b"}),
        ("tenant", {"tenant": None}),
        ("credential", {"credential": "pombo-credential-x"}),
    ],
)
def test_bad_field_of_a_number_is_named(api: ApiService, field: str, change: dict[str, Any]) -> None:
    api.tenant("bakery")
    answer = post(api, "/v1/senders", CLAIM | {"tenant": "bakery"} | change)
    assert problem(answer) == (400, "INVALID_REQUEST", field)
    assert "x" * 100 not in answer.text
    assert api.provider.calls == []


def test_number_shows_whether_it_can_send(api: ApiService) -> None:
    (sender,) = api.tenant("bakery", NUMBER)
    refused = RefusedCredential("f1", 190, api.clock.now())
    api.store.port.change_marks(
        sender.id, lambda marks: replace(marks, credential=Credential("f1", api.clock.now()), refused=refused)
    )
    shown = api.call("GET", f"/v1/senders/{sender.id}", key=api.key("bakery")).get_json()
    assert (shown["auth"]["state"], shown["auth"]["code"]) == ("needs_reauth", 190)


def test_number_that_is_being_removed_does_not_exist(api: ApiService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its removal was interrupted, so its entry is still there."""

    def ctrl_c(_: float) -> None:
        raise KeyboardInterrupt

    first, second = api.tenant("bakery", NUMBER, "202")
    with monkeypatch.context() as patch:
        patch.setattr(api.clock, "sleep", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            remove_sender(api.store.port, api.store.port, api.clock, first.id)
    for key in (api.key(None), api.key("bakery")):
        listed: list[str] = []
        path = "/v1/senders?limit=1"
        while page := api.call("GET", path, key=key).get_json():
            listed += ids(page["items"])
            if page["next"] is None:
                break
            path = f"/v1/senders?limit=1&cursor={page['next']}"
        assert listed == [second.id]
        assert problem(api.call("GET", f"/v1/senders/{first.id}", key=key))[:2] == (404, "NOT_FOUND")
        again = post(api, f"/v1/senders/{first.id}/reconnect", {"token": TOKEN}, key)
        assert problem(again)[:2] == (404, "NOT_FOUND")
    assert (api.provider.calls, api.queue.asked("ensure_drain")) == ([], [])


def test_environments_number_is_shown_to_its_tenant(api: ApiService) -> None:
    assert api.call("GET", f"/v1/senders/{DEFAULT_SENDER}").get_json()["tenant"] == "default"
    api.tenant("bakery")
    assert problem(api.call("GET", f"/v1/senders/{DEFAULT_SENDER}", key=api.key("bakery")))[0] == 404


def test_reconnect_replaces_the_token_and_wakes_what_waits(api: ApiService) -> None:
    (sender,) = api.tenant("bakery", NUMBER)
    api.provider.numbers[sender.account, NUMBER] = "the-new-token"
    answer = post(api, f"/v1/senders/{sender.id}/reconnect", {"token": "the-new-token"}, api.key("bakery"))
    assert answer.get_json()["auth"]["state"] == "connected"
    assert list(api.provider.secrets.values()) == ["the-new-token"]
    ((drain,),) = api.queue.asked("ensure_drain")
    assert (drain.sender, drain.reason) == (sender.id, "reconnected")
    assert "the-new-token" not in answer.text


def test_reconnect_of_another_tenants_number_is_a_404_and_asks_nobody(api: ApiService) -> None:
    (sender,) = api.tenant("bakery", NUMBER)
    api.tenant("clinic")
    for id in (sender.id, "0a" * 20):
        answer = post(api, f"/v1/senders/{id}/reconnect", {"token": TOKEN}, api.key("clinic"))
        assert problem(answer) == (404, "NOT_FOUND", None)
    assert api.provider.calls == []


def test_environments_number_is_not_reconnected_here(api: ApiService) -> None:
    answer = post(api, f"/v1/senders/{DEFAULT_SENDER}/reconnect", {"token": TOKEN})
    assert problem(answer) == (400, "INVALID_REQUEST", "token")


# ---- keys


def test_key_is_shown_once_and_works(api: ApiService) -> None:
    api.tenant("bakery", NUMBER)
    made = post(api, "/v1/keys", {"tenant": "bakery", "scopes": ["send", "read"]})
    assert made.status_code == 201
    text = made.get_json()["key"]
    assert api.call("GET", "/v1/messages", key=text).status_code == 200
    listing = api.call("GET", "/v1/keys?tenant=bakery", key=api.key(None))
    assert ids(listing.get_json()["items"]) == [made.get_json()["id"]]
    assert text not in listing.text


def test_operator_makes_another_operators_key(api: ApiService) -> None:
    made = post(api, "/v1/keys", {"scopes": ["read"]}).get_json()
    assert (made["tenant"], made["scopes"]) == (None, ["read"])


def test_tenants_key_makes_keys_of_its_tenant_alone(api: ApiService) -> None:
    api.tenant("bakery")
    key = api.key("bakery")
    assert post(api, "/v1/keys", {"scopes": ["read"]}, key).get_json()["tenant"] == "bakery"
    assert problem(post(api, "/v1/keys", {"scopes": ["read"], "tenant": "default"}, key)) == (404, "NOT_FOUND", None)


def test_key_gives_no_scope_that_it_lacks(api: ApiService) -> None:
    key = api.key(None, Scope.MANAGE, Scope.READ)
    answer = post(api, "/v1/keys", {"scopes": ["read", "send"]}, key)
    assert problem(answer) == (403, "FORBIDDEN", None)
    assert "send" in answer.get_json()["detail"]


def test_revoked_key_is_refused_and_stays_listed(api: ApiService) -> None:
    operator = api.key(None)
    made = post(api, "/v1/keys", {"scopes": ["read"], "tenant": "default"}, operator).get_json()
    first, again = (post(api, f"/v1/keys/{made['id']}/revoke", key=operator) for _ in range(2))
    assert first.get_json()["revoked_at"] is not None
    assert again.data == first.data
    assert api.call("GET", "/v1/messages", key=made["key"]).status_code == 401
    listed = api.call("GET", "/v1/keys?tenant=default", key=operator).get_json()["items"]
    assert [one["revoked_at"] for one in listed] == [first.get_json()["revoked_at"]]


def test_keys_of_others_and_of_operators_do_not_exist_for_a_tenant(api: ApiService) -> None:
    api.tenant("bakery")
    theirs, operators, key = api.key("default"), api.key(None), api.key("bakery")
    own = key.split("_")[1]
    assert ids(api.call("GET", "/v1/keys", key=key).get_json()["items"]) == [own]
    for other in (theirs, operators):
        assert problem(post(api, f"/v1/keys/{other.split('_')[1]}/revoke", key=key)) == (404, "NOT_FOUND", None)
        assert api.call("GET", "/v1/messages?tenant=default", key=other).status_code == 200


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("scopes", {}),
        ("scopes", {"scopes": []}),
        ("scopes.0", {"scopes": ["all"]}),
        ("tenant", {"scopes": ["read"], "tenant": "X"}),
    ],
)
def test_bad_field_of_a_key_is_named(api: ApiService, field: str, body: dict[str, Any]) -> None:
    assert problem(post(api, "/v1/keys", body)) == (400, "INVALID_REQUEST", field)


def test_key_of_a_tenant_that_does_not_exist_is_not_made(api: ApiService) -> None:
    assert problem(post(api, "/v1/keys", {"scopes": ["read"], "tenant": "nobody"})) == (404, "NOT_FOUND", None)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/tenants", {"id": "school"}),
        ("POST", "/v1/senders", CLAIM | {"tenant": "default"}),
        ("POST", f"/v1/senders/{DEFAULT_SENDER}/reconnect", {"token": TOKEN}),
        ("POST", "/v1/keys", {"scopes": ["read"]}),
        ("GET", "/v1/keys", None),
        ("POST", f"/v1/keys/{'0' * 16}/revoke", None),
    ],
)
def test_registry_needs_the_scope_manage(api: ApiService, method: str, path: str, body: Any) -> None:
    key = api.key(None, Scope.SEND, Scope.READ, Scope.READ_DEAD)
    assert problem(api.call(method, path, body, key=key)) == (403, "FORBIDDEN", None)


def test_unknown_tenant_of_a_list_is_a_404(api: ApiService) -> None:
    for path in ("/v1/senders", "/v1/keys"):
        assert problem(api.call("GET", f"{path}?tenant=nobody", key=api.key(None))) == (404, "NOT_FOUND", None)
