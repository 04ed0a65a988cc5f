"""The options that describe a sender."""

import math
import re
from collections.abc import Mapping

import click

from cli.registry.context import providers
from shared.domain.tenants import CREDENTIAL_PREFIX, Pace

_SHAPES: Mapping[str, tuple[re.Pattern[str], str]] = {
    "meta": (re.compile(r"[0-9]{1,32}"), "must be 1 to 32 digits: WhatsApp's id, not the phone number with its +"),
}
_ANY = re.compile(r"[!-~]{1,64}"), "must be 1 to 64 printable characters without spaces"
_SECRET = re.compile(rf"{CREDENTIAL_PREFIX}[A-Za-z0-9_-]{{1,200}}")


def known_provider(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Parse the name of a provider that this Pombo has a channel for."""
    if value not in providers():
        raise click.BadParameter(f"must be one of {', '.join(providers())}.")
    return value


def check_id(option: str, provider: str, id: str) -> None:
    """Raises UsageError unless the provider gives such ids."""
    shape, sentence = _SHAPES.get(provider, _ANY)
    if not shape.fullmatch(id):
        raise click.UsageError(f"{option} {sentence}.")


def secret_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Parse the name of a secret with an access token."""
    if value and not _SECRET.fullmatch(value):
        raise click.BadParameter(
            f"must be the name of a secret that begins with {CREDENTIAL_PREFIX}: the services may read no other."
        )
    return value


per_second_option = click.option(
    "--per-second",
    type=click.FloatRange(0.001, 80),
    metavar="RATE",
    help="Messages a second, if the number may send fewer than its queue.",
)
burst_option = click.option(
    "--burst", type=click.IntRange(1, 1000), default=None, help="With --per-second: messages at once after a pause."
)


def pace_of(per_second: float | None, burst: int | None) -> Pace | None:
    """Raises UsageError."""
    if per_second is None and burst is not None:
        raise click.UsageError("--burst needs --per-second.")
    if per_second is not None and math.isnan(per_second):
        raise click.UsageError("--per-second must be a number.")
    return None if per_second is None else Pace(per_second, burst or 1)
