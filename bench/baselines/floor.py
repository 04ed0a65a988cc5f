"""Floor: the same two durable calls with as little code as Python allows. No retry, no timeout, no TLS, no log.

uvloop, httptools and a connection pool of its own that speaks REST. `python bench/baselines/floor.py` serves on PORT.
"""

import asyncio
import hashlib
import hmac
import os
from base64 import b64encode
from collections import deque
from typing import cast

import httptools
import orjson
import uvloop

KEYED = hmac.new(os.environ["META_APP_SECRET"].encode(), digestmod=hashlib.sha256)
PROJECT = os.environ["GOOGLE_CLOUD_PROJECT"]
DOCUMENTS = f"projects/{PROJECT}/databases/(default)/documents"
QUEUE = f"projects/{PROJECT}/locations/{os.environ['CLOUD_TASKS_LOCATION']}/queues/inbound"
HANDLER = os.environ["INTERNAL_TASK_BASE_URL"] + "/handle"
CONNECTIONS = 32
"""To each service; further calls wait for one."""


class Call(asyncio.Protocol):
    """A connection to a service, with one call at a time."""

    def __init__(self, pool: "Pool") -> None:
        self.pool = pool
        self.answer: asyncio.Future[int] | None = None
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data
        end = data.find(b"\r\n\r\n")
        start = data.find(b"Content-Length: ", 0, end) + 16
        if end < 0 or len(data) < end + 4 + int(data[start : data.index(b"\r", start)]):
            self.buffer = data
            return
        self.buffer = b""
        answer, self.answer = self.answer, None
        self.pool.free(self)
        if answer is not None:
            answer.set_result(int(data[9:12]))


class Pool:
    """The connections to one service."""

    def __init__(self, address: str, path: str) -> None:
        self.host, _, self.port = address.partition(":")
        head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: "
        self.head = head.encode()
        self.idle: list[Call] = []
        self.opened = 0
        self.waiting: deque[asyncio.Future[Call]] = deque()

    async def post(self, body: bytes) -> int:
        call = self.idle.pop() if self.idle else await self.another()
        call.answer = asyncio.get_running_loop().create_future()
        call.transport.write(b"%b%d\r\n\r\n%b" % (self.head, len(body), body))
        return await call.answer

    async def another(self) -> Call:
        loop = asyncio.get_running_loop()
        if self.opened < CONNECTIONS:
            self.opened += 1
            _, call = await loop.create_connection(lambda: Call(self), self.host, int(self.port))
            return call
        self.waiting.append(loop.create_future())
        return await self.waiting[-1]

    def free(self, call: Call) -> None:
        if self.waiting:
            self.waiting.popleft().set_result(call)
        else:
            self.idle.append(call)


documents = Pool(os.environ["FIRESTORE_EMULATOR_HOST"], f"/v1/{DOCUMENTS}:commit")
tasks = Pool(os.environ["CLOUD_TASKS_EMULATOR_HOST"], f"/v2/{QUEUE}/tasks")


async def keep_message(message: dict[str, str]) -> bool:
    key = hashlib.sha1(message["id"].encode()).hexdigest()
    fields = {"from": {"stringValue": message["from"]}, "payload": {"stringValue": orjson.dumps(message).decode()}}
    document = {"name": f"{DOCUMENTS}/messages/{key}", "fields": fields}
    write = {"update": document, "currentDocument": {"exists": False}}
    if await documents.post(orjson.dumps({"writes": [write]})) not in (200, 409):
        return False
    body = b64encode(b'{"key":"%b"}' % key.encode()).decode()
    request = {"url": HANDLER, "httpMethod": "POST", "headers": {"Content-Type": "application/json"}, "body": body}
    task = {"name": f"{QUEUE}/tasks/{key}", "httpRequest": request}
    return await tasks.post(orjson.dumps({"task": task})) in (200, 409)


async def keep_receipt(status: dict[str, str]) -> bool:
    key = hashlib.sha1(status["id"].encode()).hexdigest()
    fields = {status["status"]: {"stringValue": status["timestamp"]}}
    write = {"update": {"name": f"{DOCUMENTS}/sent/{key}", "fields": fields}, "updateMask": {"fieldPaths": [*fields]}}
    return await documents.post(orjson.dumps({"writes": [write]})) == 200


class Webhook(asyncio.Protocol):
    """A connection of a client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.parser = httptools.HttpRequestParser(self)
        self.tasks: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.body = b""
        self.signature = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-hub-signature-256":
            self.signature = value

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        task = asyncio.get_running_loop().create_task(self.answer(self.body, self.signature))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def answer(self, body: bytes, signature: bytes) -> None:
        keyed = KEYED.copy()
        keyed.update(body)
        if not hmac.compare_digest(b"sha256=" + keyed.hexdigest().encode(), signature):
            self.transport.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        values = [change["value"] for entry in orjson.loads(body)["entry"] for change in entry["changes"]]
        kept = [keep_message(message) for value in values for message in value.get("messages", ())]
        kept += [keep_receipt(status) for value in values for status in value.get("statuses", ())]
        made = [await kept[0]] if len(kept) == 1 else await asyncio.gather(*kept)
        status = b"200 OK" if all(made) else b"500 Internal Server Error"
        self.transport.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % status)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Webhook, "127.0.0.1", int(os.environ["PORT"]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
