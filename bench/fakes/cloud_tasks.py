"""A fake of Cloud Tasks: CreateTask and GetQueue, by gRPC and by REST. It runs no task."""

from typing import Any

import orjson
from google.cloud.tasks_v2.types import cloudtasks, queue

from bench.fakes.calls import ALREADY_EXISTS, INVALID, NAMES, OK, UNIMPLEMENTED, Counts

CreateTaskRequest: Any = cloudtasks.CreateTaskRequest.pb()
GetQueueRequest: Any = cloudtasks.GetQueueRequest.pb()
Queue: Any = queue.Queue.pb()
PREFIX = "/google.cloud.tasks.v2.CloudTasks/"


class CloudTasks:
    """The service."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._names: set[str] = set()

    def reset(self) -> None:
        """Forget every task's name."""
        self._names.clear()

    def grpc(self, path: str, message: bytes) -> tuple[int, list[bytes]]:
        match path.removeprefix(PREFIX):
            case "CreateTask":
                name = CreateTaskRequest.FromString(message).task.name
                code = self._make(name)
                raw = name.encode()
                return code, [] if code else [b"\x0a" + _length(raw) + raw]
            case "GetQueue":
                name = GetQueueRequest.FromString(message).name
                return OK, [Queue(name=name, state=1).SerializeToString()]
        return UNIMPLEMENTED, []

    def rest(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        path = path.partition("?")[0]
        if method == "POST" and path.endswith("/tasks"):
            name = orjson.loads(body)["task"].get("name", "")
            code = self._make(name)
            return code, _refused(code) if code else orjson.dumps({"name": name})
        if method == "GET" and "/queues/" in path:
            return OK, orjson.dumps({"name": path.removeprefix("/v2/"), "state": "RUNNING"})
        return UNIMPLEMENTED, _refused(UNIMPLEMENTED)

    def _make(self, name: str) -> int:
        """A task must be named: only then does repeating the call have no further effect."""
        if not name:
            return INVALID
        if name in self._names:
            self._counts.refused += 1
            return ALREADY_EXISTS
        self._names.add(name)
        self._counts.tasks += 1
        return OK


def _refused(code: int) -> bytes:
    return orjson.dumps({"error": {"status": NAMES.get(code, "UNIMPLEMENTED"), "message": "refused by the fake"}})


def _length(raw: bytes) -> bytes:
    """As a varint of at most two bytes: a name is shorter than 16,384."""
    return b"%c" % len(raw) if len(raw) < 0x80 else b"%c%c" % (len(raw) & 0x7F | 0x80, len(raw) >> 7)
