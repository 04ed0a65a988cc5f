"""Dead letters on a running stack: created as Pombo leaves them, and replayed or discarded by the command."""

import json
import os
import pty
import subprocess
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from click.testing import CliRunner

from cli.commands import pombo
from shared.config import LOCAL_SECRETS
from shared.domain.delivery.create import create
from shared.domain.identity import Echo, message_event_id, outbound_key
from shared.domain.limits import Limits
from shared.domain.record import Attempt, Delivery, Kind, State
from shared.domain.tenants import Sender, Tenant
from shared.operations.registry import add_tenant
from shared.operations.senders import add_sender
from shared.pipeline.clock import SystemClock
from tests.support.payloads import envelope, receipt, text, value, wire
from tests.support.stack import SENDER, TASK_TOKEN, Stack, clean_environment, cli, command

LIMITS = Limits()
WORDS = "a c4n4ry text"
"""The content of every letter, which no list may show."""

PRIVATE = ("c4n4ry", "1555", "wamid", "+")


@dataclass(frozen=True)
class Desk:
    """One stack, and the `pombo dead` commands on it."""

    stack: Stack
    numbers: dict[str, str] = field(default_factory=dict)
    """The number of each tenant beside `default` that has letters."""

    # ---- letters

    def put(self, contact: str, words: str = WORDS, /, **changes: Any) -> Delivery:
        """A message that is dead, unless the changes say otherwise."""
        record = self._made(Kind.OUTBOUND, outbound_key(uuid.uuid4().hex, 0), contact, _reply(contact, words))
        return self._put(record, changes)

    def put_many(self, contacts: Sequence[str], **changes: Any) -> list[Delivery]:
        self._number_of(changes.get("tenant", "default"))  # before several threads would add it
        with ThreadPoolExecutor(8) as threads:
            return list(threads.map(lambda contact: self.put(contact, **changes), contacts))

    def put_event(self, contact: str, payload: Any = None, /, **changes: Any) -> Delivery:
        """An event that is dead: a text, or the given payload."""
        message_id = f"wamid.{uuid.uuid4().hex}"
        item = {"item": text(contact, message_id, "hello"), "contact": {}, "phone_number_id": SENDER}
        key = message_event_id("meta", SENDER, message_id)
        record = self._made(Kind.INBOUND, key, contact, payload or {"field": "messages", **item})
        return self._put(record, {"reason": "error", "last_error": f"LookupError: {WORDS}"} | changes)

    def _made(self, kind: Kind, key: str, contact: str, payload: Any) -> Delivery:
        return create(
            kind,
            key,
            provider="meta",
            tenant="default",
            sender=SENDER,
            contact=contact,
            correlation_id=uuid.uuid4().hex,
            payload=payload,
            limits=LIMITS,
            now=datetime.now(UTC),
        )

    def _number_of(self, tenant: str) -> str:
        """The number of a tenant, which is added on first use."""
        if tenant in ("", "default"):
            return SENDER
        if tenant not in self.numbers:
            place, registry, clock = f"{len(self.numbers):07}", self.stack.store, SystemClock()
            number, account, token = f"21{place}", f"31{place}", LOCAL_SECRETS["WHATSAPP_ACCESS_TOKEN"]
            self.stack.control("POST", "senders", {"phone_number_id": number, "waba": account, "token": token})
            add_tenant(registry, clock, Tenant(tenant), 20)
            add_sender(registry, registry, clock, (), Sender(tenant, "meta", number, account))
            self.numbers[tenant] = number
        return self.numbers[tenant]

    def _put(self, record: Delivery, changes: Any) -> Delivery:
        if record.kind is Kind.OUTBOUND:
            changes = {"sender": self._number_of(changes.get("tenant", "default"))} | changes
        ended = {"state": State.DEAD, "reason": "permanent", "attempt": 1, "sweep_at": None, "due_at": None}
        record = replace(record, **(ended | {"finished_at": datetime.now(UTC)} | changes))
        # Eight threads next to the stack's own may find the file busy, like a task that is then retried.
        self.stack.wait_until(lambda: self.stack.store.create(record) or True, "the record is written")
        return record

    def get(self, record: Delivery) -> Delivery:
        found: Delivery = self.stack.store.get(record.key)
        return found

    def wait_done(self, *records: Delivery, seconds: float = 30) -> None:
        waiting = list(records)

        def are_done() -> bool:
            while waiting and self.get(waiting[-1]).state is State.DONE:
                waiting.pop()
            return not waiting

        self.stack.wait_until(are_done, "all of them are done", seconds)

    def receive(self, *statuses: Any) -> None:
        """WhatsApp reports on messages, all in one webhook."""
        assert self.stack.post(wire(envelope(value(statuses=statuses)))).status_code == 200

    # ---- the command

    def run(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run it as an operator does, with the secret that the stack was started with."""
        given = clean_environment(**{"INTERNAL_TASK_TOKEN": TASK_TOKEN, **environment})
        return cli("dead", *arguments, *self._where, env=given)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start it the same way, without waiting."""
        environment = clean_environment(INTERNAL_TASK_TOKEN=TASK_TOKEN)
        return subprocess.Popen(
            command("dead", *arguments, *self._where),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def at_a_terminal(self, typed: str, *arguments: str) -> tuple[str, int]:
        """The whole output that an operator sees who types this, and the exit code."""
        master, slave = pty.openpty()
        environment = clean_environment(INTERNAL_TASK_TOKEN=TASK_TOKEN)
        process = subprocess.Popen(
            command("dead", *arguments, *self._where), env=environment, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        os.write(master, f"{typed}\n".encode())
        said = b""
        with suppress(OSError):  # a terminal's way to report that the other side is closed
            while part := os.read(master, 4096):
                said += part
        os.close(master)
        return said.decode(), process.wait(60)

    def json(self, *arguments: str) -> Any:
        """What a run prints with --json, without the cost of a process."""
        told = CliRunner(env={"STORE": None, "INTERNAL_TASK_TOKEN": TASK_TOKEN})
        result = told.invoke(pombo, ["dead", *arguments, "--json", *self._where])
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return json.loads(result.stdout)

    def look(self, *arguments: str) -> str:
        """What `list` and `show` print, without the cost of a process."""
        result = CliRunner(env={"STORE": None}).invoke(pombo, ["dead", *arguments, *self._where])
        assert result.exit_code == 0, result.output
        return result.output

    def listed(self, *arguments: str) -> Any:
        return json.loads(self.look("list", "--json", *arguments))

    @property
    def _where(self) -> tuple[str, str]:
        return "--data-dir", str(self.stack.data_dir)


def _reply(contact: str, words: str) -> dict[str, Any]:
    return {"type": "text", "content": {"body": words}, "reply_to": None, "to": f"+{contact}"}


def tried(answer: str, code: int | None = None) -> tuple[Attempt, ...]:
    return (Attempt(datetime.now(UTC), 1, answer, code),)


def ago(**time: float) -> datetime:
    return datetime.now(UTC) - timedelta(**time)


def failed(record: Delivery, code: int = 131049, echo: str | None = None) -> dict[str, Any]:
    """A receipt that reports a failed delivery after the message was accepted."""
    return said_of(record, "failed", echo=echo, errors=[{"code": code, "title": "refused"}])


def said_of(record: Delivery, status: str, *, echo: str | None = None, **more: Any) -> dict[str, Any]:
    """A receipt of a message, dated now; with our echo unless another is given."""
    named = echo or str(Echo(record.key, record.round, record.correlation_id))
    now = str(int(datetime.now(UTC).timestamp()))
    return receipt(record.provider_id or "", status, timestamp=now, biz_opaque_callback_data=named, **more)
