"""Configuration: every environment variable there is, in one table, read once at the start.

All faults are found and reported together, each in a sentence that says what to do. Nothing has a fallback that
lets through: in staging and prod addresses, secrets and the store must be given.
"""

import re
import ssl
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shared.domain.limits import DoubtPolicy, Limits
from shared.domain.messages import UnknownKind, kinds_named
from shared.domain.record import ATTEMPTS_KEPT
from shared.domain.spelling import is_nearly

WEBHOOK, INTERNAL, CLI = "webhook", "internal", "cli"
BOTH = (WEBHOOK, INTERNAL)
ALL = (WEBHOOK, INTERNAL, CLI)
ENVIRONMENTS = ("local", "test", "staging", "prod")
DEPLOYED = ("staging", "prod")
CLOUD_RUN = ("K_SERVICE", "CLOUD_RUN_JOB")
"""Set in a service and in a job of Cloud Run (https://cloud.google.com/run/docs/container-contract, 2026-11)."""

DATA_DIRECTORY = ".pombo"
STORES = ("sqlite", "firestore", "redis")

LOCAL_SECRETS: Mapping[str, str] = {
    "META_APP_SECRET": "local-app-secret",
    "META_VERIFY_TOKEN": "local-verify-token",
    "WHATSAPP_ACCESS_TOKEN": "local-access-token",
    "INTERNAL_TASK_TOKEN": "local-internal-token",
}
"""Secrets for one machine, known to everybody: refused anywhere else."""

LEAST_DOUBT_WINDOW = timedelta(seconds=120)
"""process_outbound ends itself 90 s after it began; the window must outlive it."""

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class ConfigError(Exception):
    """The configuration is not complete. `faults` are sentences, one each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class _Fault(Exception):
    """What is wrong with one value."""


QUOTED_CHARACTERS = 60
"""Of a value that makes no sense at most so many are repeated: a longer one may be a secret in the wrong variable."""


def _shaped(pattern: str, sentence: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise _Fault(sentence)
        return value

    return parse


_header = _shaped(r"[!-~]+", "goes into a header: visible ASCII characters only, and no blanks inside")
_handler_name = _shaped(r"[^\s:]+:[^\s:]+", "is no module:function like handlers.echo:handle")
_account = _shaped(
    r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+",
    "is no e-mail address like name@project.iam.gserviceaccount.com",
)
_queue = _shaped(r"[A-Za-z0-9-]{1,100}", "is no queue's name: 1 to 100 letters, digits and hyphens")


def _printable(value: str) -> str:
    if not value.isprintable():
        raise _Fault("holds a control character, or another that cannot be seen")
    return value


def _list(parse_item: Callable[[str], str]) -> Callable[[str], tuple[str, ...]]:
    def parse(value: str) -> tuple[str, ...]:
        items = tuple(parse_item(item.strip()) for item in value.split(",") if item.strip())
        if not items:
            raise _Fault("is empty")
        return items

    return parse


def _kinds(value: str) -> frozenset[str]:
    try:
        return kinds_named(_list(str)(value))
    except UnknownKind as error:
        raise _Fault(str(error)) from None


def _host_and_port(value: str) -> str:
    match = re.fullmatch(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", value)
    if not match or not 1 <= int(match[1]) <= 65535:
        raise _Fault("is no host:port like 127.0.0.1:8083")
    return value


def _endpoint(value: str) -> str:
    """An address as it stands: the slash at its end may mean something to whom it names."""
    try:
        parts = urlsplit(value)
        whole = parts.hostname and parts.port != 0 and re.fullmatch(r"[!-~]+", value)
    except ValueError:  # brackets that are no IPv6 address, or a port that is none
        raise _Fault("is no address like https://example.com") from None
    if parts.scheme not in ("http", "https") or not whole or parts.query or parts.fragment:
        raise _Fault("is no address like https://example.com")
    if parts.username is not None or parts.password is not None:
        raise _Fault("holds a user or a password; an address may be shown and logged, so it must not")
    return value


def _url(value: str) -> str:
    return _endpoint(value).rstrip("/")


def _redis_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        whole = parts.hostname and parts.port != 0 and re.fullmatch(r"[!-~]+", value)
    except ValueError:
        raise _Fault("is no address like redis://10.0.0.3:6379") from None
    if parts.scheme not in ("redis", "rediss") or not whole or not re.fullmatch(r"(/[0-9]{0,3})?", parts.path):
        raise _Fault("is no address like redis://10.0.0.3:6379")
    return value


def _certificates(value: str) -> str:
    """Certificates of an authority, in PEM, one after another."""
    try:
        ssl.create_default_context(cadata=value)
    except (ssl.SSLError, ValueError):
        raise _Fault("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)") from None
    return value


def _webhook_secret(value: str) -> str:
    """Standard Webhooks: whsec_ and the base64 of 24 to 64 random bytes."""
    try:
        length = len(b64decode(value.removeprefix("whsec_"), validate=True))
    except ValueError:
        length = 0
    if not value.startswith("whsec_") or not 24 <= length <= 64:
        raise _Fault("is no secret like whsec_ and the base64 of 24 to 64 random bytes")
    return value


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", value.strip()) or not least <= int(value) <= most:
            raise _Fault(f"is no whole number from {least} to {most}")
        return int(value)

    return parse


def _number(least: float, most: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", value.strip()) or not least <= float(value) <= most:
            raise _Fault(f"is no number from {least:g} to {most:g}")
        return float(value)

    return parse


def _duration(least: timedelta, most: timedelta) -> Callable[[str], timedelta]:
    def parse(value: str) -> timedelta:
        match = _DURATION.fullmatch(value.strip())
        length = timedelta(seconds=min(float(match[1]), 1e8) * _UNITS[match[2]]) if match else None
        if length is None or not least <= length <= most:
            raise _Fault(f"is no duration like 90s, 10m, 24h or 2d from {_spell(least)} to {_spell(most)}")
        return length

    return parse


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in allowed:
            raise _Fault(f"must be one of {', '.join(allowed)}")
        return value

    return parse


def _flag(value: str) -> bool:
    if value not in ("true", "false"):
        raise _Fault("must be true or false")
    return value == "true"


def _spell(length: timedelta) -> str:
    seconds = int(length.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable: who reads it, how it is read, and what it means.

    `local` is the default on one machine, `always` the default everywhere. With neither it is required, unless
    `optional`. An `https` address must be that in staging and prod; what is `only_local` is refused there.
    """

    name: str
    services: tuple[str, ...]
    parse: Callable[[str], Any]
    meaning: str
    local: str | None = None
    always: str | None = None
    optional: bool = False
    secret: bool = False
    https: bool = False
    only_local: bool = False


def _second(count: float) -> timedelta:
    return timedelta(seconds=count)


def _unchanged(value: Any) -> Any:
    return value


def _days(count: int) -> timedelta:
    return timedelta(days=count)


SETTINGS: tuple[Setting, ...] = (
    Setting("APP_ENV", ALL, _choice(*ENVIRONMENTS), "local, test, staging or prod", local="local"),
    Setting(
        "LOG_LEVEL",
        BOTH,
        _choice("DEBUG", "INFO", "WARNING", "ERROR"),
        "the least severity that is logged",
        always="INFO",
    ),
    Setting("PORT", BOTH, _whole(1, 65535), "set by Cloud Run; 8080 and 8081 on one machine", optional=True),
    Setting(
        "THREADS",
        BOTH,
        _whole(1, 1000),
        "how many requests a process handles at the same time; on Cloud Run set its concurrency to the same number",
        always="16",
    ),
    Setting(
        "META_APP_SECRET", (WEBHOOK,), _list(_printable), "list; what Meta signs webhooks with", local="", secret=True
    ),
    Setting(
        "META_VERIFY_TOKEN",
        (WEBHOOK,),
        _list(_printable),
        "list; what Meta's GET handshake must bring",
        local="",
        secret=True,
    ),
    Setting("WEBHOOK_MAX_BYTES", (WEBHOOK,), _whole(1024, 64 * 1024 * 1024), "largest webhook taken", always="3211264"),
    Setting(
        "WHATSAPP_PHONE_NUMBER_ID",
        ALL,
        _shaped(r"[0-9]{1,32}", "is no phone number ID: 1 to 32 digits"),
        "the sender of tenant default",
        local="100000000000001",
    ),
    Setting("WHATSAPP_ACCESS_TOKEN", (INTERNAL,), _header, "its token", local="", secret=True),
    Setting("WHATSAPP_API_BASE_URL", (INTERNAL,), _url, "the Graph API", local="http://127.0.0.1:8082", https=True),
    Setting(
        "WHATSAPP_API_VERSION",
        (INTERNAL,),
        _shaped(r"v[0-9]{1,3}\.[0-9]{1,3}", "is no version like v25.0"),
        "the Graph API's version",
        always="v25.0",
    ),
    Setting("STORE", ALL, _choice(*STORES), "the back end of the store: sqlite, firestore or redis", local="sqlite"),
    Setting(
        "SQLITE_PATH",
        ALL,
        Path,
        "the file of the sqlite store",
        local=f"{DATA_DIRECTORY}/pombo.sqlite",
        only_local=True,
    ),
    Setting("REDIS_URL", ALL, _redis_url, "the server of the redis store", optional=True, secret=True),
    Setting(
        "REDIS_CA_CERTS",
        ALL,
        _certificates,
        "certificates (PEM) of the authority that signs for that server alone; else the system's authorities count",
        optional=True,
    ),
    Setting(
        "GOOGLE_CLOUD_PROJECT",
        ALL,
        _shaped(r"[a-z0-9:.-]{1,100}", "is no project ID like my-project-1"),
        "the project",
        local="pombo-local",
    ),
    Setting(
        "FIRESTORE_DATABASE",
        ALL,
        _shaped(r"\(default\)|[a-z][a-z0-9-]{2,61}[a-z0-9]", "is no database ID like (default) or my-database"),
        "the database of the firestore store",
        always="(default)",
    ),
    Setting(
        "FIRESTORE_EMULATOR_HOST",
        ALL,
        _host_and_port,
        "host:port of the Firestore emulator",
        optional=True,
        only_local=True,
    ),
    Setting(
        "CLOUD_TASKS_LOCATION",
        BOTH,
        _shaped(r"[a-z0-9-]{1,63}", "is no region like europe-west1"),
        "the queues' region",
        local="local",
    ),
    Setting(
        "CLOUD_TASKS_EMULATOR_HOST",
        BOTH,
        _host_and_port,
        "host:port of the emulator",
        local="127.0.0.1:8083",
        only_local=True,
    ),
    Setting("INBOUND_TASK_QUEUE_NAME", BOTH, _queue, "the queue of events", local="inbound"),
    Setting("OUTBOUND_TASK_QUEUE_NAME", BOTH, _queue, "the queue of messages", local="outbound"),
    Setting("INTERNAL_TASK_BASE_URL", BOTH, _url, "where tasks go", local="http://127.0.0.1:8081", https=True),
    Setting("INTERNAL_TASK_TOKEN", BOTH, _list(_header), "list; X-Internal-Token of tasks", local="", secret=True),
    Setting(
        "TASKS_SERVICE_ACCOUNT",
        (INTERNAL,),
        _account,
        "whose OIDC token the queues give their tasks; then it is verified too",
        optional=True,
    ),
    Setting(
        "SCHEDULER_SERVICE_ACCOUNT",
        (INTERNAL,),
        _account,
        "whose OIDC token /internal/sweep accepts",
        optional=True,
    ),
    Setting(
        "TRUST_CLOUD_RUN_IAM",
        (INTERNAL,),
        _flag,
        "true: an OIDC token whose signature Cloud Run removed, because its IAM had verified it, is accepted by its "
        "claims; only for a service that IAM guards",
        always="false",
    ),
    Setting(
        "OIDC_CERTS_URL",
        (INTERNAL,),
        _url,
        "certificates of OIDC tokens",
        always="https://www.googleapis.com/oauth2/v1/certs",
        https=True,
    ),
    Setting(
        "HANDLER",
        (INTERNAL,),
        _handler_name,
        "the team's code, module:function; exactly one of this and HANDLER_URL",
        local="handlers.echo:handle",
        optional=True,
    ),
    Setting(
        "HANDLER_URL",
        (INTERNAL,),
        _endpoint,
        "the address of the team's code; set it instead of HANDLER",
        optional=True,
        https=True,
    ),
    Setting(
        "HANDLER_URL_SECRET",
        (INTERNAL,),
        _list(_webhook_secret),
        "list of whsec_...; signs the calls of HANDLER_URL",
        optional=True,
        secret=True,
    ),
    Setting(
        "HANDLER_KINDS",
        (INTERNAL,),
        _kinds,
        "list; the kinds of message that HANDLER_URL is called for, or * for every kind",
        always="text,media,location,contacts,interactive,button,order",
    ),
    Setting(
        "HANDLER_TIMEOUT",
        BOTH,
        _duration(_second(1), _second(1700)),
        "how long a handler may take",
        always="60s",
    ),
    Setting(
        "HANDLER_TRACEBACK",
        (INTERNAL,),
        _flag,
        "true: what HANDLER raises is shown on standard error, with its text, which may be private",
        local="true",
        always="false",
    ),
    Setting("MAX_ATTEMPTS", (INTERNAL,), _whole(1, ATTEMPTS_KEPT), "tries of a handler or a send", always="8"),
    Setting(
        "PLAN_ALL_OR_NOTHING",
        (INTERNAL,),
        _flag,
        "true: one reply that cannot be sent fails the handler; false: the others are sent",
        always="false",
    ),
    Setting(
        "IN_DOUBT_SECONDS",
        (INTERNAL,),
        _duration(LEAST_DOUBT_WINDOW, _second(86400)),
        "how long a lost answer waits for its receipt",
        always="300",
    ),
    Setting(
        "IN_DOUBT_POLICY", (INTERNAL,), _choice("resend", "hold"), "what follows when no receipt came", always="resend"
    ),
    Setting(
        "MESSAGE_MAX_AGE",
        BOTH,
        _duration(_second(60), timedelta(days=30)),
        "how long Pombo tries an event or a message, counted from when it is first due; then it is a dead letter",
        always="24h",
    ),
    Setting("DEDUPE_TTL_DAYS", ALL, _whole(1, 365), "how long an event is remembered", always="8"),
    Setting(
        "SWEEP_AFTER",
        ALL,
        _duration(_second(1), _second(86400)),
        "when an overdue record is swept (local: 30s)",
        always="600s",
        local="30s",
    ),
    Setting("TIME_SCALE", ALL, _number(1, 20), "divides every duration of the protocol", always="1", only_local=True),
    Setting(
        "CRASH_AT",
        BOTH,
        _shaped(
            r"(before|after):[a-z_]+\.[a-z_]+(:[1-9][0-9]{0,5})?",
            "is no crash point like after:store.create:2 (pombo doctor --points lists them)",
        ),
        "a point at which the process kills itself, once; pombo doctor --points lists them",
        optional=True,
        only_local=True,
    ),
)
"""The table. docs/configuration.md is written from it by tests/unit/config_page.py; a test holds the two together."""


_LIMITS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "MAX_ATTEMPTS": ("max_attempts", _unchanged),
    "HANDLER_TIMEOUT": ("handler_timeout", _unchanged),
    "IN_DOUBT_SECONDS": ("doubt_window", _unchanged),
    "IN_DOUBT_POLICY": ("doubt_policy", DoubtPolicy),
    "MESSAGE_MAX_AGE": ("message_max_age", _unchanged),
    "DEDUPE_TTL_DAYS": ("inbound_retention", _days),
    "SWEEP_AFTER": ("sweep_after", _unchanged),
}
"""The settings that are limits. A service, or a command, that does not read one never uses that limit."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a service was told, read and checked."""

    service: str
    values: Mapping[str, Any] = field(repr=False)  # it holds secrets

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str) -> Any:
        """The value, or None where it is optional and unset."""
        return self.values.get(name)

    @property
    def limits(self) -> Limits:
        """The limits of the protocol, scaled: the one place where TIME_SCALE is applied."""
        given = {field: of(self.values[name]) for name, (field, of) in _LIMITS.items() if name in self.values}
        return Limits(**given).scaled(self.values["TIME_SCALE"])


def load(environ: Mapping[str, str], service: str, only: Collection[str] | None = None) -> Config:
    """Read the variables of one service; `only` these of them, whatever is wrong with the others. Raises ConfigError
    with every fault; with one alone where APP_ENV is no environment, for what is missing then cannot be known.
    """
    faults: list[str] = []
    on_cloud_run = [name for name in CLOUD_RUN if environ.get(name)]
    app_env = environ.get("APP_ENV", "").strip() or ("" if on_cloud_run else "local")
    if app_env and app_env not in ENVIRONMENTS:
        allowed = f"{' or '.join(DEPLOYED)} on Cloud Run" if on_cloud_run else f"one of {', '.join(ENVIRONMENTS)}"
        raise ConfigError([f"APP_ENV must be {allowed}{_quoted(app_env, environ)}."])
    if on_cloud_run and app_env not in DEPLOYED:
        faults.append(
            f"APP_ENV must be {' or '.join(DEPLOYED)} on Cloud Run ({on_cloud_run[0]} is set): the defaults of one "
            "machine are secrets known to everybody."
        )
        app_env = "prod"
    values: dict[str, Any] = {"APP_ENV": app_env}
    for setting in SETTINGS:
        is_asked = only is None or setting.name in only
        if is_asked and service in setting.services and setting.name != "APP_ENV":
            fault = _read(setting, environ, app_env, values)
            if fault:
                faults.append(fault)
    faults += _faults_together(environ, values)
    if service == INTERNAL:
        faults += _handler_faults(environ, values)
    if app_env in DEPLOYED:
        faults += _deployed_faults(values)
    faults = [fault for fault in faults if only is None or fault.split()[0] in only]
    if faults:
        raise ConfigError(faults)
    return Config(service, values)


def _read(setting: Setting, environ: Mapping[str, str], app_env: str, values: dict[str, Any]) -> str | None:
    """Put one value in its place, or say what is wrong with it."""
    raw = environ.get(setting.name, "").strip()  # a secret in a file ends with a line break
    deployed = app_env in DEPLOYED
    if deployed and setting.only_local:
        if raw:
            return f"{setting.name} is for one machine only; remove it in {app_env}."
        raw = setting.always or ""
    if not raw:
        raw = ("" if deployed else _local_default(setting)) or setting.always or ""
    if not raw:
        required = not setting.optional and not (deployed and setting.only_local)
        return f"{setting.name} is missing: {setting.meaning}." if required else None
    try:
        values[setting.name] = setting.parse(raw)
    except _Fault as fault:
        return f"{setting.name} {fault}{'' if setting.secret else _quoted(raw, environ)}."
    if deployed and setting.https and not raw.startswith("https://"):
        return f"{setting.name} must be https in {app_env}."
    if deployed and setting.secret and any(part.strip() in LOCAL_SECRETS.values() for part in raw.split(",")):
        return f"{setting.name} is the secret of one machine, known to everybody; set your own in {app_env}."
    return None


def _quoted(value: str, environ: Mapping[str, str]) -> str:
    """The value that makes no sense, for the end of a sentence; "" where it may be private.

    A secret may stand in the wrong variable, and a fault is logged. On Cloud Run, where others read the logs, no value
    is repeated; elsewhere none that is long, or that has the `@` of an address with a password.
    """
    is_shown = len(value) <= QUOTED_CHARACTERS and value.isprintable() and "@" not in value
    return f'; it is "{value}"' if is_shown and not any(environ.get(name) for name in CLOUD_RUN) else ""


def misspelt(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that are nearly the name of a setting, each with that name: one letter is wrong, missing or too
    many, or two are swapped. Short names are left alone: they may well be another program's.
    """
    names = [setting.name for setting in SETTINGS if len(setting.name) >= len("HANDLER_")]
    strange = sorted(environ.keys() - {setting.name for setting in SETTINGS})
    found = {name: next((known for known in names if is_nearly(name.upper(), known)), None) for name in strange}
    return {name: meant for name, meant in found.items() if meant}


def _local_default(setting: Setting) -> str:
    return LOCAL_SECRETS.get(setting.name) or setting.local or ""


def _faults_together(environ: Mapping[str, str], values: Mapping[str, Any]) -> list[str]:
    """What is wrong with values that are right each by itself."""
    faults = []
    queue = values.get("INBOUND_TASK_QUEUE_NAME")
    if queue and queue == values.get("OUTBOUND_TASK_QUEUE_NAME"):
        faults.append("OUTBOUND_TASK_QUEUE_NAME must differ from INBOUND_TASK_QUEUE_NAME: each has its own rate.")
    if values.get("STORE") == "redis" and not environ.get("REDIS_URL", "").strip():
        faults.append("REDIS_URL is missing: STORE=redis needs the address of its server, like redis://10.0.0.3:6379.")
    if values.get("TRUST_CLOUD_RUN_IAM") and not environ.get("K_SERVICE"):
        faults.append(
            "TRUST_CLOUD_RUN_IAM must be false outside a Cloud Run service (K_SERVICE is not set): without IAM in "
            "front of it, anybody could write such a token."
        )
    if "REDIS_CA_CERTS" in values and str(values.get("REDIS_URL", "")).startswith("redis:"):
        faults.append("REDIS_CA_CERTS is set, and REDIS_URL does not use TLS: it must begin with rediss://.")
    return faults


def _handler_faults(environ: Mapping[str, str], values: dict[str, Any]) -> list[str]:
    """Exactly one of HANDLER and HANDLER_URL; the default of one machine gives way."""
    names = ("HANDLER", "HANDLER_URL", "HANDLER_URL_SECRET", "HANDLER_KINDS")
    named = {name for name in names if environ.get(name, "").strip()}
    faults = _one_handler(named, values)
    if "HANDLER_KINDS" in named and "HANDLER_KINDS" in values and "HANDLER_URL" not in named:
        faults.append("HANDLER_KINDS is set without HANDLER_URL; a Python handler names its kinds by @handles.")
    return faults


def _one_handler(named: set[str], values: dict[str, Any]) -> list[str]:
    if {"HANDLER", "HANDLER_URL"} <= named:
        return ["HANDLER and HANDLER_URL are both set; set exactly one of them."]
    if "HANDLER_URL" in named:
        values.pop("HANDLER", None)
        if "HANDLER_URL_SECRET" not in named:
            return ["HANDLER_URL_SECRET is missing: the calls of HANDLER_URL are signed with it."]
    elif "HANDLER_URL_SECRET" in named:
        return ["HANDLER_URL_SECRET is set without HANDLER_URL; set both or neither."]
    elif "HANDLER" not in values and "HANDLER" not in named:
        return ["HANDLER is missing: the team's code, module:function; or set HANDLER_URL."]
    return []


def _deployed_faults(values: Mapping[str, Any]) -> list[str]:
    faults = []
    if values.get("STORE") == "sqlite":
        faults.append("STORE must not be sqlite in staging and prod: instances share no disk.")
    if values.get("STORE") == "redis" and str(values.get("REDIS_URL", "")).startswith("redis:"):
        faults.append("REDIS_URL must begin with rediss:// in staging and prod: records hold what people wrote.")
    if values.get("DEDUPE_TTL_DAYS", 8) < 8:
        faults.append("DEDUPE_TTL_DAYS must be at least 8: Meta delivers again for 7 days.")
    return faults
