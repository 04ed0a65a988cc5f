"""What WhatsApp may answer to a send, or not answer, and how often a message is sent then."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
import pytest
from google.cloud.tasks_v2 import CloudTasksClient
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from tests.support.stack import Stack

TOKEN = "test_access_token"


@dataclass(frozen=True)
class BlockedNumber:
    """A stack whose number WhatsApp has blocked: whom it was to answer first, and whom meanwhile."""

    stack: Stack
    first: str
    message_id: str
    later: dict[str, str]


@pytest.fixture(scope="module")
def blocked(make_stack: Callable[..., Stack]) -> Iterator[BlockedNumber]:
    """A block lasts ten minutes, which are 30 s here: it begins before the other tests of this file."""
    first, later = "15553000001", ["15553000002", "15553000003"]
    with make_stack() as stack:
        stack.fault("send", "error", code=368, match={"to": first})
        message_id = stack.say(first, "hello")
        stack.wait_until(lambda: stack.marks.block, "the number is marked as blocked")
        yield BlockedNumber(stack, first, message_id, {one: stack.say(one, "hello") for one in later})


@pytest.fixture(scope="module")
def sends(make_stack: Callable[..., Stack], blocked: BlockedNumber) -> Iterator[Stack]:
    """The doubt window is as short as it may be: 120 s, which is 6 here."""
    with make_stack(IN_DOUBT_SECONDS="120", WHATSAPP_ACCESS_TOKEN=TOKEN, MAX_ATTEMPTS="8") as stack:
        yield stack


def moments(stack: Stack, message_id: str, index: int = 0) -> list[str]:
    """The answers that its reply got, in order."""
    reply = stack.reply(message_id, index)
    return [attempt.answer for attempt in reply.attempts_log] if reply else []


def no_task_of(stack: Stack, name: str) -> bool:
    with grpc.insecure_channel(stack.described["tasks"]) as channel:
        client = CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))
        parent = client.queue_path("pombo-local", "local", "outbound")
        return not any(task.name.endswith(name) for task in client.list_tasks(parent=parent))


# ---- an answer that was lost


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "accept_then_drop", "times": 0},
        {"kind": "slow", "seconds": 2.0, "times": 0},
    ],
    ids=["the connection breaks", "the answer comes too late"],
)
def test_a_lost_answer_that_a_receipt_confirms_is_not_sent_again(sends: Stack, contact: str, fault: dict) -> None:
    """Every further send would be lost as well."""
    sends.fault("send", **fault, match={"to": contact})

    message_id = sends.say(contact, "hello")

    sends.wait_settled([message_id])
    assert sends.texts(contact) == ["hello"]
    assert moments(sends, message_id) == ["lost"]
    timeline = sends.timeline(message_id)
    assert timeline["replies"][0]["shown"] == "sent"
    sentences = [moment["sentence"] for moment in timeline["events"]]
    assert "A receipt confirms that WhatsApp has it. Pombo does not resend it." in sentences


@pytest.mark.timeout(300)
def test_lost_answer_without_a_receipt_is_resent_once_after_the_window(
    sends: Stack, contacts: Callable[[], str]
) -> None:
    once, always, proxy, ordered = (contacts() for _ in range(4))
    for contact in (once, always, ordered):
        sends.fault("receipt", "withhold", times=2 if contact == ordered else 0, match={"to": contact})
    sends.fault("send", "accept_then_drop", match={"to": once})
    sends.fault("send", "accept_then_drop", times=0, match={"to": always})
    sends.fault("send", "error", status=502, match={"to": proxy})  # not Meta's own error: it may come from between
    sends.fault("send", "accept_then_drop", times=2, match={"to": ordered})

    lost_once, lost_always, never_taken = (sends.say(one, "hello") for one in (once, always, proxy))
    in_order = sends.say(ordered, "!list 2")

    sends.wait_until(lambda: moments(sends, lost_once) == ["lost"], "the answer is lost")
    assert sends.timeline(lost_once)["replies"][0] | {"key": ""} == {
        "key": "",
        "type": "text",
        "text": "hello",
        "shown": "pending",
        "why": "in_doubt",
    }
    sends.wait_settled([lost_once, lost_always, never_taken, in_order], 180)

    assert sends.texts(once) == ["hello"] * 2
    assert moments(sends, lost_once) == ["lost", "accepted"]
    assert sends.texts(always) == ["hello"] * 2
    assert moments(sends, lost_always) == ["lost", "lost"]
    assert sends.texts(proxy) == ["hello"]
    assert moments(sends, never_taken) == ["lost", "accepted"], "nobody can tell that it was not taken"
    reply = sends.reply(lost_always)
    assert reply is not None
    assert (reply.state, reply.reason, reply.doubts) == ("dead", "in_doubt", 2)
    sends.wait_logs("dead_lettered", delivery=reply.key, reason="in_doubt")
    first, second = (sends.reply(in_order, index) for index in (0, 1))
    assert first is not None
    assert second is not None
    assert (first.state, second.state) == ("dead", "done")
    assert sends.texts(ordered) == ["1", "1", "2"], "the second waits visibly, and not for ever"
    for message_id in (lost_once, lost_always, never_taken):
        at = [attempt.at for attempt in sends.reply(message_id).attempts_log]  # type: ignore[union-attr]
        assert (at[1] - at[0]).total_seconds() >= 6


# ---- refusals


def test_pair_limit_of_one_contact_delays_no_other(sends: Stack, contacts: Callable[[], str]) -> None:
    limited, others = contacts(), [contacts() for _ in range(8)]
    sends.fault("send", "error", code=131056, times=3, match={"to": limited})

    held = sends.say(limited, "hello")
    sends.wait_until(lambda: "limited" in moments(sends, held), "the first limit")
    ids = [sends.say(one, "hello") for one in others]

    sends.wait_settled(ids)
    assert [sends.texts(one) for one in others] == [["hello"]] * 8
    sends.wait_settled([held], 90)
    assert sends.texts(limited) == ["hello"]
    assert moments(sends, held) == ["limited"] * 3 + ["accepted"]


def test_permanent_refusal_is_attempted_once_and_answered_400_once(sends: Stack, contact: str) -> None:
    sends.fault("send", "error", code=131026, times=0, match={"to": contact})
    calls = len(sends.control("GET", "calls"))

    message_id = sends.say(contact, "hello")

    sends.wait_settled([message_id])
    reply = sends.reply(message_id)
    assert reply is not None
    assert (reply.state, reply.reason, reply.attempt) == ("dead", "permanent", 1)
    name = sends.wait_logs("outbound_failed", delivery=reply.key)[0]["task_name"]
    sends.wait_until(lambda: len(sends.logs("attempt_failed", name=name)) == 1, "the queue saw the refusal")
    assert sends.logs("attempt_failed", name=name)[0]["status"] == 400

    body = {"v": 1, "outbound_key": reply.key, "correlation_id": reply.correlation_id, "generation": 0, "hop": 0}
    assert sends.task("outbound", body).json() == {"state": "dead"}
    sends.wait_until(lambda: no_task_of(sends, name), "the queue's own retry is answered 200 and over")
    assert len(sends.logs("attempt_failed", name=name)) == 1
    assert len(sends.control("GET", "calls")) == calls + 1
    assert sends.ledger(contact) == []
    assert sends.timeline(message_id)["replies"][0]["shown"] == "failed"
    sends.wait_logs("dead_lettered", delivery=reply.key, code=131026)


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ({"kind": "refuse"}, "provider_down"),
        ({"code": 131016}, "provider_down"),
        ({"code": 2}, "provider_down"),
        ({"status": 429}, "provider_down"),
        ({"code": 130429}, "limited"),
        ({"code": 2494100}, "retry"),
        ({"code": 999999, "transient": True}, "retry"),
    ],
    ids=str,
)
def test_a_provider_that_is_down_for_a_while_gets_each_message_once_when_it_is_back(
    sends: Stack, contacts: Callable[[], str], fault: dict, word: str
) -> None:
    people = [contacts() for _ in range(4)]
    for one in people:
        sends.fault("send", **{"kind": "error", "times": 2, "match": {"to": one}, **fault})

    ids = [sends.say(one, "hello") for one in people]

    sends.wait_settled(ids, 120)
    assert [sends.texts(one) for one in people] == [["hello"]] * 4
    assert [moments(sends, one) for one in ids] == [[word, word, "accepted"]] * 4


def test_provider_that_is_down_is_not_called_before_its_retry_after(stack: Stack, contact: str) -> None:
    stack.fault("send", "error", code=131016, status=503, retry_after=2, match={"to": contact})

    message_id = stack.say(contact, "hello")

    stack.wait_texts(contact, ["hello"])
    stack.wait_settled([message_id])
    reply = stack.reply(message_id)
    assert reply is not None
    down, accepted = reply.attempts_log
    assert (down.answer, accepted.answer, reply.generation) == ("provider_down", "accepted", 0)
    assert (accepted.at - down.at).total_seconds() >= 2


def test_provider_that_never_recovers_costs_no_attempt_until_max_age(
    make_stack: Callable[..., Stack], contact: str
) -> None:
    with make_stack(MESSAGE_MAX_AGE="120s") as stack:
        stack.fault("send", "error", code=131016, times=0, match={"to": contact})

        message_id = stack.say(contact, "hello")

        stack.wait_settled([message_id])
        reply = stack.reply(message_id)
        assert reply is not None
        assert (reply.state, reply.reason, reply.attempt) == ("dead", "waited", 0)
        assert set(moments(stack, message_id)) == {"provider_down"}
        assert stack.ledger(contact) == []


def test_unreachable_whatsapp_gets_every_message_when_it_is_back(sends: Stack, contacts: Callable[[], str]) -> None:
    people = [contacts() for _ in range(3)]
    sends.fault("task", "slow", seconds=1.0, times=3, match={"queue": "outbound"})
    ids = [sends.say(one, "hello") for one in people]
    sends.wait_until(lambda: all(sends.event(one) for one in ids), "all of it is stored")

    sends.wait_back(sends.kill("whatsapp"))

    sends.wait_settled(ids, 60)
    assert [sends.texts(one) for one in people] == [["hello"]] * 3


# ---- the number and its token


@pytest.mark.slow  # half a minute; test_end_to_end has it on every store
def test_a_refused_token_waits_until_another_one_is_in_use(sends: Stack, contacts: Callable[[], str]) -> None:
    first, later = contacts(), contacts()
    sends.fault("send", "error", code=190, match={"to": first})

    refused = sends.say(first, "hello")
    sends.wait_until(lambda: sends.marks.refused, "the token is marked as refused")
    waiting = sends.say(later, "hello")

    sends.wait_until(lambda: "waiting" in sends.what(waiting), "what comes later waits")
    sends.wait_logs("tenant_needs_reauth", code=190, severity="ERROR")
    assert sends.timeline(refused)["replies"][0].get("why") == "WHATSAPP_REAUTH_REQUIRED"
    assert sends.texts(first) == sends.texts(later) == []

    sends.restart(WHATSAPP_ACCESS_TOKEN="test_access_token_of_after")

    new = sends.say(contacts(), "hello")
    sends.wait_settled([new])
    sends.wait_settled([refused, waiting], 90)  # each looks again every ten minutes, which are 30 s
    assert (sends.texts(first), sends.texts(later)) == (["hello"], ["hello"])
    assert moments(sends, refused) == ["credential_refused", "accepted"]
    assert sends.reply(refused).attempt == 1  # type: ignore[union-attr]


def test_many_contacts_at_once_each_get_their_replies_once_and_in_order(
    sends: Stack, contacts: Callable[[], str]
) -> None:
    people = [contacts() for _ in range(25)]
    sends.fault("send", "error", code=131056, times=6)
    sends.fault("send", "error", code=131016, times=3)
    sends.fault("send", "accept_then_drop", times=3)
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda one: sends.say(one, "!list 3"), people))

    sends.wait_settled(ids, 180)

    assert [sends.texts(one) for one in people] == [["1", "2", "3"]] * 25


def test_a_blocked_number_waits_and_then_probes(blocked: BlockedNumber) -> None:
    stack = blocked.stack
    waiting = list(blocked.later.values())

    stack.wait_until(lambda: all("waiting" in stack.what(one) for one in waiting), "the others wait")
    stack.wait_settled([blocked.message_id, *waiting], 120)

    assert [stack.texts(one) for one in (blocked.first, *blocked.later)] == [["hello"]] * 3
    refused, accepted = stack.reply(blocked.message_id).attempts_log  # type: ignore[union-attr]
    assert (refused.answer, refused.code, accepted.answer) == ("blocked", 368, "accepted")
    assert (accepted.at - refused.at).total_seconds() >= 29, "it probed before the block was over"
    for one in waiting:
        assert moments(stack, one) == ["accepted"], "it was tried while the number was blocked"
    assert stack.reply(blocked.message_id).attempt == 1  # type: ignore[union-attr] # a block spends no attempt
    assert not stack.marks.block
    stack.wait_logs("sender_blocked", code=368, severity="ERROR")
