"""An update from the revision without a registry, its rollback, and both revisions side by side on one store."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from shared.domain.identity import message_event_id
from shared.domain.record import Kind
from tests.services.conftest import a_contact, settings_for
from tests.support.payloads import of_texts, text
from tests.support.revisions import BEFORE_REGISTRY, checked_out, import_path, lead_queue, service_of
from tests.support.stack import ROOT, Stack, as_operator, server_of, signed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TALKS = 6
"""Customers, each of whom gets three replies."""

NUMBER, ACCOUNT, TOKEN = "200000000000901", "300000000000901", "token-of-the-bakery"

STORES = ("sqlite", "redis", "firestore")
SHARED_STORES = ("redis", "firestore")
"""Those on which several revisions may run at once, as in a rollout."""


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checked_out(BEFORE_REGISTRY, tmp_path_factory.mktemp("before"))


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The store's name, and the settings that lead to its server, which outlives every stack of the test."""
    with server_of(request.param, tmp_path) as settings:
        yield request.param, {name: value for name, value in settings.items() if name != "PID"}


each_store = pytest.mark.parametrize("server", STORES, indirect=True, ids=str)
each_shared_store = pytest.mark.parametrize("server", SHARED_STORES, indirect=True, ids=str)


def stack_of(root: Path, server: tuple[str, Mapping[str, str]], data_dir: Path) -> Stack:
    store, settings = server
    given = settings_for(data_dir, **settings) | {"PYTHONPATH": import_path(root)}
    return Stack(data_dir, ("--no-sweep",), given, store, root)


def say_to_all(stack: Stack) -> dict[str, str]:
    """Each customer asks for three replies. Returns each message's id by customer."""
    return {contact: stack.say(contact, "!list 3") for contact in (a_contact() for _ in range(TALKS))}


def assert_answered_once(stack: Stack, said: Mapping[str, str]) -> None:
    stack.wait_settled(list(said.values()), 120)
    assert {contact: stack.texts(contact) for contact in said} == {contact: ["1", "2", "3"] for contact in said}
    assert {stack.calls(message_id) for message_id in said.values()} == {1}


@each_store
def test_update_sends_each_waiting_reply_once(
    before: Path, server: tuple[str, Mapping[str, str]], tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    with stack_of(before, server, data_dir) as old:
        old.fault("provider", "refuse", times=0)
        said = say_to_all(old)
        old.wait_until(lambda: all(is_planned(old, one) for one in said.values()), "every event has its replies")
    with stack_of(ROOT, server, data_dir) as new:
        new.control("DELETE", "faults")
        assert_answered_once(new, said)
        assert_answered_once(new, say_to_all(new))


def is_planned(stack: Stack, message_id: str) -> bool:
    event = stack.event(message_id)
    return event is not None and event.plan_size == 3


@each_shared_store
def test_rollback_sends_each_waiting_reply_once(
    before: Path, server: tuple[str, Mapping[str, str]], tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    with stack_of(ROOT, server, data_dir) as new:
        new.fault("provider", "refuse", times=0)
        said = say_to_all(new)
        new.wait_until(lambda: all(is_planned(new, one) for one in said.values()), "every event has its replies")
    with stack_of(before, server, data_dir) as old:
        old.control("DELETE", "faults")
        assert_answered_once(old, said)


def add_tenant(stack: Stack) -> None:
    """A second tenant with one number, which the simulator knows by the same token."""
    stack.control("POST", "senders", {"phone_number_id": NUMBER, "waba": ACCOUNT, "token": TOKEN})
    pombo(stack, "tenants", "add", "bakery")
    sender = ("--tenant", "bakery", "--provider", "meta", "--id", NUMBER, "--account", ACCOUNT)
    pombo(stack, "senders", "add", *sender, "--token", "-", given=TOKEN)


def pombo(stack: Stack, *arguments: str, given: str = "") -> None:
    done = as_operator(stack, *arguments, given=given)
    assert done.returncode == 0, done.stderr


@each_shared_store
def test_rollback_keeps_the_messages_of_another_tenant(
    before: Path, server: tuple[str, Mapping[str, str]], tmp_path: Path
) -> None:
    """The revision without a registry sends none of them, and its successor sends each once."""
    data_dir = tmp_path / "data"
    with stack_of(ROOT, server, data_dir) as new:
        add_tenant(new)
        new.fault("provider", "refuse", times=0)
        contacts = [a_contact() for _ in range(TALKS)]
        said = [new.say(contact, "!list 3", phone_number_id=NUMBER) for contact in contacts]
        keys = [message_event_id("meta", NUMBER, one) for one in said]
        new.wait_until(lambda: all(event_is(new, key, 3) for key in keys), "every event has its replies")
    with stack_of(before, server, data_dir) as old:
        old.control("DELETE", "faults")
        assert_answered_once(old, say_to_all(old))
        assert [old.texts(contact) for contact in contacts] == [[]] * TALKS
    with stack_of(ROOT, server, data_dir) as new:
        for contact in contacts:
            new.wait_texts(contact, ["1", "2", "3"], 120)
        assert {entry["phone_number_id"] for entry in new.ledger(contacts[0])} == {NUMBER}


def event_is(stack: Stack, key: str, replies: int) -> bool:
    event = stack.store.get(key)
    return event is not None and event.plan_size == replies


@each_shared_store
@pytest.mark.parametrize("of_old", [Kind.INBOUND, Kind.OUTBOUND], ids=["old one handles", "old one sends"])
def test_both_revisions_on_one_store_do_everything_once(
    before: Path, server: tuple[str, Mapping[str, str]], tmp_path: Path, of_old: Kind
) -> None:
    with (
        stack_of(ROOT, server, tmp_path / "data") as new,
        service_of(new, before, "webhook") as old_webhook,
        service_of(new, before, "internal") as old_internal,
    ):
        lead_queue(new, of_old, old_internal)
        said: dict[str, str] = {}
        for number in range(2 * TALKS):
            contact = a_contact()
            said[contact] = f"wamid.side-by-side-{number}"
            body = of_texts(text(contact, said[contact], "!list 3"))
            urls = [old_webhook, new.described["webhook"]]
            for url in urls if number % 2 else reversed(urls):  # each gets it, and another one gets it first each time
                response = new.http.post(f"{url}/webhooks/whatsapp", content=body, headers=signed(body))
                assert response.status_code == 200
        assert_answered_once(new, said)
