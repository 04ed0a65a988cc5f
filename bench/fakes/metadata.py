"""A fake of the metadata server, and the address where the benchmark reads and resets the counts.

https://cloud.google.com/compute/docs/metadata/overview (2026-11). `project-id` and the default account's token are
what Google's clients and the product ask for.
"""

from collections.abc import Callable

import orjson

from bench.fakes.calls import NOT_FOUND, OK, UNIMPLEMENTED, Counts

ROOT = "/computeMetadata/v1/"
ACCOUNT = {"aliases": ["default"], "email": "bench@pombo-bench.iam.gserviceaccount.com", "scopes": ["cloud-platform"]}
TOKEN = {"access_token": "a-token-of-the-fake", "expires_in": 3599, "token_type": "Bearer"}


class Metadata:
    """The service."""

    def __init__(self, counts: Counts, reset: Callable[[], None], project: str) -> None:
        self._counts = counts
        self._reset = reset
        self._project = project

    def grpc(self, path: str, message: bytes) -> tuple[int, list[bytes]]:  # noqa: ARG002 - as the other services
        return UNIMPLEMENTED, []

    def rest(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:  # noqa: ARG002 - as the other services
        match path.partition("?")[0].removeprefix(ROOT).rstrip("/"):
            case "/bench/counts":
                return OK, orjson.dumps(self._counts.plain())
            case "/bench/reset":
                self._reset()
                return OK, b"{}"
            case "":
                return OK, b"computeMetadata/"
            case "project/project-id":
                return OK, self._project.encode()
            case "universe/universe-domain":
                return OK, b"googleapis.com"
            case "instance/service-accounts/default":
                return OK, orjson.dumps(ACCOUNT)
            case token if token.startswith("instance/service-accounts/") and token.endswith("/token"):
                self._counts.tokens += 1
                return OK, orjson.dumps(TOKEN)
        return NOT_FOUND, b"{}"
