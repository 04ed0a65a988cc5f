"""An outage of the backend spends no attempt and kills no event; an event it never answers holds up no other."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.outages.backend_runs import KINDS, Backend, Outage, backend_stack, delays, faults_of, p95, run
from tests.support.stack import Stack, need_server_of

Running = Callable[..., tuple[Stack, Backend]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A stack with a backend of ours, for each store and with the sweep or without; started once."""
    with ExitStack() as ending:
        started: dict[tuple[str, bool], tuple[Stack, Backend]] = {}

        def stack_of(store: str, sweep: bool) -> tuple[Stack, Backend]:
            if (store, sweep) not in started:
                need_server_of(store)
                data_dir: Path = tmp_path_factory.mktemp("outage") / "data"
                started[store, sweep] = ending.enter_context(backend_stack(data_dir, store, sweep, True))
            return started[store, sweep]

        yield stack_of


def check(stack: Stack, backend: Backend, outage: Outage) -> None:
    account = run(stack, backend, outage)
    assert faults_of(outage, account) == [], json.dumps(asdict(account))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "502")) for kind in KINDS])
def test_minute_without_the_backend_loses_and_doubles_nothing(running: Running, kind: str) -> None:
    check(*running("sqlite", True), Outage(kind, 1, 40))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("status", [pytest.param(502, marks=pytest.mark.slow), 503])
def test_event_the_backend_never_answers_delays_no_other(running: Running, status: int) -> None:
    """The promise is 1.5 times the others' p95; twice that is asserted, for the machine has other work."""
    stack, backend = running("sqlite", True)
    alone = p95(delays(stack, backend, 20))
    backend.poisons[f"poison {status}"] = status
    poison = stack.say(f"1555999{status:04}", f"poison {status}")
    stack.wait_until(lambda: any(text == f"poison {status}" for *_, text in backend.calls), "the poison was tried")

    beside = p95(delays(stack, backend, 20))

    assert beside <= 3 * max(alone, 0.05), f"p95 {beside * 1000:.0f} ms beside it, {alone * 1000:.0f} ms without it"
    event = stack.event(poison)
    assert event is not None
    answers = {attempt.answer for attempt in event.attempts_log}
    assert "handler_failed" in answers if status == 502 else answers == {"backend_down"}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("messages", [200, 1])
@pytest.mark.parametrize("minutes", [1, 15])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sweep", [True, False], ids=["sweep", "no sweep"])
@pytest.mark.parametrize("store", ["sqlite", "redis", "firestore"])
def test_no_outage_of_the_backend_loses_or_doubles_anything(
    running: Running, store: str, sweep: bool, kind: str, minutes: int, messages: int
) -> None:
    check(*running(store, sweep), Outage(kind, minutes, messages))
