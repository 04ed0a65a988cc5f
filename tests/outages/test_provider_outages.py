"""An outage of the provider is a quiet night: no attempt is spent, nothing dies, nothing is sent twice, in order."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.outages.outage_runs import KINDS, LOSING, Account, Outage, faults_of, make_stack, run
from tests.support.stack import Stack, need_server_of

STORES = ("sqlite", "redis", "firestore")
SEVERAL = 60
"""Messages of a quick run: several times as many as are sent at once. The slow runs have 200."""

Running = Callable[..., Stack]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The stack of a store, with the sweep or without; started once, and used by all tests of this file."""
    with ExitStack() as ending:
        started: dict[tuple[str, bool, str], Stack] = {}

        def stack_of(store: str, sweep: bool, sweep_after: str = "") -> Stack:
            key = (store, sweep, sweep_after)
            if key not in started:
                need_server_of(store)
                settings = {"SWEEP_AFTER": sweep_after} if sweep_after else {}
                data_dir: Path = tmp_path_factory.mktemp("outage") / "data"
                stack = ending.enter_context(make_stack(data_dir, store, sweep, is_forked=True, **settings))
                stack.wait_settled([stack.say("15557999999", "hello")])
                started[key] = stack
            return started[key]

        yield stack_of


# What is marked slow as a parameter adds little to the cases beside it, and takes a quarter of a minute each.


def check(stack: Stack, outage: Outage) -> Account:
    account = run(stack, outage)
    assert faults_of(outage, account) == [], json.dumps(asdict(account))
    return account


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        *(pytest.param(kind, SEVERAL, marks=pytest.mark.slow if kind == "500" else []) for kind in KINDS),
        *(pytest.param(kind, 1, marks=[] if kind == "hang" else pytest.mark.slow) for kind in KINDS),
    ],
)
def test_minute_without_whatsapp_loses_and_doubles_nothing(running: Running, kind: str, messages: int) -> None:
    account = check(running("sqlite", True), Outage(kind, 1, messages))

    assert account.sent == messages
    if kind not in LOSING:
        assert (account.attempts_spent, account.in_doubt) == (1, 0), "an outage spends no attempt"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind", ["hang", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("500", "429", "refuse"))]
)
def test_answered_probes_during_failing_sends_make_no_dead_letter(running: Running, kind: str) -> None:
    assert check(running("sqlite", True), Outage(kind, 1, SEVERAL, probe_answered=True)).sent == SEVERAL


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("store", "kind"),
    [
        ("redis", "refuse"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("redis", "hang"), ("firestore", "refuse"), ("firestore", "hang"))
        ),
    ],
)
def test_other_stores_survive_a_minute_without_whatsapp(running: Running, store: str, kind: str) -> None:
    assert check(running(store, True), Outage(kind, 1, SEVERAL)).sent == SEVERAL


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("sweep_after", ["30s", "600s"])
def test_two_minutes_of_503_drain_by_themselves(running: Running, sweep_after: str) -> None:
    assert check(running("sqlite", True, sweep_after), Outage("refuse", 2, SEVERAL)).sent == SEVERAL


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("messages", [200, 1])
@pytest.mark.parametrize("minutes", [1, 15])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sweep", [True, False], ids=["sweep", "no sweep"])
@pytest.mark.parametrize("store", STORES)
def test_outage_of_up_to_a_quarter_hour_loses_and_doubles_nothing(
    running: Running, store: str, sweep: bool, kind: str, minutes: int, messages: int
) -> None:
    assert check(running(store, sweep), Outage(kind, minutes, messages)).sent == messages


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("messages", [200, 1])
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"unreachable"}))
@pytest.mark.parametrize("store", STORES)
def test_failing_sends_with_answered_probes_make_at_most_one_dead_letter(
    running: Running, store: str, kind: str, messages: int
) -> None:
    check(running(store, True), Outage(kind, 15, messages, probe_answered=True))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kind", ["refuse", "hang"])
@pytest.mark.parametrize("store", STORES)
def test_three_hours_without_whatsapp_lose_and_double_nothing(running: Running, store: str, kind: str) -> None:
    assert check(running(store, True), Outage(kind, 180, 200)).sent == 200
