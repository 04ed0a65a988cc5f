"""Where secrets are kept and whom a token is shown to, by the settings."""

from pathlib import Path
from typing import Any

import pytest

from local.whatsapp.accounts import APP_ID
from shared import config
from shared.bootstrap.connect import GRAPH, build_connect, build_onboarding
from shared.bootstrap.secrets import build_credentials, build_secret_cache, build_secrets, is_deployment
from shared.channels.meta.onboarding import App
from shared.config import CLI, INTERNAL, Config
from shared.domain.tenants import Sender
from shared.net.egress_policy import ANYWHERE
from shared.secrets.file_secrets import FILE, FileSecrets
from shared.secrets.secret_manager import SecretManagerSecrets

DEPLOYED = {
    "APP_ENV": "prod",
    "STORE": "firestore",
    "GOOGLE_CLOUD_PROJECT": "a-project",
    "WHATSAPP_PHONE_NUMBER_ID": "100000000000001",
}
DEPLOYED_ON_REDIS = DEPLOYED | {"STORE": "redis", "REDIS_URL": "rediss://10.0.0.3:6378"}
OPERATORS = {"STORE": "firestore", "GOOGLE_CLOUD_PROJECT": "a-project"}
"""What docs/operating.md has an operator export; APP_ENV stays local."""
OPERATORS_ON_REDIS = OPERATORS | {"STORE": "redis", "REDIS_URL": "rediss://:word@10.0.0.3:6378/0"}
BY_OPERATORS = pytest.mark.parametrize(
    "given",
    [DEPLOYED, OPERATORS, OPERATORS_ON_REDIS],
    ids=["deployed", "an operator's command", "an operator's command on Redis"],
)


def settings(tmp_path: Path, service: str = CLI, **given: str) -> Config:
    here = {} if given.get("APP_ENV") == "prod" else {"SQLITE_PATH": str(tmp_path / "pombo.sqlite")}
    return config.load({**here, **given}, service)


# ---- where secrets are


@pytest.mark.parametrize(
    "given",
    [DEPLOYED, DEPLOYED_ON_REDIS, OPERATORS, OPERATORS_ON_REDIS],
    ids=["deployed", "on Redis", "an operator's command", "an operator's command on Redis"],
)
def test_deployments_secrets_are_in_its_project(tmp_path: Path, given: dict[str, str]) -> None:
    found = settings(tmp_path, **given)
    secrets = build_secrets(found)
    assert is_deployment(found)
    assert isinstance(secrets, SecretManagerSecrets)
    assert (secrets._project, secrets._client._emulator) == ("projects/a-project", None)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"STORE": "firestore", "FIRESTORE_EMULATOR_HOST": "127.0.0.1:1"},
        {"STORE": "redis", "REDIS_URL": "redis://127.0.0.1:6379"},
        {"REDIS_URL": "rediss://10.0.0.3:6378"},
        {"APP_ENV": "test"},
    ],
    ids=["sqlite", "firestore emulator", "redis without TLS", "sqlite beside an address of Redis", "test"],
)
@pytest.mark.parametrize("service", [CLI, INTERNAL])
def test_secrets_of_one_machine_are_in_the_data_directory(tmp_path: Path, given: dict[str, str], service: str) -> None:
    found = settings(tmp_path, service, **given)
    secrets = build_secrets(found)
    assert not is_deployment(found)
    assert isinstance(secrets, FileSecrets)
    assert secrets._path == tmp_path / FILE == tmp_path / "tenants.secrets.json"


def test_local_secret_manager_is_used_if_it_is_named(tmp_path: Path) -> None:
    secrets = build_secrets(settings(tmp_path, INTERNAL, SECRET_MANAGER_EMULATOR_HOST="127.0.0.1:8090"))
    assert isinstance(secrets, SecretManagerSecrets)
    assert (secrets._project, secrets._client._emulator) == ("projects/pombo-local", "127.0.0.1:8090")


@pytest.mark.parametrize("name", ["secrets", "credentials"])
def test_crash_points_of_secrets_and_credentials_are_put_on(tmp_path: Path, name: str) -> None:
    found = settings(tmp_path, INTERNAL, CRASH_AT=f"before:{name}.newest")
    built: Any = build_secrets(found) if name == "secrets" else build_credentials(found, build_secret_cache(found))
    assert type(built).__name__ == "_Wrapped"


def test_credentials_are_the_environments_and_those_of_the_secrets(tmp_path: Path) -> None:
    found = settings(tmp_path, INTERNAL, WHATSAPP_ACCESS_TOKEN="ours")
    build_secrets(found).add("pombo-credential-1", "theirs")
    credentials = build_credentials(found, build_secret_cache(found))
    assert credentials.of(Sender("default", "meta", "1")) == "ours"
    assert credentials.of(Sender("acme", "meta", "2", credential="pombo-credential-1")) == "theirs"


# ---- whom a token is shown to


def test_local_command_connects_to_the_simulator(tmp_path: Path) -> None:
    given = {"META_APP_ID": APP_ID, "META_APP_SECRET": "new, old", "WHATSAPP_API_VERSION": "v26.0"}
    found = settings(tmp_path, **given)
    onboarding = build_onboarding(found)
    assert onboarding._root == f"{found['WHATSAPP_API_BASE_URL']}/v26.0"
    assert onboarding._app == App(APP_ID, "new")
    assert onboarding._reach is ANYWHERE


def test_default_app_secret_is_that_of_the_simulator(tmp_path: Path) -> None:
    assert build_onboarding(settings(tmp_path, META_APP_ID=APP_ID))._app == App(APP_ID, "local-app-secret")
    assert build_onboarding(settings(tmp_path))._app is None


@BY_OPERATORS
def test_deployments_tokens_go_to_meta_over_tls(tmp_path: Path, given: dict[str, str]) -> None:
    assert build_onboarding(settings(tmp_path, **given))._root == f"{GRAPH}/v25.0" == "https://graph.facebook.com/v25.0"
    own = settings(tmp_path, **given, WHATSAPP_API_BASE_URL="https://proxy.example")
    assert build_onboarding(own)._root == "https://proxy.example/v25.0"


@pytest.mark.parametrize("given", [OPERATORS, OPERATORS_ON_REDIS], ids=["Firestore", "Redis"])
def test_deployments_tokens_are_not_checked_with_the_simulators_secret(tmp_path: Path, given: dict[str, str]) -> None:
    assert build_onboarding(settings(tmp_path, **given, META_APP_ID="1"))._app is None
    own = settings(tmp_path, **given, META_APP_ID="1", META_APP_SECRET="our-own")
    assert build_onboarding(own)._app == App("1", "our-own")


def test_onboarding_has_the_time_bounds_of_a_send(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert build_onboarding(found)._times == found.limits.post


def test_sender_is_connected_with_the_parts_of_the_settings(tmp_path: Path) -> None:
    store: Any = object()
    found = settings(tmp_path)
    connect = build_connect(found, store)
    assert connect.store is store
    assert isinstance(connect.secrets, FileSecrets)
    assert connect.secrets._path == tmp_path / FILE
    assert connect.onboarding._root.startswith(found["WHATSAPP_API_BASE_URL"])  # type: ignore[attr-defined]
