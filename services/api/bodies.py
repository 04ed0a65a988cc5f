"""Bodies of requests: one JSON object, with values that every store can hold."""

from typing import Any

import orjson
from flask import Request
from flask.json.provider import DefaultJSONProvider

from services.api.problems import INVALID_REQUEST, Problem, field_name
from shared.net.bounded_json import loads

NOT_JSON = "The body is not JSON in UTF-8."
NOT_AN_OBJECT = "The body must be a JSON object."
UNSTORABLE = "holds a value that cannot be kept: a NUL, a number beyond 64 bits, or more than 64 levels."


class StrictJson(DefaultJSONProvider):
    """Reads only JSON whose values can be kept as they are. Its errors are Problems."""

    def loads(self, s: str | bytes, **_: Any) -> Any:
        body = s.encode() if isinstance(s, str) else s
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise Problem(INVALID_REQUEST, NOT_JSON, "body") from error
        if (kept := loads(body)) != value:
            field = field_name(".".join(_first_difference(value, kept)) or "body")
            raise Problem(INVALID_REQUEST, f"{field} {UNSTORABLE}", field)
        return value


def check_body(request: Request) -> None:
    """Raises Problem, UnsupportedMediaType and RequestEntityTooLarge, unless the request has no body or an object."""
    if request.method not in ("POST", "PUT", "PATCH"):
        return
    is_chunked = "Transfer-Encoding" in request.headers
    if is_chunked and request.is_json:
        request.get_data()
        request.stream.read(1)  # raises if the body is too large: get_data alone cuts off what has no Content-Length
    if (is_chunked or request.content_length) and not isinstance(request.get_json(), dict):
        raise Problem(INVALID_REQUEST, NOT_AN_OBJECT, "body")


def _first_difference(value: Any, kept: Any) -> list[str]:
    """The path to the member of the object that differs: its name, and in a list of objects, as a batch is, the place
    of the first that differs and the name there.
    """
    if not (isinstance(value, dict) and isinstance(kept, dict)):
        return []
    name = next(name for name in value if name not in kept or kept[name] != value[name])
    match value[name], kept.get(name):
        case [*items], [*others]:
            place = next(place for place, item in enumerate(items) if item != others[place])
            return [name, str(place), *_first_difference(items[place], others[place])]
    return [name]
