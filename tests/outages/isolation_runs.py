"""Isolation runs: what a tenant in trouble costs the others, on a running stack.

    python -m tests.outages.isolation_runs --store redis --messages 300 --trouble limited
    python -m tests.outages.isolation_runs --together --trouble limited --trouble token --trouble hanging

Tenants B, C and D get one message a second each, in two phases, each on a stack of its own: in the first no other
tenant has anything to do, and in the second one more tenant, A, is in trouble, or with --together several are at once.
A gets a message a second too, and more only where that is the trouble: a thousand that wait, or a flood. As many
messages of A have been handled before the first phase begins, since a store may be slower with more messages in it: the
emulator of Firestore looks at all of them for each query.

Two times are measured: from the customer's message to the call of the handler, and from the reply's creation to the
provider. A trouble shows a fault if a tenant's p95 grows beyond the allowed factor.
"""

import argparse
import json
import math
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

from shared.domain.identity import message_event_id, outbound_key
from shared.domain.record import OPEN_STATES, State
from tests.support.stack import SECRET, TASK_TOKEN, TEAM, Stack, as_operator

FACTOR = 1.5
"""How much a tenant's p95 may grow while another tenant is in trouble."""

OTHERS = ("tenant-b", "tenant-c", "tenant-d")
KEY = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
NOBODY = "http://127.0.0.1:9/pombo"
"""An address that refuses connections."""

QUEUED = 1000
"""Messages of the tenant in trouble that wait for the provider, each of another customer."""

A_SECOND = {"flooding": 30, "busy": 5}
"""Messages a second, about, of a tenant that floods the others, and of one that is only busy: the emulator of Firestore
cannot handle the flood.
"""

HANGS = 15
"""Seconds that a hanging handler takes."""

EVENT, REPLY = "message to handler", "reply to provider"
_contacts = count(9_000_000)


@dataclass(frozen=True, slots=True)
class Sent:
    """One message of a customer to a tenant, and when it was written."""

    tenant: str
    id: str
    at: float


Samples = Mapping[tuple[str, str], Sequence[float]]
"""Seconds of each message, by what was measured and by tenant."""


# ---- the stack


def make_stack(data_dir: Path, store: str, is_forked: bool = False) -> Stack:
    """A stack at the protocol's own speed, not started. Its handler does what the message says. As in a project, the
    sweep gives no other task to a message that has waited for half a minute.
    """
    settings = {
        "HANDLER": "scripted:handle",
        "HANDLER_CALLS": str(data_dir / "calls.jsonl"),
        "HANDLER_TIMEOUT": "20s",
        "PYTHONPATH": str(TEAM),
        "META_APP_SECRET": SECRET,
        "INTERNAL_TASK_TOKEN": TASK_TOKEN,
        "SWEEP_AFTER": "600s",
    }
    return Stack(data_dir, (), settings, store, is_forked=is_forked)


def pombo(stack: Stack, *arguments: str, given: str = "") -> str:
    """Run a command on the stack, with this on its standard input; return what it printed."""
    done = as_operator(stack, *arguments, given=given)
    assert done.returncode == 0, f"pombo {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def add_tenants(stack: Stack) -> None:
    """Each with one number, which the simulator knows by the same token."""
    for tenant in TENANTS:
        token, account = f"token-of-{tenant}", f"4{_digits(tenant)}"
        stack.control("POST", "senders", {"phone_number_id": number_of(tenant), "waba": account, "token": token})
        pombo(stack, "tenants", "add", tenant, "--json")
        about = ("--tenant", tenant, "--provider", "meta", "--id", number_of(tenant), "--account", account)
        pombo(stack, "senders", "add", *about, "--token", "-", "--json", given=token)


def number_of(tenant: str) -> str:
    """Meta's id of the tenant's number."""
    return f"3{_digits(tenant)}"


def _digits(tenant: str) -> str:
    return f"7{TENANTS.index(tenant):013}"


def say(stack: Stack, tenant: str, text: str) -> Sent:
    at = time.time()
    contact = f"1555{next(_contacts):07}"
    return Sent(tenant, stack.say(contact, text, phone_number_id=number_of(tenant)), at)


# ---- the troubles


def _every(seconds: float, act: Callable[[], object]) -> Callable[[threading.Event], None]:
    """Act again and again until the event is set."""

    def run(over: threading.Event) -> None:
        while not over.wait(seconds):
            act()

    return run


@contextmanager
def _under_way(act: Callable[[threading.Event], None]) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=act, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _refused(stack: Stack, tenant: str, code: int, status: int) -> Iterator[None]:
    """The provider answers every send of A with this code, and A has many messages queued."""
    stack.fault("send", "error", code=code, status=status, times=0, match={"phone_number_id": number_of(tenant)})
    for _ in range(QUEUED):
        say(stack, tenant, "hello")
    stack.wait_until(lambda: _waiting(stack, tenant) >= QUEUED, "its messages wait", 120)
    with _under_way(_every(1, lambda: say(stack, tenant, "hello"))):
        yield


def _waiting(stack: Stack, tenant: str) -> int:
    """Messages of the tenant that the provider has not taken."""
    count: int = stack.store.load(tenant, datetime.now(UTC)).messages[State.PENDING]
    return count


def _is_handled(stack: Stack, tenant: str) -> bool:
    """Whether all events and messages of the tenant have ended."""
    load = stack.store.load(tenant, datetime.now(UTC))
    return not any(of_kind.get(state) for of_kind in (load.events, load.messages) for state in OPEN_STATES)


@contextmanager
def _hanging(stack: Stack, tenant: str) -> Iterator[None]:
    """The deployment's handler hangs with A's messages."""
    with _under_way(_every(1, lambda: say(stack, tenant, f"!hang {HANGS}"))):
        yield


@contextmanager
def _own_handler(stack: Stack, tenant: str, url: str) -> Iterator[None]:
    pombo(stack, "tenants", "set", tenant, "--handler-url", url, "--handler-secret", "-", given=KEY)
    with _under_way(_every(1, lambda: say(stack, tenant, "hello"))):
        yield


@contextmanager
def _silent(stack: Stack, tenant: str) -> Iterator[None]:
    """A's own backend takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        with _own_handler(stack, tenant, f"http://127.0.0.1:{server.getsockname()[1]}/pombo"):
            yield


@contextmanager
def _written_to(stack: Stack, tenant: str) -> Iterator[None]:
    """Several messages a second to A, each in a webhook of its own."""
    text = {"type": "text", "content": {"body": "!nothing"}, "phone_number_id": number_of(tenant)}
    pause = 0.75 / A_SECOND[tenant]  # the rest is the call's
    with _under_way(_every(pause, lambda: stack.inbound(**{"from": f"1555{next(_contacts):07}", **text}))):
        yield


def _guessed_ids(known: str) -> Iterator[str]:
    """The id of a key that exists, and one that no key has, in turn."""
    while True:
        yield known
        yield secrets.token_hex(len(known) // 2)


def _new_key(stack: Stack, tenant: str) -> dict[str, str]:
    """The id of a new API key of the tenant, and the key itself."""
    made: dict[str, str] = json.loads(pombo(stack, "keys", "add", "--tenant", tenant, "--scopes", "read", "--json"))
    return made


def _ask(stack: Stack, key: str) -> int:
    """The status of a request to the API with this key."""
    url = f"{stack.described['api']}/v1/messages"
    return stack.http.get(url, headers={"Authorization": f"Bearer {key}"}).status_code


@contextmanager
def _guessing(stack: Stack, tenant: str) -> Iterator[None]:
    """Some thirty requests a second to the API, with wrong keys of the form of A's. One with the right key of another
    tenant comes every second.
    """
    ids, right = _guessed_ids(_new_key(stack, tenant)["id"]), _new_key(stack, OTHERS[0])["key"]
    guessed, others = list[int](), [_ask(stack, right)]
    guess = _every(0.025, lambda: guessed.append(_ask(stack, f"pombo_{next(ids)}_{secrets.token_hex(32)}")))
    with (
        _under_way(guess),
        _under_way(_every(1, lambda: others.append(_ask(stack, right)))),
        _under_way(_every(1, lambda: say(stack, tenant, "hello"))),
    ):
        yield
    assert 401 in guessed
    assert set(guessed) <= {401, 503}, "503: more unknown ids than the process looks up in a second"
    assert set(others) == {200}


TROUBLES: Mapping[str, Callable[[Stack, str], AbstractContextManager[None]]] = {
    "flooding": _written_to,
    "busy": _written_to,
    "guessing": _guessing,
    "hanging": _hanging,
    "down": lambda stack, tenant: _own_handler(stack, tenant, NOBODY),
    "silent": _silent,
    "token": lambda stack, tenant: _refused(stack, tenant, 190, 401),
    "limited": lambda stack, tenant: _refused(stack, tenant, 130429, 400),
}
"""What happens to a tenant, by the option's name."""

TENANTS = (*OTHERS, *TROUBLES)
"""A tenant in trouble is called by its trouble."""


# ---- a phase, and what came of it


def phase(stack: Stack, messages: int) -> list[Sent]:
    """Write to each of the others once a second; all has ended when this returns."""
    sent: list[Sent] = []

    def write(tenant: str, offset: float) -> None:
        began = time.monotonic() + offset
        for number in range(messages):
            time.sleep(max(0.0, began + number - time.monotonic()))
            sent.append(say(stack, tenant, "hello"))

    threads = [
        threading.Thread(target=write, args=(tenant, place / len(OTHERS))) for place, tenant in enumerate(OTHERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stack.wait_until(lambda: all(_is_answered(stack, one) for one in sent[-len(OTHERS) * 20 :]), "all is sent", 120)
    return sent


def _is_answered(stack: Stack, one: Sent) -> bool:
    reply = stack.store.get(outbound_key(_key(one), 0))
    return reply is not None and reply.final


def _key(one: Sent) -> str:
    return message_event_id("meta", number_of(one.tenant), one.id)


def measured(stack: Stack, sent: Sequence[Sent]) -> Samples:
    """Both times of each message. A message without a reply that the provider accepted counts as infinitely late."""
    accepted = {entry["key"]: datetime.fromisoformat(entry["accepted_at"]) for entry in stack.ledger()}
    found: dict[tuple[str, str], list[float]] = {(what, name): [] for what in (EVENT, REPLY) for name in OTHERS}
    for one in sent:
        event, reply = stack.store.get(_key(one)), stack.store.get(outbound_key(_key(one), 0))
        started = event.started_at.timestamp() - one.at if event and event.started_at else math.inf
        at = accepted.get(reply.key) if reply else None
        found[EVENT, one.tenant].append(started)
        found[REPLY, one.tenant].append((at - reply.received_at).total_seconds() if reply and at else math.inf)
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that this share of all values does not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def growth(idle: Samples, trouble: Samples, what: str) -> dict[str, float]:
    """How many times its idle p95 each tenant's p95 is, with A in trouble."""
    return {name: quantile(trouble[what, name], 0.95) / quantile(idle[what, name], 0.95) for name in OTHERS}


def row(store: str, name: str, what: str, idle: Samples, trouble: Samples) -> str:
    """A line of the table: p50 and p95 over all others in both phases, and the greatest growth of one tenant's p95."""
    figures = []
    for samples in (idle, trouble):
        values = [value for tenant in OTHERS for value in samples[what, tenant]]
        figures += [f"{quantile(values, share) * 1000:.0f}" for share in (0.5, 0.95)]
    worst = max(growth(idle, trouble, what).values())
    return f"| {store} | {name} | {what} | {' | '.join(figures)} | {worst:.2f} |"


def faults_of(idle: Samples, trouble: Samples, factor: float) -> list[str]:
    """What must not be: a tenant that A's trouble delays."""
    return [
        f"{what} of {name}: p95 is {times:.2f} times as long"
        for what in (EVENT, REPLY)
        for name, times in growth(idle, trouble, what).items()
        if times > factor
    ]


def in_trouble(stack: Stack, names: Sequence[str], messages: int) -> Samples:
    """A phase in which the tenant of each of these troubles has it."""
    with ExitStack() as troubles:
        for name in names:
            troubles.enter_context(TROUBLES[name](stack, name))
        time.sleep(5)  # until the trouble is there
        return measured(stack, phase(stack, messages))


def written_by(name: str, messages: int) -> int:
    """How many messages the tenant of this trouble has written in the middle of a phase of so many seconds."""
    queued = QUEUED if name in ("limited", "token") else 0
    return queued + A_SECOND.get(name, 1) * messages // 2


def all_idle(stack: Stack, names: Sequence[str], messages: int) -> Samples:
    """A phase in which the tenants of these troubles have nothing to do: what they wrote has been handled."""
    for name in names:
        for _ in range(written_by(name, messages)):
            say(stack, name, "!nothing" if name in A_SECOND else "hello")
        stack.wait_until(partial(_is_handled, stack, name), "all is handled", 600)
    return measured(stack, phase(stack, messages))


def compared(start: Callable[[], Stack], names: Sequence[str], messages: int) -> tuple[Samples, Samples]:
    """The samples with all idle, and with these troubles, each on a stack that `start` makes."""
    idle, trouble = (_on(start(), part, names, messages) for part in (all_idle, in_trouble))
    return idle, trouble


def _on(
    made: Stack, part: Callable[[Stack, Sequence[str], int], Samples], names: Sequence[str], messages: int
) -> Samples:
    with made as stack:
        prepare(stack)
        return part(stack, names, messages)


def prepare(stack: Stack) -> None:
    """Add the tenants, and warm caches and connections."""
    add_tenants(stack)
    phase(stack, 5)


def main() -> int:
    """Run the troubles that the options name, one after the other. 1 if one of them shows a fault."""
    parser = argparse.ArgumentParser("isolation_runs", description=__doc__)
    parser.add_argument("--store", default="sqlite", choices=("sqlite", "firestore", "redis"))
    parser.add_argument("--messages", type=int, default=300, help="of each tenant and phase, one a second")
    parser.add_argument("--trouble", action="append", choices=tuple(TROUBLES))
    parser.add_argument("--together", action="store_true", help="all troubles at once, in one phase")
    parser.add_argument("--factor", type=float, default=FACTOR)
    asked = parser.parse_args()
    names = asked.trouble or tuple(TROUBLES)
    phases = [names] if asked.together else [[name] for name in names]
    print("| store | A's trouble | time (ms) | idle p50 | p95 | trouble p50 | p95 | worst growth |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    bad = 0
    with tempfile.TemporaryDirectory() as directory:
        data_dirs = (Path(directory) / str(number) for number in count())
        for names in phases:
            idle, trouble = compared(lambda: make_stack(next(data_dirs), asked.store), names, asked.messages)
            for what in (EVENT, REPLY):
                print(row(asked.store, ", ".join(names), what, idle, trouble), flush=True)
            faults = faults_of(idle, trouble, asked.factor)
            bad += bool(faults)
            print("\n".join(faults), end="\n" if faults else "", file=sys.stderr, flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
