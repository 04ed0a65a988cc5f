"""No request with a key of one tenant shows or changes anything of another, whatever ids of it the request names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.api.lists import encoded
from shared.domain.tenants import Scope, Tenant
from shared.operations.registry import set_tenant
from shared.pipeline.registry import EntryKind
from tests.support.api_service import ApiService
from tests.support.parts import NOW, a_reply, an_event, ended

NAME, NUMBER, ACCOUNT, CONTACT, WORDS = "Canary Bakers", "20177700001", "920177700001", "17770004444", "canary words"
CANARIES = (NAME, NUMBER, ACCOUNT, CONTACT, WORDS, "bakery")
TOKEN = "EAAG-token"


@dataclass(frozen=True)
class Theirs:
    """What tenant bakery has, and a key of tenant clinic with every scope."""

    ids: Sequence[str]
    cursor: str
    key: str


@pytest.fixture
def theirs(api: ApiService) -> Theirs:
    (sender,) = api.tenant("bakery", NUMBER)
    set_tenant(api.store.port, api.clock, "bakery", lambda it: Tenant(it.id, NAME))
    api.tenant("clinic", "301")
    of_bakery = {"tenant": "bakery", "sender": NUMBER, "contact": CONTACT}
    payload = {"type": "text", "content": {"body": WORDS}, "to": f"+{CONTACT}"}
    records = [
        an_event(1, **of_bakery),
        a_reply(2, **of_bakery, payload=payload),
        a_reply(3, **of_bakery, payload=payload, **ended("dead", reason="permanent")),
    ]
    for record in records:
        api.store.port.create(record)
    api.provider.numbers[ACCOUNT, NUMBER] = TOKEN
    key_of_bakery = api.key("bakery").split("_")[1]
    operators = api.key(None).split("_")[1]
    cursor = encoded((NOW.isoformat(timespec="microseconds"), records[2].key)) or ""
    ids = (*(record.key for record in records), sender.id, "bakery", key_of_bakery, operators)
    return Theirs(ids, cursor, api.key("clinic", *Scope))


def of_bakery(api: ApiService) -> Any:
    """Everything that is stored of tenant bakery, and of operators."""
    store = api.store.port
    entries = [store.entry_page(kind, tenant, None, 100) for kind in EntryKind for tenant in ("bakery", "")]
    senders = store.entry_page(EntryKind.SENDER, "bakery", None, 100)
    marks = [store.marks(entry.name.id) for entry in senders]
    return store.history("bakery", None, None, None, 100).records, entries, marks


TEXT = {"to": "+15550002222", "text": "hello"}
BODIES: dict[str, Callable[[str], Any]] = {
    "/v1/messages": lambda id: TEXT | {"from": id},
    "/v1/messages/batch": lambda id: {"messages": [TEXT | {"from": id}, TEXT | {"from": NUMBER}]},
    "/v1/dead-letters/replay": lambda id: {"all": True} | ({"tenant": "bakery"} if id == "bakery" else {}),
    "/v1/dead-letters/discard": lambda id: {"sender": id if len(id) == 40 else "0a" * 20, "reason": "not mine"},
    "/v1/dead-letters/<id>/replay": lambda _: {"may_double": True},
    "/v1/dead-letters/<id>/discard": lambda _: {"reason": "not mine"},
    "/v1/tenants": lambda _: {"id": "bakery"},
    "/v1/tenants/<id>": lambda _: {"name": "mine now"},
    "/v1/senders": lambda id: {
        "provider": "meta",
        "id": NUMBER,
        "account": ACCOUNT,
        "token": TOKEN,
        "tenant": "bakery" if id == "bakery" else None,
    },
    "/v1/senders/<id>/reconnect": lambda _: {"token": TOKEN},
    "/v1/keys": lambda id: {"scopes": ["read"], "tenant": "bakery" if id == "bakery" else None},
}


def routes_of(api: ApiService) -> list[tuple[str, str]]:
    return sorted(
        (method, rule.rule)
        for rule in api.app.url_map.iter_rules()
        if rule.rule.startswith("/v1/")
        for method in rule.methods or ()
        if method not in ("HEAD", "OPTIONS")
    )


def answer_of(api: ApiService, theirs: Theirs, route: tuple[str, str], id: str, query: str) -> str:
    method, rule = route
    body = BODIES[rule](id) if rule in BODIES and method in ("POST", "PATCH") else None
    api.clock.go(1)
    answer = api.call(method, f"{rule.replace('<id>', id)}{query}", body, key=theirs.key)
    assert answer.status_code < 500
    return str(answer.text)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_sequence_of_requests_shows_or_changes_what_another_tenant_has(
    api: ApiService, theirs: Theirs, data: st.DataObject
) -> None:
    before = of_bakery(api)
    request = st.tuples(
        st.sampled_from(routes_of(api)),
        st.sampled_from(theirs.ids),
        st.sampled_from(["", "?tenant=bakery", f"?cursor={theirs.cursor}", f"?sender={theirs.ids[3]}"]),
    )
    for asked in data.draw(st.lists(request, min_size=1, max_size=20)):
        answer = answer_of(api, theirs, *asked)
        assert not [canary for canary in CANARIES if canary in answer], asked
    assert of_bakery(api) == before


def test_each_route_answers_for_their_ids_as_for_ids_that_do_not_exist(api: ApiService, theirs: Theirs) -> None:
    before = of_bakery(api)
    nobodys = {40: "0a" * 20, 16: "0a" * 8}
    for route in routes_of(api):
        for id in theirs.ids:
            said = answer_of(api, theirs, route, id, "")
            assert not [canary for canary in CANARIES if canary in said], (route, id)
            if "<id>" in route[1]:
                assert said == answer_of(api, theirs, route, nobodys.get(len(id), "nobody"), ""), (route, id)
    assert of_bakery(api) == before


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/dead-letters", "/v1/tenants", "/v1/senders", "/v1/keys"])
def test_list_of_another_tenant_is_answered_like_that_of_none(api: ApiService, theirs: Theirs, path: str) -> None:
    one, other = (api.call("GET", f"{path}?tenant={tenant}", key=theirs.key) for tenant in ("bakery", "nobody"))
    assert (one.status_code, one.data) == (404, other.data)
