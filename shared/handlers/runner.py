"""The runner: calls the team's code in a separate thread, so that a request never waits for it too long."""

import contextvars
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol, TypeVar

from shared.domain.message_kinds import includes
from shared.domain.messages import Drop
from shared.domain.outbound.messages import InvalidReply, PlanItem
from shared.domain.verdicts import Origin
from shared.handlers.hung_threads import HungThreads
from shared.pipeline.ports import BackendUnavailable, HandlerCall, HandlerFault, HandlerInterrupted

LOOK_SECONDS = 0.1
"""Seconds after which a waiting request checks whether the process is shutting down."""

ERROR_CHARACTERS = 500
"""Characters kept of an exception's message, for the timeline."""


_Raised = TypeVar("_Raised", Drop, HandlerFault)


class TeamCode(Protocol):
    """The code to run: the team's function or their backend."""

    @property
    def backend(self) -> str | None:
        """The id of the backend's marks; None for code in this process."""
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of message it is called for, or EVERY_KIND."""
        ...

    def __call__(self, call: HandlerCall) -> list[PlanItem]:
        """The replies. May raise anything; the text of a backend's HandlerFault is kept verbatim."""
        ...

    def origin_of(self, error: BaseException) -> Origin:
        """Which of the team's code raised it."""
        ...

    def origin_in(self, thread: int | None) -> Origin:
        """Which of the team's code this thread is running."""
        ...


class HandlerRunner:
    """The handler port for the team's code, in this process or behind an address.

    A thread cannot be killed: after a timeout it goes on, its result is discarded, and `hung` counts it, together with
    those of the process's other handlers. When as many threads hang as there are request threads, /livez reports it and
    the process is replaced.

    `all_or_nothing`: a plan with a reply that cannot be sent counts as raised. `show_traceback`: a team exception is
    printed to standard error in full, with its text and the lines of code that it passed.
    """

    def __init__(
        self,
        code: TeamCode,
        *,
        timeout: timedelta,
        hung: HungThreads,
        stopping: Callable[[], bool],
        all_or_nothing: bool = False,
        show_traceback: bool = False,
    ) -> None:
        self._code = code
        self._timeout = timeout.total_seconds()
        self._hung = hung
        self._stopping = stopping
        self._all_or_nothing = all_or_nothing
        self._show_traceback = show_traceback

    @property
    def backend(self) -> str | None:
        return self._code.backend

    def handles(self, kind: str) -> bool:
        return includes(self._code.kinds, kind)

    @property
    def exhausted(self) -> bool:
        """Whether as many handler threads hang in this process as it has request threads."""
        return self._hung.exhausted

    def __call__(self, call: HandlerCall) -> Sequence[PlanItem]:
        """The replies. Raises Drop, HandlerFault (raised, timed out, invalid answer; BackendUnavailable if a backend
        gave no answer) or HandlerInterrupted (shutdown, or too many threads hang already)."""
        if self.exhausted:
            raise HandlerInterrupted  # not this message's fault: another process or a later attempt takes it
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
                self._hung.begin(call.message.tenant)
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
        except BaseException as error:  # noqa: BLE001 - the team's code may raise anything; it must not stop ours
            outcome.end(None, self._raised(call, error))
        if outcome.abandoned:
            self._hung.end(call.message.tenant)

    def _raised(self, call: HandlerCall, error: BaseException) -> Drop | HandlerFault:
        """What an exception means. A backend's own fault stays as it is; anything else comes from the team's code."""
        if isinstance(error, Drop):
            return _caused(Drop(_words(getattr(error, "reason", ""))), error)
        if self.backend and isinstance(error, HandlerFault):
            return error
        if self._show_traceback:
            _show(call, error)
        origin = Origin("Exception")
        with suppress(Exception):  # the team's classes may raise when inspected
            origin = self._code.origin_of(error)
        return _caused(HandlerFault(_words(error, f"{type(error).__name__}: "), origin), error)


class _HandlerResult:
    """The result of one call, passed from its thread to the request."""

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
        """Stop waiting for it. Returns False if it has ended."""
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
    """Print the whole traceback, in one write, to where the handler prints."""
    with suppress(Exception):  # the team's classes may raise when printed, and standard error may be closed
        whole = "".join(traceback.format_exception(error))
        about = f"event {call.inbound_event_id}, correlation id {call.correlation_id}, attempt {call.attempt}"
        sys.stderr.write(f"The handler failed ({about}).\n{whole}")
        sys.stderr.flush()


def _words(said: object, before: str = "") -> str:
    """The text of what the team's code gave, in a form that every store can hold. Its __str__ may raise."""
    try:
        text = before + str(said)
    except Exception:  # noqa: BLE001 - the team's __str__
        text = before + "(it cannot be shown)"
    return text[:ERROR_CHARACTERS].encode("utf-8", "replace").decode()
