"""What a fake service answers: the interface between the services and the two HTTP versions."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

OK, INVALID, NOT_FOUND, ALREADY_EXISTS, UNIMPLEMENTED = 0, 3, 5, 6, 12
"""gRPC status codes: https://grpc.io/docs/guides/status-codes/."""

HTTP_STATUS = {OK: 200, INVALID: 400, NOT_FOUND: 404, ALREADY_EXISTS: 409, UNIMPLEMENTED: 404}
NAMES = {INVALID: "INVALID_ARGUMENT", NOT_FOUND: "NOT_FOUND", ALREADY_EXISTS: "ALREADY_EXISTS"}


class Service(Protocol):
    """A fake service. Both calls return a gRPC status code."""

    def grpc(self, path: str, message: bytes) -> tuple[int, list[bytes]]:
        """The answer's messages: one, or several of a stream."""
        ...

    def rest(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """The answer's body."""
        ...


@dataclass(slots=True)
class Counts:
    """What was called and what came of it, since the last reset."""

    calls: Counter[str] = field(default_factory=Counter)
    created: int = 0
    """Documents that a write created which required that they did not exist."""
    changed: int = 0
    """All other writes of documents."""
    refused: int = 0
    """Writes whose precondition did not hold, and tasks whose name was used."""
    tasks: int = 0
    tokens: int = 0
    received: int = 0
    """Bytes of all requests, with their headers: by REST only."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Calls that no fake knows."""

    def plain(self) -> dict[str, Any]:
        """For JSON. (dataclasses.asdict does not copy a Counter right.)"""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}
