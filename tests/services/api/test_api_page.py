"""docs/api.md: each curl example is sent to the app as it stands, each route has one, and each code is in the table."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from services.api.problems import STATUS
from shared.domain.tenants import Tenant
from shared.operations.registry import add_tenant
from tests.support.api_service import ApiService
from tests.support.parts import a_reply, ended

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
EXAMPLES = re.findall(r"^    (curl .+)$", PAGE, re.M)


def request_of(command: str) -> tuple[str, str, dict[str, str], Any]:
    """Method, path, headers and body of a curl command."""
    words = shlex.split(command)[1:]
    method, path, headers, body = None, "", {}, None
    while words:
        match words.pop(0):
            case "-s":
                pass
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "--json":
                body = json.loads(words.pop(0))
            case url:
                path = url.removeprefix("$API")
    return method or ("POST" if body is not None else "GET"), path, headers, body


@pytest.fixture
def names(api: ApiService) -> dict[str, str]:
    """What the variables of the page stand for."""
    api.provider.numbers["9201", "201"] = "second"
    letter = a_reply(2, **ended("dead", reason="permanent"))
    message = a_reply(3)
    for record in (letter, message):
        api.store.port.create(record)
    add_tenant(api.store.port, api.clock, Tenant("school"), 20)
    return {
        "AUTH": f"Authorization: Bearer {api.key(None)}",
        "MESSAGE": message.key,
        "LETTER": letter.key,
        "KEY_ID": api.key("default").split("_")[1],
    }


def test_each_example_of_the_page_succeeds_in_its_order(api: ApiService, names: dict[str, str]) -> None:
    for example in EXAMPLES:
        api.clock.go(1)
        command = re.sub(r"\$(AUTH|MESSAGE|LETTER|SENDER|KEY_ID)\b", lambda found: names[found[1]], example)
        method, path, headers, body = request_of(command)
        answer = api.call(method, path, body, key="", headers=headers)
        assert 200 <= answer.status_code < 300, (example, answer.text)
        if (method, path) == ("POST", "/v1/senders"):
            names["SENDER"] = answer.get_json()["id"]


def test_each_route_has_an_example(api: ApiService) -> None:
    shown = set()
    for example in EXAMPLES:
        method, path, _, _ = request_of(re.sub(r"\$(MESSAGE|LETTER|SENDER|KEY_ID)\b", "x", example))
        shown.add((method, api._rule(method, path.partition("?")[0])))
    routes = {
        (method, rule.rule)
        for rule in api.app.url_map.iter_rules()
        if rule.rule.startswith("/v1/")
        for method in rule.methods or ()
        if method not in ("HEAD", "OPTIONS")
    }
    assert {route for route in routes if not str(route[1]).startswith("/v1/admin")} <= shown


def test_page_has_every_code_with_its_status() -> None:
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (\d{3}) \|", PAGE, re.M))
    assert rows == {code: str(status.value) for code, status in STATUS.items()}
