"""`pombo say --wait`: each failed try is reported as it happens, once, with the time of the next one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli import say
from cli.running import Running
from shared.domain.record import Attempt, Delivery, Kind, State
from tests.support.builders import EVENT_KEY, at, done, pending
from tests.support.pipelines import Clock, Store

FIRST = Attempt(
    at(-30), 1, "handler_failed", error="KeyError: 'x'", error_type="KeyError", place="handlers/mine.py:7", function="f"
)
SECOND = replace(FIRST, at=at(-10), attempt=2, place="handlers/mine.py:9")


def event(*attempts: Attempt, **changes: Any) -> Delivery:
    fields = {"attempts_log": attempts, "attempt": len(attempts), "due_at": at(20), "last_error": "KeyError: 'x'"}
    return pending(Kind.INBOUND, **(fields | changes))


def test_each_failed_attempt_is_reported_once_with_line_and_next_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = say.FailedTries()
    for record in (event(), event(FIRST), event(FIRST), event(FIRST, SECOND), event(FIRST, SECOND)):
        failed.tell([record])
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "11:59:30  message  The handler failed at handlers/mine.py:7 in f: KeyError: 'x'. "
        "Next attempt at 12:00:20 UTC. (attempt 1)",
        "11:59:50  message  The handler failed at handlers/mine.py:9 in f: KeyError: 'x'. "
        "Next attempt at 12:00:20 UTC. (attempt 2)",
    ]


def test_failed_replies_and_outages_are_reported_but_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    down = Attempt(at(-30), 1, "backend_down", error="The backend answered 503.")
    reply = pending(attempts_log=(Attempt(at(-20), 1, "retry", 131000),), due_at=at(20))
    answered = done(attempts_log=(Attempt(at(-5), 1, "accepted"),))
    say.FailedTries().tell([event(down, last_error=None), reply, answered])
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("11:59:30  message  The backend answered 503. This attempt does not count.")
    assert second.startswith("11:59:40  reply  ")


def test_error_text_of_a_handler_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say.FailedTries().tell([event(replace(FIRST, error="\x1b[2Jx\ny"), last_error="\x1b[2Jx\ny")])
    assert "\\x1b[2Jx\\ny" in capsys.readouterr().err


def test_wait_reports_a_failed_attempt_before_the_message_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path, Clock())
    store.create(event(FIRST))
    looks: list[str] = []

    def look(_: float) -> None:
        looks.append(capsys.readouterr().err)
        if len(looks) == 2:
            finished = done(Kind.INBOUND, plan_size=0, attempts_log=(FIRST,))
            store.change(EVENT_KEY, lambda _: say_step(replace(finished, state=State.DONE)))

    monkeypatch.setattr(say.time, "sleep", look)
    running = Running(store, "100000000000001", None, None)
    timeline = say.watch(running, EVENT_KEY, wait=True, failed=say.FailedTries())
    store.close()
    assert timeline is not None
    assert ["handlers/mine.py:7" in look for look in looks] == [True, False]


def say_step(record: Delivery) -> Any:
    from shared.domain.delivery.answers import Answer, Step, TaskResult

    return Step(Answer(TaskResult.ACK, record.state), write=record)
