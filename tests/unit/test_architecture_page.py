"""docs/architecture.md: the rooms are those of the import rules, and one webhook's bytes take the way that it tells."""

import ast
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from handlers.echo import handle
from shared.channels.meta import messages, webhook
from shared.channels.meta.channel import MetaChannel
from shared.channels.meta.requests import request_body
from shared.domain.delivery.create import create
from shared.domain.delivery.lease import lease
from shared.domain.delivery.settle import settle
from shared.domain.events import MessageReceived
from shared.domain.guards import Go
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.record import Delivery, Kind, Task
from shared.domain.tasks import task_body
from shared.domain.verdicts import Replied
from tests.unit import files_page
from tests.unit.test_import_directions import ADAPTER, RULES, SERVICE_COMMON

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = dict(re.findall(r"^\| `([\w.]+)` \| .+ \| (.+) \|$", PAGE, re.M))
BLOCKS = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S)]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits()


def test_the_rooms_are_those_of_the_import_rules() -> None:
    not_rooms = {"shared", "services"}
    assert set(ROOMS) == set(RULES) - not_rooms


def _said(name: str) -> str:
    """What the page has to say of a room, by the rule of the test of imports."""
    rule = RULES[name]
    if name == "shared.bootstrap":
        return "all of `shared`"
    if rule.may == ("shared",):
        return "all of `shared`"
    if set(SERVICE_COMMON) <= set(rule.may):
        named = ", ".join(f"`{module}`" for module in rule.may if module not in SERVICE_COMMON)
        return f"{named}, and what the services share"
    named = ", ".join(f"`{module}`" for module in rule.may) or "nothing"
    return named if rule.third_party else f"{named}{';' if rule.may else ', and'} no library"


def test_list_of_files_has_the_first_sentence_of_every_module() -> None:
    assert files_page.PAGE.read_text() == files_page.page(), "run python tests/unit/files_page.py"


def test_first_sentence_ends_before_the_second_and_is_required(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""A lease: who holds it may settle. It\nends.\n\nMore."""\n')
    assert files_page.first_sentence(module) == "A lease: who holds it may settle"
    module.write_text("import json\n")
    with pytest.raises(ValueError, match="has no docstring"):
        files_page.first_sentence(module)


def test_each_room_imports_what_the_page_allows() -> None:
    assert {name: _said(name) for name in ROOMS} == ROOMS
    assert ADAPTER.third_party


def _events(body: bytes) -> Any:
    """The one place that knows how a channel is given a POST."""
    return webhook.parse(body).events


def test_one_webhook_becomes_the_record_task_and_request_on_the_page() -> None:
    post, stored, task, reply, request = BLOCKS
    (event,) = _events(json.dumps(post).encode())
    assert isinstance(event, MessageReceived)
    record = _created(event, correlation_id=task["correlation_id"])
    assert record.payload == stored
    assert task_body(Task.of(record)) == task

    run = lease(record, Task.of(record), "a token", Go(), LIMITS, NOW)
    assert run.write is not None
    message = messages.read(run.write)
    assert message is not None
    answer = handle(message)
    assert isinstance(answer, OutboundMessage)
    address = MetaChannel(app_secrets=(), base_url="", version="", post=LIMITS.post).address(message)
    payload = {"type": answer.type, "content": answer.content, "reply_to": answer.reply_to, **address}
    assert payload == reply

    settled = settle(run.write, "a token", Replied((payload,)), LIMITS, NOW, 0.5)
    (sent,) = settled.create
    assert sent.payload == reply
    assert json.loads(request_body(sent.payload, Echo(sent.key, sent.round, sent.correlation_id))) == request


def _created(event: MessageReceived, correlation_id: str) -> Delivery:
    return create(
        Kind.INBOUND,
        event.key,
        provider=event.provider,
        tenant="default",
        sender=event.sender,
        contact=event.contact,
        correlation_id=correlation_id,
        payload=event.payload,
        limits=LIMITS,
        now=NOW,
    )


def test_every_part_on_the_page_is_defined_in_the_named_file() -> None:
    named = re.findall(r"`([\w.]+)`\s\(`([\w/]+\.py)`\)", PAGE)
    assert len(named) >= 15
    missing = [f"{name} in {path}" for name, path in named if not _defines(ROOT / path, name)]
    assert missing == []


def _defines(path: Path, name: str) -> bool:
    *classes, last = name.split(".")
    scope: list[ast.stmt] = ast.parse(path.read_text()).body
    for outer in classes:
        scope = next((node.body for node in scope if isinstance(node, ast.ClassDef) and node.name == outer), [])
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return any(isinstance(node, kinds) and node.name == last for node in scope)


def test_the_steps_are_numbered_without_a_gap() -> None:
    assert [int(number) for number in re.findall(r"^\*\*(\d+)\. ", PAGE, re.M)] == list(range(1, 12))
