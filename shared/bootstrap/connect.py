"""What connects senders, for the command line: the provider's onboarding, with the secrets and the store."""

from shared.bootstrap.secrets import build_secrets, is_deployment
from shared.channels.meta.onboarding import App, MetaOnboarding
from shared.config import LOCAL_SECRETS, Config
from shared.net.egress_policy import ANYWHERE
from shared.operations.connect import Connect
from shared.pipeline.ports import Store

GRAPH = "https://graph.facebook.com"
"""Meta's address, for a command that has none configured."""


def build_connect(settings: Config, store: Store) -> Connect:
    """Connects senders of Meta, whose marks are in this store."""
    return Connect(build_onboarding(settings), build_secrets(settings), store)


def build_onboarding(settings: Config) -> MetaOnboarding:
    """Meta's onboarding for the command line. Tokens of a deployment go to Meta over TLS only, and are never checked
    with the publicly known app secret of the simulator.
    """
    app_id, secrets = settings.get("META_APP_ID"), settings.get("META_APP_SECRET") or ()
    base_url = settings.get("WHATSAPP_API_BASE_URL") or GRAPH
    if is_deployment(settings):
        secrets = [secret for secret in secrets if secret not in LOCAL_SECRETS.values()]
        base_url = base_url if base_url.startswith("https://") else GRAPH
    return MetaOnboarding(
        app=App(app_id, secrets[0]) if app_id and secrets else None,
        base_url=base_url,
        version=settings["WHATSAPP_API_VERSION"],
        times=settings.limits.post,
        reach=ANYWHERE,
    )
