"""The settings that are explored. The quick ones are part of every test run, the slow ones of `make test-all`.

They run without the sweep, which would hide a lost task behind ten minutes, but for those where the queue itself loses
one or where the sweep races the rest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from shared.domain.tenants import Order
from tests.model.setting import LATE, NEVER, RESEND, Setting
from tests.model.world import Mishap as M

BACKEND = "backend"


def _event(name: str, states: int, mishaps: Mapping[M, int], **more: Any) -> Setting:
    """From the webhook on; the handler has nothing to say."""
    return Setting(name, states, mishaps, **{"replies": 0, **more})


def _plan(name: str, states: int, mishaps: Mapping[M, int], **more: Any) -> Setting:
    """From the webhook to the end of the replies."""
    return Setting(name, states, mishaps, **more)


def _reply(name: str, states: int, mishaps: Mapping[M, int], **more: Any) -> Setting:
    """From the plan on: its replies have their tasks."""
    return Setting(name, states, mishaps, begins="planned", **more)


def _resend(name: str, states: int, mishaps: Mapping[M, int], **more: Any) -> Setting:
    """The same, where a doubt that is over is resent."""
    return _reply(name, states, mishaps, policy=RESEND, **more)


def _lane(name: str, states: int, mishaps: Mapping[M, int], **more: Any) -> Setting:
    """With conversations: many messages, and of each as little as can be."""
    return Setting(
        name, states, mishaps, **{"order": Order.CONTACT, "attempts": 1, "receipts": NEVER, "hops": 0, **more}
    )


LANES: Sequence[Setting] = (
    _lane("lanes: two events in turn", 291, {}, events=2, answered=2, turns=True, workers=1),
    _lane("lanes: none", 146, {}, events=2, answered=2, lanes=False, workers=1),
    _lane("lanes: two events, two workers", 1_503, {}, events=2, answered=2, sends=1),
    _lane("lanes: a plan and a caller's message", 209, {}, sent=1, workers=1),
    _lane("lanes: a call and two messages, one of a caller", 1_533, {}, replies=3, calls=1, sent=1, workers=1),
    _lane("lanes: a plan and a message for later", 306, {}, sent=1, later=1, workers=1),
    _lane(
        "lanes: a message for later, own write refused", 542, {M.AMBIGUOUS: 1}, replies=0, sent=1, later=1, workers=1
    ),
    _lane(
        "lanes: a message for later, cancelled, give_up_at passes",
        1_774,
        {M.CANCEL: 1, M.GIVE_UP: 1},
        begins="planned",
        sent=1,
        later=1,
        workers=1,
    ),
    _lane(
        "lanes: of a sender, two contacts, two workers",
        1_503,
        {},
        order=Order.SENDER,
        events=2,
        answered=2,
        contacts=2,
        sends=1,
    ),
    _lane("lanes: of a sender, an event without replies", 61, {}, order=Order.SENDER, events=2, contacts=2, workers=1),
    _lane("lanes: two tenants", 113, {}, events=2, answered=2, senders=2, tenants=2, workers=1),
    _lane("lanes: give_up_at passes", 286, {M.GIVE_UP: 1}, begins="planned", sent=1, workers=1),
    _lane(
        "lanes: the first is cancelled, expires", 687, {M.CANCEL: 1, M.EXPIRY: 1}, begins="planned", sent=1, workers=1
    ),
    _lane("lanes: the first is refused", 127, {M.REFUSED: 1}, begins="planned", sent=1, workers=1),
    _lane("lanes: patience ends", 57, {M.PATIENCE: 1}, begins="planned", sent=1, workers=1),
    _lane("lanes: two messages for later", 382, {}, begins="planned", replies=0, sent=2, later=2, workers=1),
    _lane("lanes: answer lost", 381, {M.ANSWER_LOST: 1}, begins="planned", sent=1, workers=1),
)
"""A message of each lane, and not much more."""

LARGER_LANES: Sequence[Setting] = (
    _lane(
        "lanes: two events in turn, killed, own write refused",
        16_288,
        {M.CRASH: 1, M.AMBIGUOUS: 1},
        events=2,
        answered=2,
        turns=True,
        workers=1,
        attempts=2,
        most_tasks=3,
    ),
    _lane("lanes: two events, two workers, killed", 12_270, {M.CRASH: 1}, events=2, answered=2, sends=1),
    _lane("lanes: two events, two workers, own write refused", 8_057, {M.AMBIGUOUS: 1}, events=2, answered=2, sends=1),
    _lane(
        "lanes: a plan and a caller's message, killed, own write refused",
        7_961,
        {M.CRASH: 1, M.AMBIGUOUS: 1},
        sent=1,
        workers=1,
        attempts=2,
        most_tasks=3,
    ),
    _lane(
        "lanes: a plan and a message for later, killed, own write refused",
        12_130,
        {M.CRASH: 1, M.AMBIGUOUS: 1},
        sent=1,
        later=1,
        workers=1,
        attempts=2,
        most_tasks=3,
    ),
    _lane("lanes: store and queue away", 7_276, {M.STORE_AWAY: 1, M.QUEUE_AWAY: 1}, sent=1, workers=1),
    _lane(
        "lanes: of a sender, two contacts, two workers, killed",
        12_074,
        {M.CRASH: 1},
        order=Order.SENDER,
        events=2,
        answered=2,
        contacts=2,
        sends=1,
    ),
    _lane("lanes: two tenants, two workers", 764, {}, events=2, answered=2, senders=2, tenants=2, sends=1),
    _lane("lanes: two messages of callers, own write refused", 7_670, {M.AMBIGUOUS: 1}, replies=0, sent=2, workers=1),
    _lane(
        "lanes: two messages of callers, one for later, killed",
        2_268,
        {M.CRASH: 1},
        begins="planned",
        replies=0,
        sent=2,
        later=1,
        workers=1,
    ),
    _lane(
        "lanes: a message for later, racing sweep", 1_734, {M.SWEEP: 1}, begins="planned", sent=1, later=1, workers=1
    ),
    _lane(
        "lanes: give_up_at passes twice, replayed",
        2_333,
        {M.GIVE_UP: 2, M.REPLAY: 1},
        begins="planned",
        sent=1,
        workers=1,
    ),
    _lane(
        "lanes: the first is refused, replayed", 1_412, {M.REFUSED: 1, M.REPLAY: 1}, begins="planned", sent=1, workers=1
    ),
    _lane(
        "lanes: the first is in doubt, --may-double",
        1_453,
        {M.ANSWER_LOST: 1, M.MAY_DOUBLE: 1},
        begins="planned",
        sent=1,
        workers=1,
    ),
    _lane(
        "lanes: a plan and two messages of callers, killed", 9_160, {M.CRASH: 1}, begins="planned", sent=2, workers=1
    ),
    _lane(
        "lanes: of a sender, patience ends twice",
        3_704,
        {M.PATIENCE: 2},
        order=Order.SENDER,
        begins="planned",
        sent=2,
        workers=1,
        hops=1,
    ),
    _lane(
        "lanes: two events in turn, the handler fails",
        1_478,
        {M.HANDLER_RAISES: 1},
        events=2,
        answered=2,
        turns=True,
        workers=1,
        attempts=2,
        most_tasks=3,
    ),
)

QUICK: Sequence[Setting] = (
    *LANES,
    _event(
        "event: two webhooks at once, killed twice, own write refused", 827, {M.CRASH: 2, M.AMBIGUOUS: 1}, webhooks=2
    ),
    _event(
        "event: delivered again by Meta and the queue, killed",
        241,
        {M.CRASH: 1, M.POSTED_AGAIN: 1, M.DELIVERED_AGAIN: 1},
        webhooks=2,
    ),
    _event("event: store and queue away", 205, {M.STORE_AWAY: 1, M.QUEUE_AWAY: 1}),
    _event(
        "event: two in one POST, store and queue away", 344, {M.QUEUE_AWAY: 1, M.STORE_AWAY: 1}, events=2, workers=1
    ),
    _event("event: handler drops it, shutdown, killed", 224, {M.CRASH: 1, M.HANDLER_DROPS: 1, M.SHUTDOWN: 1}),
    _event("event: handler fails to the end, replayed", 278, {M.HANDLER_RAISES: 2, M.REPLAY: 1, M.CRASH: 1}, workers=1),
    _event(
        "event: no handler place, handler fails, killed",
        4_793,
        {M.BUSY: 2, M.HANDLER_RAISES: 1, M.CRASH: 1},
        hops=2,
        most_tasks=3,
    ),
    _event("turns: two events, two workers", 6_052, {}, events=2, turns=True, hops=0, attempts=1),
    _event(
        "turns: the handler fails, killed",
        4_120,
        {M.HANDLER_RAISES: 1, M.CRASH: 1},
        events=2,
        turns=True,
        workers=1,
        most_tasks=3,
    ),
    _event("turns: patience ends, killed", 822, {M.PATIENCE: 1, M.CRASH: 1}, events=2, turns=True, workers=1),
    _event("turns: three events, patience ends", 829, {M.PATIENCE: 1}, events=3, turns=True, attempts=1, workers=1),
    _event("turns: two contacts", 501, {}, events=2, turns=True, contacts=2),
    _event("turns: two senders", 501, {}, events=2, turns=True, senders=2),
    _event("turns: three events", 178, {}, events=3, turns=True, attempts=1, hops=0, workers=1),
    _event(
        "turns: two of one contact, one of another",
        137,
        {},
        events=3,
        turns=True,
        contacts=2,
        attempts=1,
        hops=0,
        workers=1,
    ),
    _event(
        "turns: two events, store and queue away",
        1_226,
        {M.STORE_AWAY: 1, M.QUEUE_AWAY: 1},
        events=2,
        turns=True,
        workers=1,
        most_tasks=3,
    ),
    _event(
        "turns: the backend is down",
        851,
        {M.BACKEND_DOWN: 1},
        events=2,
        turns=True,
        backend=BACKEND,
        attempts=1,
        most_tasks=3,
        workers=1,
    ),
    _event("event: handler fails, two workers", 418, {M.HANDLER_RAISES: 2, M.CRASH: 1}),
    _event(
        "event: lost by the queue, racing sweep, killed",
        1_091,
        {M.CRASH: 1, M.TASK_LOST: 1, M.SWEEP: 1},
        sweep=True,
        workers=1,
    ),
    _plan("plan: killed, own write refused", 355, {M.CRASH: 1, M.AMBIGUOUS: 1}, workers=1),
    _plan("plan: store and queue away", 364, {M.STORE_AWAY: 1, M.QUEUE_AWAY: 1}, workers=1),
    _plan("plan: killed in the last attempt", 83, {M.CRASH: 1}, attempts=1, workers=1),
    _plan("plan: two replies, killed", 1_250, {M.CRASH: 1}, replies=2, workers=1),
    _reply("reply: killed, answer lost", 4_787, {M.CRASH: 1, M.ANSWER_LOST: 1, M.DELIVERED_AGAIN: 1}),
    _reply("reply: killed, answer lost, no receipt ever", 2_105, {M.CRASH: 1, M.ANSWER_LOST: 1}, receipts=NEVER),
    _reply("reply: killed, answer lost, receipts without an echo", 2_417, {M.CRASH: 1, M.ANSWER_LOST: 1}, echo=False),
    _reply("reply: refused, limited, killed", 543, {M.CRASH: 1, M.REFUSED: 1, M.LIMITED: 1}, workers=1),
    _reply("reply: our backoff, provider down, killed", 2_766, {M.CRASH: 1, M.RETRY: 1, M.PROVIDER_DOWN: 1}, workers=1),
    _reply("reply: limited, own write refused", 299, {M.LIMITED: 1, M.AMBIGUOUS: 1}, workers=1),
    _reply("reply: blocked, killed", 900, {M.BLOCKED: 1, M.CRASH: 1}, workers=1),
    _reply("reply: credential refused and replaced, killed", 717, {M.CREDENTIAL: 1, M.CRASH: 1}, workers=1),
    _reply("reply: late to begin, shutdown", 469, {M.STALL: 1, M.SHUTDOWN: 1}),
    _reply("reply: released, own write refused", 978, {M.SHUTDOWN: 1, M.AMBIGUOUS: 1}, receipts=NEVER),
    _reply("reply: killed in its last attempt", 540, {M.CRASH: 1}, attempts=1),
    _reply("reply: store and queue away", 79, {M.STORE_AWAY: 1, M.QUEUE_AWAY: 1}, workers=1),
    _reply("reply: give_up_at passes", 1_026, {M.GIVE_UP: 1, M.BLOCKED_ELSEWHERE: 1, M.RETRY: 1}, workers=1),
    _reply("reply: a slow answer is kept", 348, {M.ANSWER_LOST: 1}, receipts=NEVER, patient=True),
    _reply(
        "reply: lost by the queue, its name freed, killed",
        726,
        {M.CRASH: 1, M.TASK_LOST: 1, M.NAME_FREED: 1},
        sweep=True,
        workers=1,
    ),
    _reply("reply: two racing sweeps", 1_539, {M.SWEEP: 2}, workers=1, most_tasks=3),
    _reply("reply: limited, racing sweep", 2_252, {M.SWEEP: 1, M.LIMITED: 1}, workers=1),
    _reply("limit: another message too", 840, {M.LIMITED: 1, M.LIMITED_ELSEWHERE: 2}, workers=1),
    _reply("limit: a call and a message, limited", 968, {M.LIMITED: 1}, replies=2, calls=1, workers=1),
    _reply("limit: two replies, limited", 646, {M.LIMITED: 1}, replies=2, receipts=NEVER, workers=1),
    _resend("resend: receipts in time", 842, {M.ANSWER_LOST: 1, M.CRASH: 1}, workers=1),
    _resend(
        "resend: receipts late, three answers lost", 1_481, {M.ANSWER_LOST: 3}, receipts=LATE, workers=1, attempts=3
    ),
    _resend(
        "resend: permanently refused after a receipt",
        470,
        {M.ANSWER_LOST: 1, M.REFUSED: 1},
        receipts=LATE,
        workers=1,
    ),
    _resend(
        "resend: rescheduled once more", 1_678, {M.ANSWER_LOST: 1, M.RETRY: 1}, receipts=LATE, workers=1, attempts=3
    ),
    _resend(
        "resend: a guard is false for now", 1_722, {M.ANSWER_LOST: 1, M.BLOCKED_ELSEWHERE: 1}, receipts=LATE, workers=1
    ),
    _reply("order: two replies, answer lost", 1_204, {M.ANSWER_LOST: 1}, replies=2, workers=1),
    _reply("order: two replies, two workers", 5_498, {}, replies=2, receipts=NEVER),
    _reply("order: the first is refused, replayed", 3_402, {M.REFUSED: 1, M.REPLAY: 1}, replies=2, workers=1),
    _reply("order: a call and a message, answer lost", 1_532, {M.ANSWER_LOST: 1}, replies=2, calls=1, workers=1),
    _reply("bell: entered while its record ends", 3_885, {}, replies=2, receipts=NEVER, bells=False),
    _reply(
        "bell: entered, killed, own write refused",
        1_094,
        {M.CRASH: 1, M.AMBIGUOUS: 1},
        replies=2,
        receipts=NEVER,
        workers=1,
        bells=False,
    ),
    _reply(
        "bell: entered, store and queue away",
        1_019,
        {M.STORE_AWAY: 1, M.QUEUE_AWAY: 1},
        replies=2,
        receipts=NEVER,
        workers=1,
        bells=False,
    ),
    _reply(
        "bell: killed, a wake task comes again",
        716,
        {M.CRASH: 1, M.DELIVERED_AGAIN: 1},
        replies=2,
        receipts=NEVER,
        workers=1,
    ),
    _reply("bell: a wake task is lost", 426, {M.TASK_LOST: 1}, replies=2, receipts=NEVER, workers=1, sweep=True),
    _reply("patience: over, killed", 903, {M.CRASH: 1, M.PATIENCE: 1}, replies=2, receipts=NEVER, workers=1),
    _reply(
        "patience: over, answer lost", 1_445, {M.ANSWER_LOST: 1, M.PATIENCE: 1}, replies=2, receipts=NEVER, workers=1
    ),
    _reply("patience: provider down", 2_025, {M.PROVIDER_DOWN: 1, M.PATIENCE: 1}, replies=2, receipts=NEVER, workers=1),
    _reply(
        "patience: over, our backoff, replayed",
        1_044,
        {M.PATIENCE: 1, M.RETRY: 1, M.REPLAY: 1},
        replies=2,
        receipts=NEVER,
        workers=1,
    ),
    _reply("patience: over, three replies", 964, {M.PATIENCE: 1}, replies=3, receipts=NEVER, workers=1),
    _reply("replay: refused for good, the command killed", 329, {M.REFUSED: 1, M.REPLAY: 1, M.CRASH: 1}, workers=1),
    _reply(
        "replay: in doubt, --may-double",
        492,
        {M.ANSWER_LOST: 1, M.MAY_DOUBLE: 1, M.RECEIPT_TWICE: 1},
        receipts=LATE,
        workers=1,
    ),
    _reply(
        "replay: its receipt said failed",
        84,
        {M.FAILED_RECEIPT: 1, M.REPLAY: 1, M.RECEIPT_TWICE: 1},
        receipts=LATE,
        workers=1,
    ),
    _reply(
        "replay: its receipt said failed, without an echo",
        33,
        {M.FAILED_RECEIPT: 1, M.REPLAY: 1},
        receipts=LATE,
        echo=False,
        workers=1,
    ),
    _resend(
        "replay: resent, one copy failed",
        1_163,
        {M.ANSWER_LOST: 1, M.FAILED_RECEIPT: 1, M.REPLAY: 1},
        receipts=LATE,
        workers=1,
    ),
    _reply("replay: after give_up_at", 48, {M.GIVE_UP: 2, M.REPLAY: 1}, workers=1),
    _reply(
        "replay: expired, discarded",
        176,
        {M.FAILED_RECEIPT: 1, M.REPLAY: 1, M.EXPIRY: 1, M.REFUSED: 1, M.DISCARD: 1},
        receipts=LATE,
        workers=1,
    ),
    _reply("cancel: two workers, own write refused", 1_426, {M.CANCEL: 1, M.AMBIGUOUS: 1}),
    _resend(
        "cancel: resent, our backoff",
        3_369,
        {M.CANCEL: 1, M.ANSWER_LOST: 1, M.RETRY: 1},
        receipts=LATE,
        workers=1,
        attempts=3,
    ),
    _reply("cancel: the first of two replies", 566, {M.CANCEL: 1}, replies=2, workers=1),
    _reply("outage: provider down repeatedly", 651, {M.PROVIDER_DOWN: 4}, workers=1, attempts=1),
    _reply("outage: provider down, killed", 1_430, {M.PROVIDER_DOWN: 2, M.CRASH: 1}, workers=1),
    _reply(
        "outage: provider down, own write refused, shutdown",
        3_140,
        {M.PROVIDER_DOWN: 2, M.AMBIGUOUS: 1, M.SHUTDOWN: 1},
        workers=1,
    ),
    _reply("outage: provider down, racing sweep", 3_870, {M.PROVIDER_DOWN: 1, M.SWEEP: 1}, workers=1, attempts=1),
    _reply(
        "outage: provider down, give_up_at passes, replayed",
        1_475,
        {M.PROVIDER_DOWN: 2, M.GIVE_UP: 1, M.REPLAY: 1},
        workers=1,
    ),
    _reply(
        "outage: two replies, provider down",
        2_288,
        {M.PROVIDER_DOWN: 2},
        replies=2,
        workers=1,
        attempts=1,
        receipts=NEVER,
    ),
    _reply("outage: a call and a message, provider down", 1_648, {M.PROVIDER_DOWN: 1}, replies=2, calls=1, workers=1),
    _reply(
        "outage: hold, answer lost, provider down",
        800,
        {M.ANSWER_LOST: 2, M.PROVIDER_DOWN: 1},
        receipts=LATE,
        workers=1,
        attempts=3,
    ),
    _resend(
        "outage: resend, answer lost, provider down",
        3_787,
        {M.ANSWER_LOST: 2, M.PROVIDER_DOWN: 1},
        receipts=LATE,
        workers=1,
        attempts=4,
    ),
    _reply(
        "block: two replies, a failed receipt blocks, own write refused",
        2_053,
        {M.FAILED_RECEIPT: 1, M.AMBIGUOUS: 1},
        replies=2,
        workers=1,
        blocking=True,
    ),
    _reply(
        "block: by a receipt, credential replaced",
        793,
        {M.FAILED_RECEIPT: 1, M.REPLAY: 1, M.CREDENTIAL: 1},
        workers=1,
        blocking=True,
    ),
    _reply("credential: access denied, then granted, killed", 4_090, {M.ACCESS_DENIED: 2, M.CRASH: 1}, workers=1),
    _reply("reply: suspended and resumed, killed", 186, {M.SUSPENDED: 1, M.CRASH: 1}, workers=1),
    _resend(
        "resend: suspended and resumed, killed",
        630,
        {M.SUSPENDED: 1, M.CRASH: 1},
        receipts=LATE,
        workers=1,
    ),
    _event("backend: refuses every call, repeatedly", 444, {M.BACKEND_DOWN: 3}, backend=BACKEND, workers=1, attempts=1),
    _event(
        "backend: does not answer, takes nothing, killed",
        3_617,
        {M.BACKEND_LOST: 1, M.BACKEND_DOWN: 1, M.CRASH: 1},
        backend=BACKEND,
        workers=1,
        attempts=3,
    ),
    _event(
        "backend: two events, one fails", 2_069, {M.BACKEND_DOWN: 2}, backend=BACKEND, events=2, workers=1, attempts=1
    ),
    _event(
        "backend: refuses every call, give_up_at passes, replayed",
        841,
        {M.BACKEND_DOWN: 2, M.GIVE_UP: 1, M.REPLAY: 1},
        backend=BACKEND,
        workers=1,
    ),
    _event("every call: an event", 521, {}, every_call=True),
    _reply("every call: a reply, killed, answer lost", 821, {M.CRASH: 1, M.ANSWER_LOST: 1}, every_call=True, workers=1),
)

SLOW: Sequence[Setting] = (
    *LARGER_LANES,
    _resend("resend: receipts late, two answers lost", 5_687, {M.ANSWER_LOST: 2, M.CRASH: 1}, receipts=LATE, workers=1),
    _reply("outage: two workers", 5_604, {M.PROVIDER_DOWN: 1}, attempts=1, receipts=NEVER, hops=0),
    _event(
        "backend: refuses every call, own write refused, shutdown",
        3_494,
        {M.BACKEND_DOWN: 2, M.AMBIGUOUS: 1, M.SHUTDOWN: 1},
        backend=BACKEND,
        workers=1,
    ),
    _event(
        "backend: two events, two workers",
        16_030,
        {M.BACKEND_LOST: 1},
        backend=BACKEND,
        events=2,
        attempts=3,
        most_tasks=3,
        hops=0,
    ),
    _reply(
        "outage: provider down, store and queue away",
        5_842,
        {M.PROVIDER_DOWN: 2, M.STORE_AWAY: 1, M.QUEUE_AWAY: 1},
        workers=1,
        attempts=1,
    ),
    _event(
        "event: three webhooks at once, killed twice, own write refused twice",
        1_686,
        {M.CRASH: 2, M.AMBIGUOUS: 2},
        webhooks=3,
    ),
    _event(
        "event: handler fails to the end, replayed, two workers", 9_511, {M.HANDLER_RAISES: 2, M.REPLAY: 1, M.CRASH: 1}
    ),
    _event(
        "event: three workers, lost by the queue, racing sweep",
        5_575,
        {M.CRASH: 1, M.TASK_LOST: 1, M.SWEEP: 1},
        sweep=True,
        workers=3,
    ),
    _plan("end to end: killed, own write refused, two webhooks", 22_935, {M.CRASH: 1, M.AMBIGUOUS: 1}, webhooks=2),
    _plan("end to end: killed, answer lost", 7_665, {M.CRASH: 1, M.ANSWER_LOST: 1}),
    _plan("end to end: racing sweep", 20_353, {M.SWEEP: 1}),
    _plan(
        "end to end: two replies, killed, own write refused",
        5_559,
        {M.CRASH: 1, M.AMBIGUOUS: 1},
        replies=2,
        workers=1,
    ),
    _plan(
        "end to end: handler fails, killed, queue away",
        27_771,
        {M.CRASH: 1, M.HANDLER_RAISES: 1, M.QUEUE_AWAY: 1},
        most_tasks=3,
    ),
    _reply(
        "reply: killed twice, answer lost, receipts late",
        19_548,
        {M.CRASH: 2, M.ANSWER_LOST: 1, M.DELIVERED_AGAIN: 1},
        receipts=LATE,
    ),
    _reply(
        "reply: killed, answer lost, racing sweep", 167_062, {M.CRASH: 1, M.ANSWER_LOST: 1, M.SWEEP: 1}, most_tasks=3
    ),
    _reply(
        "reply: lost by the queue, its name freed, racing sweep",
        1_993,
        {M.TASK_LOST: 1, M.NAME_FREED: 1, M.SWEEP: 1},
        sweep=True,
        workers=1,
    ),
    _reply("limit: another message too, two workers", 30_089, {M.LIMITED: 1, M.LIMITED_ELSEWHERE: 1}),
    _reply("limit: another message too, killed", 4_867, {M.LIMITED: 1, M.LIMITED_ELSEWHERE: 2, M.CRASH: 1}, workers=1),
    _reply("limit: two replies, limited twice", 3_770, {M.LIMITED: 2}, replies=2, receipts=NEVER, workers=1),
    _resend("limit: resend, answer lost", 3_174, {M.LIMITED: 1, M.LIMITED_ELSEWHERE: 1, M.ANSWER_LOST: 1}, workers=1),
    _reply(
        "reply: refused, limited, killed, two workers", 53_757, {M.CRASH: 1, M.REFUSED: 1, M.LIMITED: 1}, most_tasks=3
    ),
    _reply(
        "reply: our backoff, provider down, two workers",
        302_835,
        {M.RETRY: 1, M.PROVIDER_DOWN: 1},
        most_tasks=3,
    ),
    _reply(
        "reply: limited, own write refused, racing sweep",
        6_499,
        {M.LIMITED: 1, M.AMBIGUOUS: 1, M.SWEEP: 1},
        receipts=NEVER,
        workers=1,
    ),
    _reply(
        "reply: limited, own write refused, killed",
        182_811,
        {M.LIMITED: 1, M.AMBIGUOUS: 1, M.CRASH: 1},
        receipts=NEVER,
        most_tasks=3,
    ),
    _reply(
        "reply: blocked, also elsewhere, killed",
        2_976,
        {M.BLOCKED: 1, M.CRASH: 1, M.BLOCKED_ELSEWHERE: 1},
        most_tasks=3,
        workers=1,
    ),
    _reply(
        "reply: credential refused and replaced, killed, two workers",
        148_977,
        {M.CREDENTIAL: 1, M.CRASH: 1},
        most_tasks=3,
    ),
    _reply("reply: credential refused, two replies", 2_277, {M.CREDENTIAL: 2}, replies=2, workers=1),
    _reply("reply: three workers, killed, answer lost", 12_414, {M.CRASH: 1, M.ANSWER_LOST: 1}, workers=3),
    _resend(
        "resend: receipts in time, racing sweep, killed",
        26_486,
        {M.CRASH: 1, M.ANSWER_LOST: 1, M.SWEEP: 1},
        workers=1,
        most_tasks=3,
    ),
    _resend(
        "resend: a guard is false for now, killed, give_up_at",
        28_785,
        {M.CRASH: 1, M.ANSWER_LOST: 1, M.BLOCKED_ELSEWHERE: 1, M.GIVE_UP: 1},
        receipts=LATE,
        workers=1,
    ),
    _resend("resend: limited, two answers lost", 4_913, {M.LIMITED: 1, M.ANSWER_LOST: 2}, receipts=LATE, workers=1),
    _resend(
        "resend: a slow answer is kept, refused for good",
        46_650,
        {M.ANSWER_LOST: 1, M.REFUSED: 1},
        receipts=LATE,
        patient=True,
    ),
    _resend(
        "resend: released twice, own write refused, replayed",
        38_720,
        {M.SHUTDOWN: 2, M.ANSWER_LOST: 2, M.AMBIGUOUS: 1, M.MAY_DOUBLE: 1},
        receipts=LATE,
        workers=1,
        attempts=3,
    ),
    _resend(
        "resend: order, behind a replayed first",
        188_923,
        {M.ANSWER_LOST: 1, M.REFUSED: 1, M.REPLAY: 1},
        receipts=LATE,
        replies=2,
        workers=1,
    ),
    _reply("order: two replies, killed, two workers", 4_302, {M.CRASH: 1}, replies=2, receipts=NEVER, hops=0),
    _reply(
        "order: two replies, killed, answer lost",
        4_414,
        {M.CRASH: 1, M.ANSWER_LOST: 1},
        replies=2,
        receipts=NEVER,
        workers=1,
    ),
    _resend(
        "order: two replies, answer lost, refused",
        3_400,
        {M.ANSWER_LOST: 1, M.REFUSED: 1},
        replies=2,
        receipts=NEVER,
        workers=1,
    ),
    _reply("order: three replies, killed", 2_591, {M.CRASH: 1}, replies=3, receipts=NEVER, workers=1),
    _reply(
        "order: a call and a message, killed, answer lost",
        21_289,
        {M.CRASH: 1, M.ANSWER_LOST: 1},
        replies=2,
        calls=1,
        workers=1,
    ),
    _reply(
        "bell: entered, own write refused, two workers",
        9_892,
        {M.AMBIGUOUS: 1},
        replies=2,
        receipts=NEVER,
        hops=0,
        bells=False,
    ),
    _reply(
        "bell: entered, killed, own write refused, two workers",
        43_220,
        {M.CRASH: 1, M.AMBIGUOUS: 1},
        replies=2,
        receipts=NEVER,
        hops=0,
        bells=False,
    ),
    _reply(
        "bell: the first is refused, replayed, two workers",
        73_993,
        {M.REFUSED: 1, M.REPLAY: 1},
        replies=2,
        receipts=NEVER,
        hops=0,
    ),
    _reply(
        "bell: three replies, entered, killed", 1_759, {M.CRASH: 1}, replies=3, receipts=NEVER, workers=1, bells=False
    ),
    _reply(
        "bell: a call and two messages, refused, replayed, killed",
        85_563,
        {M.CRASH: 1, M.REFUSED: 1, M.REPLAY: 1},
        replies=3,
        calls=1,
        receipts=NEVER,
        workers=1,
        most_tasks=3,
    ),
    _reply("bell: the first is cancelled, two workers", 19_113, {M.CANCEL: 1}, replies=2, receipts=NEVER),
    _reply(
        "bell: the first is cancelled, killed", 2_139, {M.CANCEL: 1, M.CRASH: 1}, replies=2, receipts=NEVER, workers=1
    ),
    _reply("patience: over, two workers", 13_458, {M.PATIENCE: 1}, replies=2, receipts=NEVER),
    _reply("patience: over twice, three replies", 1_365, {M.PATIENCE: 2}, replies=3, receipts=NEVER, workers=1),
    _reply(
        "patience: over twice, three replies, cancelled",
        20_641,
        {M.PATIENCE: 2, M.CANCEL: 1},
        replies=3,
        receipts=NEVER,
        workers=1,
    ),
    _reply(
        "patience: over, three replies, give_up_at passes",
        8_226,
        {M.PATIENCE: 1, M.GIVE_UP: 1},
        replies=3,
        receipts=NEVER,
        workers=1,
    ),
    _reply("patience: over, racing sweep", 3_632, {M.PATIENCE: 1, M.SWEEP: 1}, replies=2, receipts=NEVER, workers=1),
    _reply(
        "patience: blocked, credential replaced",
        51_690,
        {M.PATIENCE: 1, M.BLOCKED: 1, M.CREDENTIAL: 1},
        replies=2,
        receipts=NEVER,
        workers=1,
    ),
    _reply(
        "replay: refused for good, answer lost, killed",
        1_460,
        {M.CRASH: 1, M.REFUSED: 1, M.REPLAY: 1, M.ANSWER_LOST: 1},
        most_tasks=3,
        workers=1,
    ),
    _reply(
        "replay: in doubt, --may-double, killed",
        6_459,
        {M.ANSWER_LOST: 1, M.MAY_DOUBLE: 1, M.CRASH: 1},
        receipts=LATE,
        most_tasks=3,
        workers=1,
    ),
    _reply(
        "replay: its receipt said failed, twice over",
        58_053,
        {M.FAILED_RECEIPT: 2, M.REPLAY: 2, M.RECEIPT_TWICE: 1},
        receipts=LATE,
        most_tasks=3,
    ),
    _reply(
        "replay: its receipt said failed, without an echo, answer lost",
        22_537,
        {M.FAILED_RECEIPT: 1, M.REPLAY: 1, M.RECEIPT_TWICE: 1, M.ANSWER_LOST: 1},
        receipts=LATE,
        echo=False,
    ),
    _resend(
        "replay: resent, one copy failed, --may-double",
        1_653,
        {M.ANSWER_LOST: 1, M.FAILED_RECEIPT: 1, M.REPLAY: 1, M.MAY_DOUBLE: 1},
        receipts=LATE,
        workers=1,
    ),
    _reply(
        "replay: after give_up_at, blocked, our backoff",
        3_892,
        {M.GIVE_UP: 2, M.REPLAY: 1, M.BLOCKED_ELSEWHERE: 1, M.RETRY: 1},
        workers=1,
    ),
    _reply(
        "replay: expired, discarded, two workers",
        9_162,
        {M.FAILED_RECEIPT: 1, M.REPLAY: 1, M.EXPIRY: 1, M.REFUSED: 1, M.DISCARD: 1},
        receipts=LATE,
    ),
    _resend(
        "replay: resent, refused for good, --may-double",
        2_843,
        {M.ANSWER_LOST: 1, M.REFUSED: 1, M.REPLAY: 1, M.MAY_DOUBLE: 1},
        receipts=LATE,
        workers=1,
    ),
    _event("turns: two events, two workers, hops", 78_707, {}, events=2, turns=True),
    _event(
        "turns: two events, fails, killed, own write refused",
        17_928,
        {M.HANDLER_RAISES: 1, M.CRASH: 1, M.AMBIGUOUS: 1},
        events=2,
        turns=True,
        workers=1,
        most_tasks=3,
    ),
    _event(
        "turns: three events, patience ends twice, killed",
        16_592,
        {M.PATIENCE: 2, M.CRASH: 1},
        events=3,
        turns=True,
        attempts=1,
        workers=1,
    ),
    _event(
        "turns: patience ends, the backend is down",
        7_758,
        {M.PATIENCE: 1, M.BACKEND_DOWN: 1, M.DELIVERED_AGAIN: 1},
        events=2,
        turns=True,
        backend=BACKEND,
        attempts=1,
        most_tasks=3,
        workers=1,
    ),
    _event(
        "turns: shutdown, failed, replayed",
        4_652,
        {M.SHUTDOWN: 1, M.HANDLER_RAISES: 2, M.REPLAY: 1},
        events=2,
        turns=True,
        most_tasks=3,
        workers=1,
    ),
    _resend(
        "resend: released twice, own write refused",
        7_679,
        {M.SHUTDOWN: 2, M.ANSWER_LOST: 2, M.AMBIGUOUS: 1},
        receipts=NEVER,
        workers=1,
        attempts=3,
    ),
    _reply("outage: provider down, two workers", 19_131, {M.PROVIDER_DOWN: 1}, attempts=1),
    _reply("outage: provider down twice, two workers", 99_746, {M.PROVIDER_DOWN: 2}, attempts=1),
    _reply("outage: provider down, killed, two workers", 111_335, {M.PROVIDER_DOWN: 1, M.CRASH: 1}, most_tasks=3),
    _reply(
        "outage: two replies, provider down, two workers",
        181_272,
        {M.PROVIDER_DOWN: 1},
        replies=2,
        attempts=1,
        receipts=NEVER,
        hops=0,
    ),
    _reply(
        "outage: provider down twice, racing sweep", 10_592, {M.PROVIDER_DOWN: 2, M.SWEEP: 1}, workers=1, attempts=1
    ),
    _reply(
        "outage: a call and a message, provider down, answer lost",
        12_124,
        {M.PROVIDER_DOWN: 1, M.ANSWER_LOST: 1},
        replies=2,
        calls=1,
        workers=1,
    ),
    _resend(
        "outage: resend, blocked and down",
        10_697,
        {M.ANSWER_LOST: 1, M.BLOCKED: 1, M.PROVIDER_DOWN: 1},
        receipts=LATE,
        workers=1,
        attempts=4,
    ),
    _resend(
        "outage: resend, two replies, answer lost, provider down",
        35_288,
        {M.ANSWER_LOST: 1, M.PROVIDER_DOWN: 1},
        receipts=LATE,
        replies=2,
        attempts=4,
        most_tasks=3,
        workers=1,
    ),
    _reply(
        "outage: blocked, access denied, provider down",
        4_898,
        {M.BLOCKED: 1, M.ACCESS_DENIED: 1, M.PROVIDER_DOWN: 1},
        most_tasks=3,
        workers=1,
    ),
    _reply(
        "block: two replies, a failed receipt blocks, killed",
        4_740,
        {M.FAILED_RECEIPT: 1, M.CRASH: 1},
        replies=2,
        workers=1,
        blocking=True,
        most_tasks=3,
    ),
    _event(
        "backend: refuses every call twice, two workers",
        13_821,
        {M.BACKEND_DOWN: 2},
        backend=BACKEND,
        attempts=1,
        most_tasks=3,
    ),
    _event(
        "backend: two events, both ways, killed",
        342_579,
        {M.BACKEND_DOWN: 2, M.BACKEND_LOST: 1, M.CRASH: 1},
        backend=BACKEND,
        events=2,
        attempts=3,
        workers=1,
    ),
    _event(
        "backend: three events",
        31_052,
        {M.BACKEND_DOWN: 1, M.BACKEND_LOST: 1},
        backend=BACKEND,
        events=3,
        attempts=3,
        workers=1,
    ),
    _plan(
        "end to end: backend and provider down, killed",
        4_410,
        {M.BACKEND_DOWN: 1, M.PROVIDER_DOWN: 1, M.CRASH: 1},
        backend=BACKEND,
        workers=1,
    ),
    _event("every call: an event, two webhooks at once, killed", 17_544, {M.CRASH: 1}, webhooks=2, every_call=True),
    _reply("every call: a reply, killed, two workers", 39_846, {M.CRASH: 1}, every_call=True, receipts=NEVER),
    _reply("every call: two workers after an outage", 104_235, {}, every_call=True, receipts=NEVER, hops=0, down=True),
    _reply("outage: over, killed, two workers", 46_166, {M.CRASH: 1}, receipts=NEVER, down=True),
    _reply("outage: over, two replies, two workers", 110_510, {}, replies=2, receipts=NEVER, hops=0, down=True),
    _reply("every call: a reply, receipts in time", 13_716, {}, every_call=True),
    _reply(
        "every call: a reply, limited", 66_735, {M.LIMITED: 1}, every_call=True, receipts=NEVER, hops=0, most_tasks=3
    ),
    _resend("every call: a resend", 421, {M.ANSWER_LOST: 1}, every_call=True, receipts=NEVER, workers=1),
    _reply("every call: two replies", 117_443, {}, every_call=True, replies=2, receipts=NEVER, hops=0),
    _reply(
        "every call: two replies, killed", 1_577, {M.CRASH: 1}, every_call=True, replies=2, receipts=NEVER, workers=1
    ),
)

OF_MUTANTS: Sequence[Setting] = (
    _event("turns: look and lease apart", 1_000, {M.HANDLER_RAISES: 1}, events=2, turns=True, hops=0, looks_apart=True),
)
"""Explored only until a planted mistake is caught: how many states there are has not been measured yet."""

BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in (*QUICK, *SLOW, *OF_MUTANTS)}
