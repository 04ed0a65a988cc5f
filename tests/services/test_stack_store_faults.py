"""A store's server that fails in every way a server can: nothing is acknowledged meanwhile, and nothing is lost."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from local.faulty_proxy import FaultyProxy
from local.services import SERVICES
from shared.domain.errors import StoreUnavailable
from shared.pipeline.ports import Store
from tests.support.payloads import of_texts, text
from tests.support.real_servers import frozen
from tests.support.stack import SENDER, Stack, server_of, wait_until

PROMISED_SECONDS = 5
SERVERS = ("redis", "firestore")


@dataclass(frozen=True)
class Faulty:
    """A stack that reaches its store's server through a proxy that a test can cut."""

    stack: Stack
    proxy: FaultyProxy
    server: int
    """The server's pid."""


WAYS: Mapping[str, Callable[[Faulty], AbstractContextManager[None]]] = {
    "cut off": lambda faulty: faulty.proxy.cut_off(),
    "silent": lambda faulty: faulty.proxy.silent(),
    "frozen": lambda faulty: frozen(faulty.server),
}
each_way = pytest.mark.parametrize("way", ["cut off", pytest.param("silent", marks=pytest.mark.slow), "frozen"])
"""A silent way is to us what a frozen server is; it takes as long, and is left to `make test-all`."""


@pytest.fixture(scope="module", params=SERVERS)
def faulty(
    request: pytest.FixtureRequest, make_stack: Callable[..., Stack], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Faulty]:
    with ExitStack() as ending:
        server = dict(ending.enter_context(server_of(request.param, tmp_path_factory.mktemp("server"))))
        pid = int(server.pop("PID"))
        ((name, address),) = server.items()
        target = urlsplit(address if "//" in address else f"//{address}")
        assert target.hostname is not None
        assert target.port is not None
        proxy = ending.enter_context(FaultyProxy(target.hostname, target.port))
        through = address.replace(f"{target.hostname}:{target.port}", proxy.address)
        stack = ending.enter_context(make_stack(store=request.param, **{name: through}))
        yield Faulty(stack, proxy, pid)


@each_way
def test_store_outage_answers_500_in_time_and_redelivery_succeeds(faulty: Faulty, contact: str, way: str) -> None:
    stack = faulty.stack
    ids = [f"wamid.{contact}.{number}" for number in range(20)]
    body = of_texts(*[text(contact, one, f"text {number}") for number, one in enumerate(ids)])
    with WAYS[way](faulty):
        began = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(stack.post, [body] * 4))
        took = time.monotonic() - began

    assert [answer.status_code for answer in answers] == [500] * 4
    assert took < 2 * PROMISED_SECONDS
    assert contact not in answers[0].text
    stack.wait_until(lambda: stack.post(body).status_code == 200, "a redelivery is taken")
    stack.wait_settled(ids, 60)
    assert sorted(stack.texts(contact)) == sorted(f"text {number}" for number in range(20))
    assert {stack.calls(one) for one in ids} == {1}


@each_way
def test_both_services_report_the_store_unavailable_and_back(faulty: Faulty, way: str) -> None:
    stack = faulty.stack
    with WAYS[way](faulty):
        for service in SERVICES:
            ready = stack.get(service, "/readyz")
            assert (ready.status_code, ready.json()["services"]["store"]) == (503, "unavailable")
            assert stack.get(service, "/livez").status_code == 200, "to be replaced would not help"
    for service in SERVICES:
        stack.wait_until(lambda of=service: stack.get(of, "/readyz").status_code == 200, f"{service} is ready again")


@each_way
def test_store_outage_during_processing_only_delays_messages(
    faulty: Faulty, contacts: Callable[[], str], way: str
) -> None:
    stack = faulty.stack
    people = [contacts() for _ in range(8)]
    failed = len(stack.logs("attempt_failed")) + len(stack.logs("webhook_failed"))
    ids = [stack.say(one, "!list 3") for one in people]
    with WAYS[way](faulty):
        wait_until(
            lambda: len(stack.logs("attempt_failed")) + len(stack.logs("webhook_failed")) > failed,
            "somebody had to wait",
        )

    stack.wait_until(lambda: all(map(stack.event, ids)), "all of them are stored", 90)
    stack.wait_settled(ids, 90)
    assert [stack.texts(one) for one in people] == [["1", "2", "3"]] * len(people)


@each_way
def test_send_in_a_store_outage_is_refused_in_time_and_counts_once_when_repeated(
    faulty: Faulty, contact: str, way: str
) -> None:
    stack, key = faulty.stack, uuid.uuid4().hex
    with WAYS[way](faulty):
        began = time.monotonic()
        refused = send(stack, contact, key)
        took = time.monotonic() - began

    assert (refused.status_code, refused.json()["code"]) == (503, "UNAVAILABLE")
    assert took < PROMISED_SECONDS
    assert refused.headers["Retry-After"].isdigit()
    sent_once(stack, contact, key)


def test_send_whose_answer_is_lost_after_the_commit_counts_once_when_repeated(faulty: Faulty, contact: str) -> None:
    """The repeated request is the same message: at once, or because its caller repeats it."""
    stack, key = faulty.stack, uuid.uuid4().hex
    for _ in range(2):
        faulty.proxy.swallow_next_answer(True, holding=MARK[stack.store_name])
    assert send(stack, contact, key).status_code in (202, 503)
    faulty.proxy.restore()
    sent_once(stack, contact, key)


def sent_once(stack: Stack, contact: str, key: str) -> None:
    """Repeat the request until it is taken: the message is sent once, and the same request again changes nothing."""
    stack.wait_until(lambda: send(stack, contact, key).status_code == 202, "the repeated request is taken")
    stack.wait_until(lambda: stack.texts(contact), "the message is sent", 60)
    again = send(stack, contact, key)
    stack.wait_until(lambda: stack.store.get(again.json()["id"]).final, "the message is final", 60)
    assert (again.status_code, stack.texts(contact)) == (202, ["a reminder"])


def send(stack: Stack, contact: str, key: str) -> httpx.Response:
    """POST /v1/messages with the key of the stack's file."""
    authorization = f"Bearer {Path(stack.described['api_key_file']).read_text().strip()}"
    headers = {"Authorization": authorization, "Idempotency-Key": key}
    body = {"from": SENDER, "to": f"+{contact}", "text": "a reminder"}
    return stack.http.post(f"{stack.described['api']}/v1/messages", json=body, headers=headers)


@pytest.mark.parametrize("hang_up", [True, False], ids=["and the connection ends", "and nothing more is heard"])
def test_an_answer_that_is_lost_after_the_commit_leads_to_no_second_plan(
    faulty: Faulty, contacts: Callable[[], str], hang_up: bool
) -> None:
    """One answer, then two, three, four in a row: each time it was done, and nobody was told."""
    stack = faulty.stack
    for step in range(4):
        contact = contacts()
        swallowed = faulty.proxy.swallowed
        message_id = f"wamid.{contact}"
        for _ in range(step + 1):
            faulty.proxy.swallow_next_answer(hang_up, holding=MARK[stack.store_name])
        body = of_texts(text(contact, message_id, "!list 2"))
        stack.wait_until(lambda body=body: stack.post(body).status_code == 200, "a redelivery is taken")
        stack.wait_settled([message_id], 60)
        faulty.proxy.restore()
        assert stack.texts(contact) == ["1", "2"]
        assert faulty.proxy.swallowed > swallowed, "an answer was really lost"


MARK = {"redis": b"EVALSHA", "firestore": b""}
"""What a request that writes holds. HTTP/2 compresses its headers: there any request will do."""


def answers(store: Store) -> bool:
    """Whether the store can be written to."""
    try:
        store.ping()
    except StoreUnavailable:
        return False
    return True


def test_a_redis_that_is_killed_and_started_again_has_all_that_was_acknowledged(
    make_stack: Callable[..., Stack], contacts: Callable[[], str]
) -> None:
    """Three kills while messages come in and go out. `pombo up` starts it again, on what it had written."""
    with make_stack(store="redis") as stack:
        ids, people = [], []
        for _ in range(3):
            some = [contacts() for _ in range(6)]
            people += some
            ids += [stack.say(one, "!list 2") for one in some]
            killed = stack.kill("store")["store"]
            stack.wait_until(lambda killed=killed: stack.pids()["store"] != killed, "it was started again")
            stack.wait_until(lambda: answers(stack.store), "it answers")
        stack.wait_until(lambda: all(map(stack.event, ids)), "all of them are stored", 90)
        stack.wait_settled(ids, 90)
        assert [stack.texts(one) for one in people] == [["1", "2"]] * len(people)
