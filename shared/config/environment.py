"""Read and check the environment of one process. All faults are reported together."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.config.cross_checks import deployed_faults, faults_together, handler_faults
from shared.config.parsers import BadValue
from shared.config.settings import (
    CLOUD_RUN,
    DEPLOYED,
    ENVIRONMENTS,
    INTERNAL,
    LIMIT_OF_SETTING,
    LOCAL_SECRETS,
    SETTINGS,
    Setting,
)
from shared.domain.limits import Limits
from shared.domain.spelling import is_nearly


class ConfigError(Exception):
    """The configuration is invalid. `faults` has one sentence for each fault."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


QUOTED_CHARACTERS = 60
"""A longer invalid value is not repeated in its fault: it may be a secret in the wrong variable."""


@dataclass(frozen=True, slots=True)
class Config:
    """The checked settings of one service."""

    service: str
    values: Mapping[str, Any] = field(repr=False)  # it holds secrets

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str) -> Any:
        """The value, or None if it is optional and unset."""
        return self.values.get(name)

    @property
    def limits(self) -> Limits:
        """The limits of the protocol, scaled: the one place where TIME_SCALE is applied."""
        given = {field: of(self.values[name]) for name, (field, of) in LIMIT_OF_SETTING.items() if name in self.values}
        return Limits(**given).scaled(self.values["TIME_SCALE"])


def load(environ: Mapping[str, str], service: str, only: Collection[str] | None = None) -> Config:
    """Read the variables of one service. `only` limits it to some of them, and ignores faults in the others.

    Raises ConfigError with every fault. If APP_ENV is invalid, that is the only fault: the others depend on it.
    """
    faults: list[str] = []
    on_cloud_run = [name for name in CLOUD_RUN if environ.get(name)]
    app_env = environ.get("APP_ENV", "").strip() or ("" if on_cloud_run else "local")
    if app_env and app_env not in ENVIRONMENTS:
        allowed = f"{' or '.join(DEPLOYED)} on Cloud Run" if on_cloud_run else f"one of {', '.join(ENVIRONMENTS)}"
        raise ConfigError([f"APP_ENV must be {allowed}{_quoted(app_env, environ)}."])
    if on_cloud_run and app_env not in DEPLOYED:
        faults.append(
            f"APP_ENV must be {' or '.join(DEPLOYED)} on Cloud Run ({on_cloud_run[0]} is set): the local defaults "
            "include publicly known secrets."
        )
        app_env = "prod"
    values: dict[str, Any] = {"APP_ENV": app_env}
    for setting in SETTINGS:
        is_asked = only is None or setting.name in only
        if is_asked and service in setting.services and setting.name != "APP_ENV":
            fault = _read(setting, environ, service, app_env, values)
            if fault:
                faults.append(fault)
    faults += faults_together(environ, values)
    if service == INTERNAL:
        faults += handler_faults(environ, values)
    if app_env in DEPLOYED:
        faults += deployed_faults(values)
    faults = [fault for fault in faults if only is None or fault.split()[0] in only]
    if faults:
        raise ConfigError(faults)
    return Config(service, values)


def _read(
    setting: Setting, environ: Mapping[str, str], service: str, app_env: str, values: dict[str, Any]
) -> str | None:
    """Store one value in `values`, or return what is wrong with it."""
    raw = environ.get(setting.name, "").strip()  # a secret in a file ends with a line break
    deployed = app_env in DEPLOYED
    if deployed and setting.only_local:
        if raw:
            return f"{setting.name} is for one machine only; remove it in {app_env}."
        raw = setting.always or ""
    if not raw:
        raw = ("" if deployed else _local_default(setting)) or setting.always or ""
    if not raw:
        is_free = setting.optional or service in setting.optional_for or (deployed and setting.only_local)
        return None if is_free else f"{setting.name} is missing: {setting.meaning}."
    try:
        values[setting.name] = setting.parse(raw)
    except BadValue as fault:
        return f"{setting.name} {fault}{'' if setting.secret else _quoted(raw, environ)}."
    if deployed and setting.https and not raw.startswith("https://"):
        return f"{setting.name} must be https in {app_env}."
    if deployed and setting.secret and any(part.strip() in LOCAL_SECRETS.values() for part in raw.split(",")):
        return f"{setting.name} is the publicly known local default; set your own secret in {app_env}."
    return None


def _quoted(value: str, environ: Mapping[str, str]) -> str:
    """The invalid value, for the end of a sentence; "" if it may be private.

    Faults are logged, and a secret may be in the wrong variable. On Cloud Run, where others read the logs, no value is
    repeated. Elsewhere a long value, or one with the `@` of an address with a password, is not repeated.
    """
    is_shown = len(value) <= QUOTED_CHARACTERS and value.isprintable() and "@" not in value
    return f'; it is "{value}"' if is_shown and not any(environ.get(name) for name in CLOUD_RUN) else ""


def misspelt(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables whose name is one typing error away from a setting's name, each with that name. Short names are left
    out: they may belong to another program.
    """
    names = [setting.name for setting in SETTINGS if len(setting.name) >= len("HANDLER_")]
    strange = sorted(environ.keys() - {setting.name for setting in SETTINGS})
    found = {name: next((known for known in names if is_nearly(name.upper(), known)), None) for name in strange}
    return {name: meant for name, meant in found.items() if meant}


def _local_default(setting: Setting) -> str:
    return LOCAL_SECRETS.get(setting.name) or setting.local or ""
