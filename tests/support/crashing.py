"""A stack with one service that crashes: the test starts it with CRASH_AT, and again after it died.

What is started again is prepared for the next crash: it has that one's CRASH_AT, and its mark, which disarms it. So a
crash costs one start, of a process that recovers from it and then waits for the next.
"""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
import httpx
from google.cloud.tasks_v2 import CloudTasksClient
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from local.children import Child
from local.services import SERVICES
from shared import crash
from shared.config import LOCAL_SECRETS
from tests.support import forked
from tests.support.stack import SECONDS, TASK_TOKEN, Stack

T = TypeVar("T")
READY_SECONDS = 60.0
PAUSE = 0.3
"""Seconds between two looks. Several stacks wait at once, and each look asks several processes."""


class Forked(Child):
    """A child of the stack that costs no imports."""

    def start(self) -> None:
        with self._out.open("ab") as out, self._err.open("ab") as err:
            self._err_before = err.tell()
            launched = ["local.launch", *self._command[3:]]
            self._process = forked.start(launched, self._environment, err, out, new_session=True)  # type: ignore[assignment]


@dataclass
class Rig:
    """A running stack, with `--no-restart`: another process takes the place of the service that is to crash.

    That process starts as the stack starts it, with the environment of the one it replaces. So one service can crash at
    one point after another while the rest of the stack stays up.
    """

    stack: Stack
    deaths: list[int] = field(default_factory=list)
    """How the service has ended since it was armed."""

    def __post_init__(self) -> None:
        self.stack.start()
        self._environments = {service: self._environment(service) for service in SERVICES}
        self._queues = grpc.insecure_channel(self.stack.described["tasks"])
        self._tasks = CloudTasksClient(transport=CloudTasksGrpcTransport(channel=self._queues))
        self._own: dict[str, Child] = {}
        self._armed: Child | None = None
        self._then = ("", "")
        self._prepared: tuple[str, str] | None = None
        """The service that was started again, and the CRASH_AT that it has."""

    def _environment(self, service: str) -> Mapping[str, str]:
        told = Path(f"/proc/{self.stack.pids()[service]}/environ").read_bytes().decode()
        return dict(line.split("=", 1) for line in told.split("\0") if line)

    # ---- the crash

    def arm(self, service: str, crash_at: str, then: str | None = None, fresh: bool = False) -> None:
        """From now on the running service crashes at this point. No work may be under way. Forgets what was learned
        about the number before.

        `then`: the CRASH_AT of the next crash of this service, which the one that is started again is prepared for.
        `fresh`: with a new process, whose caches are empty.
        """
        self.stack.put_marks(down=None, block=None, receipt_block=None)
        self.mark = crash.mark_of(self.stack.data_dir, crash_at)
        if fresh or self._prepared != (service, crash_at):
            self._replace(service, crash_at)
        self.mark.unlink(missing_ok=True)
        self._armed, self._prepared, self.deaths = self._own[service], None, []
        self._then = (service, then or crash_at)
        if then not in (None, crash_at):
            crash.mark_of(self.stack.data_dir, self._then[1]).touch()

    def _replace(self, service: str, crash_at: str) -> None:
        self.mark.touch()
        if service in self._own:
            self._own[service].wait(0)  # no longer than that: SIGKILL
        else:
            self.stack.kill(service)
        child = self._start(service, crash_at)
        self.stack.wait_until(lambda: self._lives(service) or child.returncode, f"{service} is back", READY_SECONDS)
        assert child.returncode is None, child.said()

    def _start(self, service: str, crash_at: str) -> Child:
        data_dir = self.stack.data_dir
        environment = {**self._environments[service], "CRASH_AT": crash_at}
        errors = data_dir / f"{service}.stderr.log"
        child = Forked(service, [f"services.{service}"], environment, data_dir / "logs.jsonl", errors)
        child.start()
        self._own[service] = child
        return child

    def _lives(self, service: str) -> bool:
        """/livez passes no crash point."""
        return self._status(lambda: self.stack.get(service, "/livez")) == 200

    def restart(self, **changes: str) -> None:
        """Restart the whole stack with these settings; no service crashes any more."""
        self._release()
        self.stack.restart(**changes)

    def close(self, failed: bool = False) -> None:
        """End all of it. If a test failed, its logs are not checked."""
        self._release()
        self._queues.close()
        self.stack.__exit__(AssertionError if failed else None)

    def _release(self) -> None:
        for child in self._own.values():
            child.wait(0)
        self._own, self._armed, self._prepared = {}, None, None

    # ---- the world outside

    def deliver(self, body: bytes) -> None:
        """Repeat a webhook until the answer is 200, as Meta does."""
        self.wait_until(lambda: self._status(lambda: self.stack.post(body)) == 200, "the webhook is answered 200")

    def sweep(self) -> bool:
        """The scheduler's call; whether it was answered 200."""
        url = self.stack.described["internal"] + "/internal/sweep"
        return self._status(lambda: self.stack.http.post(url, headers={"X-Internal-Token": TASK_TOKEN})) == 200

    def is_ready(self, service: str) -> bool:
        return self._status(lambda: self.stack.get(service, "/readyz")) == 200

    def shakes_hands(self) -> bool:
        """Whether WhatsApp's handshake with the webhook is answered with its challenge."""
        query = f"hub.mode=subscribe&hub.verify_token={LOCAL_SECRETS['META_VERIFY_TOKEN']}&hub.challenge=1158201444"
        return self._status(lambda: self.stack.get("webhook", f"/webhooks/whatsapp?{query}")) == 200

    def asks_api(
        self, method: str, path: str, key: str, body: Any = None, idempotency_key: str | None = None
    ) -> httpx.Response | None:
        """The answer of the API; None if it died, or is not up again yet."""
        headers = {
            "Authorization": f"Bearer {key}",
            **({"Idempotency-Key": idempotency_key} if idempotency_key else {}),
        }
        try:
            return self.stack.http.request(method, self.stack.described["api"] + path, json=body, headers=headers)
        except httpx.TransportError:
            return None

    def _status(self, call: Callable[[], httpx.Response]) -> int | None:
        try:
            return call().status_code
        except httpx.TransportError:
            return None  # it died, or is not up again yet

    # ---- waiting

    def wait_until(self, condition: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
        """As the stack's. Meanwhile restarts a service that died, as the stack would."""

        def looked() -> T:
            if self._armed is not None and self._armed.returncode is not None:
                self.deaths.append(self._armed.returncode)
                self._armed = self._start(*self._then)
                self._prepared = self._then
            return condition()

        return self.stack.wait_until(looked, what, seconds, PAUSE)

    def has_crashed(self) -> bool:
        return bool(self.deaths)

    def check_crash(self) -> None:
        """It crashed once, at its crash point, and came back."""
        assert self.deaths == [-signal.SIGKILL]
        assert self.mark.exists()

    def is_quiet(self) -> bool:
        """No webhook and no task is left."""
        parents = [self._tasks.queue_path("pombo-local", "local", name) for name in ("inbound", "outbound")]
        is_delivered = self.stack.control("GET", "webhooks")["pending"] == 0
        return is_delivered and not any(list(self._tasks.list_tasks(parent=parent)) for parent in parents)
