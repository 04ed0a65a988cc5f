"""The table of settings: every environment variable that Pombo reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from shared.config.parsers import (
    account,
    certificates,
    choice,
    duration,
    endpoint,
    flag,
    handler_name,
    header,
    host_and_port,
    kinds,
    list_of,
    number,
    printable,
    queue,
    queue_pattern,
    redis_url,
    shaped,
    url,
    webhook_secret,
    whole,
)
from shared.domain.limits import DoubtPolicy
from shared.domain.record import ATTEMPTS_KEPT

WEBHOOK, INTERNAL, API, CLI = "webhook", "internal", "api", "cli"
SERVICES = (WEBHOOK, API, INTERNAL)
ALL = (*SERVICES, CLI)
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
    "ID_KEY": "local-id-key",
}
"""Publicly known secrets for one machine: refused anywhere else."""
MOST_TENANT_QUEUES = 480
"""Pairs. Cloud Tasks allows 1,000 queues in a region (https://cloud.google.com/tasks/docs/quotas, 2026-11)."""
LEAST_DOUBT_WINDOW = timedelta(seconds=120)
"""process_outbound ends itself 90 s after it began; the window must outlive it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable: who reads it, how it is parsed, and what it means.

    `local` is the default on one machine, `always` the default everywhere. With neither it is required, unless
    `optional`, or for those in `optional_for`. In staging and prod, `https` requires an https address, and `only_local`
    settings are refused.
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
    optional_for: tuple[str, ...] = ()


def _second(count: float) -> timedelta:
    return timedelta(seconds=count)


def _unchanged(value: Any) -> Any:
    return value


def _days(count: int) -> timedelta:
    return timedelta(days=count)


SETTINGS: tuple[Setting, ...] = (
    Setting("APP_ENV", ALL, choice(*ENVIRONMENTS), "the environment: local, test, staging or prod", local="local"),
    Setting(
        "LOG_LEVEL",
        SERVICES,
        choice("DEBUG", "INFO", "WARNING", "ERROR"),
        "the lowest severity that is logged",
        always="INFO",
    ),
    Setting(
        "PORT",
        SERVICES,
        whole(1, 65535),
        "the port to listen on: set by Cloud Run; 8080, 8081 and 8084 on one machine",
        optional=True,
    ),
    Setting(
        "WEBHOOK_CONCURRENCY",
        (WEBHOOK,),
        whole(1, 1000),
        "how many requests the webhook service works on at once; set its Cloud Run concurrency to the same number",
        always="80",
    ),
    Setting(
        "THREADS",
        (INTERNAL, API),
        whole(1, 1000),
        "how many requests the internal service and the API service work on at once, each in a thread; set their Cloud "
        "Run concurrency to the same number",
        always="16",
    ),
    Setting(
        "META_APP_SECRET",
        (WEBHOOK, API, CLI),
        list_of(printable),
        "list; the app secret that Meta signs webhooks with",
        local="",
        secret=True,
        optional_for=(API, CLI),
    ),
    Setting(
        "META_APP_ID",
        (API, CLI),
        shaped(r"[0-9]{1,32}", "must be an app ID: 1 to 32 digits"),
        "the ID of the Meta app; with META_APP_SECRET, connecting a number checks what its access token may do",
        optional=True,
    ),
    Setting(
        "META_VERIFY_TOKEN",
        (WEBHOOK,),
        list_of(printable),
        "list; the verify token that Meta's GET handshake must present",
        local="",
        secret=True,
    ),
    Setting(
        "WEBHOOK_MAX_BYTES",
        (WEBHOOK,),
        whole(1024, 64 * 1024 * 1024),
        "the largest webhook body accepted, in bytes",
        always="3211264",
    ),
    Setting(
        "WHATSAPP_PHONE_NUMBER_ID",
        ALL,
        shaped(r"[0-9]{1,32}", "must be a phone number ID: 1 to 32 digits"),
        "the phone number ID of tenant default's sender",
        local="100000000000001",
    ),
    Setting(
        "WHATSAPP_ACCESS_TOKEN",
        (INTERNAL,),
        header,
        "the access token for WHATSAPP_PHONE_NUMBER_ID",
        local="",
        secret=True,
    ),
    Setting(
        "WHATSAPP_API_BASE_URL",
        (INTERNAL, API, CLI),
        url,
        "the base URL of the Graph API",
        local="http://127.0.0.1:8082",
        https=True,
        optional_for=(CLI,),
    ),
    Setting(
        "WHATSAPP_API_VERSION",
        (INTERNAL, API, CLI),
        shaped(r"v[0-9]{1,3}\.[0-9]{1,3}", "must be a version like v25.0"),
        "the version of the Graph API",
        always="v25.0",
    ),
    Setting("STORE", ALL, choice(*STORES), "the store: sqlite, firestore or redis", local="sqlite"),
    Setting(
        "SQLITE_PATH",
        ALL,
        Path,
        "the file of the sqlite store",
        local=f"{DATA_DIRECTORY}/pombo.sqlite",
        only_local=True,
    ),
    Setting("REDIS_URL", ALL, redis_url, "the URL of the redis store's server", optional=True, secret=True),
    Setting(
        "REDIS_CA_CERTS",
        ALL,
        certificates,
        "CA certificates (PEM) to trust for that server instead of the system's",
        optional=True,
    ),
    Setting(
        "GOOGLE_CLOUD_PROJECT",
        ALL,
        shaped(r"[a-z0-9:.-]{1,100}", "must be a project ID like my-project-1"),
        "the Google Cloud project ID",
        local="pombo-local",
    ),
    Setting(
        "FIRESTORE_DATABASE",
        ALL,
        shaped(r"\(default\)|[a-z][a-z0-9-]{2,61}[a-z0-9]", "must be a database ID like (default) or my-database"),
        "the database ID of the firestore store",
        always="(default)",
    ),
    Setting(
        "FIRESTORE_EMULATOR_HOST",
        ALL,
        host_and_port,
        "host:port of the Firestore emulator",
        optional=True,
        only_local=True,
    ),
    Setting(
        "SECRET_MANAGER_EMULATOR_HOST",
        (INTERNAL, API, CLI),
        host_and_port,
        "host:port of a local Secret Manager for tenants' access tokens, instead of the file in the data directory",
        optional=True,
        only_local=True,
    ),
    Setting(
        "CLOUD_TASKS_LOCATION",
        SERVICES,
        shaped(r"[a-z0-9-]{1,63}", "must be a region like europe-west1"),
        "the region of the queues",
        local="local",
    ),
    Setting(
        "CLOUD_TASKS_EMULATOR_HOST",
        SERVICES,
        host_and_port,
        "host:port of the Cloud Tasks emulator",
        local="127.0.0.1:8083",
        only_local=True,
    ),
    Setting("INBOUND_TASK_QUEUE_NAME", SERVICES, queue, "the name of the queue for events", local="inbound"),
    Setting("OUTBOUND_TASK_QUEUE_NAME", SERVICES, queue, "the name of the queue for messages", local="outbound"),
    Setting(
        "TENANT_QUEUES",
        ALL,
        whole(0, MOST_TENANT_QUEUES),
        "how many numbered pairs of queues there are; a tenant of another number uses the shared queues",
        always="20",
    ),
    Setting(
        "INBOUND_TENANT_QUEUE_PATTERN",
        ALL,
        queue_pattern,
        "the names of the numbered queues for events, with {n} or {n:03d} for the number",
        always="inbound-t{n:03d}",
    ),
    Setting(
        "TENANT_QUEUE_PATTERN",
        ALL,
        queue_pattern,
        "the names of the numbered queues for messages, with {n} or {n:03d} for the number",
        always="outbound-t{n:03d}",
    ),
    Setting(
        "DRAIN_TASK_QUEUE_NAME",
        SERVICES,
        queue,
        "the name of the queue that wakes a sender's waiting messages",
        always="drain",
    ),
    Setting(
        "INTERNAL_TASK_BASE_URL",
        SERVICES,
        url,
        "the URL of the internal service, which tasks are sent to",
        local="http://127.0.0.1:8081",
        https=True,
    ),
    Setting(
        "INTERNAL_TASK_TOKEN",
        SERVICES,
        list_of(header),
        "list; the token that tasks carry in the header X-Internal-Token",
        local="",
        secret=True,
    ),
    Setting(
        "ID_KEY",
        SERVICES,
        printable,
        "the key of the ids of conversations and turns; with another one Pombo no longer finds the earlier ones",
        local="",
        secret=True,
    ),
    Setting(
        "TURNS",
        SERVICES,
        choice("contact", "none"),
        "`contact`: the messages of one contact are handled one at a time, in order, and so are those sent to them; "
        "`none`: each at once, and only the replies to one message in order",
        always="contact",
    ),
    Setting(
        "TASKS_SERVICE_ACCOUNT",
        (INTERNAL,),
        account,
        "the service account whose OIDC token the queues add to tasks; if set, the token is verified too",
        optional=True,
    ),
    Setting(
        "SCHEDULER_SERVICE_ACCOUNT",
        (INTERNAL,),
        account,
        "the service account whose OIDC token /internal/sweep accepts",
        optional=True,
    ),
    Setting(
        "TRUST_CLOUD_RUN_IAM",
        (INTERNAL,),
        flag,
        "true: if Cloud Run's IAM verified an OIDC token and removed its signature, accept the token by its claims; "
        "only for a service that IAM guards",
        always="false",
    ),
    Setting(
        "OIDC_CERTS_URL",
        (INTERNAL,),
        url,
        "the URL of the certificates that OIDC tokens are verified with",
        always="https://www.googleapis.com/oauth2/v1/certs",
        https=True,
    ),
    Setting(
        "HANDLER",
        (INTERNAL,),
        handler_name,
        "the team's code, as module:function; set exactly one of HANDLER and HANDLER_URL",
        local="handlers.echo:handle",
        optional=True,
    ),
    Setting(
        "HANDLER_URL",
        (INTERNAL,),
        endpoint,
        "the URL of the team's backend; set it instead of HANDLER",
        optional=True,
        https=True,
    ),
    Setting(
        "HANDLER_URL_SECRET",
        (INTERNAL,),
        list_of(webhook_secret),
        "list of whsec_...; Pombo signs each request to HANDLER_URL with all of them",
        optional=True,
        secret=True,
    ),
    Setting(
        "HANDLER_KINDS",
        (INTERNAL,),
        kinds,
        "list; the kinds of message that Pombo sends to HANDLER_URL, or * for every kind",
        always="text,media,location,contacts,interactive,button,order",
    ),
    Setting(
        "HANDLER_TIMEOUT",
        SERVICES,
        duration(_second(1), _second(1700)),
        "how long a handler may take",
        always="60s",
    ),
    Setting(
        "HANDLER_TRACEBACK",
        (INTERNAL,),
        flag,
        "true: write the traceback of an exception in HANDLER to standard error; its text may be private",
        local="true",
        always="false",
    ),
    Setting(
        "MAX_ATTEMPTS",
        (INTERNAL,),
        whole(1, ATTEMPTS_KEPT),
        "the maximum number of attempts of a handler call or a send",
        always="8",
    ),
    Setting(
        "PLAN_ALL_OR_NOTHING",
        (INTERNAL,),
        flag,
        "true: if one reply cannot be sent, the handler fails; false: the other replies are sent",
        always="false",
    ),
    Setting(
        "IN_DOUBT_SECONDS",
        (INTERNAL,),
        duration(LEAST_DOUBT_WINDOW, _second(86400)),
        "how long Pombo waits for a receipt after the response to a send was lost",
        always="300",
    ),
    Setting(
        "IN_DOUBT_POLICY",
        (INTERNAL,),
        choice("resend", "hold"),
        "what to do with the message if no receipt came: resend, or hold for an operator",
        always="resend",
    ),
    Setting(
        "MESSAGE_MAX_AGE",
        SERVICES,
        duration(_second(60), timedelta(days=30)),
        "how long Pombo retries an event or a message, counted from when it is first due; then it is a dead letter",
        always="24h",
    ),
    Setting(
        "DEDUPE_TTL_DAYS",
        ALL,
        whole(1, 365),
        "how many days an event is remembered, so that duplicates are recognised",
        always="8",
    ),
    Setting(
        "SWEEP_AFTER",
        ALL,
        duration(_second(1), _second(86400)),
        "how long a record is overdue before the sweep enqueues it again",
        always="600s",
        local="30s",
    ),
    Setting("TIME_SCALE", ALL, number(1, 20), "divides every duration of the protocol", always="1", only_local=True),
    Setting(
        "CRASH_AT",
        SERVICES,
        shaped(
            r"(before|after):[a-z_]+\.[a-z_]+(:[1-9][0-9]{0,5})?",
            "must be a crash point like after:store.change:2 (pombo doctor --points lists them)",
        ),
        "a point at which the process kills itself, once; pombo doctor --points lists them",
        optional=True,
        only_local=True,
    ),
)
"""The table. tests/unit/config_page.py generates docs/configuration.md from it; a test compares the two."""
LIMIT_OF_SETTING: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "MAX_ATTEMPTS": ("max_attempts", _unchanged),
    "HANDLER_TIMEOUT": ("handler_timeout", _unchanged),
    "IN_DOUBT_SECONDS": ("doubt_window", _unchanged),
    "IN_DOUBT_POLICY": ("doubt_policy", DoubtPolicy),
    "MESSAGE_MAX_AGE": ("message_max_age", _unchanged),
    "DEDUPE_TTL_DAYS": ("inbound_retention", _days),
    "SWEEP_AFTER": ("sweep_after", _unchanged),
}
"""The settings that are limits. A service or a command that does not read a setting never uses that limit."""
_LIMIT_SETTINGS = {"APP_ENV", "SWEEP_AFTER", "DEDUPE_TTL_DAYS", "TIME_SCALE"}
STORE_SETTINGS = frozenset(
    _LIMIT_SETTINGS
    | {"STORE", "SQLITE_PATH", "REDIS_URL", "GOOGLE_CLOUD_PROJECT", "FIRESTORE_DATABASE", "FIRESTORE_EMULATOR_HOST"}
)
QUEUE_SETTINGS = frozenset(
    _LIMIT_SETTINGS
    | {"GOOGLE_CLOUD_PROJECT", "CLOUD_TASKS_LOCATION", "CLOUD_TASKS_EMULATOR_HOST", "INBOUND_TASK_QUEUE_NAME"}
    | {"OUTBOUND_TASK_QUEUE_NAME", "INTERNAL_TASK_BASE_URL", "INTERNAL_TASK_TOKEN", "TASKS_SERVICE_ACCOUNT"}
    | {"TENANT_QUEUES", "TENANT_QUEUE_PATTERN", "INBOUND_TENANT_QUEUE_PATTERN", "DRAIN_TASK_QUEUE_NAME"}
    | {"HANDLER_TIMEOUT"}
)
"""What a command needs to reach the store or the queue; a fault in another setting does not stop it."""
