"""The secrets of tenants and the access tokens of senders, from the settings.

Secrets are where the records are: with a deployment's records in that project's Secret Manager, on one machine in a
file beside them. So a command that an operator runs against a deployment's store writes no token to a local file.
"""

from urllib.parse import urlsplit

from shared.bootstrap.adapters import port
from shared.channels.meta.webhook import PROVIDER
from shared.config import DEPLOYED, Config
from shared.pipeline.ports import Credentials, Secrets
from shared.secrets.file_secrets import FILE, FileSecrets
from shared.secrets.secret_manager import SecretManagerSecrets
from shared.tenants.credentials import RegisteredCredentials, SecretCache


def is_deployment(settings: Config) -> bool:
    """Whether the records are a deployment's: also for an operator's command, whose APP_ENV may be local. A deployment
    uses Firestore itself, or Redis over TLS: staging and prod refuse a Redis without.
    """
    is_firestore = settings["STORE"] == "firestore" and not settings.get("FIRESTORE_EMULATOR_HOST")
    is_redis = settings["STORE"] == "redis" and urlsplit(settings["REDIS_URL"]).scheme == "rediss"
    return settings["APP_ENV"] in DEPLOYED or is_firestore or is_redis


def build_secrets(settings: Config) -> Secrets:
    """Secret Manager, its local emulator, or the file."""
    emulator = settings.get("SECRET_MANAGER_EMULATOR_HOST")
    secrets: Secrets
    if emulator or is_deployment(settings):
        secrets = SecretManagerSecrets(settings["GOOGLE_CLOUD_PROJECT"], emulator)
    else:
        secrets = FileSecrets(settings["SQLITE_PATH"].parent / FILE)
    return port(settings, "secrets", secrets)


def build_secret_cache(settings: Config) -> SecretCache:
    """One for the process: access tokens and the signing keys of tenants' handlers share it."""
    return SecretCache(build_secrets(settings))


def build_credentials(settings: Config, secrets: SecretCache) -> Credentials:
    """The access tokens; the environment's is that of senders without a secret."""
    environment = {PROVIDER: settings["WHATSAPP_ACCESS_TOKEN"]}
    return port(settings, "credentials", RegisteredCredentials(secrets, environment))
