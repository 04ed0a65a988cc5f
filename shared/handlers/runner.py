"""The runner: calls the team's code in a thread of its own, so that a request never waits for it too long."""

import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from shared.domain.messages import Drop, includes
from shared.domain.outbound_messages import InvalidReply, PlanItem
from shared.pipeline.ports import BackendUnavailable, HandlerCall, HandlerFault, HandlerInterrupted

LOOK_SECONDS = 0.1
"""How often a waiting request looks whether the process is ending."""

ERROR_CHARACTERS = 500
"""What is kept of an exception's message, for the timeline."""


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
        """The replies. May raise anything; what a HandlerFault says is kept word for word."""
        ...


class HandlerRunner:
    """The handler port around the team's code, wherever that is.

    A thread cannot be killed: one that overran goes on, its result is thrown away, and `hung` counts it. When as many
    hang as there are request threads the process says so by /livez and is replaced.

    `all_or_nothing`: a plan with a reply that cannot be sent counts as raised.
    """

    def __init__(
        self,
        code: TeamCode,
        *,
        timeout: timedelta,
        threads: int,
        stopping: Callable[[], bool],
        all_or_nothing: bool = False,
    ) -> None:
        self._code = code
        self._timeout = timeout.total_seconds()
        self._threads = threads
        self._stopping = stopping
        self._all_or_nothing = all_or_nothing
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
        outcome = _Outcome()
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
                raise BackendUnavailable(sentence, took=True) if self.backend else HandlerFault(sentence)
        return self._checked(outcome.result())

    def _checked(self, plan: list[PlanItem]) -> list[PlanItem]:
        for number, item in enumerate(plan, start=1):
            if self._all_or_nothing and isinstance(item, InvalidReply):
                what = "The backend's reply" if self.backend else "Reply"
                raise HandlerFault(f"{what} {number} cannot be sent: {item.sentence}")
        return plan

    def _work(self, call: HandlerCall, outcome: "_Outcome") -> None:
        try:
            outcome.end(self._code(call), None)
        except BaseException as error:  # noqa: BLE001 - the team's code may raise anything; it must not end ours
            outcome.end(None, error)
        if outcome.abandoned:
            with self._lock:
                self._hung -= 1


class _Outcome:
    """What became of one call, handed from its thread to the request."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.abandoned = False
        self._lock = threading.Lock()
        self._replies: list[PlanItem] | None = None
        self._error: BaseException | None = None

    def end(self, replies: list[PlanItem] | None, error: BaseException | None) -> None:
        with self._lock:
            self._replies, self._error = replies, error
            self.ended.set()

    def abandon(self) -> bool:
        """Stop waiting for it, unless it has ended."""
        with self._lock:
            self.abandoned = not self.ended.is_set()
            return self.abandoned

    def result(self) -> list[PlanItem]:
        if isinstance(self._error, Drop):
            raise Drop(_words(getattr(self._error, "reason", ""))) from self._error
        if isinstance(self._error, BackendUnavailable):
            raise self._error
        if isinstance(self._error, HandlerFault):
            raise HandlerFault(str(self._error)) from self._error
        if self._error is not None:
            raise HandlerFault(_words(self._error, f"{type(self._error).__name__}: ")) from self._error
        return self._replies or []


def _words(said: object, before: str = "") -> str:
    """What the team's code said, as text that every store can hold. It may be no text, or not even say what it is."""
    try:
        text = before + str(said)
    except Exception:  # noqa: BLE001 - the team's __str__
        text = before + "(it cannot be shown)"
    return text[:ERROR_CHARACTERS].encode("utf-8", "replace").decode()
