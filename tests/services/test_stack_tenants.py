"""A second business on a running stack: what it gets, from when on, and that the first one notices nothing."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared.domain.identity import message_event_id
from shared.domain.record import Delivery, State
from tests.support.payloads import envelope, text, value, wire
from tests.support.stack import Stack, as_operator, cli, fails

ACCOUNT = "300000000000777"


@pytest.fixture(scope="module")
def stack(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    with make_stack() as stack:
        yield stack


def run(stack: Stack, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return as_operator(stack, *arguments, "--json", given=given)


def pombo(stack: Stack, *arguments: str, given: str | None = None) -> Any:
    """The JSON that a command prints."""
    result = run(stack, *arguments, given=given)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def write(stack: Stack, contact: str, number: str) -> Callable[[], Delivery | None]:
    """A customer writes to a number. Returns what reads the event's record."""
    message_id = f"wamid.{contact}.{number}"
    answer = stack.post(wire(envelope(value([text(contact, message_id, "hello")], sender=number), account=ACCOUNT)))
    assert answer.status_code == 200
    return lambda: stack.store.get(message_event_id("meta", number, message_id))


def sender_of(number: str, tenant: str, account: str = ACCOUNT) -> tuple[str, ...]:
    return ("--tenant", tenant, "--provider", "meta", "--id", number, "--account", account)


def is_of(event: Delivery | None, tenant: str) -> bool:
    return event is not None and (event.state, event.tenant) == (State.DONE, tenant)


def test_number_of_a_second_business_is_handled_once_it_is_added(stack: Stack, contacts: Callable[[], str]) -> None:
    number = "200000000000901"
    before = write(stack, contacts(), number)()
    assert before is not None
    assert (before.state, before.reason, before.tenant) == (State.DROPPED, "unknown_sender", "")

    assert pombo(stack, "tenants", "add", "bakery") == {"id": "bakery", "queue": 0}
    added = pombo(stack, "senders", "add", *sender_of(number, "bakery"), "--replay")
    event = write(stack, contacts(), number)
    assert event() is not None
    assert event().tenant == "bakery", "at once: that there is no owner is never kept"  # type: ignore[union-attr]
    stack.wait_until(lambda: is_of(event(), "bakery"), "its event is handled")
    stack.wait_until(lambda: is_of(stack.store.get(before.key), "bakery"), "what came before is handled too")
    (sender,) = pombo(stack, "senders", "list", "--tenant", "bakery")["senders"]
    assert (sender["id"], sender["provider_id"]) == (added["id"], number)


def test_first_business_notices_nothing(stack: Stack, contacts: Callable[[], str]) -> None:
    contact = contacts()
    stack.say(contact, "hello")
    stack.wait_until(lambda: stack.texts(contact), "it is answered")
    assert pombo(stack, "senders", "list")["senders"][0]["tenant"] == "default"


def test_message_to_any_number_is_traced_by_its_whatsapp_id(stack: Stack, contacts: Callable[[], str]) -> None:
    number, contact = "200000000000902", contacts()
    pombo(stack, "tenants", "add", "traced")
    pombo(stack, "senders", "add", *sender_of(number, "traced", account="300000000000778"))
    event = write(stack, contact, number)
    stack.wait_until(lambda: is_of(event(), "traced"), "its event is handled")
    for option in ((), ("--tenant", "traced")):
        traced = pombo(stack, "trace", f"wamid.{contact}.{number}", *option)
        assert traced["correlation_id"] == event().correlation_id  # type: ignore[union-attr]


def test_number_is_connected_by_the_token_that_whatsapp_knows(stack: Stack) -> None:
    number, account, token = "200000000000911", "300000000000911", "token-of-the-connected"
    known = {"phone_number_id": number, "waba": account, "token": token, "display": "15550004444"}
    stack.control("POST", "senders", known | {"subscribed": False})
    pombo(stack, "tenants", "add", "connected")
    add = ("senders", "add", *sender_of(number, "connected", account), "--token", "-")

    refused = fails(run(stack, *add, given="another-token"))
    assert "token" in refused, "why it was refused"
    assert "another-token" not in refused
    assert pombo(stack, "senders", "list", "--tenant", "connected")["senders"] == []
    id = pombo(stack, *add, given=token)["id"]
    shown = pombo(stack, "senders", "show", id)
    assert (shown["display"], shown["auth"]["state"]) == ("15550004444", "connected")
    subscribed = {sender["phone_number_id"]: sender["subscribed"] for sender in stack.control("GET", "senders")}
    assert subscribed[number] is True
    secrets = stack.data_dir / "tenants.secrets.json"
    assert json.loads(secrets.read_text())[shown["credential"]] == [token]
    assert secrets.stat().st_mode & 0o777 == 0o600

    reconnect = ("senders", "reconnect", id, "--token", "-")
    fails(run(stack, *reconnect, given="another-token"))
    stack.control("POST", "tokens", {"token": token, "replace": "its-new-token"})
    assert pombo(stack, *reconnect, given="its-new-token\n")["auth"]["state"] == "connected"
    assert json.loads(secrets.read_text())[shown["credential"]][-1] == "its-new-token"
    pombo(stack, "senders", "remove", id, "--yes")
    assert shown["credential"] not in json.loads(secrets.read_text())


def connected(stack: Stack, tenant: str, number: str, account: str, token: str) -> str:
    """A tenant with a number that has this token. Returns the sender's id."""
    stack.control("POST", "senders", {"phone_number_id": number, "waba": account, "token": token})
    pombo(stack, "tenants", "add", tenant)
    added = pombo(stack, "senders", "add", *sender_of(number, tenant, account), "--token", "-", given=token)
    return str(added["id"])


def waiting(stack: Stack, contacts: Callable[[], str], number: str, why: str) -> str:
    """A new customer whose reply waits for this reason."""
    contact = contacts()
    stack.say(contact, "hello", phone_number_id=number)
    stack.wait_until(lambda: any(line.get("reason") == why for line in stack.logs("outbound_waiting")), why)
    return contact


def test_waiting_messages_go_once_their_tenant_is_resumed(stack: Stack, contacts: Callable[[], str]) -> None:
    """Without a drain they would wait for half a minute, which is ten minutes at this time scale."""
    number = "200000000000921"
    connected(stack, "paused", number, "300000000000921", "token-of-the-paused")
    pombo(stack, "tenants", "suspend", "paused")
    contact = waiting(stack, contacts, number, "suspended")
    assert stack.texts(contact) == []
    pombo(stack, "tenants", "resume", "paused")
    stack.wait_until(lambda: stack.logs("sender_drained", tenant="paused", reason="resumed"), "the drain begins", 20)
    stack.wait_quiet(contact, ["hello"])


def test_waiting_messages_go_once_their_number_is_reconnected(stack: Stack, contacts: Callable[[], str]) -> None:
    number, token = "200000000000931", "token-of-the-expired"
    id = connected(stack, "expired", number, "300000000000931", token)
    stack.control("POST", "tokens", {"token": token, "state": "expired"})
    contact = contacts()
    stack.say(contact, "hello", phone_number_id=number)
    stack.wait_until(lambda: stack.logs("tenant_needs_reauth", tenant="expired"), "the token is refused")
    assert pombo(stack, "senders", "show", id)["auth"]["state"] == "needs_reauth"
    stack.control("POST", "tokens", {"token": token, "replace": "token-of-the-reconnected"})
    reconnected = pombo(stack, "senders", "reconnect", id, "--token", "-", given="token-of-the-reconnected")
    assert reconnected["auth"]["state"] == "connected"
    stack.wait_until(lambda: stack.logs("tenant_reconnected", tenant="expired"), "the drain begins", 20)
    stack.wait_quiet(contact, ["hello"])


def test_tenant_that_is_removed_leaves_its_number_to_nobody(stack: Stack, contacts: Callable[[], str]) -> None:
    number = "200000000000903"
    pombo(stack, "tenants", "add", "short")
    added = pombo(stack, "senders", "add", *sender_of(number, "short", account="300000000000779"))
    remove = ("tenants", "remove", "short", "--yes", "--data-dir", str(stack.data_dir))
    assert "it still has 1 sender" in fails(cli(*remove))
    pombo(stack, "senders", "remove", added["id"], "--yes")
    pombo(stack, "tenants", "remove", "short", "--yes")

    event = write(stack, contacts(), number)()
    assert event is not None
    assert (event.reason, event.tenant) == ("unknown_sender", "")
    assert "short" not in {tenant["id"] for tenant in pombo(stack, "tenants", "list")["tenants"]}


def test_no_log_line_has_a_number_or_an_account_as_such(stack: Stack) -> None:
    stack.check_logs()
    assert ACCOUNT not in (stack.data_dir / "logs.jsonl").read_text()
