"""Times that must outlast one another: of both services as they are configured, and that a wrong one is noticed."""

import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.dead.decision_context import NEEDED
from shared import config
from shared.bootstrap.api import build_api
from shared.bootstrap.internal import build_internal
from shared.bootstrap.webhook import build_webhook
from shared.config import QUEUE_SETTINGS, environment, settings
from shared.domain import deadline
from shared.domain.errors import QueueUnavailable
from shared.domain.limits import Limits, PostTimes
from shared.net import patience
from shared.net.async_http import CallFailed
from shared.pipeline.intake import Incoming
from shared.stores.redis import connection as redis_client
from shared.stores.sqlite import connection
from tests.support import event_loop
from tests.support.outlasting import LONGEST_DEADLINE, outlasted

TIMEOUTS = ("1s", "29s", "30s", "60s", "600s", "1700s")
"""Of a handler: the least, around what the outbound half needs anyway, the default, long, and the most."""


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def limits_of(service: str, directory: Path, **settings: str) -> Limits:
    environment = {"SQLITE_PATH": str(directory / "pombo.sqlite"), **settings}
    match service:
        case config.WEBHOOK:
            return build_webhook(environment).accept.limits
        case config.API:
            return build_api(environment).accept.limits
    return build_internal(environment).process_inbound.limits


@pytest.mark.parametrize("scale", ["1", "20"])
@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_every_time_outlasts_what_it_has_to_in_all_services(timeout: str, scale: str, tmp_path: Path) -> None:
    given = {"HANDLER_TIMEOUT": timeout, "TIME_SCALE": scale}
    webhook, api, internal = (limits_of(service, tmp_path, **given) for service in config.SERVICES)
    for makes_tasks in (webhook, api):
        assert list(outlasted(makes_tasks, internal, internal.request_timeout, float(scale))) == []
    assert abs(internal.handler_timeout * float(scale) - seconds(float(timeout[:-1]))) < seconds(0.001)


def test_the_longest_handler_leaves_room_below_the_longest_dispatch_deadline(tmp_path: Path) -> None:
    assert limits_of(config.WEBHOOK, tmp_path, HANDLER_TIMEOUT="1700").dispatch_deadline == seconds(1775)
    assert seconds(1775) <= LONGEST_DEADLINE
    with pytest.raises(config.ConfigError):
        limits_of(config.WEBHOOK, tmp_path, HANDLER_TIMEOUT="1701")


@pytest.mark.parametrize(
    ("service", "needed"), [(config.WEBHOOK, QUEUE_SETTINGS), (config.INTERNAL, NEEDED)], ids=["doctor", "dead replay"]
)
def test_the_tasks_of_a_command_wait_as_long_as_those_of_the_services(service: str, needed: frozenset[str]) -> None:
    settings = config.load({"HANDLER_TIMEOUT": "600s"}, service, only=needed)
    assert settings.limits.dispatch_deadline == seconds(675)


LONG = Limits(handler_timeout=seconds(600))
WRONG: dict[str, tuple[Limits, Limits, timedelta, str]] = {
    "a webhook that does not know how long a handler may take": (Limits(), LONG, LONG.request_timeout, "webhook's"),
    "a service that does not": (LONG, Limits(), Limits().request_timeout, "another dispatch deadline"),
    "a send that begins later": (Limits(), Limits(begin_within=seconds(31)), seconds(120), "A send"),
    "a send that takes longer": (Limits(), Limits(post=PostTimes(total=seconds(21))), seconds(120), "A send"),
    "a shorter lease": (Limits(), Limits(outbound_lease=seconds(59)), seconds(120), "A send"),
    "a shorter claim": (Limits(), Limits(claim=seconds(85)), seconds(120), "A probe"),
    "a lease as long as its handler": (
        replace(LONG, inbound_lease_margin=seconds(0)),
        replace(LONG, inbound_lease_margin=seconds(0)),
        seconds(630),
        "A handler's backend",
    ),
    "a request cut before the lease of a message": (
        Limits(),
        Limits(outbound_lease=seconds(91)),
        seconds(120),
        "The outbound lease",
    ),
    "a request cut before the lease of an event": (LONG, LONG, seconds(659), "The inbound lease"),
    "a request cut at the end of its budget": (
        Limits(handler_timeout=seconds(1)),
        Limits(handler_timeout=seconds(1)),
        seconds(90),
        "process_outbound ends",
    ),
    "a sweep that takes longer": (Limits(), Limits(sweep_budget=seconds(91)), seconds(120), "A sweep"),
    "a doubt that ends first": (Limits(), Limits(doubt_window=seconds(90)), seconds(120), "the doubt window"),
    "a budget as long as the least doubt": (
        Limits(),
        Limits(request_budget=seconds(120)),
        seconds(150),
        "the least doubt window",
    ),
    "a request that outlives its tasks": (Limits(), Limits(), seconds(121), "internal's dispatch deadline"),
    "a deadline that Cloud Tasks refuses": (
        Limits(handler_timeout=seconds(1730)),
        Limits(handler_timeout=seconds(1730)),
        seconds(1790),
        "Cloud Tasks' longest",
    ),
    "a memory as short as the redelivery": (
        Limits(inbound_retention=timedelta(days=7)),
        Limits(),
        seconds(120),
        "webhook's memory",
    ),
    "a request longer than any": (Limits(), Limits(), seconds(3601), "Cloud Run's longest"),
}


@pytest.mark.parametrize(("webhook", "internal", "request_", "said"), WRONG.values(), ids=WRONG)
def test_a_time_that_ends_too_early_is_noticed(
    webhook: Limits, internal: Limits, request_: timedelta, said: str
) -> None:
    assert any(said in fault for fault in outlasted(webhook, internal, request_))


@pytest.mark.parametrize(("name", "value"), [("GRACEFUL_SECONDS", 10), ("GRACEFUL_SECONDS", 30), ("END_SECONDS", 8)])
def test_a_service_that_takes_too_long_to_end_is_noticed(
    name: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"tests.support.outlasting.{name}", value)
    assert any("A graceful end" in fault for fault in outlasted(Limits(), Limits(), seconds(120)))


# ---- what the webhook computes from, it is told


class Read(Limits):
    """Limits that note which of them are read."""

    names: set[str] = set()  # noqa: RUF012 - one for all copies, cleared by the test

    def __getattribute__(self, name: str) -> Any:
        Read.names.add(name)
        return super().__getattribute__(name)


def posts() -> Iterator[dict[str, Any]]:
    """One webhook of each kind that leaves a record, a receipt, or a mark."""
    text = {"from": "15550002222", "id": "wamid.1", "timestamp": "1772366400", "type": "text", "text": {"body": "x"}}
    failed = {"id": "wamid.2", "status": "failed", "timestamp": "1772366400", "errors": [{"code": 131042}]}
    for value in (
        {"messages": [text], "metadata": {"phone_number_id": "100000000000001"}},
        {"messages": [text], "metadata": {"phone_number_id": "999000000000009"}},
        {"messages": [{"id": 5}], "metadata": {"phone_number_id": "100000000000001"}},
        {"statuses": [failed], "metadata": {"phone_number_id": "100000000000001"}},
    ):
        change = {"field": "messages", "value": {"messaging_product": "whatsapp", **value}}
        yield {"object": "whatsapp_business_account", "entry": [{"id": "300000000000003", "changes": [change]}]}


def test_webhook_reads_no_limit_that_only_the_internal_service_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the two would compute different values from one setting."""
    monkeypatch.setattr(environment, "Limits", Read)
    webhook = build_webhook({"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "META_APP_SECRET": "secret"})
    monkeypatch.setattr(webhook.queue, "_client", Unreachable())
    Read.names.clear()
    for document in posts():
        body = json.dumps(document).encode()
        signature = "sha256=" + hmac.new(b"secret", body, hashlib.sha256).hexdigest()
        with suppress(QueueUnavailable):
            incoming = Incoming("meta", "POST", "/webhooks/whatsapp", {"x-hub-signature-256": signature}, body)
            event_loop.run(webhook.accept(incoming))
    assert {"message_max_age", "sweep_after", "inbound_retention"} <= Read.names, "what it does compute from"
    told = {setting.name for setting in config.SETTINGS if config.WEBHOOK in setting.services}
    not_told = {limit for name, (limit, _) in settings.LIMIT_OF_SETTING.items() if name not in told}
    assert not_told == {"max_attempts", "doubt_window", "doubt_policy"}
    assert not_told & Read.names == set()


class Unreachable:
    """A client that no call gets through."""

    def post(self, path: str) -> bytes:
        return path.encode()

    def patience(self) -> None: ...

    async def call(self, *_: Any) -> None:
        raise CallFailed


# ---- what a webhook may take


def test_single_event_is_answered_within_5_seconds_during_any_outage() -> None:
    """The store gives up, or answers at the last moment, and then the queue gives up."""
    stores = (patience.PATIENCE, redis_client.PATIENCE, connection.PATIENCE)
    assert max(stores) + patience.PATIENCE <= deadline.FAILURE_SECONDS < 5
    assert deadline.FAILURE_SECONDS < deadline.HEALTHY_SECONDS < 10


@pytest.mark.parametrize("client", [patience, redis_client])
def test_a_silent_connection_leaves_most_of_the_patience_for_a_new_one(client: Any) -> None:
    assert client.FIRST_TRY == 0.7
    assert client.PATIENCE == 2.0
