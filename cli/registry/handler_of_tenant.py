"""A tenant's own handler: its address, and the secret that signs the calls."""

import base64
import secrets
from dataclasses import replace

import click

from cli.registry.context import RegistryContext, read_secret
from shared.bootstrap.secrets import is_deployment
from shared.config.parsers import BadValue, webhook_secret
from shared.domain.tenants import HANDLER_PREFIX, Tenant, TenantHandler
from shared.operations import registry

SIGNING_BYTES = 32


def set_handler(context: RegistryContext, tenant: Tenant, url: str | None, secret: str | None) -> str | None:
    """Set the handler's address, its signing secret or both. Returns the secret if one had to be made."""
    if url is None and tenant.handler is None:
        raise click.UsageError("This tenant has no handler of its own: give --handler-url too.")
    made = None
    if secret is None and tenant.handler is None:
        secret = made = f"whsec_{base64.b64encode(secrets.token_bytes(SIGNING_BYTES)).decode()}"
    name = tenant.handler.secret if tenant.handler else f"{HANDLER_PREFIX}{tenant.id}"
    if secret is not None:
        context.secrets().add(name, secret)  # first: an address without its secret could not be called

    def change(now: Tenant) -> Tenant:
        return replace(now, handler=TenantHandler(url or (now.handler.url if now.handler else ""), name))

    registry.set_tenant(context.registry, context.clock, tenant.id, change)
    return made


def check_address(context: RegistryContext, url: str | None) -> None:
    """Raises UsageError for an address without TLS where the records are a deployment's, as for HANDLER_URL: customers'
    messages go there.
    """
    if url and not url.startswith("https://") and is_deployment(context.settings):
        raise click.UsageError("--handler-url must be https in staging and prod.")


def signing_secret(given: str | None) -> str | None:
    """One or several, separated by commas, as in HANDLER_URL_SECRET."""
    text = read_secret("--handler-secret", given)
    try:
        return ",".join(webhook_secret(one.strip()) for one in text.split(",")) if text else None
    except BadValue as error:
        raise click.ClickException(f"--handler-secret {error}.") from None


def show_made(secret: str | None) -> None:
    if secret:
        click.echo(f"Its backend verifies calls with this secret, which is shown only now: {secret}")
