"""pombo.client against the API service: each method does what its route does, and a message counts once."""

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from pombo import client as module
from pombo.client import Accepted, Client, NewMessage, Refused, Retry
from services.api import dead_letter_types, health_types, message_types, registry_types
from shared.domain.errors import StoreUnavailable
from tests.support.parts import NOW, SENDER, a_reply, ended
from tests.support.served_api import ServedApi

TO = "+15550002222"


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def client(served_api: ServedApi, slept: list[float]) -> Client:
    return Client(served_api.url, served_api.service.key(), sleep=slept.append)


def test_message_whose_answer_was_lost_is_sent_again_and_counts_once(
    served_api: ServedApi, client: Client, slept: list[float]
) -> None:
    served_api.lost = 1

    accepted = client.send(NewMessage(TO, "Hello"))

    (stored,) = client.messages()
    assert (stored.id, stored.content, stored.contact) == (accepted.id, {"body": "Hello"}, "15550002222")
    assert len(slept) == 1


def test_store_that_is_away_is_waited_for_as_the_api_says(
    served_api: ServedApi, client: Client, slept: list[float]
) -> None:
    api = served_api.service
    left = [1]

    def away_once(name: str, *_: Any) -> Exception | None:
        return StoreUnavailable() if name in ("create", "plan", "change", "add") and left and left.pop() else None

    api.store.before = away_once
    client.send(NewMessage(TO, "Hello"))
    assert slept == [5]
    assert len(list(client.messages())) == 1


def test_whole_message_reaches_the_record(served_api: ServedApi, client: Client) -> None:
    content = {"name": "reminder", "language": {"code": "en"}}
    tomorrow = served_api.service.clock.now() + timedelta(days=1)
    accepted = client.send(
        NewMessage(
            TO,
            from_=SENDER,
            type="template",
            content=content,
            send_at=tomorrow,
            retry=Retry(3, "15s"),
            metadata={"visit": 17},
        ),
        idempotency_key="order-17",
    )
    record = served_api.service.stored(accepted.id)
    assert (record.sender, record.payload["content"]) == (SENDER, content)
    message = client.message(accepted.id)
    assert (message.shown, message.why, message.metadata) == ("pending", "waiting", {"visit": 17})
    assert (message.send_at, message.created_at) == (tomorrow, record.received_at)
    assert [moment.what for moment in message.timeline] == ["planned"]


def test_same_key_gives_the_first_answer_and_refuses_another_message(client: Client) -> None:
    first = client.send(NewMessage(TO, "Hello"), idempotency_key="k")
    assert client.send(NewMessage(TO, "Hello"), idempotency_key="k") == first
    with pytest.raises(Refused) as caught:
        client.send(NewMessage(TO, "Bye"), idempotency_key="k")
    assert (caught.value.code, caught.value.status) == ("IDEMPOTENCY_CONFLICT", 422)


def test_batch_reports_each_message(client: Client) -> None:
    accepted, refused = client.send_batch([NewMessage(TO, "Hello"), NewMessage("5550002222", "Hello")])
    assert isinstance(accepted, Accepted)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.field, refused.title) == ("INVALID_REQUEST", "to", "Bad Request")


def test_waiting_message_is_cancelled_and_an_unknown_one_is_not_found(client: Client) -> None:
    waiting = client.send(NewMessage(TO, "Hello", delay="2h"))
    assert client.cancel(waiting.id).shown == client.cancel(waiting.id).shown == "cancelled"
    with pytest.raises(Refused, match="NOT_FOUND"):
        client.cancel("0" * 40)


def test_list_goes_on_until_the_last_page_and_follows_filters(served_api: ServedApi, client: Client) -> None:
    api = served_api.service
    for place in range(103):
        api.store.port.create(a_reply(place))
        api.clock.go(1)
    assert len({each.id for each in client.messages()}) == 103
    assert list(client.messages(direction="inbound")) == []
    assert list(client.messages(since=NOW + timedelta(days=9), until=NOW + timedelta(days=10), state="dead")) == []


def test_dead_letters_are_listed_replayed_and_discarded(served_api: ServedApi, client: Client) -> None:
    letters = [a_reply(place, **ended("dead", reason="permanent")) for place in (2, 3)]
    for letter in letters:
        served_api.service.store.port.create(letter)

    assert {each.id for each in client.dead_letters(errors=["permanent"])} == {each.key for each in letters}
    (one, other) = client.dead_letters()
    assert one.preview is not None
    assert one.preview.contact
    assert client.replay(one.id, dry_run=True).outcome == "replayed"
    assert client.replay(one.id).outcome == client.replay(one.id).outcome == "replayed", "safe to repeat"
    decided = client.discard(other.id, "a wrong number")
    assert decided.outcome == client.discard(other.id, "a wrong number").outcome == "discarded"
    assert decided.letter is not None
    assert decided.letter.at == other.at
    assert list(client.dead_letters()) == []


def test_all_letters_that_match_are_decided_about_page_by_page(served_api: ServedApi, client: Client) -> None:
    port = served_api.service.store.port
    for place in range(105):
        port.create(a_reply(place, **ended("dead", reason="permanent")))
    port.create(a_reply(200, **ended("dead", reason="attempts")))

    would = list(client.replay_all(errors=["permanent"], until=NOW + timedelta(days=1), dry_run=True))
    assert [each.outcome for each in would] == ["replayed"] * 105
    assert len(list(client.dead_letters())) == 106
    assert {each.outcome for each in client.discard_all("a wrong number", errors=["permanent"])} == {"discarded"}
    assert [each.outcome for each in client.replay_all()] == ["replayed"]
    assert list(client.dead_letters()) == []


def test_numbers_and_health_are_shown(served_api: ServedApi, client: Client) -> None:
    api = served_api.service
    (bakery,) = api.tenant("bakery", "201")
    operator = Client(served_api.url, api.key(None))
    assert [(each.id, each.provider_id) for each in operator.senders()] == [(bakery.id, "201")]
    assert list(operator.senders(tenant="default")) == []
    health = client.health()
    assert (health.status, health.queue_depth, health.connected, health.error) == ("healthy", 0, True, None)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (module.Accepted, message_types.AcceptedMessage),
        (module.Message, message_types.Message),
        (module.Moment, message_types.Moment),
        (module.DeadLetter, dead_letter_types.Letter),
        (module.Preview, dead_letter_types.Preview),
        (module.Decided, dead_letter_types.LetterDecided),
        (module.Retry, message_types.Retry),
    ],
)
def test_client_knows_every_field_of_the_document(ours: Any, theirs: Any) -> None:
    assert {each.name for each in fields(ours)} == set(theirs.model_fields)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(module.Health, health_types.WhatsappHealth), (module.Sender, registry_types.SenderShown)],
)
def test_client_reads_only_fields_of_the_document(ours: Any, theirs: Any) -> None:
    assert {each.name for each in fields(ours)} <= set(theirs.model_fields)
