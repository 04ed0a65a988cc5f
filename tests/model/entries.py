"""Entry points: the project's own code, run from its start each time, as far as a worker's answers go.

It is deterministic given the answers, since time, chance and tokens are ports too. So nothing has to be kept of a run
that is under way, no thread and no frame: it is run again.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from services import error_responses
from services.task_responses import STATUS
from shared.domain.delivery.answers import NotAllowed
from shared.domain.errors import PomboError
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.outbound.recipient import Recipient
from shared.domain.record import Task
from shared.operations.dead_letters import Discard, Replay
from shared.operations.messages import Cancel
from shared.pipeline.accept import Accept
from shared.pipeline.accept_message import AcceptMessage, MessageRequest
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.channels import Channels
from shared.pipeline.conversations import Conversations
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.intake import Incoming
from shared.pipeline.process_inbound import ProcessInbound
from shared.pipeline.process_outbound import ProcessOutbound
from shared.pipeline.recent_marks import RecentMarks
from shared.pipeline.reconnects import Reconnects
from shared.pipeline.sender_health import Senders
from shared.pipeline.sweep import Sweep
from shared.tenants.environment import EnvironmentTenants
from tests.model.ports import (
    Call,
    NoSenders,
    OneTenant,
    Paused,
    Play,
    Script,
    ScriptedChannel,
    ScriptedClock,
    ScriptedCredentials,
    ScriptedHandler,
    ScriptedPlaces,
    ScriptedQueue,
    ScriptedStore,
    ScriptedTenants,
)
from tests.model.world import CORRELATION, FUTURE, SENDER, Ended, Worker
from tests.support.event_loop import Asynchronous, complete
from tests.support.one_handler import OneHandler

WEBHOOK, RECEIPT, SWEEP = "webhook", "receipt", "sweep"
OF_TASKS = frozenset({"inbound", "outbound"})
REPLAY, REPLAY_MAY_DOUBLE, DISCARD, CANCEL = "replay", "replay --may-double", "discard", "cancel"
SEND = "send"


class Reached(NamedTuple):
    """How far a worker has come: the calls that its answers belong to, and the next one."""

    asked: tuple[Call, ...]
    call: Call


class Unexpected(Exception):
    """The code raised what nobody expects of it."""


def run(worker: Worker, play: Play) -> Reached:
    """Run the code with the answers there are."""
    if worker.answers and isinstance(worker.answers[0], Ended):
        return Reached((), Call("answer", (worker.answers[0].status,)))
    script = Script(worker, play)
    try:
        status = _ENTRIES[worker.entry](script)
    except Paused:
        *asked, call = script.asked
        return Reached(tuple(asked), call)
    except PomboError as error:
        _, status = error_responses.answer(error, unavailable=500 if worker.entry == WEBHOOK else 503)
    except Exception as error:
        raise Unexpected(f"{worker.entry}: {error!r}") from error
    return Reached(tuple(script.asked), Call("answer", (status,)))


def _webhook(script: Script) -> int:
    accept = Accept(
        store=Asynchronous(ScriptedStore(script)),
        queue=Asynchronous(ScriptedQueue(script)),
        tenants=OneTenant(script),
        channels=_channels(script),
        limits=script.play.limits,
        clock=ScriptedClock(script),
        id_key=b"a key" if script.play.turns else None,
    )
    complete(accept(Incoming("meta", "POST", "/webhooks/whatsapp", {}, b"")))
    return 200


def _inbound(script: Script) -> int:
    process = ProcessInbound(
        store=ScriptedStore(script),
        tenants=OneTenant(script),
        channels=_channels(script),
        handlers=OneHandler(
            ScriptedHandler(script),
            BackendMarks(script.play.backend, ScriptedStore(script), script.play.limits, ScriptedClock(script)),
        ),
        places=ScriptedPlaces(script),  # type: ignore[arg-type]
        dispatch=_dispatch(script),
        limits=script.play.limits,
        clock=ScriptedClock(script),
        stopping=script.stopping,
        conversations=_conversations(script),
    )
    return STATUS[process(_task(script)).result]


def _outbound(script: Script) -> int:
    process = ProcessOutbound(
        store=ScriptedStore(script),
        tenants=ScriptedTenants(script),
        credentials=ScriptedCredentials(script),
        channels=_channels(script),
        dispatch=_dispatch(script),
        limits=script.play.limits,
        clock=ScriptedClock(script),
        stopping=script.stopping,
        conversations=_conversations(script),
    )
    return STATUS[process(_task(script)).result]


def _sweep(script: Script) -> int:
    store, tenants, credentials = ScriptedStore(script), NoSenders(script), ScriptedCredentials(script)
    channels, limits, clock = _channels(script), script.play.limits, ScriptedClock(script)
    # What it reports of senders is for those who watch.
    nobody = Senders(tenants, credentials, store, channels, limits, clock)
    reconnects = Reconnects(tenants, credentials, store, channels, _dispatch(script), clock)
    Sweep(store, nobody, reconnects, _dispatch(script), limits, clock)()
    return 200


def _replay(script: Script, may_double: bool = False) -> int:
    replay = Replay(
        ScriptedStore(script),
        ScriptedQueue(script),
        EnvironmentTenants.of(),
        script.play.limits,
        ScriptedClock(script),
        may_double,
    )
    replay(_task(script).key)
    return 200


def _discard(script: Script) -> int:
    discard = Discard(ScriptedStore(script), script.play.limits, ScriptedClock(script), "nobody needs it")
    discard(_task(script).key)
    return 200


def _cancel(script: Script) -> int:
    with suppress(NotAllowed):
        Cancel(ScriptedStore(script), _dispatch(script), script.play.limits, ScriptedClock(script))(_task(script).key)
    return 200


def _send(script: Script) -> int:
    """A caller's message to the contact of the first event, under the number that it has in the setting."""
    key, store, clock = _task(script).key, ScriptedStore(script), ScriptedClock(script)
    marks = RecentMarks(store, timedelta(), clock)
    sender = OneTenant(script).sender("meta", SENDER)
    recipient = Recipient(script.play.events[0].contact, {})  # type: ignore[union-attr]
    number, send_at = script.play.sent.index(key), FUTURE if key in script.play.later else None
    message = OutboundMessage.text("hello")
    request = MessageRequest(sender, recipient, message, "a hash", str(number), CORRELATION, send_at)
    AcceptMessage(store, _dispatch(script), script.play.limits, clock, marks, _conversations(script))(request)
    return 200


def _conversations(script: Script) -> Conversations | None:
    if script.play.order is None:
        return None
    return Conversations(ScriptedStore(script), ScriptedClock(script), b"a key", script.play.lanes)


def _dispatch(script: Script) -> TaskDispatch:
    return TaskDispatch(
        ScriptedQueue(script), ScriptedClock(script), script.play.limits, _channels(script), EnvironmentTenants.of()
    )


def _channels(script: Script) -> Channels:
    return Channels({"meta": ScriptedChannel(script)})  # type: ignore[dict-item]


def _task(script: Script) -> Task:
    assert isinstance(script.worker.subject, Task)
    return script.worker.subject


_ENTRIES: Mapping[str, Callable[[Script], int]] = {
    WEBHOOK: _webhook,
    RECEIPT: _webhook,
    "inbound": _inbound,
    "outbound": _outbound,
    SWEEP: _sweep,
    REPLAY: _replay,
    REPLAY_MAY_DOUBLE: lambda script: _replay(script, may_double=True),
    DISCARD: _discard,
    CANCEL: _cancel,
    SEND: _send,
}
"""Each gives the status that its caller is answered; 200 also to a person who is told that it cannot be done."""
