"""The runner: calls the team's code in a thread of its own, so that a request never waits for it too long."""

import contextvars
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol, TypeVar

from shared.domain.messages import Drop, includes
from shared.domain.outbound.messages import InvalidReply, PlanItem
from shared.domain.verdicts import Origin
from shared.pipeline.ports import BackendUnavailable, HandlerCall, HandlerFault, HandlerInterrupted

LOOK_SECONDS = 0.1
"""How often a waiting request looks whether the process is ending."""

ERROR_CHARACTERS = 500
"""What is kept of an exception's message, for the timeline."""


_Raised = TypeVar("_Raised", Drop, HandlerFault)


class TeamCode(Protocol):
    """What is run: a function of the team's, or a backend of theirs."""

    @property
    def backend(self) -> str | None:
        """The id of the backend's marks; None for code in this process."""
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of message it is called for, or EVERY_KIND."""
        ...

    def __call__(self, call: HandlerCall) -> list[PlanItem]:
        """The replies. May raise anything; what a HandlerFault of a backend says is kept word for word."""
        ...

    def origin_of(self, error: BaseException) -> Origin:
        """Which code of the team's raised it."""
        ...

    def origin_in(self, thread: int | None) -> Origin:
        """Which code of the team's this thread is running."""
        ...


class HandlerRunner:
    """The handler port around the team's code, wherever that is.

    A thread cannot be killed: one that overran goes on, its result is thrown away, and `hung` counts it. When as many
    hang as there are request threads the process says so by /livez and is replaced.

    `all_or_nothing`: a plan with a reply that cannot be sent counts as raised. `show_traceback`: an exception of the
    team's is shown whole on standard error, with its text and the lines of code that it passed.
    """

    def __init__(
        self,
        code: TeamCode,
        *,
        timeout: timedelta,
        threads: int,
        stopping: Callable[[], bool],
        all_or_nothing: bool = False,
        show_traceback: bool = False,
    ) -> None:
        self._code = code
        self._timeout = timeout.total_seconds()
        self._threads = threads
        self._stopping = stopping
        self._all_or_nothing = all_or_nothing
        self._show_traceback = show_traceback
        self._lock = threading.Lock()
        self._hung = 0

    @property
    def backend(self) -> str | None:
        return self._code.backend

    def handles(self, kind: str) -> bool:
        return includes(self._code.kinds, kind)

    @property
    def exhausted(self) -> bool:
        """Whether as many handlers hang as there are threads."""
        return self._hung >= self._threads

    def __call__(self, call: HandlerCall) -> Sequence[PlanItem]:
        """The replies. Raises Drop, HandlerFault (raised, overran, no answer; of a backend
        that gave none, BackendUnavailable) or HandlerInterrupted (shutdown, or too
        many hang already)."""
        if self.exhausted:
            raise HandlerInterrupted  # no fault of this message: another process, or a later try, takes it
        outcome = _HandlerResult()
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: context.run(self._work, call, outcome), name="pombo-handler", daemon=True
        )
        thread.start()
        ends = time.monotonic() + self._timeout
        while not outcome.ended.wait(min(LOOK_SECONDS, max(0.0, ends - time.monotonic()))):
            if self._stopping():
                raise HandlerInterrupted
            if time.monotonic() >= ends and outcome.abandon():
                with self._lock:
                    self._hung += 1
                sentence = f"The handler took longer than {self._timeout:g} s."
                if self.backend:
                    raise BackendUnavailable(sentence, took=True)
                raise HandlerFault(sentence, self._code.origin_in(thread.ident))
        return self._checked(outcome.result())

    def _checked(self, plan: list[PlanItem]) -> list[PlanItem]:
        for number, item in enumerate(plan, start=1):
            if self._all_or_nothing and isinstance(item, InvalidReply):
                what = "The backend's reply" if self.backend else "Reply"
                raise HandlerFault(f"{what} {number} cannot be sent: {item.sentence}", Origin(InvalidReply.__name__))
        return plan

    def _work(self, call: HandlerCall, outcome: "_HandlerResult") -> None:
        try:
            outcome.end(self._code(call), None)
        except BaseException as error:  # noqa: BLE001 - the team's code may raise anything; it must not end ours
            outcome.end(None, self._raised(call, error))
        if outcome.abandoned:
            with self._lock:
                self._hung -= 1

    def _raised(self, call: HandlerCall, error: BaseException) -> Drop | HandlerFault:
        """What an exception means. What a backend says of itself stands; all else is the team's code."""
        if isinstance(error, Drop):
            return _caused(Drop(_words(getattr(error, "reason", ""))), error)
        if self.backend and isinstance(error, HandlerFault):
            return error
        if self._show_traceback:
            _show(call, error)
        origin = Origin("Exception")
        with suppress(Exception):  # the team's classes may break whatever looks at them
            origin = self._code.origin_of(error)
        return _caused(HandlerFault(_words(error, f"{type(error).__name__}: "), origin), error)


class _HandlerResult:
    """What became of one call, handed from its thread to the request."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.abandoned = False
        self._lock = threading.Lock()
        self._replies: list[PlanItem] | None = None
        self._error: Drop | HandlerFault | None = None

    def end(self, replies: list[PlanItem] | None, error: Drop | HandlerFault | None) -> None:
        with self._lock:
            self._replies, self._error = replies, error
            self.ended.set()

    def abandon(self) -> bool:
        """Stop waiting for it, unless it has ended."""
        with self._lock:
            self.abandoned = not self.ended.is_set()
            return self.abandoned

    def result(self) -> list[PlanItem]:
        if self._error is not None:
            raise self._error
        return self._replies or []


def _caused(fault: _Raised, error: BaseException) -> _Raised:
    fault.__cause__ = error
    return fault


def _show(call: HandlerCall, error: BaseException) -> None:
    """The whole traceback, in one write, where a handler's own words go."""
    with suppress(Exception):  # the team's classes may break whatever prints them; nobody may read
        whole = "".join(traceback.format_exception(error))
        about = f"event {call.inbound_event_id}, correlation id {call.correlation_id}, attempt {call.attempt}"
        sys.stderr.write(f"The handler failed ({about}).\n{whole}")
        sys.stderr.flush()


def _words(said: object, before: str = "") -> str:
    """What the team's code said, as text that every store can hold. It may be no text, or not even say what it is."""
    try:
        text = before + str(said)
    except Exception:  # noqa: BLE001 - the team's __str__
        text = before + "(it cannot be shown)"
    return text[:ERROR_CHARACTERS].encode("utf-8", "replace").decode()
