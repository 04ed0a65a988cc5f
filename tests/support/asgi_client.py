"""A client of an ASGI app in this process, which waits for each response as Flask's test client does."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlencode

from tests.support import event_loop


@dataclass(frozen=True)
class Answered:
    """A response."""

    status_code: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "")

    @property
    def mimetype(self) -> str:
        return self.content_type.partition(";")[0]

    @property
    def text(self) -> str:
        return self.data.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class AsgiClient:
    def __init__(self, app: Any) -> None:
        self._app = app

    def get(self, path: str, **given: Any) -> Answered:
        return self.open(path, method="GET", **given)

    def post(self, path: str, **given: Any) -> Answered:
        return self.open(path, method="POST", **given)

    def open(self, path: str, **given: Any) -> Answered:
        return event_loop.run(self.ask(path, **given))

    async def ask(
        self,
        path: str,
        method: str = "GET",
        data: bytes = b"",
        headers: Mapping[str, str] | None = None,
        query_string: Mapping[str, str] | str = "",
    ) -> Answered:
        """The path may have escapes; a text for the query is sent as it is."""
        query = query_string if isinstance(query_string, str) else urlencode(query_string, quote_via=quote)
        given = {"Host": "localhost", "Content-Length": str(len(data)), **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "root_path": "",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode("latin-1"),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
        }
        return await self._ask(scope, data)

    async def _ask(self, scope: dict[str, Any], body: bytes) -> Answered:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        start, *rest = sent
        headers = {name.decode("latin-1").title(): value.decode("latin-1") for name, value in start["headers"]}
        return Answered(start["status"], headers, b"".join(message.get("body", b"") for message in rest))
