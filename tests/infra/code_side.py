"""The code's side: the environment that the code requires, for the rules that compare the infrastructure with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

from infra.release.services import SERVICES
from local.queues import PATHS, RATES, RETRY, TENANT_RATES
from shared.config import SETTINGS, Config, ConfigError, Setting, load
from shared.domain.limits import Limits
from shared.stores.firestore.schema import COLLECTIONS, Collection

SET_BY_CLOUD_RUN = ("PORT",)

CONDITIONAL: Mapping[str, str] = {
    "HANDLER": "HANDLER_URL",
    "HANDLER_URL": "HANDLER",
    "HANDLER_URL_SECRET": "HANDLER",
    "HANDLER_KINDS": "HANDLER",
    "REDIS_URL": "STORE=firestore",
    "REDIS_CA_CERTS": "STORE=firestore",
}
"""Variables that must not be set if the other one is."""

ONLY_WITH: Mapping[tuple[str, str], str] = {
    ("api", "META_APP_ID"): "meta_app_id",
    ("api", "META_APP_SECRET"): "meta_app_id",
}
"""Variables of a service that are set if the root's variable is, and only then."""

SECRETS: Mapping[str, str] = {
    "HANDLER_URL_SECRET": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
    "REDIS_URL": "rediss://:a-password@10.0.0.3:6378",
}
"""Values for secrets that the plan only refers to, where the code accepts only a certain form."""


@dataclass(frozen=True)
class Code:
    """The code's tables. Tests of the rules replace parts of it."""

    settings: tuple[Setting, ...] = SETTINGS
    collections: tuple[Collection, ...] = COLLECTIONS
    services: tuple[str, ...] = SERVICES
    rates: Mapping[str, tuple[float, int]] = field(default_factory=lambda: RATES)
    tenant_rates: Mapping[str, tuple[float, int]] = field(default_factory=lambda: TENANT_RATES)
    paths: Mapping[str, str] = field(default_factory=lambda: PATHS)
    retry: Any = field(default_factory=lambda: RETRY)

    @property
    def secrets(self) -> set[str]:
        return {it.name for it in self.settings if it.secret}

    def variables(self, service: str, env: Mapping[str, str]) -> tuple[set[str], set[str]]:
        """The variables that a service must be given, and those that it may be given, besides `env`."""
        given = {*env, *(f"{name}={value}" for name, value in env.items())}
        read = {
            it.name
            for it in self.settings
            if service in it.services and not it.only_local and it.name not in SET_BY_CLOUD_RUN
        }
        return {name for name in read if CONDITIONAL.get(name) not in given}, read

    def config(self, service: str, env: Mapping[str, str], secrets: Mapping[str, Any]) -> Config:
        """The configuration that the service would load from its environment. Raises ConfigError."""
        values = {name: SECRETS.get(name, f"some-{name.lower()}") for name in secrets}
        return load({**env, **values, "K_SERVICE": service, "PORT": "8080"}, service)

    def limits(self, service: str, env: Mapping[str, str], secrets: Mapping[str, Any]) -> Limits:
        """The limits of an environment; the defaults if it is not valid, which another rule reports."""
        try:
            return self.config(service, env, secrets).limits
        except ConfigError:
            return Limits()

    def most(self, name: str) -> int:
        """The largest whole number that a setting accepts."""
        (setting,) = [it for it in self.settings if it.name == name]
        return _most(setting)

    def queue_names(self, variable: str, env: Mapping[str, str | None]) -> list[str]:
        """The queues that a service names by this variable of its environment."""
        name = env.get(variable) or ""
        if variable not in self.tenant_rates:
            return [name]
        return [name.format(n=number) for number in range(int(env.get("TENANT_QUEUES") or 0))]

    @property
    def expiring(self) -> set[tuple[str, str]]:
        return {(it.name, it.ttl) for it in self.collections if it.ttl}

    @property
    def indexed(self) -> set[tuple[str, str]]:
        return {(it.name, name) for it in self.collections for name in it.indexed}

    @property
    def composite(self) -> set[tuple[str, tuple[str, ...]]]:
        return {(it.name, fields) for it in self.collections for fields in it.composite}


@cache
def _most(setting: Setting) -> int:
    return max(number for number in range(1, 2000) if _takes(setting, str(number)))


def _takes(setting: Setting, value: str) -> bool:
    try:
        setting.parse(value)
    except Exception:
        return False
    return True


def seconds(length: timedelta) -> str:
    """A duration as the API writes it."""
    return f"{int(length.total_seconds())}s"
