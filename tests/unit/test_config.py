"""Configuration: what each service takes from its environment, and what stops its start."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from cli import commands
from local.terminal import WrongSettings
from shared.bootstrap.internal import build_internal
from shared.bootstrap.webhook import build_webhook
from shared.config import (
    API,
    CLI,
    ENVIRONMENTS,
    INTERNAL,
    LOCAL_SECRETS,
    SETTINGS,
    WEBHOOK,
    ConfigError,
    Setting,
    load,
    misspelt,
)
from shared.domain.limits import DoubtPolicy, Limits
from shared.domain.message_kinds import DEFAULT_KINDS, KINDS
from tests.support import forked
from tests.unit import config_page

ROOT = Path(__file__).parents[2]
SERVICES = (WEBHOOK, API, INTERNAL, CLI)

LOCAL_OF_ALL: Mapping[str, Any] = {
    "APP_ENV": "local",
    "LOG_LEVEL": "INFO",
    "WHATSAPP_PHONE_NUMBER_ID": "100000000000001",
    "STORE": "sqlite",
    "SQLITE_PATH": Path(".pombo/pombo.sqlite"),
    "FIRESTORE_DATABASE": "(default)",
    "GOOGLE_CLOUD_PROJECT": "pombo-local",
    "CLOUD_TASKS_LOCATION": "local",
    "CLOUD_TASKS_EMULATOR_HOST": "127.0.0.1:8083",
    "INBOUND_TASK_QUEUE_NAME": "inbound",
    "OUTBOUND_TASK_QUEUE_NAME": "outbound",
    "TENANT_QUEUES": 20,
    "INBOUND_TENANT_QUEUE_PATTERN": "inbound-t{n:03d}",
    "TENANT_QUEUE_PATTERN": "outbound-t{n:03d}",
    "DRAIN_TASK_QUEUE_NAME": "drain",
    "INTERNAL_TASK_BASE_URL": "http://127.0.0.1:8081",
    "INTERNAL_TASK_TOKEN": ("local-internal-token",),
    "DEDUPE_TTL_DAYS": 8,
    "HANDLER_TIMEOUT": timedelta(seconds=60),
    "MESSAGE_MAX_AGE": timedelta(hours=24),
    "SWEEP_AFTER": timedelta(seconds=30),
    "TIME_SCALE": 1.0,
    "ID_KEY": "local-id-key",
    "TURNS": "contact",
}
LOCAL: Mapping[str, Mapping[str, Any]] = {
    WEBHOOK: {
        **LOCAL_OF_ALL,
        "WEBHOOK_CONCURRENCY": 80,
        "META_APP_SECRET": ("local-app-secret",),
        "META_VERIFY_TOKEN": ("local-verify-token",),
        "WEBHOOK_MAX_BYTES": 3 * 1024 * 1024 + 64 * 1024,
    },
    API: {
        **LOCAL_OF_ALL,
        "THREADS": 16,
        "META_APP_SECRET": ("local-app-secret",),
        "WHATSAPP_API_BASE_URL": "http://127.0.0.1:8082",
        "WHATSAPP_API_VERSION": "v25.0",
    },
    INTERNAL: {
        **LOCAL_OF_ALL,
        "THREADS": 16,
        "WHATSAPP_ACCESS_TOKEN": "local-access-token",
        "WHATSAPP_API_BASE_URL": "http://127.0.0.1:8082",
        "WHATSAPP_API_VERSION": "v25.0",
        "TRUST_CLOUD_RUN_IAM": False,
        "OIDC_CERTS_URL": "https://www.googleapis.com/oauth2/v1/certs",
        "HANDLER": "handlers.echo:handle",
        "HANDLER_KINDS": DEFAULT_KINDS,
        "HANDLER_TRACEBACK": True,
        "MAX_ATTEMPTS": 8,
        "PLAN_ALL_OR_NOTHING": False,
        "IN_DOUBT_SECONDS": timedelta(seconds=300),
        "IN_DOUBT_POLICY": "resend",
    },
}

GIVEN: Mapping[str, str] = {
    "WHATSAPP_PHONE_NUMBER_ID": "200000000000002",
    "GOOGLE_CLOUD_PROJECT": "a-project",
    "CLOUD_TASKS_LOCATION": "europe-west1",
    "INBOUND_TASK_QUEUE_NAME": "inbound",
    "OUTBOUND_TASK_QUEUE_NAME": "outbound",
    "INTERNAL_TASK_BASE_URL": "https://internal.example.com",
    "INTERNAL_TASK_TOKEN": "a-token-of-our-own",
    "META_APP_SECRET": "a-secret-of-our-own",
    "META_VERIFY_TOKEN": "a-word-of-our-own",
    "ID_KEY": "a-key-of-our-own",
    "WHATSAPP_ACCESS_TOKEN": "an-access-token",
    "WHATSAPP_API_BASE_URL": "https://graph.example.com",
    "HANDLER": "handlers.echo:handle",
    "STORE": "firestore",
}
"""All that a deployed service has to be given."""

REQUIRED = {
    WEBHOOK: set(GIVEN) - {"WHATSAPP_ACCESS_TOKEN", "WHATSAPP_API_BASE_URL", "HANDLER"},
    API: set(GIVEN) - {"META_APP_SECRET", "META_VERIFY_TOKEN", "WHATSAPP_ACCESS_TOKEN", "HANDLER"},
    INTERNAL: set(GIVEN) - {"META_APP_SECRET", "META_VERIFY_TOKEN"},
}
DEPLOYED = [(app_env, service) for app_env in ("staging", "prod") for service in (WEBHOOK, API, INTERNAL)]
each_deployed = pytest.mark.parametrize(("app_env", "service"), DEPLOYED)


def faults(environ: Mapping[str, str], service: str = INTERNAL) -> list[str]:
    try:
        load(environ, service)
    except ConfigError as error:
        return error.faults
    return []


def deployed_faults(app_env: str, service: str, **changes: str) -> list[str]:
    """What is wrong in a project once these values are changed."""
    return faults({**GIVEN, "APP_ENV": app_env, **changes}, service)


def named(found: list[str]) -> set[str]:
    return {fault.split(" ")[0] for fault in found}


# ---- one machine


@pytest.mark.parametrize("service", [WEBHOOK, API, INTERNAL])
def test_on_one_machine_everything_has_a_default(service: str) -> None:
    assert dict(load({}, service).values) == LOCAL[service]


OF_THE_STORE = {
    "APP_ENV", "WHATSAPP_PHONE_NUMBER_ID", "STORE", "SQLITE_PATH", "GOOGLE_CLOUD_PROJECT", "FIRESTORE_DATABASE",
    "DEDUPE_TTL_DAYS", "SWEEP_AFTER", "TIME_SCALE", "TENANT_QUEUES", "INBOUND_TENANT_QUEUE_PATTERN",
    "TENANT_QUEUE_PATTERN"
}  # fmt: skip
"""What the command line has to know of the store."""


def test_command_line_knows_the_store_and_the_local_meta_app() -> None:
    of_meta = {"META_APP_SECRET", "WHATSAPP_API_BASE_URL", "WHATSAPP_API_VERSION"}
    assert set(load({}, CLI).values) == OF_THE_STORE | of_meta


@pytest.mark.parametrize("app_env", ["staging", "prod"])
def test_deployments_command_line_requires_the_store_and_no_secret(app_env: str) -> None:
    given = {name: GIVEN[name] for name in ("WHATSAPP_PHONE_NUMBER_ID", "GOOGLE_CLOUD_PROJECT", "STORE")}
    assert faults({**given, "APP_ENV": app_env}, CLI) == []
    assert set(load({**given, "APP_ENV": app_env}, CLI).values) == OF_THE_STORE - {"SQLITE_PATH"} | {
        "WHATSAPP_API_VERSION"
    }
    assert named(faults({"APP_ENV": app_env}, CLI)) == set(given)


def test_only_the_webhook_requires_the_apps_secret_and_no_command_the_address() -> None:
    optional = {it.name: it.optional_for for it in SETTINGS if it.optional_for}
    assert optional == {"META_APP_SECRET": (API, CLI), "WHATSAPP_API_BASE_URL": (CLI,)}
    assert named(deployed_faults("prod", WEBHOOK, META_APP_SECRET="")) == {"META_APP_SECRET"}
    assert named(deployed_faults("prod", INTERNAL, WHATSAPP_API_BASE_URL="")) == {"WHATSAPP_API_BASE_URL"}


def test_an_optional_value_that_is_unset_is_none() -> None:
    config = load({}, INTERNAL)
    assert [config.get(name) for name in ("PORT", "TASKS_SERVICE_ACCOUNT", "SCHEDULER_SERVICE_ACCOUNT")] == [None] * 3


@pytest.mark.parametrize("service", SERVICES)
def test_an_empty_value_is_an_unset_one(service: str) -> None:
    assert load({setting.name: "" for setting in SETTINGS}, service) == load({}, service)


@pytest.mark.parametrize("service", SERVICES)
def test_a_test_environment_has_the_same_defaults(service: str) -> None:
    assert {**load({"APP_ENV": "test"}, service).values, "APP_ENV": "local"} == load({}, service).values


def test_whitespace_around_a_value_is_stripped() -> None:
    """Secrets are often kept in files, which end with a line break."""
    environ = {"WHATSAPP_ACCESS_TOKEN": "token\n", "INTERNAL_TASK_TOKEN": " one , two\n", "PORT": " 80 "}
    config = load(environ, INTERNAL)
    assert config["WHATSAPP_ACCESS_TOKEN"] == "token"
    assert config["INTERNAL_TASK_TOKEN"] == ("one", "two")
    assert config["PORT"] == 80


def test_a_list_keeps_its_order_and_loses_its_gaps() -> None:
    assert load({"META_APP_SECRET": "new,, old ,"}, WEBHOOK)["META_APP_SECRET"] == ("new", "old")


# ---- staging and prod


@each_deployed
def test_a_complete_environment_has_no_fault(app_env: str, service: str) -> None:
    assert deployed_faults(app_env, service) == []


@each_deployed
def test_addresses_secrets_store_and_handler_have_no_default_in_a_project(app_env: str, service: str) -> None:
    found = faults({"APP_ENV": app_env}, service)
    assert named(found) == REQUIRED[service]
    assert all(" is missing: " in fault for fault in found)


@each_deployed
def test_each_value_that_is_missing_alone_stops_the_start(app_env: str, service: str) -> None:
    for name in REQUIRED[service]:
        for nothing in ("", "  \n"):
            (fault,) = deployed_faults(app_env, service, **{name: nothing})
            assert fault.startswith(f"{name} is missing: ")


@each_deployed
def test_an_address_must_be_https_in_a_project(app_env: str, service: str) -> None:
    addresses = {"INTERNAL_TASK_BASE_URL"}
    if service == INTERNAL:
        addresses |= {"WHATSAPP_API_BASE_URL", "OIDC_CERTS_URL"}
    found = deployed_faults(app_env, service, **dict.fromkeys(addresses, "http://plain.example.com"))
    assert set(found) == {f"{name} must be https in {app_env}." for name in addresses}


@pytest.mark.parametrize("app_env", ENVIRONMENTS)
@pytest.mark.parametrize("elsewhere", [{}, {"K_SERVICE": ""}, {"CLOUD_RUN_JOB": "sweep"}], ids=str)
def test_iam_is_trusted_in_a_cloud_run_service_and_nowhere_else(app_env: str, elsewhere: Mapping[str, str]) -> None:
    given = {**GIVEN, "APP_ENV": app_env, "TRUST_CLOUD_RUN_IAM": "true"}
    refused = [fault for fault in faults({**given, **elsewhere}) if fault.startswith("TRUST_CLOUD_RUN_IAM ")]
    assert refused == [
        "TRUST_CLOUD_RUN_IAM must be false outside a Cloud Run service (K_SERVICE is not set): without IAM in front of "
        "the service, anyone could forge such a token."
    ]
    assert "TRUST_CLOUD_RUN_IAM" not in named(faults({**given, "TRUST_CLOUD_RUN_IAM": "false", **elsewhere}))


@pytest.mark.parametrize("app_env", ["staging", "prod"])
def test_iam_is_trusted_only_by_the_service_configured_to(app_env: str) -> None:
    deployed = {**GIVEN, "APP_ENV": app_env, "K_SERVICE": "pombo-internal"}
    assert load({**deployed, "TRUST_CLOUD_RUN_IAM": "true"}, INTERNAL)["TRUST_CLOUD_RUN_IAM"] is True
    assert load(deployed, INTERNAL)["TRUST_CLOUD_RUN_IAM"] is False
    assert load({**deployed, "TRUST_CLOUD_RUN_IAM": "true"}, WEBHOOK).get("TRUST_CLOUD_RUN_IAM") is None


@each_deployed
def test_the_secrets_of_one_machine_are_refused_in_a_project(app_env: str, service: str) -> None:
    secrets = {it.name for it in SETTINGS if it.name in LOCAL_SECRETS and service in it.services}
    assert secrets
    assert named(deployed_faults(app_env, service, **LOCAL_SECRETS)) == secrets
    hidden = {name: f"a-secret-of-our-own, {LOCAL_SECRETS[name]}" for name in secrets}
    assert named(deployed_faults(app_env, service, **hidden)) == secrets


@each_deployed
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SQLITE_PATH", "/data/pombo.sqlite"),
        ("CLOUD_TASKS_EMULATOR_HOST", "127.0.0.1:8083"),
        ("FIRESTORE_EMULATOR_HOST", "127.0.0.1:8084"),
        ("TIME_SCALE", "1"),
        ("CRASH_AT", "before:store.create"),
        ("CRASH_AT", "after:queue.ensure:3"),
    ],
)
def test_local_only_setting_is_refused_in_a_project(app_env: str, service: str, name: str, value: str) -> None:
    assert named(deployed_faults(app_env, service, **{name: value})) == {name}


@pytest.mark.parametrize("app_env", ["staging", "prod"])
def test_local_secret_manager_is_refused_in_a_project(app_env: str) -> None:
    name = "SECRET_MANAGER_EMULATOR_HOST"
    assert named(deployed_faults(app_env, INTERNAL, **{name: "127.0.0.1:8090"})) == {name}
    assert named(deployed_faults(app_env, CLI, **{name: "127.0.0.1:8090"})) == {name}


@each_deployed
def test_sqlite_is_refused_in_a_project(app_env: str, service: str) -> None:
    found = faults({**GIVEN, "APP_ENV": app_env, "STORE": "sqlite"}, service)
    assert found == ["STORE must not be sqlite in staging and prod: instances share no disk."]


@each_deployed
def test_an_event_is_remembered_for_longer_than_meta_redelivers(app_env: str, service: str) -> None:
    assert named(deployed_faults(app_env, service, DEDUPE_TTL_DAYS="7")) == {"DEDUPE_TTL_DAYS"}
    assert deployed_faults(app_env, service, DEDUPE_TTL_DAYS="8") == []
    assert load({"DEDUPE_TTL_DAYS": "1"}, service)["DEDUPE_TTL_DAYS"] == 1


def test_on_cloud_run_an_unset_environment_stops_the_start() -> None:
    found = faults({"K_SERVICE": "webhook", **GIVEN}, WEBHOOK)
    assert found[0].startswith("APP_ENV must be staging or prod on Cloud Run (K_SERVICE is set): ")


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("app_env", ["local", "test"])
def test_on_cloud_run_the_environment_of_one_machine_does_not_start(app_env: str, service: str) -> None:
    """Its secrets are known to everybody."""
    found = faults({**GIVEN, "K_SERVICE": service, "APP_ENV": app_env}, service)
    assert found == [
        "APP_ENV must be staging or prod on Cloud Run (K_SERVICE is set): the local defaults include "
        "publicly known secrets."
    ]
    assert faults({**GIVEN, "APP_ENV": app_env}, service) == []
    for deployed in ("staging", "prod"):
        assert faults({**GIVEN, "K_SERVICE": service, "APP_ENV": deployed}, service) == []


@pytest.mark.parametrize("app_env", ["local", "test"])
def test_on_cloud_run_the_environment_of_one_machine_gives_no_default(app_env: str) -> None:
    assert named(faults({"K_SERVICE": "internal", "APP_ENV": app_env})) == REQUIRED[INTERNAL] | {"APP_ENV"}


def test_on_cloud_run_without_an_environment_nothing_has_a_default() -> None:
    assert named(faults({"K_SERVICE": "internal"})) == REQUIRED[INTERNAL] | {"APP_ENV"}


def test_in_a_job_of_cloud_run_nothing_has_a_default_either() -> None:
    assert named(faults({"CLOUD_RUN_JOB": "sweep"})) == REQUIRED[INTERNAL] | {"APP_ENV"}
    assert named(faults({"CLOUD_RUN_JOB": "sweep", "APP_ENV": "local"})) == REQUIRED[INTERNAL] | {"APP_ENV"}


def test_the_environment_is_read_without_the_blanks_around_it() -> None:
    assert load({"APP_ENV": " test \n"}, INTERNAL)["APP_ENV"] == "test"


@pytest.mark.parametrize(("name", "value"), [("MAX_ATTEMPTS", "１"), ("HANDLER_TIMEOUT", "٦s"), ("TIME_SCALE", "２")])
def test_digits_of_another_script_are_refused(name: str, value: str) -> None:
    assert named(faults({name: value})) == {name}


@pytest.mark.parametrize("service", SERVICES)
def test_unknown_environment_is_the_only_reported_fault(service: str) -> None:
    """All that prod would require is not what is wrong with a misspelt prod."""
    environ = {"APP_ENV": "prd", "PORT": "none", "STORE": "postgres"}
    assert faults(environ, service) == ['APP_ENV must be one of local, test, staging, prod; it is "prd".']
    with pytest.raises(ConfigError):
        load(environ, service, only={"DEDUPE_TTL_DAYS"})
    assert faults(environ | {"K_SERVICE": "pombo"}, service) == ["APP_ENV must be staging or prod on Cloud Run."]


# ---- values

BAD: tuple[tuple[str, str, str], ...] = (
    (WEBHOOK, "LOG_LEVEL", "LOUD"),
    (WEBHOOK, "PORT", "http"),
    (WEBHOOK, "PORT", "0"),
    (WEBHOOK, "PORT", "65536"),
    (WEBHOOK, "PORT", "-1"),
    (WEBHOOK, "WEBHOOK_CONCURRENCY", "0"),
    (WEBHOOK, "WEBHOOK_CONCURRENCY", "1.5"),
    (WEBHOOK, "WEBHOOK_CONCURRENCY", "9" * 5000),
    (INTERNAL, "THREADS", "0"),
    (WEBHOOK, "META_APP_SECRET", ","),
    (WEBHOOK, "META_VERIFY_TOKEN", " , , "),
    (WEBHOOK, "WEBHOOK_MAX_BYTES", "1023"),
    (WEBHOOK, "STORE", "postgres"),
    (WEBHOOK, "INTERNAL_TASK_TOKEN", ","),
    (WEBHOOK, "INTERNAL_TASK_BASE_URL", "internal.example.com"),
    (WEBHOOK, "INTERNAL_TASK_BASE_URL", "https://"),
    (WEBHOOK, "INTERNAL_TASK_BASE_URL", "https://[::1"),
    (WEBHOOK, "INTERNAL_TASK_BASE_URL", "ftp://example.com"),
    (WEBHOOK, "INTERNAL_TASK_BASE_URL", "https://example.com/?token=x"),
    (WEBHOOK, "DEDUPE_TTL_DAYS", "0"),
    (WEBHOOK, "SWEEP_AFTER", "0"),
    (WEBHOOK, "TIME_SCALE", "0.5"),
    (WEBHOOK, "TIME_SCALE", "21"),
    (WEBHOOK, "TIME_SCALE", "nan"),
    (INTERNAL, "WHATSAPP_API_BASE_URL", "graph"),
    (INTERNAL, "OIDC_CERTS_URL", "certs"),
    (INTERNAL, "TRUST_CLOUD_RUN_IAM", "yes"),
    (INTERNAL, "TRUST_CLOUD_RUN_IAM", "True"),
    (INTERNAL, "HANDLER_KINDS", "txt"),
    (INTERNAL, "HANDLER_KINDS", "text,txt"),
    (INTERNAL, "HANDLER_KINDS", "Text"),
    (INTERNAL, "HANDLER_KINDS", "text;media"),
    (INTERNAL, "HANDLER_KINDS", "**"),
    (INTERNAL, "HANDLER_KINDS", ","),
    (INTERNAL, "HANDLER_TIMEOUT", "0"),
    (INTERNAL, "HANDLER_TIMEOUT", "1701"),
    (INTERNAL, "HANDLER_TIMEOUT", "29m"),
    (INTERNAL, "HANDLER_TIMEOUT", "soon"),
    (INTERNAL, "HANDLER_TIMEOUT", "-5s"),
    (INTERNAL, "HANDLER_TIMEOUT", "60 sec"),
    (INTERNAL, "HANDLER_TIMEOUT", "9" * 400),
    (INTERNAL, "MESSAGE_MAX_AGE", "1000000000d"),
    (INTERNAL, "MESSAGE_MAX_AGE", "31d"),
    (INTERNAL, "MAX_ATTEMPTS", "0"),
    (INTERNAL, "IN_DOUBT_SECONDS", "119"),
    (INTERNAL, "IN_DOUBT_SECONDS", "1m"),
    (INTERNAL, "IN_DOUBT_POLICY", "forget"),
    (INTERNAL, "HANDLER_TRACEBACK", "yes"),
    (INTERNAL, "PLAN_ALL_OR_NOTHING", "yes"),
    (INTERNAL, "PLAN_ALL_OR_NOTHING", "True"),
    (WEBHOOK, "INTERNAL_TASK_BASE_URL", "https://:8081"),
    (WEBHOOK, "INTERNAL_TASK_BASE_URL", "https://example.com:port"),
    (WEBHOOK, "INTERNAL_TASK_BASE_URL", "https://example.com:65536"),
    (WEBHOOK, "INTERNAL_TASK_BASE_URL", "https://example.com:0"),
    (WEBHOOK, "INTERNAL_TASK_BASE_URL", "https://example.com/a b"),
    (WEBHOOK, "INTERNAL_TASK_BASE_URL", "https://exam\nple.com"),
    (CLI, "WHATSAPP_PHONE_NUMBER_ID", "+15550002222"),
    (INTERNAL, "WHATSAPP_PHONE_NUMBER_ID", "1000/messages"),
    (INTERNAL, "WHATSAPP_PHONE_NUMBER_ID", "1" * 33),
    (INTERNAL, "WHATSAPP_PHONE_NUMBER_ID", "١٢٣"),
    (INTERNAL, "WHATSAPP_API_VERSION", "25.0"),
    (INTERNAL, "WHATSAPP_API_VERSION", "v25"),
    (INTERNAL, "WHATSAPP_API_VERSION", "v25.0/"),
    (INTERNAL, "WHATSAPP_API_VERSION", "latest"),
    (INTERNAL, "GOOGLE_CLOUD_PROJECT", "My Project"),
    (INTERNAL, "GOOGLE_CLOUD_PROJECT", "projects/a-project"),
    (INTERNAL, "GOOGLE_CLOUD_PROJECT", "a" * 101),
    (INTERNAL, "CLOUD_TASKS_LOCATION", "Europe West"),
    (INTERNAL, "CLOUD_TASKS_LOCATION", "europe/west1"),
    (INTERNAL, "CLOUD_TASKS_LOCATION", "a" * 64),
    (WEBHOOK, "INBOUND_TASK_QUEUE_NAME", "in_bound"),
    (WEBHOOK, "INBOUND_TASK_QUEUE_NAME", "queues/inbound"),
    (WEBHOOK, "OUTBOUND_TASK_QUEUE_NAME", "out bound"),
    (WEBHOOK, "OUTBOUND_TASK_QUEUE_NAME", "o" * 101),
    (WEBHOOK, "DRAIN_TASK_QUEUE_NAME", "drain/1"),
    (WEBHOOK, "TENANT_QUEUES", "twenty"),
    *(
        (service, name, value)
        for service in (WEBHOOK, API, INTERNAL, CLI)
        for name in ("INBOUND_TENANT_QUEUE_PATTERN", "TENANT_QUEUE_PATTERN")
        for value in (
            *("tenants", "t{m}", "{n}-{n}", "t_{n}", "t{n", "t{n}}", "t{n!r}", "t{n.real}", "t{n:x}", "t{n:}", "t{}"),
            "t{n:100d}",
            "t" * 98 + "{n}",
        )
    ),
    (INTERNAL, "TASKS_SERVICE_ACCOUNT", "tasks"),
    (INTERNAL, "TASKS_SERVICE_ACCOUNT", "tasks@localhost"),
    (INTERNAL, "TASKS_SERVICE_ACCOUNT", "serviceAccount:tasks@example.com"),
    (INTERNAL, "SCHEDULER_SERVICE_ACCOUNT", "two words@example.com"),
    (INTERNAL, "SCHEDULER_SERVICE_ACCOUNT", "a@example.com,b@example.com"),
    (CLI, "META_APP_ID", "my-app"),
    (CLI, "META_APP_ID", "1" * 33),
    (INTERNAL, "SECRET_MANAGER_EMULATOR_HOST", "127.0.0.1"),
    (WEBHOOK, "CLOUD_TASKS_EMULATOR_HOST", "127.0.0.1"),
    (WEBHOOK, "CLOUD_TASKS_EMULATOR_HOST", "http://127.0.0.1:8083"),
    (WEBHOOK, "CLOUD_TASKS_EMULATOR_HOST", ":8083"),
    (WEBHOOK, "CLOUD_TASKS_EMULATOR_HOST", "localhost:0"),
    (WEBHOOK, "CLOUD_TASKS_EMULATOR_HOST", "localhost:65536"),
    (INTERNAL, "HANDLER", "handlers.echo\n:handle"),
    (INTERNAL, "CRASH_AT", "store.create"),
    (INTERNAL, "CRASH_AT", "before:store.create:0"),
    (WEBHOOK, "CRASH_AT", "before:store"),
    (CLI, "REDIS_URL", "10.0.0.3:6379"),
    (CLI, "REDIS_URL", "http://10.0.0.3:6379"),
    (CLI, "REDIS_URL", "redis://10.0.0.3:0"),
    (CLI, "REDIS_URL", "redis://10.0.0.3/mine"),
    (CLI, "REDIS_CA_CERTS", "/etc/redis-ca.pem"),
    (CLI, "REDIS_CA_CERTS", "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----"),
    (CLI, "FIRESTORE_DATABASE", "My Database"),
    (CLI, "FIRESTORE_EMULATOR_HOST", "http://127.0.0.1:8084"),
)  # fmt: skip


HEADER_SECRETS = (
    (INTERNAL, "INTERNAL_TASK_TOKEN"),
    (WEBHOOK, "INTERNAL_TASK_TOKEN"),
    (INTERNAL, "WHATSAPP_ACCESS_TOKEN"),
)
META_SECRETS = ("META_APP_SECRET", "META_VERIFY_TOKEN")
UNSEEN = ("\n", "\r\n", "\t", "\x00", "\x1b", "\x7f", "\x85", "\ufeff", "\udcff")
"""Line breaks of a secret pasted in two lines, a byte order mark, a byte that is no UTF-8, and their like."""


@pytest.mark.parametrize(("service", "name", "value"), BAD)
def test_invalid_value_is_a_fault_that_names_the_variable(service: str, name: str, value: str) -> None:
    (fault,) = faults({name: value}, service)
    assert fault.startswith(f"{name} ")
    assert fault.endswith(".")


@pytest.mark.parametrize(("service", "name"), HEADER_SECRETS)
@pytest.mark.parametrize("between", [*UNSEEN, " ", "\u00a0", "é", "–"])
def test_a_secret_that_no_header_can_carry_stops_the_start_and_is_not_repeated(
    service: str, name: str, between: str
) -> None:
    (fault,) = faults({name: f"c4n4ry{between}s3cr3t"}, service)
    assert fault == f"{name} is sent in a header: use only visible ASCII characters, without blanks."


@pytest.mark.parametrize("value", ["fine,c4n4ry s3cr3t", "c4n4ry\ns3cr3t,fine"])
def test_each_item_of_a_list_of_tokens_must_fit_into_a_header(value: str) -> None:
    assert named(faults({"INTERNAL_TASK_TOKEN": value})) == {"INTERNAL_TASK_TOKEN"}


@pytest.mark.parametrize("name", META_SECRETS)
@pytest.mark.parametrize("between", UNSEEN)
def test_meta_secret_with_invisible_character_stops_the_start_unquoted(name: str, between: str) -> None:
    (fault,) = faults({name: f"fine,c4n4ry{between}s3cr3t"}, WEBHOOK)
    assert fault == f"{name} contains a control character or another non-printable character."


@pytest.mark.parametrize("name", META_SECRETS)
def test_meta_secret_in_any_language_is_accepted(name: str) -> None:
    assert load({name: "una palabra, ¡ñandú!"}, WEBHOOK)[name] == ("una palabra", "¡ñandú!")


def test_token_with_every_visible_ascii_character_is_accepted() -> None:
    token = "".join(map(chr, range(0x21, 0x7F)))
    assert load({"WHATSAPP_ACCESS_TOKEN": token}, INTERNAL)["WHATSAPP_ACCESS_TOKEN"] == token
    assert load({"INTERNAL_TASK_TOKEN": token}, INTERNAL)["INTERNAL_TASK_TOKEN"] == tuple(token.split(","))


@pytest.mark.parametrize("app_env", ["local", "prod"])
@pytest.mark.parametrize("service", [WEBHOOK, API, INTERNAL])
def test_one_queue_for_events_and_messages_stops_the_start(app_env: str, service: str) -> None:
    environ = {**GIVEN, "APP_ENV": app_env, "INBOUND_TASK_QUEUE_NAME": "tasks", "OUTBOUND_TASK_QUEUE_NAME": "tasks"}
    (fault,) = faults(environ, service)
    assert fault == "OUTBOUND_TASK_QUEUE_NAME must differ from INBOUND_TASK_QUEUE_NAME: each queue has its own rate."


def test_a_queue_named_like_the_default_of_the_other_stops_the_start() -> None:
    assert named(faults({"INBOUND_TASK_QUEUE_NAME": "outbound"})) == {"OUTBOUND_TASK_QUEUE_NAME"}


@pytest.mark.parametrize("app_env", ["local", "prod"])
@pytest.mark.parametrize("service", [WEBHOOK, API, INTERNAL])
@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"TENANT_QUEUE_PATTERN": "inbound-t{n:03d}"}, {"TENANT_QUEUE_PATTERN"}),
        ({"TENANT_QUEUE_PATTERN": "a-{n}", "INBOUND_TENANT_QUEUE_PATTERN": "a-1{n}"}, {"TENANT_QUEUE_PATTERN"}),
        ({"OUTBOUND_TASK_QUEUE_NAME": "outbound-t019"}, {"TENANT_QUEUE_PATTERN"}),
        ({"INBOUND_TASK_QUEUE_NAME": "inbound-t000"}, {"INBOUND_TENANT_QUEUE_PATTERN"}),
        ({"DRAIN_TASK_QUEUE_NAME": "outbound-t005"}, {"TENANT_QUEUE_PATTERN"}),
        ({"DRAIN_TASK_QUEUE_NAME": "inbound"}, {"DRAIN_TASK_QUEUE_NAME"}),
        ({"DRAIN_TASK_QUEUE_NAME": "outbound"}, {"DRAIN_TASK_QUEUE_NAME"}),
    ],
    ids=["two patterns", "two numbers", "outbound", "inbound", "drain", "drain is inbound", "drain is outbound"],
)
def test_two_queues_of_one_name_stop_the_start(
    app_env: str, service: str, values: dict[str, str], wrong: set[str]
) -> None:
    assert named(faults({**GIVEN, "APP_ENV": app_env, **values}, service)) == wrong


def test_a_number_beyond_the_last_pair_may_be_the_name_of_another_queue() -> None:
    assert faults({"OUTBOUND_TASK_QUEUE_NAME": "outbound-t020"}) == []
    assert faults({"TENANT_QUEUES": "0", "TENANT_QUEUE_PATTERN": "inbound-t{n:03d}"}) == []


SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
BEHIND_AN_ADDRESS = {"HANDLER_URL": "https://handler.example.com/pombo", "HANDLER_URL_SECRET": SECRET}


def test_handler_url_replaces_the_default_handler() -> None:
    config = load(BEHIND_AN_ADDRESS, INTERNAL)
    assert config.get("HANDLER") is None
    assert config["HANDLER_URL"] == "https://handler.example.com/pombo"
    assert config["HANDLER_URL_SECRET"] == (SECRET,)


def test_in_a_project_an_address_is_handler_enough() -> None:
    given = {name: value for name, value in GIVEN.items() if name != "HANDLER"} | {"APP_ENV": "prod"}
    assert faults({**given, **BEHIND_AN_ADDRESS}) == []


@pytest.mark.parametrize("app_env", ["local", "prod"])
def test_two_handlers_stop_the_start(app_env: str) -> None:
    found = faults({**GIVEN, "APP_ENV": app_env, **BEHIND_AN_ADDRESS})
    assert found == ["HANDLER and HANDLER_URL are both set; set exactly one of them."]


def test_an_address_without_the_secret_that_signs_its_calls_stops_the_start() -> None:
    assert named(faults({**BEHIND_AN_ADDRESS, "HANDLER_URL_SECRET": ""})) == {"HANDLER_URL_SECRET"}
    assert named(faults({**BEHIND_AN_ADDRESS, "HANDLER_URL": ""})) == {"HANDLER_URL_SECRET"}


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        ("*", {"*"}),
        ("text", {"text"}),
        (" text , unsupported,", {"text", "unsupported"}),
        ("text,*", {"text", "*"}),
        (",".join(KINDS), KINDS),
    ],
)
def test_handler_kinds_of_an_address_can_be_set(value: str, kinds: set[str]) -> None:
    assert load({**BEHIND_AN_ADDRESS, "HANDLER_KINDS": value}, INTERNAL)["HANDLER_KINDS"] == kinds


def test_handler_kinds_of_an_address_have_a_default() -> None:
    assert load(BEHIND_AN_ADDRESS, INTERNAL)["HANDLER_KINDS"] == DEFAULT_KINDS


def test_an_unknown_kind_stops_the_start_with_the_kinds_there_are() -> None:
    assert faults({**BEHIND_AN_ADDRESS, "HANDLER_KINDS": "text,txt"}) == [
        f"HANDLER_KINDS must name one or more of the kinds {', '.join(sorted(KINDS))}, or * for every kind; "
        'it is "text,txt".'
    ]


@pytest.mark.parametrize("handler", [{}, {"HANDLER": "handlers.echo:handle"}])
def test_kinds_without_an_address_stop_the_start(handler: Mapping[str, str]) -> None:
    assert faults({**handler, "HANDLER_KINDS": "*"}) == [
        "HANDLER_KINDS is set without HANDLER_URL; a Python handler declares its kinds with @handles."
    ]


CA_CERTS = (Path(__file__).parents[1] / "data" / "redis-ca.pem").read_text()


@each_deployed
def test_a_redis_without_tls_is_refused_in_staging_and_prod(app_env: str, service: str) -> None:
    given = {**GIVEN, "APP_ENV": app_env, "STORE": "redis"}
    assert faults({**given, "REDIS_URL": "redis://:word@10.0.0.3:6379"}, service) == [
        "REDIS_URL must begin with rediss:// in staging and prod: records hold what customers wrote."
    ]
    assert faults({**given, "REDIS_URL": "rediss://:word@10.0.0.3:6378", "REDIS_CA_CERTS": CA_CERTS}, service) == []


def test_an_authority_of_a_redis_without_tls_is_refused() -> None:
    for service in SERVICES:
        given = {"STORE": "redis", "REDIS_URL": "redis://10.0.0.3:6379", "REDIS_CA_CERTS": CA_CERTS}
        assert faults(given, service) == [
            "REDIS_CA_CERTS is set, but REDIS_URL does not use TLS: REDIS_URL must begin with rediss://."
        ]
        assert load({**given, "REDIS_URL": "rediss://10.0.0.3:6378"}, service)["REDIS_CA_CERTS"] == CA_CERTS.strip()


def test_the_redis_store_needs_its_address() -> None:
    for service in SERVICES:
        assert named(faults({"STORE": "redis"}, service)) == {"REDIS_URL"}
        assert load({"STORE": "redis", "REDIS_URL": "redis://:word@10.0.0.3:6379/2"}, service)["STORE"] == "redis"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("24h", 86400), ("2d", 2 * 86400), ("1.5h", 5400), (" 2 m ", 120)],
)
def test_a_duration_is_a_number_with_or_without_a_unit(value: str, seconds: float) -> None:
    assert load({"MESSAGE_MAX_AGE": value}, INTERNAL)["MESSAGE_MAX_AGE"] == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HANDLER_TIMEOUT", "1700"),
        ("HANDLER_TIMEOUT", "1"),
        ("IN_DOUBT_SECONDS", "120"),
        ("IN_DOUBT_SECONDS", "2m"),
        ("MESSAGE_MAX_AGE", "30d"),
        ("TIME_SCALE", "20"),
        ("TIME_SCALE", "2.5"),
        ("PORT", "1"),
        ("PORT", "65535"),
        ("DEDUPE_TTL_DAYS", "365"),
        ("WHATSAPP_PHONE_NUMBER_ID", "1"),
        ("WHATSAPP_PHONE_NUMBER_ID", "1" * 32),
        ("GOOGLE_CLOUD_PROJECT", "a" * 100),
        ("CLOUD_TASKS_LOCATION", "a" * 63),
        ("INBOUND_TASK_QUEUE_NAME", "Q" * 100),
        ("OUTBOUND_TASK_QUEUE_NAME", "q"),
        ("TENANT_QUEUE_PATTERN", "{n}"),
        ("TENANT_QUEUE_PATTERN", "Acme-{n:04d}-messages"),
        ("INBOUND_TENANT_QUEUE_PATTERN", "t" * 97 + "{n}"),
        ("CLOUD_TASKS_EMULATOR_HOST", "localhost:1"),
        ("CLOUD_TASKS_EMULATOR_HOST", "localhost:65535"),
    ],
)
def test_value_at_its_bound_is_accepted(name: str, value: str) -> None:
    assert faults({name: value}) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WHATSAPP_API_VERSION", "v100.10"),
        ("GOOGLE_CLOUD_PROJECT", "example.com:a-project"),
        ("CLOUD_TASKS_LOCATION", "northamerica-northeast1"),
        ("CLOUD_TASKS_EMULATOR_HOST", "cloud_tasks:8123"),
        ("CLOUD_TASKS_EMULATOR_HOST", "[::1]:8083"),
        ("TASKS_SERVICE_ACCOUNT", "tasks@a-project.iam.gserviceaccount.com"),
        ("SCHEDULER_SERVICE_ACCOUNT", "123456-compute@developer.gserviceaccount.com"),
        ("INTERNAL_TASK_BASE_URL", "http://[::1]:8081/a/path"),
    ],
)
def test_value_as_google_and_meta_write_it_is_unchanged(name: str, value: str) -> None:
    assert load({name: value}, INTERNAL)[name] == value


RANGES: Mapping[str, tuple[str, str, str, str]] = {
    "PORT": ("0", "1", "65535", "65536"),
    "WEBHOOK_CONCURRENCY": ("0", "1", "1000", "1001"),
    "THREADS": ("0", "1", "1000", "1001"),
    "WEBHOOK_MAX_BYTES": ("1023", "1024", "67108864", "67108865"),
    "HANDLER_TIMEOUT": ("0.9s", "1s", "1700s", "1700.1s"),
    "MAX_ATTEMPTS": ("0", "1", "50", "51"),
    "TENANT_QUEUES": ("-1", "0", "480", "481"),
    "IN_DOUBT_SECONDS": ("119", "120", "24h", "86401"),
    "MESSAGE_MAX_AGE": ("59s", "60s", "30d", "721h"),
    "DEDUPE_TTL_DAYS": ("0", "1", "365", "366"),
    "SWEEP_AFTER": ("0.9s", "1s", "24h", "86401s"),
    "TIME_SCALE": ("0.9", "1", "20", "20.1"),
}
"""Below, least, most, above: of every setting that is a number or a duration."""


@pytest.mark.parametrize("name", RANGES)
def test_number_is_accepted_from_its_minimum_to_its_maximum(name: str) -> None:
    below, least, most, above = RANGES[name]
    (setting,) = [it for it in SETTINGS if it.name == name]
    for value in (least, most):
        assert faults({name: value}, setting.services[0]) == []
    for value in (below, above):
        assert named(faults({name: value}, setting.services[0])) == {name}


def test_every_number_has_its_range_tested() -> None:
    """A number by what it takes: a plain 5 or a 500 and no word."""
    numbers = {it.name for it in SETTINGS if any(_takes(it, str(n)) for n in (5, 500, 5000)) and not _takes(it, "a-b")}
    texts = {"SQLITE_PATH", "WHATSAPP_PHONE_NUMBER_ID", "META_APP_ID"}
    assert numbers - texts == set(RANGES)


def _takes(setting: Setting, value: str) -> bool:
    try:
        setting.parse(value)
    except Exception:
        return False
    return True


def test_secret_settings_are_marked_secret() -> None:
    """So it is neither shown by doctor, nor given in plain sight by Terraform."""
    assert {it.name for it in SETTINGS if it.secret} == {
        "META_APP_SECRET", "META_VERIFY_TOKEN", "WHATSAPP_ACCESS_TOKEN", "INTERNAL_TASK_TOKEN", "HANDLER_URL_SECRET",
        "ID_KEY", "REDIS_URL",
    }  # fmt: skip


@each_deployed
def test_in_a_project_the_tuning_has_the_defaults_of_the_protocol(app_env: str, service: str) -> None:
    settings = load({**GIVEN, "APP_ENV": app_env}, service)
    assert settings.limits == Limits(), "with a sweep after 600 s, which is 30 s on one machine"
    assert (settings["LOG_LEVEL"], settings["FIRESTORE_DATABASE"]) == ("INFO", "(default)")
    at_once = {WEBHOOK: {"WEBHOOK_CONCURRENCY": 80}, API: {"THREADS": 16}, INTERNAL: {"THREADS": 16}}[service]
    assert {name: settings.get(name) for name in ("WEBHOOK_CONCURRENCY", "THREADS") if settings.get(name)} == at_once


def test_only_faults_of_the_settings_a_command_needs_are_reported() -> None:
    environ = {"WEBHOOK_CONCURRENCY": "none", "DEDUPE_TTL_DAYS": "0", "LOG_LEVEL": "LOUD"}
    with pytest.raises(ConfigError) as caught:
        load(environ, WEBHOOK, only={"DEDUPE_TTL_DAYS", "LOG_LEVEL", "STORE"})
    assert named(caught.value.faults) == {"DEDUPE_TTL_DAYS", "LOG_LEVEL"}
    assert load(environ, WEBHOOK, only={"STORE"})["STORE"] == "sqlite"


def test_an_address_loses_its_last_slash() -> None:
    environ = {"INTERNAL_TASK_BASE_URL": "https://internal.example.com/"}
    assert load(environ, WEBHOOK)["INTERNAL_TASK_BASE_URL"] == "https://internal.example.com"


def test_all_faults_are_reported_at_once() -> None:
    environ = {"LOG_LEVEL": "LOUD", "PORT": "x", "HANDLER_TIMEOUT": "x", "IN_DOUBT_SECONDS": "1", "HANDLER_URL": "x"}
    environ |= {"HANDLER_URL_SECRET": "x"}
    assert named(faults({"PORT": "x", "HANDLER": "foo"})) == {"PORT", "HANDLER"}
    assert named(faults(environ)) == set(environ)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("LOG_LEVEL", "LOUD", 'LOG_LEVEL must be one of DEBUG, INFO, WARNING, ERROR; it is "LOUD".'),
        ("PORT", " http ", 'PORT must be a whole number from 1 to 65535; it is "http".'),
        (
            "HANDLER_TIMEOUT",
            "soon",
            'HANDLER_TIMEOUT must be a duration like 90s, 10m, 24h or 2d, from 1s to 1700s; it is "soon".',
        ),
        (
            "HANDLER",
            "foo",
            'HANDLER must be module:function, like handlers.echo:handle; it is "foo".',
        ),
        (
            "CRASH_AT",
            "x",
            'CRASH_AT must be a crash point like after:store.change:2 (pombo doctor --points lists them); it is "x".',
        ),
    ],
)
def test_invalid_value_is_shown(name: str, value: str, sentence: str) -> None:
    assert faults({name: value}) == [sentence]


def test_unknown_kind_is_shown() -> None:
    (fault,) = faults({**BEHIND_AN_ADDRESS, "HANDLER_KINDS": "text,foo"})
    assert fault.endswith('; it is "text,foo".')


@pytest.mark.parametrize("value", ["c4n4ry" * 11, "c4n4ry\nvalue", "http://c4n4ry@example.com:0/"])
def test_possibly_private_value_is_not_shown(value: str) -> None:
    (fault,) = faults({"INTERNAL_TASK_BASE_URL": value})
    assert "c4n4ry" not in fault


def test_no_fault_on_cloud_run_repeats_a_value() -> None:
    """A secret may stand in the wrong variable, and others read the logs there."""
    value = "c4n4ry-value"
    everywhere = {setting.name: value for setting in SETTINGS} | {"K_SERVICE": "pombo"}
    for service in SERVICES:
        for environ in (everywhere, {**everywhere, "APP_ENV": "prod"}):
            found = faults(environ, service)
            assert found
            assert value not in " ".join(found)


def test_no_fault_repeats_a_secret() -> None:
    value = "c4n4ry-value"
    for app_env in ("local", "prod"):
        for service in SERVICES:
            environ = {setting.name: value for setting in SETTINGS if setting.secret} | {"APP_ENV": app_env}
            assert value not in " ".join(faults(environ, service))
            secrets = {**dict.fromkeys(LOCAL_SECRETS, f"{value},{LOCAL_SECRETS['META_APP_SECRET']}")}
            found = " ".join(faults({**environ, **secrets}, service))
            assert value not in found
            assert not any(secret in found for secret in LOCAL_SECRETS.values())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HANDLER_TIMOUT", "HANDLER_TIMEOUT"),
        ("HANDLER_TIMEOUTS", "HANDLER_TIMEOUT"),
        ("HANDLER_TIMEUOT", "HANDLER_TIMEOUT"),
        ("handler_timeout", "HANDLER_TIMEOUT"),
        ("META_APP_SECRETS", "META_APP_SECRET"),
        ("MAX_ATTEMPT", "MAX_ATTEMPTS"),
    ],
)
def test_misspelt_setting_is_found(name: str, meant: str) -> None:
    assert misspelt({name: "5s", meant: "6s"}) == {name: meant}


@pytest.mark.parametrize("name", ["PATH", "PORTS", "STORES", "HANDLER_TIME", "POMBO_TIMEOUT", "HOME", *GIVEN])
def test_another_programs_variable_is_not_a_misspelt_setting(name: str) -> None:
    assert misspelt({name: "5s"}) == {}


def test_no_setting_counts_as_a_misspelling_of_another() -> None:
    assert misspelt({setting.name: "x" for setting in SETTINGS}) == {}


def test_command_line_prints_each_fault_on_its_own_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["pombo"])

    @click.command()
    def wrong() -> None:
        raise WrongSettings(faults({"PORT": "none", "LOG_LEVEL": "LOUD"}))

    with pytest.raises(SystemExit) as ended:
        commands.run(wrong)
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        'pombo: LOG_LEVEL must be one of DEBUG, INFO, WARNING, ERROR; it is "LOUD".',
        'pombo: PORT must be a whole number from 1 to 65535; it is "none".',
    ]


# ---- limits


def test_the_limits_of_the_internal_service_are_those_it_was_given() -> None:
    environ = {
        "MAX_ATTEMPTS": "3",
        "HANDLER_TIMEOUT": "10",
        "IN_DOUBT_SECONDS": "150",
        "IN_DOUBT_POLICY": "hold",
        "MESSAGE_MAX_AGE": "1h",
        "SWEEP_AFTER": "20",
        "DEDUPE_TTL_DAYS": "9",
    }
    assert load(environ, INTERNAL).limits == Limits(
        max_attempts=3,
        handler_timeout=timedelta(seconds=10),
        doubt_window=timedelta(seconds=150),
        doubt_policy=DoubtPolicy.HOLD,
        message_max_age=timedelta(hours=1),
        sweep_after=timedelta(seconds=20),
        inbound_retention=timedelta(days=9),
    )


@pytest.mark.parametrize(("value", "is_set"), [("true", True), ("false", False), ("", False)])
def test_a_plan_is_all_or_nothing_where_it_is_asked_for(value: str, is_set: bool) -> None:
    assert load({"PLAN_ALL_OR_NOTHING": value}, INTERNAL)["PLAN_ALL_OR_NOTHING"] is is_set
    assert load({**GIVEN, "APP_ENV": "prod", "PLAN_ALL_OR_NOTHING": value}, INTERNAL)["PLAN_ALL_OR_NOTHING"] is is_set


@pytest.mark.parametrize("app_env", ["local", "test", "staging", "prod"])
def test_handler_tracebacks_default_to_on_locally_and_off_when_deployed(app_env: str) -> None:
    """Their text may be private, and standard error is a log there."""
    is_deployed = app_env in ("staging", "prod")
    environ = {**GIVEN, "APP_ENV": app_env}
    assert load(environ, INTERNAL)["HANDLER_TRACEBACK"] is not is_deployed
    assert load({**environ, "HANDLER_TRACEBACK": "true"}, INTERNAL)["HANDLER_TRACEBACK"] is True
    assert load({**environ, "HANDLER_TRACEBACK": "false"}, INTERNAL)["HANDLER_TRACEBACK"] is False


@pytest.mark.parametrize("service", [WEBHOOK, API, INTERNAL])
def test_every_service_gives_up_at_the_same_age(service: str) -> None:
    """The webhook creates the events, the API and the internal service the messages."""
    assert load({"MESSAGE_MAX_AGE": "1h"}, service).limits.message_max_age == timedelta(hours=1)
    assert load({"MESSAGE_MAX_AGE": "1h", "TIME_SCALE": "20"}, service).limits.message_max_age == timedelta(minutes=3)
    assert named(faults({"MESSAGE_MAX_AGE": "31d"}, service)) == {"MESSAGE_MAX_AGE"}


@pytest.mark.parametrize("service", SERVICES)
def test_the_time_scale_is_applied_once_and_by_the_limits_alone(service: str) -> None:
    plain, scaled = load({}, service), load({"TIME_SCALE": "4"}, service)
    assert scaled.limits == plain.limits.scaled(4)
    assert scaled.limits.sweep_after == timedelta(seconds=7.5)
    assert {**scaled.values, "TIME_SCALE": 1.0} == plain.values


def test_the_bounds_of_a_value_are_those_before_scaling() -> None:
    config = load({"TIME_SCALE": "20", "IN_DOUBT_SECONDS": "120"}, INTERNAL)
    assert config.limits.doubt_window == timedelta(seconds=6)


# ---- the start


def start(service: str, directory: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    if directory is None:
        return forked.run([f"services.{service}"], inherited | environ, seconds=60)
    command = [sys.executable, "-m", f"services.{service}"]
    return subprocess.run(command, env=inherited | environ, capture_output=True, text=True, timeout=60, cwd=directory)


def assert_it_says(ended: subprocess.CompletedProcess[str], expected: list[str]) -> None:
    """Exit 1, one clear line for a person and one for the log for each fault, and nothing else."""
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [f"pombo: {fault}" for fault in expected]
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(line["event"], line["severity"], line["reason"]) for line in lines] == [
        ("config_error", "CRITICAL", fault) for fault in expected
    ]


@pytest.mark.parametrize("service", [WEBHOOK, API, INTERNAL])
def test_service_without_configuration_lists_every_fault_and_exits(service: str) -> None:
    environ = {"APP_ENV": "prod", "PORT": "none"}
    assert_it_says(start(service, **environ), faults(environ, service))


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        ("handlers.nowhere:handle", "HANDLER: the module handlers.nowhere cannot be imported (ModuleNotFoundError"),
        ("handlers.echo:nothing", "HANDLER: the module handlers.echo has no function nothing."),
        ("os:getcwd", "HANDLER: the function getcwd of module os does not take one message."),
        ("handlers.echo", 'HANDLER must be module:function, like handlers.echo:handle; it is "handlers.echo".'),
    ],
)
def test_a_handler_that_cannot_be_had_is_a_fault_of_the_configuration(handler: str, sentence: str) -> None:
    ended = start(INTERNAL, HANDLER=handler)
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"pombo: {sentence}")
    assert_it_says(ended, [line.removeprefix("pombo: ")])


def test_a_handler_that_cannot_be_had_is_reported_with_the_other_faults() -> None:
    given = {"PORT": "none", "HANDLER": "handlers.echo:nothing"}
    ended = start(INTERNAL, **given)
    assert_it_says(ended, [*faults(given), "HANDLER: the module handlers.echo has no function nothing."])
    for reported_already in ({"APP_ENV": "prd"}, {"HANDLER": "foo"}, {"HANDLER_URL": "http://127.0.0.1:9/"}):
        wrong = {**given, **reported_already}
        assert_it_says(start(INTERNAL, **wrong), faults(wrong))


def test_handler_module_in_the_working_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "mybot.py").write_text("def handle(message): ...\n")
    ended = start(INTERNAL, tmp_path, HANDLER="mybot:nothing")
    assert_it_says(ended, ["HANDLER: the module mybot has no function nothing."])


def test_a_store_of_another_layout_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "pombo.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    ended = start(WEBHOOK, SQLITE_PATH=str(path))
    (line,) = ended.stderr.splitlines()
    assert "layout 99" in line
    assert_it_says(ended, [line.removeprefix("pombo: ")])


# ---- secrets


def test_no_secret_is_in_what_a_debugger_or_a_report_of_an_error_shows(tmp_path: Path) -> None:
    """A dataclass shows all its fields, and those of what it holds."""
    given = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite")}
    built = build_webhook(given), build_internal(given)
    shown = repr(built) + repr([vars(part) for parts in built for part in (parts.store, parts.queue)])
    assert "QueueSettings(" in shown
    assert "Config(" in shown
    assert [secret for secret in LOCAL_SECRETS.values() if secret in shown] == []


# ---- the pages


def rows_of(page: str) -> dict[str, list[str]]:
    """The cells of each row that begins with a variable."""
    rows = [line.strip("| \n").split(" | ") for line in page.splitlines() if re.match(r"\| `[A-Z_]+` \|", line)]
    assert len(rows) == len({row[0] for row in rows}), "a name stands twice"
    return {row[0].strip("`"): row[1:] for row in rows}


def test_the_page_of_the_configuration_is_what_its_script_writes() -> None:
    assert config_page.PAGE.read_text() == config_page.page(), "run python tests/unit/config_page.py"


def test_page_documents_readers_defaults_and_meaning_of_every_variable() -> None:
    rows = rows_of(config_page.PAGE.read_text())
    assert list(rows) == [setting.name for setting in SETTINGS]
    assert rows["HANDLER_TIMEOUT"] == ["W I A", "`60s`", "`60s`", "how long a handler may take"]
    assert rows["META_APP_SECRET"][:3] == ["W A", "local secret", "required"]
    assert rows["SWEEP_AFTER"][:3] == ["W I A", "`30s`", "`600s`"]
    assert rows["REDIS_URL"][:3] == ["W I A", "–", "–"]
    assert rows["CRASH_AT"][:3] == ["W I A", "–", "refused"]
    assert rows["META_APP_ID"][:3] == ["A", "–", "–"]
    assert rows["SECRET_MANAGER_EMULATOR_HOST"][:3] == ["I A", "–", "refused"]


def test_page_lists_exactly_the_variables_required_in_staging_and_prod() -> None:
    """Without any variable every one that is required is reported, and no other but the handler."""
    required = {name for name, row in rows_of(config_page.PAGE.read_text()).items() if row[2] == "required"}
    reported: set[str] = set()
    for service in (WEBHOOK, API, INTERNAL):
        with pytest.raises(ConfigError) as raised:
            load({"K_SERVICE": "pombo"}, service)
        reported |= {fault.split()[0] for fault in raised.value.faults}
    assert reported - {"HANDLER"} == required


def test_readme_has_the_ten_common_settings_as_on_the_page() -> None:
    readme, page = rows_of(config_page.README.read_text()), rows_of(config_page.PAGE.read_text())
    assert list(readme) == list(config_page.TEN)
    assert len(readme) == 10
    assert readme == {name: [page[name][0], page[name][1], page[name][3]] for name in readme}
    assert config_page.readme() == config_page.README.read_text(), "run python tests/unit/config_page.py"
