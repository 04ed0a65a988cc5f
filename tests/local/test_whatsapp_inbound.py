"""What the simulator sends when a person writes.

Shapes: developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/reference/messages (May to August
2026) and Meta's page on business-scoped user ids (5 November 2026).
"""

import json
from collections.abc import Iterator

import pytest

from local.whatsapp.webhook_payloads import SimulatedContact, name_of
from tests.support.whatsapp_harness import BSUID, CUSTOMER, SENDER, Simulator, Webhook, running, until


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Simulator, Webhook]]:
    with running(tmp_path_factory.mktemp("simulator"), "--time-scale", "20") as started:
        yield started


@pytest.fixture
def simulator(world: tuple[Simulator, Webhook]) -> Simulator:
    simulator, webhook = world
    simulator.quiet()
    webhook.posts.clear()
    return simulator


@pytest.fixture
def webhook(world: tuple[Simulator, Webhook]) -> Webhook:
    return world[1]


def test_a_message_comes_in_metas_envelope_and_signed(simulator: Simulator, webhook: Webhook) -> None:
    (wamid,) = simulator.inbound(content={"body": "hello"})
    simulator.quiet()
    (post,) = webhook.posts
    assert post.is_signed
    document = json.loads(post.body)
    assert document["object"] == "whatsapp_business_account"
    assert document["entry"][0]["changes"][0]["field"] == "messages"
    assert post.value["metadata"] == {"display_phone_number": "15550001111", "phone_number_id": SENDER}
    (message,) = post.value["messages"]
    assert message["timestamp"].isdecimal()
    assert (message["id"], message["from"], message["type"]) == (wamid, CUSTOMER, "text")
    assert message["text"] == {"body": "hello"}


def test_a_number_comes_with_a_user_id_that_stays_the_same(simulator: Simulator, webhook: Webhook) -> None:
    """In every messages webhook since April 2026."""
    simulator.inbound()
    simulator.inbound()
    simulator.quiet()
    user_ids = {post.value["messages"][0]["from_user_id"] for post in webhook.posts}
    assert user_ids == {post.value["contacts"][0]["user_id"] for post in webhook.posts}
    assert len(user_ids) == 1
    assert webhook.posts[0].value["contacts"][0]["wa_id"] == CUSTOMER


def test_a_username_user_has_no_number_anywhere(simulator: Simulator, webhook: Webhook) -> None:
    simulator.inbound(user_id=BSUID)
    simulator.quiet()
    (post,) = webhook.posts
    assert "from" not in post.value["messages"][0]
    assert post.value["messages"][0]["from_user_id"] == BSUID
    (contact,) = post.value["contacts"]
    assert "wa_id" not in contact
    assert (contact["user_id"], contact["profile"]["username"]) == (BSUID, "ana.exemplo")


def test_the_body_is_escaped_so_that_only_its_raw_bytes_verify(simulator: Simulator, webhook: Webhook) -> None:
    """Seen on the wire: \\u00e9 for é, \\/ for /, \\u0040 for @ (whatsapp-api-js#290, tawn33y#60)."""
    simulator.inbound(content={"body": "é a@b </x> 100%"})
    simulator.quiet()
    (post,) = webhook.posts
    assert post.is_signed
    assert b"\\u00e9 a\\u0040b \\u003C\\/x> 100\\u0025" in post.body
    assert post.value["messages"][0]["text"]["body"] == "é a@b </x> 100%"
    assert json.dumps(json.loads(post.body)).encode() != post.body


def test_a_given_id_is_used(simulator: Simulator) -> None:
    assert simulator.inbound(id="wamid.GIVEN") == ["wamid.GIVEN"]


def test_a_batch_is_one_post_of_several_messages(simulator: Simulator, webhook: Webhook) -> None:
    ids = simulator.inbound(id="wamid.B", batch=3)
    simulator.quiet()
    assert ids == ["wamid.B.1", "wamid.B.2", "wamid.B.3"]
    assert [post.message_ids for post in webhook.posts] == [ids]


def test_a_batch_without_an_id_has_different_ids(simulator: Simulator) -> None:
    assert len(set(simulator.inbound(batch=1000))) == 1000


def test_times_delivers_the_same_bytes_again(simulator: Simulator, webhook: Webhook) -> None:
    simulator.inbound(times=3)
    simulator.quiet()
    assert len(webhook.posts) == 3
    assert len({post.body for post in webhook.posts}) == 1


def test_rebatch_delivers_the_same_messages_in_other_posts(simulator: Simulator, webhook: Webhook) -> None:
    ids = simulator.inbound(batch=4, times=3, rebatch=True)
    simulator.quiet()
    groups = sorted((post.message_ids for post in webhook.posts), key=len)
    assert sorted(wamid for group in groups for wamid in group) == sorted(ids * 3)
    assert [len(group) for group in groups] == [1, 2, 2, 3, 4]
    assert all(post.is_signed for post in webhook.posts)


def test_rebatch_cuts_a_failed_post_differently(simulator: Simulator, webhook: Webhook) -> None:
    webhook.answers += [500]
    ids = simulator.inbound(batch=4, rebatch=True)
    until(lambda: len(webhook.posts) == 3, "the failed post and its two parts")
    assert webhook.posts[0].message_ids == ids
    assert sorted(post.message_ids for post in webhook.posts[1:]) == sorted([ids[:2], ids[2:]])
    assert simulator.quiet()["pending"] == 0


def test_an_interactive_reply_is_metas_object(simulator: Simulator, webhook: Webhook) -> None:
    reply = {"type": "button_reply", "button_reply": {"id": "yes", "title": "Yes"}}
    simulator.inbound(type="interactive", content=reply, fields={"context": {"from": "15550001111", "id": "wamid.Q"}})
    simulator.quiet()
    (message,) = webhook.posts[0].value["messages"]
    assert message["interactive"] == reply
    assert message["context"]["id"] == "wamid.Q"


EVERY_TYPE = {
    "image": {"id": "900000000000001", "mime_type": "image/jpeg", "caption": "x"},
    "audio": {"id": "900000000000002", "voice": True},
    "location": {"latitude": 1.5, "longitude": 2.5},
    "contacts": [{"name": {"formatted_name": "Ana"}}],
    "interactive": {"type": "nfm_reply", "nfm_reply": {"response_json": '{"a":1}'}},
    "button": {"payload": "P1", "text": "Yes"},
    "order": {"catalog_id": "7", "product_items": []},
    "reaction": {"message_id": "wamid.Q", "emoji": ""},
    "edit": {"original_message_id": "wamid.Q", "message": {"type": "text", "text": {"body": "new"}}},
    "revoke": {"original_message_id": "wamid.Q"},
    "hologram": {"depth": 3},
}


@pytest.mark.parametrize("type_", EVERY_TYPE)
def test_customer_can_send_every_type(simulator: Simulator, webhook: Webhook, type_: str) -> None:
    simulator.inbound(type=type_, content=EVERY_TYPE[type_])
    simulator.quiet()
    (message,) = webhook.posts[0].value["messages"]
    assert (message["type"], message[type_]) == (type_, EVERY_TYPE[type_])


def test_unsupported_message_comes_with_its_error(simulator: Simulator, webhook: Webhook) -> None:
    simulator.inbound(type="unsupported", content={"type": "poll_creation"})
    simulator.quiet()
    (message,) = webhook.posts[0].value["messages"]
    assert (message["unsupported"], message["errors"][0]["code"]) == ({"type": "poll_creation"}, 131051)


def test_content_wrapped_in_its_type_is_understood(simulator: Simulator, webhook: Webhook) -> None:
    simulator.inbound(content={"text": {"body": "hello"}})
    simulator.quiet()
    assert webhook.posts[0].value["messages"][0]["text"] == {"body": "hello"}


def test_message_can_lack_its_object(simulator: Simulator, webhook: Webhook) -> None:
    simulator.inbound(type="unsupported", content=None, fields={"errors": [{"code": 131051}]})
    simulator.quiet()
    (message,) = webhook.posts[0].value["messages"]
    assert "unsupported" not in message
    assert message["errors"] == [{"code": 131051}]


def test_a_system_message_comes_without_contacts(simulator: Simulator, webhook: Webhook) -> None:
    simulator.inbound(type="system", content={"type": "user_changed_number", "wa_id": "15550003333"})
    simulator.quiet()
    assert "contacts" not in webhook.posts[0].value


def test_messages_of_one_post_can_differ(simulator: Simulator, webhook: Webhook) -> None:
    order = {"from": CUSTOMER, "type": "text", "contents": [{"body": "one"}, {"body": "two"}], "id": "wamid.A"}
    assert simulator.control("POST", "inbound", order)["message_ids"] == ["wamid.A.1", "wamid.A.2"]
    simulator.quiet()
    (post,) = webhook.posts
    said = [(message["id"], message["text"]["body"]) for message in post.value["messages"]]
    assert said == [("wamid.A.1", "one"), ("wamid.A.2", "two")]


def test_another_sender_can_be_written_to(simulator: Simulator, webhook: Webhook) -> None:
    simulator.inbound(phone_number_id="100000000000009")
    simulator.quiet()
    assert webhook.posts[0].value["metadata"]["phone_number_id"] == "100000000000009"


def test_lone_surrogates_and_nul_pass_through_as_escapes(simulator: Simulator, webhook: Webhook) -> None:
    body = b'{"from":"15550002222","type":"text","content":{"body":"a\\u0000b\\ud83d"}}'
    assert simulator.client.post(f"{simulator.address}/control/inbound", content=body).status_code == 200
    simulator.quiet()
    assert b"a\\u0000b\\ud83d" in webhook.posts[0].body


@pytest.mark.parametrize(
    "order",
    [
        [],
        {"type": "text", "content": {"body": "hi"}},
        {"from": CUSTOMER, "content": {"body": "hi"}},
        {"from": CUSTOMER, "type": "text"},
        {"from": 15550002222, "type": "text", "content": {}},
        {"from": CUSTOMER, "type": "text", "content": {}, "contents": [{}]},
        {"from": CUSTOMER, "type": "text", "contents": []},
        {"from": CUSTOMER, "type": "text", "contents": {"body": "hi"}},
        {"from": CUSTOMER, "type": "text", "contents": [{}] * 1001},
        {"from": CUSTOMER, "type": "text", "contents": [{}, {}], "batch": 2},
        {"from": CUSTOMER, "type": "text", "content": {}, "batch": 0},
        {"from": CUSTOMER, "type": "text", "content": {}, "batch": 1001},
        {"from": CUSTOMER, "type": "text", "content": {}, "times": "2"},
        {"from": CUSTOMER, "type": "text", "content": {}, "rebatch": 1},
        {"from": CUSTOMER, "type": "text", "content": {}, "wamid": "wamid.A"},
    ],
)
def test_invalid_order_is_answered_with_a_sentence(simulator: Simulator, order: object) -> None:
    answer = simulator.client.post(f"{simulator.address}/control/inbound", json=order)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")


def test_two_customers_have_two_names_and_each_keeps_its_own() -> None:
    ana, other, username = (
        SimulatedContact("15550002222", "US.1"),
        SimulatedContact("15550003333", "US.2"),
        SimulatedContact(None, "US.3"),
    )

    assert name_of(ana) == "Ana Exemplo"
    assert name_of(SimulatedContact("15550002222", None)) == name_of(ana), "by the number, where there is one"
    assert len({name_of(ana), name_of(other), name_of(username)}) == 3
