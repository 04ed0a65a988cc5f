"""The API messages of a chaos run: the plan, the program that sends each, and the account of what became of it."""

import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from cli.chaos import api_load
from cli.chaos.api_load import ApiLoad, ApiSent, Program
from cli.chaos.api_plan import LONGEST_AHEAD, ApiMessage
from cli.chaos.audit import Audit, AuditInputs, audit, by_key
from cli.chaos.backpressure import Backpressure
from cli.chaos.businesses import businesses
from cli.chaos.message_fate import Evidence, Fate, LedgerEntry, Rules
from cli.chaos.message_script import CANARY, ScriptedReply
from cli.chaos.plan import PlanSettings, make_plan
from cli.chaos.report import End
from cli.chaos.run import Chaos
from cli.chaos.run_settings import RunSettings
from shared.domain.identity import api_message_key
from shared.domain.limits import DoubtPolicy
from shared.domain.record import CANCELLED, Delivery, State
from tests.support.builders import LIMITS, at, done, pending

SENDER, CONTACT = "100000000000001", "15550000007"
BUSINESSES = businesses(2, SENDER)
RULES = Rules(BUSINESSES, DoubtPolicy.RESEND, LIMITS.doubt_window)
MESSAGE = ApiMessage("chaos-1-0", CONTACT, ScriptedReply("text", {"body": f"{CANARY} by the API"}))
OF_SECOND = replace(MESSAGE, tenant=1)
KEY = api_message_key("default", "chaos-1-0")
SENT = ApiSent(MESSAGE)
GONE = pending(state=State.DROPPED, reason=CANCELLED)
ORDER = PlanSettings(messages=1000, seconds=100, contacts=50, seed=7, api_share=0.2)


# ---- the plan


def test_plan_sends_its_share_through_the_api_and_changes_no_other_message() -> None:
    plan, without = make_plan(ORDER), make_plan(replace(ORDER, api_share=0))

    assert plan == make_plan(ORDER)
    assert (len(plan.by_api), len(without.by_api)) == (200, 0)
    assert plan.batches == without.batches
    assert len({message.idempotency_key for message in plan.by_api}) == 200
    assert len({message.reply.body["body"] for message in plan.by_api}) == 200


def test_plan_has_messages_for_later_cancelled_ones_and_repeated_requests() -> None:
    sent = make_plan(ORDER).by_api

    cancelled = [message for message in sent if message.cancelled]
    assert 20 < len(cancelled) < 60
    assert all(message.ahead > 0 for message in cancelled)
    assert 40 < sum(message.ahead > 0 and not message.cancelled for message in sent) < 90
    assert 7 < max(message.ahead for message in sent) <= LONGEST_AHEAD == 8, "a run lasts half a minute"
    assert 40 < sum(message.repeated for message in sent) < 80
    assert [message.at for message in sent] == [number / 2 for number in range(200)]


def test_contact_of_an_api_message_belongs_to_the_tenant_that_it_writes_to() -> None:
    plan = make_plan(replace(ORDER, tenants=4))

    of_customers = {message.contact: message.tenant for message in plan.messages}
    assert all(of_customers.get(message.contact, message.tenant) == message.tenant for message in plan.by_api)
    assert {message.tenant for message in plan.by_api} == {0, 1, 2, 3}


# ---- the program


class FakeApi:
    """Answers with these in turn, and keeps the requests. An exception is raised, as if the connection broke."""

    def __init__(self, *answers: int | bytes | Exception) -> None:
        self.answers, self.requests = list(answers), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return httpx.Response(answer, json={"id": KEY, "state": "pending"})
        return httpx.Response(202, content=answer)


BROKEN = httpx.ReadError("the process was killed")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_load, "AGAIN_SECONDS", 0.0)


def run(api: FakeApi, message: ApiMessage = MESSAGE, over: threading.Event | None = None) -> ApiSent:
    with httpx.Client(base_url="http://api", transport=httpx.MockTransport(api)) as http:
        business = BUSINESSES[message.tenant]
        return Program(message, business, http, "pombo_0_1", over or threading.Event()).run()


def test_program_repeats_the_very_same_request_until_it_is_answered() -> None:
    api = FakeApi(BROKEN, 503, 429, httpx.ConnectError("it is down"), 202)

    sent = run(api, replace(MESSAGE, ahead=5.0))

    assert (sent.answered, sent.fault, sent.repetitions) == (True, None, 4)
    bodies = {request.content for request in api.requests}
    assert {request.headers["Idempotency-Key"] for request in api.requests} == {"chaos-1-0"}
    assert {request.headers["Authorization"] for request in api.requests} == {"Bearer pombo_0_1"}
    body: dict[str, Any] = json.loads(bodies.pop())
    assert bodies == set()
    assert (body["from"], body["to"], body["content"]) == (SENDER, f"+{CONTACT}", MESSAGE.reply.body)
    assert datetime.fromisoformat(body["send_at"]) == sent.send_at


@pytest.mark.parametrize(("status", "cancelled"), [(200, True), (409, False)])
def test_program_believes_a_cancellation_only_if_the_api_confirms_it(status: int, cancelled: bool) -> None:
    api = FakeApi(202, BROKEN, status)

    sent = run(api, replace(MESSAGE, cancelled=True))

    assert (sent.answered, sent.cancelled, sent.fault) == (True, cancelled, None)
    assert [request.url.path for request in api.requests] == ["/v1/messages", *[f"/v1/messages/{KEY}/cancel"] * 2]


@pytest.mark.parametrize(
    ("answers", "changes"),
    [
        ([401], {}),
        ([500], {}),
        ([422], {}),
        ([b'{"id": "another"}'], {}),
        ([202, b'{"id": "%b", "state": "done"}' % KEY.encode()], {"repeated": True}),
        ([202, 404], {"cancelled": True}),
    ],
    ids=["unauthorized", "error", "conflict", "another id", "another answer", "unknown"],
)
def test_answer_that_the_api_must_not_give_is_a_fault(answers: list[Any], changes: Mapping[str, Any]) -> None:
    sent = run(FakeApi(*answers), replace(MESSAGE, **changes))

    assert sent.fault
    assert account([replace(sent)], {KEY: done()}, ledger(0)).by_api == {Fate.UNACCOUNTED: 1}


def test_load_sends_every_message_with_the_key_of_its_own_business() -> None:
    api, keys = FakeApi(202, b'{"id": "%b"}' % OF_SECOND.key("business-1").encode()), ["pombo_0_1", "pombo_0_2"]
    http = httpx.Client(base_url="http://api", transport=httpx.MockTransport(api))
    load = ApiLoad([MESSAGE, replace(OF_SECOND, at=0.01)], http, BUSINESSES, Backpressure())

    load.run(keys, threading.Event())

    assert {sent.message.tenant: (sent.answered, sent.fault) for sent in load.sent} == {
        0: (True, None),
        1: (True, None),
    }
    by_key = {request.headers["Authorization"]: json.loads(request.content)["from"] for request in api.requests}
    assert by_key == {f"Bearer {key}": business.sender for key, business in zip(keys, BUSINESSES, strict=True)}


def test_load_has_eight_requests_under_way_at_once() -> None:
    together = threading.Barrier(8)

    def api(request: httpx.Request) -> httpx.Response:
        together.wait(5)
        return httpx.Response(202, json={"id": api_message_key("default", request.headers["Idempotency-Key"])})

    messages = [replace(MESSAGE, idempotency_key=f"chaos-1-{number}") for number in range(8)]
    http = httpx.Client(base_url="http://api", transport=httpx.MockTransport(api))
    load = ApiLoad(messages, http, BUSINESSES, Backpressure())

    load.run(["pombo_0_1"], threading.Event())

    assert [(sent.answered, sent.fault) for sent in load.sent] == [(True, None)] * 8


def test_load_that_is_stopped_sends_nothing_more() -> None:
    over = threading.Event()
    over.set()
    load = ApiLoad([MESSAGE], httpx.Client(transport=httpx.MockTransport(FakeApi())), BUSINESSES, Backpressure())

    load.run(["pombo_0_1"], over)

    assert load.sent == []


def test_program_gives_up_after_three_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    every_ten_seconds = iter(range(0, 1000, 10))
    monkeypatch.setattr("cli.chaos.api_load.time.monotonic", lambda: next(every_ten_seconds))

    sent = run(FakeApi(*[503] * 100))

    assert (sent.answered, sent.repetitions) == (False, 17)


def test_program_whose_run_is_stopped_has_no_answer() -> None:
    over = threading.Event()
    over.set()

    assert not run(FakeApi(), over=over).answered


# ---- the account


def ledger(*seconds: int, **changes: Any) -> list[LedgerEntry]:
    """The message as WhatsApp accepted it at these times."""
    entry = LedgerEntry(KEY, SENDER, CONTACT, MESSAGE.reply, at(0), 0)
    return [replace(entry, accepted_at=at(second), place=place, **changes) for place, second in enumerate(seconds)]


def account(
    sent: Sequence[ApiSent],
    known: Mapping[str, Delivery],
    found: Sequence[LedgerEntry] = (),
    evidence: Mapping[str, Evidence] | None = None,
    refused: frozenset[str] = frozenset(),
    ended_at: datetime | None = None,
) -> Audit:
    return audit([], AuditInputs(by_key(found), known.get, refused, RULES, evidence or {}, sent, ended_at))


def fate(record: Delivery | None, found: Sequence[LedgerEntry] = (), sent: ApiSent = SENT, **more: Any) -> Fate:
    """The one fate, which counts as bad exactly if it is listed as a finding."""
    result = account([sent], {KEY: replace(record, key=KEY)} if record else {}, found, **more)
    ((only, number),) = result.by_api.items()
    assert number == 1
    assert (result.bad, len(result.findings)) in ((0, 0), (1, 1))
    assert (result.received, result.replies) == ({}, {}), "the ledger's entry is a planned message's"
    return only


CANCELLED_ONE = replace(SENT, cancelled=True)


def test_api_message_that_went_well_is_delivered_once() -> None:
    assert fate(done(), ledger(1)) is Fate.DELIVERED
    assert fate(done(), ledger(5), replace(SENT, send_at=at(5))) is Fate.DELIVERED
    assert fate(GONE, sent=CANCELLED_ONE) is Fate.CANCELLED


@pytest.mark.parametrize(
    ("record", "expected"),
    [(None, Fate.LOST), (done(), Fate.LOST), (GONE, Fate.LOST), (pending(), Fate.UNACCOUNTED)],
    ids=["no record", "done", "cancelled by nobody", "open"],
)
def test_accepted_message_that_whatsapp_never_had_is_lost(record: Delivery | None, expected: Fate) -> None:
    result = fate(record)

    assert result is expected
    assert account([SENT], {KEY: record} if record else {}).bad == 1


def test_message_sent_twice_is_doubled_unless_the_policy_for_doubts_allowed_it() -> None:
    twice, doubted = ledger(1, 400), done(doubts=1)

    assert fate(done(), twice) is Fate.DOUBLED
    assert fate(doubted, twice, evidence={KEY: Evidence(doubted_at=at(2))}) is Fate.DOUBLED_BY_POLICY
    assert account([SENT], {KEY: doubted}, twice).doubted == 1


def test_cancelled_message_that_was_sent_or_lives_on_is_found() -> None:
    assert fate(GONE, ledger(1), CANCELLED_ONE) is Fate.UNSTOPPED
    for state in (State.PENDING, State.DONE, State.DEAD):
        assert fate(pending(state=state), sent=CANCELLED_ONE) is Fate.UNSTOPPED
    assert account([CANCELLED_ONE], {KEY: GONE}, ledger(1)).bad == 1
    assert fate(None, sent=CANCELLED_ONE) is Fate.LOST


def test_message_that_could_no_more_be_cancelled_must_be_delivered() -> None:
    too_late = replace(SENT, message=replace(MESSAGE, cancelled=True))

    assert fate(done(), ledger(1), too_late) is Fate.DELIVERED
    assert fate(GONE, sent=too_late) is Fate.LOST


def test_message_sent_before_its_time_is_found() -> None:
    early = replace(SENT, send_at=at(5))

    assert fate(done(), ledger(4), early) is Fate.EARLY
    assert account([early], {KEY: done()}, ledger(4)).bad == 1


@pytest.mark.parametrize(("changes", "faults"), [({}, 1), ({"joins_lane_later": True}, 0)])
def test_api_message_is_in_its_contacts_lane_once_it_has_joined_it(changes: dict[str, Any], faults: int) -> None:
    second = replace(MESSAGE, idempotency_key="chaos-1-1")
    keys = [message.key("default") for message in (MESSAGE, second)]
    known = {keys[0]: done(key=keys[0]), keys[1]: done(key=keys[1], **changes)}
    result = account([SENT, replace(SENT, message=second)], known)
    assert result.replies[Fate.OUT_OF_ORDER] == faults, "both follow none"


def test_message_of_another_tenants_key_or_number_is_crossed() -> None:
    second = BUSINESSES[1]
    key = OF_SECOND.key(second.tenant)
    assert key != KEY
    of_second = replace(SENT, message=OF_SECOND)
    entry = replace(ledger(1)[0], key=key, sender=second.sender)

    def result(record: Delivery, entry: LedgerEntry, sent: ApiSent = of_second) -> Mapping[Fate, int]:
        return account([sent], {key: record}, [entry]).by_api

    assert result(replace(done(), tenant=second.tenant), entry) == {Fate.DELIVERED: 1}
    assert result(replace(done(), tenant=second.tenant), replace(entry, sender=SENDER)) == {Fate.CROSSED: 1}
    assert result(done(), entry) == {Fate.CROSSED: 1}
    cancelled = account([replace(of_second, cancelled=True)], {key: GONE})
    assert cancelled.by_api == {Fate.CROSSED: 1}


def test_refused_contact_gets_no_api_message_as_planned() -> None:
    refused = frozenset({CONTACT})

    assert fate(pending(state=State.DEAD, reason="permanent"), refused=refused) is Fate.DEAD_AS_PLANNED
    assert fate(done(), ledger(1), refused=refused) is Fate.WRONG


def test_api_message_of_another_text_is_wrong_and_an_unplanned_one_unaccounted() -> None:
    assert fate(done(), ledger(1, reply=ScriptedReply("text", {"body": "other words"}))) is Fate.WRONG
    assert account([], {KEY: done()}, ledger(1)).replies == {Fate.UNACCOUNTED: 1}


def test_dead_api_message_is_reported_with_its_reason() -> None:
    result = account([SENT], {KEY: pending(state=State.DEAD, reason="attempts")})

    assert (result.by_api, result.reasons) == ({Fate.DEAD_LETTER: 1}, {"outbound: attempts": 1})


def test_unanswered_program_is_unaccounted_unless_the_run_was_stopped() -> None:
    unanswered = replace(SENT, answered=False)

    assert fate(done(), ledger(1), unanswered) is Fate.UNACCOUNTED
    for sent, record in ((unanswered, done()), (SENT, pending()), (SENT, done(finished_at=at(101)))):
        result = account([sent], {KEY: record}, ledger(1), ended_at=at(100))
        assert (result.on_their_way, result.by_api, result.replies) == (1, {}, {})


# ---- the run around it


def test_run_ends_only_when_both_loads_have_sent_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, sending, slept = a_run(tmp_path), [Future[None](), Future[None]()], list[float]()
    breaking, run._is_enough = Future[None](), lambda: True
    sending[0].set_result(None)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        sending[1].set_result(None)

    monkeypatch.setattr("cli.chaos.run.time.sleep", sleep)
    run._watch = SimpleNamespace(look=lambda: SimpleNamespace(sum=0))
    run._wait_while_sending(sending, breaking)

    assert len(slept) == 1


def test_faults_end_with_their_time_and_what_is_unsent_then_is_sent_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calm, sent = a_run(tmp_path), threading.Event(), list[bool]()
    for name, result in (("register", None), ("api_keys", []), ("replay", 0)):
        monkeypatch.setattr(f"cli.chaos.run.{name}", lambda *_, result=result: result)
    run._running_stack.queue_pairs = 0
    run._forbid, run._dead_as_planned, run._is_enough = lambda: None, set, lambda: True
    run._watch = SimpleNamespace(look=lambda: SimpleNamespace(sum=0), wait=lambda _: (True, 0))
    run._injector.run = lambda over: over.wait(30) and calm.set()
    run._programs.run = lambda _, over: sent.append(calm.wait(30) and not over.is_set())
    run._driver.run = lambda _: None

    assert run.break_everything().is_quiet
    assert sent == [True]


def test_both_loads_pause_for_one_backpressure(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert run._programs._backpressure is run._driver._backpressure is run._backpressure


def test_result_of_a_run_judges_what_its_programs_sent(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    run._programs.sent.append(SENT)
    run._running_stack.read = lambda _: done()

    found = run.close(End(60.0, 0, True, 0))

    assert (found.by_api, found.account.by_api) == ([SENT], {Fate.LOST: 1})


def a_run(directory: Path) -> Any:
    """A chaos run on a stack that is not there."""
    settings = RunSettings(replace(ORDER, messages=10), "sqlite", False, DoubtPolicy.RESEND, False, 10, directory, "x")
    (directory / "logs.jsonl").touch()
    stack: Any = SimpleNamespace(
        api="http://api",
        businesses=BUSINESSES,
        control=SimpleNamespace(get={"ledger": [], "faults/made": {}}.get),
        data_dir=directory,
        environment={},
        parts=SimpleNamespace(faults=None, proxy=None),
        running=SimpleNamespace(store=None),
        timeline=lambda _: "",
    )
    return Chaos(settings, make_plan(settings.order), stack, lambda _: None)
