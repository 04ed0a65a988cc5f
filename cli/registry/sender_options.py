"""The options that describe a sender."""

import re
from collections.abc import Mapping

import click

from cli.registry.context import name, providers
from shared.domain.tenants import CREDENTIAL_PREFIX, Pace

_SHAPES: Mapping[str, tuple[re.Pattern[str], str]] = {
    "meta": (re.compile(r"[0-9]{1,32}"), "must be 1 to 32 digits: WhatsApp's id, not the phone number with its +"),
}
_ANY = re.compile(r"[!-~]{1,64}"), "must be 1 to 64 printable characters without spaces"
_CREDENTIAL = re.compile(rf"{CREDENTIAL_PREFIX}[A-Za-z0-9_-]{{1,200}}")
"""Secret Manager takes these characters, and up to 255 of them. A service may read no secret of another prefix."""

SLOWEST, FASTEST = 0.001, 80.0
"""Messages a second: one in a quarter of an hour, and the rate of a tenant's queue."""


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


def _rate(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    try:
        rate = SLOWEST if value is None else float(value)
    except ValueError:
        rate = 0
    if not SLOWEST <= rate <= FASTEST:
        raise click.BadParameter(f"must be a number from {SLOWEST:g} to {FASTEST:g}.")
    return None if value is None else rate


def _credential(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _CREDENTIAL.fullmatch(value):
        raise click.BadParameter(
            f"must be {CREDENTIAL_PREFIX} and up to 200 letters, digits, hyphens and underscores: services may read no "
            "other secrets."
        )
    return value


display_option = click.option("--display", callback=name, help="The number or a name, for people.")
credential_option = click.option(
    "--credential",
    callback=_credential,
    metavar="NAME",
    help=f"The name of a secret that holds its access token: {CREDENTIAL_PREFIX}...",
)
per_second_option = click.option(
    "--per-second",
    callback=_rate,
    metavar="RATE",
    help=f"Messages a second, if the number may send fewer than its queue: {SLOWEST:g} to {FASTEST:g}.",
)
burst_option = click.option(
    "--burst",
    type=click.IntRange(1, 1000),
    default=None,
    help="With --per-second: messages at once after a pause; 1 if not given.",
)


def pace_of(per_second: float | None, burst: int | None) -> Pace | None:
    """Raises UsageError."""
    if per_second is None and burst is not None:
        raise click.UsageError("--burst needs --per-second.")
    return None if per_second is None else Pace(per_second, burst or 1)
