"""Parsers: convert the text of one variable to its value. BadValue says what is wrong with the text."""

import re
import ssl
from base64 import b64decode
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import urlsplit

from shared.domain.message_kinds import UnknownKind, kinds_named

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)")
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class BadValue(Exception):
    """What is wrong with one value."""


def shaped(pattern: str, sentence: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise BadValue(sentence)
        return value

    return parse


header = shaped(r"[!-~]+", "is sent in a header: use only visible ASCII characters, without blanks")
handler_name = shaped(r"[^\s:]+:[^\s:]+", "must be module:function, like handlers.echo:handle")
account = shaped(
    r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+",
    "must be an e-mail address like name@project.iam.gserviceaccount.com",
)
queue = shaped(r"[A-Za-z0-9-]{1,100}", "must be a queue name: 1 to 100 letters, digits and hyphens")
LONGEST_QUEUE = 100
HIGHEST_NUMBER = 999


def queue_pattern(value: str) -> str:
    """The names of numbered queues: `value.format(n=number)`."""
    is_pattern = re.fullmatch(r"[A-Za-z0-9-]*\{n(:0[1-9]d)?\}[A-Za-z0-9-]*", value)
    if not is_pattern or len(value.format(n=HIGHEST_NUMBER)) > LONGEST_QUEUE:
        raise BadValue("must have {n} or {n:03d} once, and else be a queue name: letters, digits and hyphens")
    return value


def printable(value: str) -> str:
    if not value.isprintable():
        raise BadValue("contains a control character or another non-printable character")
    return value


def list_of(parse_item: Callable[[str], str]) -> Callable[[str], tuple[str, ...]]:
    def parse(value: str) -> tuple[str, ...]:
        items = tuple(parse_item(item.strip()) for item in value.split(",") if item.strip())
        if not items:
            raise BadValue("is empty")
        return items

    return parse


def kinds(value: str) -> frozenset[str]:
    try:
        return kinds_named(list_of(str)(value))
    except UnknownKind as error:
        raise BadValue(str(error)) from None


def host_and_port(value: str) -> str:
    match = re.fullmatch(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", value)
    if not match or not 1 <= int(match[1]) <= 65535:
        raise BadValue("must be host:port, like 127.0.0.1:8083")
    return value


def endpoint(value: str) -> str:
    """An address, unchanged: a slash at its end may mean something to its server."""
    try:
        parts = urlsplit(value)
        whole = parts.hostname and parts.port != 0 and re.fullmatch(r"[!-~]+", value)
    except ValueError:  # invalid IPv6 brackets or an invalid port
        raise BadValue("must be an address like https://example.com") from None
    if parts.scheme not in ("http", "https") or not whole or parts.query or parts.fragment:
        raise BadValue("must be an address like https://example.com")
    if parts.username is not None or parts.password is not None:
        raise BadValue("must not contain a user or a password: the address may be shown and logged")
    return value


def url(value: str) -> str:
    return endpoint(value).rstrip("/")


def redis_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        whole = parts.hostname and parts.port != 0 and re.fullmatch(r"[!-~]+", value)
    except ValueError:
        raise BadValue("must be an address like redis://10.0.0.3:6379") from None
    if parts.scheme not in ("redis", "rediss") or not whole or not re.fullmatch(r"(/[0-9]{0,3})?", parts.path):
        raise BadValue("must be an address like redis://10.0.0.3:6379")
    return value


def certificates(value: str) -> str:
    """CA certificates in PEM, concatenated."""
    try:
        ssl.create_default_context(cadata=value)
    except (ssl.SSLError, ValueError):
        raise BadValue("must contain a certificate in PEM (-----BEGIN CERTIFICATE-----)") from None
    return value


def webhook_secret(value: str) -> str:
    """Standard Webhooks: whsec_ and the base64 of 24 to 64 random bytes."""
    try:
        length = len(b64decode(value.removeprefix("whsec_"), validate=True))
    except ValueError:
        length = 0
    if not value.startswith("whsec_") or not 24 <= length <= 64:
        raise BadValue("must be whsec_ followed by the base64 of 24 to 64 random bytes")
    return value


def whole(least: int, most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", value.strip()) or not least <= int(value) <= most:
            raise BadValue(f"must be a whole number from {least} to {most}")
        return int(value)

    return parse


def number(least: float, most: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", value.strip()) or not least <= float(value) <= most:
            raise BadValue(f"must be a number from {least:g} to {most:g}")
        return float(value)

    return parse


def duration(least: timedelta, most: timedelta) -> Callable[[str], timedelta]:
    def parse(value: str) -> timedelta:
        match = DURATION.fullmatch(value.strip())
        length = timedelta(seconds=min(float(match[1]), 1e8) * UNITS[match[2]]) if match else None
        if length is None or not least <= length <= most:
            raise BadValue(f"must be a duration like 90s, 10m, 24h or 2d, from {spell(least)} to {spell(most)}")
        return length

    return parse


def choice(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in allowed:
            raise BadValue(f"must be one of {', '.join(allowed)}")
        return value

    return parse


def flag(value: str) -> bool:
    if value not in ("true", "false"):
        raise BadValue("must be true or false")
    return value == "true"


def spell(length: timedelta) -> str:
    seconds = int(length.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
