"""Crash scenarios: what happens to a stack while one of its services crashes, and the required outcome."""

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from shared.domain.identity import Echo, change_event_id, message_event_id, outbound_key
from shared.domain.marks import Block, Credential, RefusedCredential
from shared.domain.record import Delivery
from shared.domain.tenants import DEFAULT_TENANT, Scope, Sender, Tenant
from shared.operations.connect import credential_name
from shared.operations.keys import add_key
from shared.operations.registry import add_tenant
from shared.operations.senders import add_sender
from shared.pipeline.clock import SystemClock
from shared.secrets.file_secrets import FILE, FileSecrets
from tests.support.crashing import SERVICES, Rig
from tests.support.payloads import envelope, of_texts, receipt, text, value, wire
from tests.support.stack import SENDER, TASK_TOKEN, clean_environment, cli

STRANGER = "200000000000008"
ANOTHER_TOKEN = "test_access_token_of_after"

_contacts = itertools.count(1)
_numbers = itertools.count(40_000_000)
_moments = itertools.count(1_790_500_000)

Outcome = Callable[[], bool]
"""Whether the outcome is right, seen from outside."""


@dataclass
class Person:
    """A customer whom no other scenario uses."""

    rig: Rig

    def __post_init__(self) -> None:
        self.number = f"1555{8_000_000 + next(_contacts)}"
        self.message_id = f"wamid.crash.{uuid.uuid4().hex}"

    def writes(self, words: str) -> None:
        self.rig.stack.sent.append(self.message_id)
        self.rig.deliver(of_texts(text(self.number, self.message_id, words)))

    @property
    def event(self) -> Delivery | None:
        return self.rig.stack.store.get(message_event_id("meta", SENDER, self.message_id))

    def reply(self, index: int = 0) -> Delivery | None:
        return self.rig.stack.store.get(outbound_key(message_event_id("meta", SENDER, self.message_id), index))

    def has(self, *texts: str) -> bool:
        """Exactly these texts have arrived, in this order, and every record is final."""
        event = self.event
        if event is None or not event.final or event.plan_size != len(set(texts)):
            return False
        replies = [self.reply(index) for index in range(event.plan_size)]
        return all(reply and reply.final for reply in replies) and self.rig.stack.texts(self.number) == list(texts)

    def meets(self, on: str, kind: str, **more: object) -> None:
        """A fault only for this customer."""
        self.rig.stack.fault(on, kind, match={"to": self.number}, **more)


def a_message(rig: Rig) -> Outcome:
    """A message with two replies."""
    person = Person(rig)
    person.writes("!list 2")
    return lambda: person.has("1", "2")


def a_message_that_comes_twice(rig: Rig) -> Outcome:
    person = Person(rig)
    person.writes("!list 2")
    person.writes("!list 2")
    return lambda: person.has("1", "2")


def three_messages_in_one_post(rig: Rig) -> Outcome:
    people = [Person(rig) for _ in range(3)]
    rig.deliver(of_texts(*(text(one.number, one.message_id, "hello") for one in people)))
    return lambda: all(one.has("hello") for one in people)


def a_message_to_an_unknown_number(rig: Rig) -> Outcome:
    """It is kept for a while, and nothing is sent."""
    person = Person(rig)
    body = wire(envelope(value([text(person.number, person.message_id, "hello")], sender=STRANGER)))
    rig.deliver(body)

    def is_kept() -> bool:
        kept = rig.stack.store.get(message_event_id("meta", STRANGER, person.message_id))
        return kept is not None and (kept.state, kept.reason) == ("dropped", "unknown_sender")

    return lambda: is_kept() and rig.stack.texts(person.number) == []


def a_message_to_another_tenant(rig: Rig) -> Outcome:
    """Its number and its access token come from the registry."""
    person, place = Person(rig), next(_numbers)
    tenant, number, account, token = f"tenant-{place}", f"2000000{place}", f"3000000{place}", f"token-of-{place}"
    sender = Sender(tenant, "meta", number, account)
    sender = replace(sender, credential=credential_name(sender))
    FileSecrets(rig.stack.data_dir / FILE).add(sender.credential, token)
    rig.stack.control("POST", "senders", {"phone_number_id": number, "waba": account, "token": token})
    add_tenant(rig.stack.store, SystemClock(), Tenant(tenant), 20)
    add_sender(rig.stack.store, rig.stack.store, SystemClock(), (), sender)
    rig.deliver(
        wire(envelope(value([text(person.number, person.message_id, "hello")], sender=number), account=account))
    )
    key = message_event_id("meta", number, person.message_id)

    def is_answered() -> bool:
        reply = rig.stack.store.get(outbound_key(key, 0))
        is_sent = reply is not None and (reply.state, reply.tenant) == ("done", tenant)
        return is_sent and rig.stack.texts(person.number) == ["hello"]

    return is_answered


def a_stranger_that_is_replayed(rig: Rig) -> Outcome:
    """An operator replays what came for a number before it was ours. It still is not."""
    person = Person(rig)
    rig.deliver(wire(envelope(value([text(person.number, person.message_id, "hello")], sender=STRANGER))))
    key = message_event_id("meta", STRANGER, person.message_id)
    environment = clean_environment(INTERNAL_TASK_TOKEN=TASK_TOKEN)
    replay = cli("dead", "replay", key, "--data-dir", str(rig.stack.data_dir), env=environment)
    assert replay.returncode == 0, replay.stderr

    def is_handled() -> bool:
        event = rig.stack.store.get(key)
        return event is not None and event.final and event.round == 1

    return is_handled


def receipts(rig: Rig) -> Outcome:
    """Sent, delivered and read."""
    person = Person(rig)
    person.writes("hello")

    def has_all() -> bool:
        reply = person.reply()
        return reply is not None and None not in (
            reply.current_receipts.sent,
            reply.current_receipts.delivered,
            reply.current_receipts.read,
        )

    return lambda: person.has("hello") and has_all()


def receipts_in_one_post(rig: Rig) -> Outcome:
    """With our echo and without."""
    person = Person(rig)
    person.meets("receipt", "withhold")
    person.writes("hello")
    rig.wait_until(lambda: person.has("hello"), "the reply is sent")
    reply = rig.stack.ledger(person.number)[0]
    echoed = receipt(reply["wamid"], "delivered", biz_opaque_callback_data=reply["echo"])
    rig.deliver(wire(envelope(value(statuses=[echoed, receipt(reply["wamid"], "read")]))))

    def has_both() -> bool:
        reply = person.reply()
        return reply is not None and None not in (reply.current_receipts.delivered, reply.current_receipts.read)

    return has_both


def a_receipt_without_our_echo(rig: Rig) -> Outcome:
    """It is found by the provider's id."""
    person = Person(rig)
    person.meets("receipt", "withhold")
    person.writes("hello")
    rig.wait_until(lambda: person.has("hello"), "the reply is sent")
    wamid = rig.stack.ledger(person.number)[0]["wamid"]
    rig.deliver(wire(envelope(value(statuses=[receipt(wamid, "read")]))))

    def is_read() -> bool:
        reply = person.reply()
        return reply is not None and reply.current_receipts.read is not None

    return lambda: person.has("hello") and is_read()


def account_news(rig: Rig) -> Outcome:
    """Not a message, and no handler handles it, but it is processed."""
    return _news(rig, {"event": "VERIFIED_ACCOUNT"})


def _news(rig: Rig, news: dict[str, Any]) -> Outcome:
    account, at = "300000000000003", next(_moments)
    document = envelope(news, account=account, field="account_update")
    document["entry"][0]["time"] = at
    rig.deliver(wire(document))
    key = change_event_id("meta", account, "account_update", news, at)

    def is_done() -> bool:
        record = rig.stack.store.get(key)
        return record is not None and record.state == "done"

    return is_done


def a_handler_that_fails_four_times(rig: Rig) -> Outcome:
    """The fourth wait is 4 s: a service that crashes then is back before the event is due."""
    person = Person(rig)
    person.writes("!raise 4")
    return lambda: person.has("after 4")


def receipts_that_are_late(rig: Rig) -> Outcome:
    """After the lease has expired, but within the doubt window: no attempt may resend meanwhile."""
    person = Person(rig)
    person.meets("receipt", "slow", seconds=5.0)
    person.writes("hello")
    return lambda: person.has("hello")


def an_answer_that_is_lost(rig: Rig) -> Outcome:
    """The receipt confirms that WhatsApp has it: it is sent once."""
    person = Person(rig)
    person.meets("send", "accept_then_drop")
    person.writes("hello")
    return lambda: person.has("hello")


def an_answer_and_all_receipts_that_are_lost(rig: Rig) -> Outcome:
    """The result stays unknown: it is resent once, after the window, and not a third time."""
    person = Person(rig)
    person.meets("send", "accept_then_drop")
    person.meets("receipt", "withhold", times=0)
    person.writes("hello")
    return lambda: person.has("hello", "hello")


def a_first_reply_that_is_held_up(rig: Rig) -> Outcome:
    """WhatsApp rate-limits this contact for a moment; the second reply waits for the first."""
    person = Person(rig)
    person.meets("send", "error", code=131056)
    person.writes("!list 2")
    return lambda: person.has("1", "2")


def a_reply_that_is_refused(rig: Rig) -> Outcome:
    """A permanent refusal: it becomes a dead letter, and an operator may replay it."""
    person = Person(rig)
    person.meets("send", "error", code=131026, times=0)
    person.writes("hello")

    def is_dead() -> bool:
        reply = person.reply()
        return reply is not None and (reply.state, reply.reason) == ("dead", "permanent")

    return lambda: is_dead() and rig.stack.texts(person.number) == []


def a_refused_credential(rig: Rig) -> Outcome:
    """Then a new credential replaces it."""
    person = Person(rig)
    person.meets("send", "error", code=190)
    person.writes("hello")
    rig.wait_until(rig.has_crashed, "the crash")
    rig.restart(WHATSAPP_ACCESS_TOKEN=ANOTHER_TOKEN)
    return lambda: person.has("hello")


def a_credential_that_was_replaced(rig: Rig) -> Outcome:
    """The next message notices it, and a drain wakes what waits."""
    since = datetime.now(UTC) - timedelta(minutes=1)
    rig.stack.put_marks(refused=RefusedCredential("former", 190, since), credential=Credential("former", since))
    person = Person(rig)
    person.writes("hello")
    return lambda: person.has("hello") and rig.stack.marks.refused is None


def a_number_that_is_blocked(rig: Rig) -> Outcome:
    person = Person(rig)
    person.meets("send", "error", code=368)
    person.writes("hello")
    return lambda: person.has("hello")


def a_block_that_is_over(rig: Rig) -> Outcome:
    """The first accepted send lifts the block; if the crash prevents that, the next one does."""
    ended = datetime.now(UTC) - timedelta(seconds=1)
    rig.stack.put_marks(block=Block(ended, timedelta(seconds=30), 368))
    first, second = Person(rig), Person(rig)
    first.writes("hello")
    rig.wait_until(rig.has_crashed, "the crash")
    second.writes("hello")
    return lambda: first.has("hello") and second.has("hello") and rig.stack.marks.block is None


def news_that_lifts_a_block(rig: Rig) -> Outcome:
    """The account is reinstated: its numbers may send again at once."""
    ends = datetime.now(UTC) + timedelta(hours=1)
    rig.stack.put_marks(block=Block(ends, timedelta(hours=1), 368))
    is_done = _news(rig, {"event": "DISABLED_UPDATE", "ban_info": {"waba_ban_state": "REINSTATE"}})
    return lambda: is_done() and rig.stack.marks.block is None


def a_provider_that_refuses_for_a_while(rig: Rig) -> Outcome:
    """The others wait; one probes, and its message is refused once more. Then all are sent, once."""
    people = [Person(rig) for _ in range(2)]
    for one in people:
        one.meets("send", "refuse")
    for one in people:
        one.writes("hello")
    return lambda: all(one.has("hello") for one in people)


def a_message_that_probes_before_it_is_resent(rig: Rig) -> Outcome:
    """Its response is lost and its receipt never comes: after the window it probes whether WhatsApp is up."""
    person = Person(rig)
    person.meets("send", "accept_then_drop")
    person.meets("receipt", "withhold", times=0)
    person.writes("hello")
    return lambda: person.has("hello", "hello")


def a_failed_receipt_that_blocks(rig: Rig) -> Outcome:
    """It comes after WhatsApp accepted a message, and is about the number: the next message waits, and probes."""
    first, second = Person(rig), Person(rig)
    first.meets("receipt", "withhold", times=0)
    first.writes("hello")
    rig.wait_until(lambda: first.has("hello"), "the first is sent")
    reply = first.reply()
    assert reply is not None
    refusal = {
        "errors": [{"code": 131042}],
        "biz_opaque_callback_data": str(Echo(reply.key, reply.round, reply.correlation_id)),
        "timestamp": str(int(datetime.now(UTC).timestamp()) + 1),
    }
    wamid = rig.stack.ledger(first.number)[0]["wamid"]
    rig.deliver(wire(envelope(value(statuses=[receipt(wamid, "failed", **refusal)]))))
    second.writes("hello")
    rig.wait_until(lambda: second.event and second.event.final, "the second is handled")

    def has_failed() -> bool:
        failed = first.reply()
        return failed is not None and failed.current_receipts.failed_code == 131042

    def is_blocked() -> bool:
        block = rig.stack.marks.block
        return block is not None and block.by_receipt

    return lambda: has_failed() and second.has("hello") and is_blocked()


def a_sweep(rig: Rig) -> Outcome:
    """A task was lost; the scheduler calls repeatedly."""
    person = Person(rig)
    rig.stack.lose_first_task(person.message_id)
    person.writes("hello")
    rig.wait_until(lambda: person.event and person.event.sweep_at < datetime.now(UTC), "the message is overdue")
    return lambda: rig.sweep() and person.has("hello")


def counters_that_are_written(rig: Rig) -> Outcome:
    """A process writes its counters once a minute, within a request: messages come until it has."""
    people: list[Person] = []

    def have_been_written() -> bool:
        people.append(Person(rig))
        people[-1].writes("hello")
        return rig.has_crashed()

    rig.wait_until(have_been_written, "the crash")
    return lambda: all(one.has("hello") for one in people)


def a_question_about_readiness(rig: Rig) -> Outcome:
    """All services are asked, whatever the first answers."""
    return lambda: [service for service in SERVICES if not rig.is_ready(service)] == []


def a_handshake(rig: Rig) -> Outcome:
    """Repeated until it is answered."""
    return rig.shakes_hands


def a_store_that_is_away_at_the_end(rig: Rig) -> Outcome:
    """At the moment when the handler's reply is written."""
    person = Person(rig)
    person.writes("!lock")
    return lambda: person.has("after 1")


# ---- the API


@dataclass
class Program:
    """A business's program, which sends one message and repeats each request until it is answered."""

    rig: Rig
    key: str = ""

    def __post_init__(self) -> None:
        self.number = f"1555{8_000_000 + next(_contacts)}"
        self.key = self.key or (self.rig.stack.data_dir / "api-key").read_text().strip()
        self.idempotency_key = uuid.uuid4().hex
        self.answers: set[bytes] = set()

    def sends(self, **more: str) -> str:
        """The message's id."""
        body = {"to": f"+{self.number}", "text": "a reminder", **more}
        answer = self._until(202, "POST", "/v1/messages", body)
        self.answers.add(answer.content)
        id: str = answer.json()["id"]
        return id

    def cancels(self, id: str) -> None:
        self._until(200, "POST", f"/v1/messages/{id}/cancel")

    def sees(self, id: str, shown: str) -> bool:
        answer = self.rig.asks_api("GET", f"/v1/messages/{id}", self.key)
        return answer is not None and answer.status_code == 200 and answer.json()["shown"] == shown

    def has(self, id: str, *texts: str) -> bool:
        """The message is final, these texts have arrived, and every request was answered with the same bytes."""
        record = self.rig.stack.store.get(id)
        arrived = self.rig.stack.texts(self.number) == list(texts)
        return bool(record and record.final and arrived and len(self.answers) == 1)

    def replays(self, id: str) -> None:
        self._until(200, "POST", f"/v1/dead-letters/{id}/replay", {})

    def gets(self, path: str, status: int = 200) -> Any:
        """The body; None unless the answer has this status."""
        answer = self.rig.asks_api("GET", path, self.key)
        return answer.json() if answer is not None and answer.status_code == status else None

    def posts(self, path: str, body: Any) -> int | None:
        """The status; None if there is no answer."""
        answer = self.rig.asks_api("POST", path, self.key, body)
        return answer.status_code if answer is not None else None

    def _until(self, status: int, method: str, path: str, body: Any = None) -> httpx.Response:
        def answered() -> httpx.Response | None:
            answer = self.rig.asks_api(method, path, self.key, body, self.idempotency_key)
            return answer if answer is not None and answer.status_code == status else None

        found = self.rig.wait_until(answered, f"{path} is answered {status}")
        assert found is not None
        return found


def a_message_of_a_program(rig: Rig) -> Outcome:
    """By an operator's key, from a number that is named by its id at WhatsApp."""
    program = Program(rig)
    id = program.sends(**{"from": SENDER})
    return lambda: program.has(id, "a reminder")


def a_message_from_a_number_named_by_our_id(rig: Rig) -> Outcome:
    program = Program(rig)
    id = program.sends(**{"from": Sender(DEFAULT_TENANT, "meta", SENDER).id})
    return lambda: program.has(id, "a reminder")


def a_message_that_a_program_sends_twice(rig: Rig) -> Outcome:
    """The second request comes while the message still waits: then it makes the task again."""
    program = Program(rig)
    message = {"from": SENDER, "delay": "100s"}
    id = program.sends(**message)
    assert program.sends(**message) == id
    return lambda: program.has(id, "a reminder")


def a_message_from_a_tenants_only_number(rig: Rig) -> Outcome:
    _, key = add_key(rig.stack.store, SystemClock(), DEFAULT_TENANT, frozenset(Scope))
    program = Program(rig, key)
    id = program.sends()
    return lambda: program.has(id, "a reminder")


def a_message_that_a_program_cancels(rig: Rig) -> Outcome:
    """In time. Its task comes when the message would have been due, and finds that there is nothing to do."""
    program = Program(rig)
    id = program.sends(**{"from": SENDER, "delay": "300s"})
    program.cancels(id)
    return lambda: program.has(id) and rig.stack.state_of(id) == "dropped"


def a_message_that_a_program_looks_at(rig: Rig) -> Outcome:
    program = Program(rig)
    id = program.sends(**{"from": SENDER})
    return lambda: program.sees(id, "sent") and program.has(id, "a reminder")


def a_dead_letter_that_a_program_replays(rig: Rig) -> Outcome:
    program = Program(rig)
    rig.stack.fault("send", "error", code=131026, match={"to": program.number})
    id = program.sends(**{"from": SENDER})
    rig.wait_until(lambda: rig.stack.state_of(id) == "dead", "it is refused")
    program.replays(id)
    return lambda: program.has(id, "a reminder")


def lists_that_a_program_reads(rig: Rig) -> Outcome:
    program = Program(rig)
    paths = ("/v1/messages?tenant=default", "/v1/dead-letters", "/v1/keys")
    return lambda: [path for path in paths if program.gets(path) is None] == []


def health_that_a_program_reads(rig: Rig) -> Outcome:
    program = Program(rig)
    paths = ("/health/whatsapp", "/health/whatsapp/detailed", "/health/whatsapp/dlq", "/v1/admin/health")
    return lambda: [path for path in paths if program.gets(path) is None] == []


def a_number_that_a_program_connects(rig: Rig) -> Outcome:
    """A repeated request finds the number taken if the first one came so far; the number is connected then."""
    program, place = Program(rig), next(_numbers)
    tenant, number, account, token = f"tenant-{place}", f"2000000{place}", f"3000000{place}", f"token-of-{place}"
    rig.stack.control("POST", "senders", {"phone_number_id": number, "waba": account, "token": token})
    add_tenant(rig.stack.store, SystemClock(), Tenant(tenant), 20)
    body = {"tenant": tenant, "provider": "meta", "id": number, "account": account, "token": token}
    rig.wait_until(lambda: program.posts("/v1/senders", body), "the number is connected, or was")

    def is_connected() -> bool:
        found = program.gets(f"/v1/senders/{Sender(tenant, 'meta', number).id}")
        return found is not None and found["auth"]["state"] == "connected"

    return lambda: is_connected() or (program.posts("/v1/senders", body) == 201 and is_connected())


def a_number_that_a_program_reconnects(rig: Rig) -> Outcome:
    program, place = Program(rig), next(_numbers)
    tenant, number, account, token = f"tenant-{place}", f"2000000{place}", f"3000000{place}", f"token-of-{place}"
    rig.stack.control("POST", "senders", {"phone_number_id": number, "waba": account, "token": token})
    add_tenant(rig.stack.store, SystemClock(), Tenant(tenant), 20)
    sender = Sender(tenant, "meta", number, account)
    add_sender(rig.stack.store, rig.stack.store, SystemClock(), (), replace(sender, credential=credential_name(sender)))
    path = f"/v1/senders/{sender.id}/reconnect"
    rig.wait_until(lambda: program.posts(path, {"token": token}) == 200, "the number is connected again")
    return lambda: FileSecrets(rig.stack.data_dir / FILE).newest(credential_name(sender)) == token
