"""Bootstrap: what each part is given, which no test of the parts alone can see."""

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared import config
from shared.bootstrap import channels, receiving
from shared.bootstrap.api import build_api
from shared.bootstrap.backends import build_registry, build_store
from shared.bootstrap.channels import CHANNELS, ChannelMaker, explain, reading
from shared.bootstrap.intake_store import build_intake_registry, build_intake_store
from shared.bootstrap.internal import Internal, build_internal
from shared.bootstrap.receiving import RECEIVERS
from shared.bootstrap.webhook import build_webhook
from shared.domain.deadline import FAILURE_SECONDS, HEALTHY_SECONDS
from shared.domain.identity import backend_id
from shared.domain.limits import Limits, PostTimes
from shared.domain.message_kinds import DEFAULT_KINDS, KINDS
from shared.domain.record import Kind, Task
from shared.domain.tenants import TenantHandler
from shared.handlers.url import GRACE
from shared.net.egress_policy import ANYWHERE
from shared.net.google_token import GoogleToken
from shared.net.patience import PATIENCE
from shared.net.rest_client import NoToken
from shared.pipeline.channels import Channels
from shared.pipeline.clock import SystemClock
from shared.pipeline.intake import Addressee
from shared.queues.task_content import QueueSettings
from shared.stores.firestore.batches import BATCH_SECONDS, HALVES_AT_ONCE
from shared.stores.sqlite.store import SqliteStore
from shared.stores.threaded_intake import ThreadedIntake
from shared.tenants.credentials import SecretCache
from shared.tenants.environment import EnvironmentTenants
from shared.tenants.registered import RegisteredTenants
from shared.tenants.registered_intake import RegisteredIntakeTenants
from tests.support.second_channel import AcmeChannel, AcmeReceiver

URL = "http://127.0.0.1:9/handle"
SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"


@pytest.fixture
def internal(tmp_path: Path) -> Internal:
    environment = {
        "SQLITE_PATH": str(tmp_path / "pombo.sqlite"),
        "HANDLER_URL": URL,
        "HANDLER_URL_SECRET": SECRET,
        "TIME_SCALE": "20",
        "MESSAGE_MAX_AGE": "2h",
    }
    return build_internal(environment)


def test_the_backend_of_the_configuration_has_marks_and_is_watched(internal: Internal) -> None:
    assert internal.handler.backend == backend_id(URL)
    assert internal.senders.backend == backend_id(URL)
    assert internal.sweep.senders is internal.senders
    marks = internal.process_inbound.handlers.of("default").marks
    assert (marks._id, marks._limits) == (backend_id(URL), internal.config.limits)


def behind_an_address(tmp_path: Path, **more: str) -> Internal:
    given = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "HANDLER_URL": URL, "HANDLER_URL_SECRET": SECRET}
    return build_internal(given | more)


def test_the_backend_is_asked_for_the_kinds_of_the_configuration(tmp_path: Path) -> None:
    default = behind_an_address(tmp_path).handler
    assert {kind for kind in KINDS if default.handles(kind)} == DEFAULT_KINDS
    some = behind_an_address(tmp_path, HANDLER_KINDS="text,unsupported").handler
    assert {kind for kind in KINDS if some.handles(kind)} == {"text", "unsupported"}
    every = behind_an_address(tmp_path, HANDLER_KINDS="*").handler
    assert all(every.handles(kind) for kind in (*KINDS, "a kind of tomorrow"))


def test_a_handler_in_the_process_has_no_backend(tmp_path: Path) -> None:
    internal = build_internal({"SQLITE_PATH": str(tmp_path / "pombo.sqlite")})
    assert (internal.senders.backend, internal.process_inbound.handlers.of("default").marks._id) == (None, None)


def test_least_waits_of_meta_are_scaled_with_ours(internal: Internal) -> None:
    assert internal.process_outbound.limits.waits.minute == timedelta(seconds=3)


def channels_of(tmp_path: Path) -> dict[str, Channels[Any]]:
    """Those of each user: the services and the command line."""
    environment = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite")}
    webhook, api, internal = build_webhook(environment), build_api(environment), build_internal(environment)
    return {
        "api": api.channels,
        "api dispatch": api.dispatch.channels,
        "webhook": webhook.channels,
        "accept": webhook.accept.channels,
        "inbound": internal.process_inbound.channels,
        "outbound": internal.process_outbound.channels,
        "dispatch": internal.process_outbound.dispatch.channels,
        "senders": internal.senders.channels,
        "read by": reading(),
    }


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A second provider, which its places in the two lists alone make known."""

    def made(*_: object) -> AcmeChannel:
        return AcmeChannel("secret", "https://pombo.example.com", "http://127.0.0.1:9")

    def receiver(_: object) -> AcmeReceiver:
        return AcmeReceiver("secret", "https://pombo.example.com")

    reading.cache_clear()
    monkeypatch.setattr(channels, "CHANNELS", (*CHANNELS, ChannelMaker(made, made)))
    monkeypatch.setattr(receiving, "RECEIVERS", (*RECEIVERS, receiver))
    yield
    reading.cache_clear()


def test_all_services_and_the_command_line_have_the_same_providers(tmp_path: Path) -> None:
    assert [name for name, channels in channels_of(tmp_path).items() if list(channels) != ["meta"]] == []


@pytest.mark.usefixtures("second")
def test_a_provider_in_both_lists_has_its_channel_everywhere(tmp_path: Path) -> None:
    assert [name for name, channels in channels_of(tmp_path).items() if list(channels) != ["meta", "acme"]] == []
    assert explain("acme", 20503, "provider_down") == "Acme is down."


def test_a_channel_has_no_more_secrets_than_its_user_needs(tmp_path: Path) -> None:
    environment = {
        "SQLITE_PATH": str(tmp_path / "pombo.sqlite"),
        "META_APP_SECRET": "app-secret",
        "META_VERIFY_TOKEN": "verify-token",
        "WHATSAPP_ACCESS_TOKEN": "access-token",
    }
    of_webhook: Any = build_webhook(environment).channels["meta"]
    of_internal: Any = build_internal(environment).process_outbound.channels["meta"]
    of_api: Any = build_api(environment).channels["meta"]
    of_commands: Any = reading()["meta"]
    channels = (of_webhook, of_internal, of_api, of_commands)
    assert [one._secrets for one in channels] == [(b"app-secret",), (), (), ()]
    assert [one._verify_tokens for one in channels] == [(b"verify-token",), (), (), ()]
    assert "access-token" not in str([vars(one) for one in channels])


def test_token_of_the_environment_is_given_to_no_other_provider(internal: Internal) -> None:
    (ours,) = internal.senders.tenants.senders_of_environment()
    users = (internal.process_outbound, internal.senders, internal.sweep.reconnects)
    for credentials in (user.credentials for user in users):
        assert credentials.of(ours) == credentials.newest(ours) == internal.config["WHATSAPP_ACCESS_TOKEN"]
        assert credentials.of(replace(ours, provider="another")) == ""


def test_every_part_asks_one_registry(internal: Internal) -> None:
    users = (internal.process_inbound, internal.process_outbound, internal.sweep.reconnects, internal.drain)
    assert {id(user.tenants) for user in users} == {id(internal.senders.tenants)}
    assert internal.drain.dispatch.queue is internal.queue


def test_the_senders_watched_are_those_of_the_registry(internal: Internal) -> None:
    (sender,) = internal.senders.tenants.senders_of_environment()
    assert (sender.tenant, sender.provider, sender.provider_id) == ("default", "meta", "100000000000001")


def test_both_services_give_up_after_the_same_age(internal: Internal, tmp_path: Path) -> None:
    environment = {"SQLITE_PATH": str(tmp_path / "webhook.sqlite"), "TIME_SCALE": "20", "MESSAGE_MAX_AGE": "2h"}
    webhook = build_webhook(environment)
    assert webhook.accept.limits.message_max_age == internal.config.limits.message_max_age == timedelta(minutes=6)


CODE = {"in the process": {"HANDLER": "handlers.echo:handle"}, "behind an address": {"HANDLER_URL": URL}}


@pytest.mark.parametrize(("setting", "is_set"), [({}, False), ({"PLAN_ALL_OR_NOTHING": "true"}, True)])
@pytest.mark.parametrize("code", CODE)
def test_handler_is_configured_with_all_or_nothing(
    code: str, setting: dict[str, str], is_set: bool, tmp_path: Path
) -> None:
    environment = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "HANDLER_URL_SECRET": SECRET, **CODE[code], **setting}
    if code == "in the process":
        del environment["HANDLER_URL_SECRET"]
    assert build_internal(environment).handler._all_or_nothing is is_set


@pytest.mark.parametrize(("setting", "is_shown"), [({}, True), ({"HANDLER_TRACEBACK": "false"}, False)])
def test_runner_is_configured_with_show_traceback(setting: dict[str, str], is_shown: bool, tmp_path: Path) -> None:
    internal = build_internal({"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), **setting})
    assert internal.handler._show_traceback is is_shown


# ---- every part, with what it is given

ENVIRONMENT = {
    "TIME_SCALE": "20",
    "HANDLER_TIMEOUT": "600s",
    "MAX_ATTEMPTS": "5",
    "IN_DOUBT_SECONDS": "200",
    "IN_DOUBT_POLICY": "hold",
    "DEDUPE_TTL_DAYS": "9",
    "SWEEP_AFTER": "40s",
    "THREADS": "7",
    "META_APP_SECRET": "new-secret, old-secret",
    "WHATSAPP_PHONE_NUMBER_ID": "200000000000002",
    "WHATSAPP_ACCESS_TOKEN": "an-access-token",
    "WHATSAPP_API_BASE_URL": "http://127.0.0.1:9/graph",
    "WHATSAPP_API_VERSION": "v26.0",
    "GOOGLE_CLOUD_PROJECT": "a-project",
    "CLOUD_TASKS_LOCATION": "europe-west1",
    "CLOUD_TASKS_EMULATOR_HOST": "127.0.0.1:9",
    "INBOUND_TASK_QUEUE_NAME": "in",
    "OUTBOUND_TASK_QUEUE_NAME": "out",
    "TENANT_QUEUES": "3",
    "INBOUND_TENANT_QUEUE_PATTERN": "in-{n}",
    "TENANT_QUEUE_PATTERN": "out-{n:02d}",
    "DRAIN_TASK_QUEUE_NAME": "wakers",
    "INTERNAL_TASK_BASE_URL": "http://127.0.0.1:7",
    "INTERNAL_TASK_TOKEN": "new-token, old-token",
    "TASKS_SERVICE_ACCOUNT": "tasks@a-project.iam.gserviceaccount.com",
}
"""Each setting with a value of its own, so that one in another's place is noticed."""

BEHIND_URL = {"HANDLER_URL": URL, "HANDLER_URL_SECRET": f"{SECRET}, whsec_" + "b3RoZXItc2VjcmV0LW90aGVyLXNlY3JldA=="}
BUILT = {
    "webhook": (build_webhook, {}),
    "api": (build_api, {}),
    "internal": (build_internal, {}),
    "internal, with HANDLER_URL": (build_internal, BEHIND_URL),
}
Build = Callable[[dict[str, str]], Any]


def built(build: Build, directory: Path, more: dict[str, str]) -> Any:
    return build({"SQLITE_PATH": str(directory / "pombo.sqlite"), **ENVIRONMENT, **more})


each_service = pytest.mark.parametrize(("build", "more"), BUILT.values(), ids=BUILT)


def objects(part: Any, path: str = "", seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Every object of ours that a part holds, or its parts do, by each way to it."""
    if id(part) in seen or not type(part).__module__.startswith("shared."):
        return
    yield path, part
    if isinstance(part, Limits):
        return
    if isinstance(part, Channels):
        for provider, channel in part.items():
            yield from objects(channel, f"{path}.{provider}", seen | {id(part)})
    names = [field.name for field in fields(part)] if is_dataclass(part) else [*getattr(part, "__dict__", {})]
    for name in names:
        yield from objects(getattr(part, name), f"{path}.{name}", seen | {id(part)})


@each_service
def test_every_part_that_has_limits_has_the_scaled_ones_of_the_configuration(
    build: Build, more: dict[str, str], tmp_path: Path
) -> None:
    parts = built(build, tmp_path, more)
    held = {path: it for path, it in objects(parts) if isinstance(it, Limits)}
    assert set(held.values()) == {parts.config.limits}
    owners = {path.split(".")[1] for path in held}
    assert owners == {"store", *WITH_LIMITS[build]}
    assert parts.config.limits.handler_timeout == timedelta(seconds=30)
    assert (parts.config.limits.sweep_after, parts.config.limits.inbound_retention) == (
        timedelta(seconds=2),
        timedelta(days=9) / 20,
    )


WITH_LIMITS: dict[Any, tuple[str, ...]] = {
    build_webhook: ("accept", "counting"),
    build_api: ("accept", "cancel", "connect", "dispatch", "tenants", "keys", "registry"),
    build_internal: ("process_inbound", "process_outbound", "sweep", "senders", "drain", "counting"),
}


@each_service
def test_every_part_is_made_once_and_shared(build: Build, more: dict[str, str], tmp_path: Path) -> None:
    """Two shutdowns, and half of the service would not know; two stores, and twice the connections."""
    found: dict[str, set[int]] = {}
    for _, it in objects(built(build, tmp_path, more)):
        found.setdefault(type(it).__name__, set()).add(id(it))
    several = {"Limits", "PostTimes", "GroupCommit", "InFlight", "Portion", "RegistryCache"}
    several |= {"SystemClock"}  # the counters' has no crash points
    several |= {"EgressPolicy"}  # two constants: the API's channel calls nobody, and its onboarding the address it has
    assert {name for name, those in found.items() if len(those) > 1} <= several
    of_webhook = {"SqliteIntake", "MetaReceiver", "CloudTasksIntake", "GoogleToken"}
    of_others = {"SqliteStore", "MetaChannel", "CloudTasksQueue", "Shutdown"}
    halves = of_webhook if build is build_webhook else of_others
    assert {"Channels", "EnvironmentTenants", "SystemClock", *halves} <= set(found)
    assert ("Shutdown" in found) is (build is not build_webhook), "gunicorn's signal handler begins it"


def test_all_that_wait_in_the_internal_service_know_of_its_shutdown(tmp_path: Path) -> None:
    parts = built(build_internal, tmp_path, {})
    waiting = (parts.process_inbound.stopping, parts.process_outbound.stopping, parts.handler._stopping)
    assert [stopping() for stopping in waiting] == [False] * 3
    parts.shutdown.begin()
    assert [stopping() for stopping in waiting] == [True] * 3


@each_service
def test_the_queue_is_the_one_of_the_settings(build: Build, more: dict[str, str], tmp_path: Path) -> None:
    parts = built(build, tmp_path, more)
    assert parts.queue._settings == QueueSettings(
        project="a-project",
        location="europe-west1",
        queues={Kind.INBOUND: "in", Kind.OUTBOUND: "out"},
        base_url="http://127.0.0.1:7",
        token="new-token",
        dispatch_deadline=timedelta(seconds=675) / 20,
        emulator="127.0.0.1:9",
        drain="wakers",
        pairs=3,
        patterns={Kind.INBOUND: "in-{n}", Kind.OUTBOUND: "out-{n:02d}"},
    )


def test_the_channel_of_the_webhook_verifies_with_every_secret_and_sends_nothing(tmp_path: Path) -> None:
    channel = built(build_webhook, tmp_path, {}).accept.channels["meta"]
    assert channel._secrets == (b"new-secret", b"old-secret")
    assert not hasattr(channel, "send")


def test_internal_channel_sends_by_its_settings_and_cannot_verify(tmp_path: Path) -> None:
    parts = built(build_internal, tmp_path, {})
    channel = parts.process_outbound.channels["meta"]
    assert channel is parts.process_inbound.channels["meta"] is parts.senders.channels["meta"]
    assert (channel._secrets, channel._root) == ((), "http://127.0.0.1:9/graph/v26.0")
    (sender,) = parts.senders.tenants.senders_of_environment()
    assert sender.provider_id == "200000000000002"
    assert parts.process_outbound.credentials.of(sender) == "an-access-token"
    assert channel._times == parts.config.limits.post
    assert channel._reach is ANYWHERE


def test_the_api_looks_keys_up_in_the_stores_registry_and_holds_no_token(tmp_path: Path) -> None:
    parts = built(build_api, tmp_path, {})
    assert parts.keys._registry is parts.registry is parts.store
    assert (parts.keys._monotonic, parts.channels["meta"]._secrets) == (time.monotonic, ())
    assert "an-access-token" not in str(parts.config.values)


@pytest.mark.parametrize(("turns", "is_ordered"), [("contact", True), ("none", False)])
def test_conversations_have_the_key_and_the_order_of_the_settings(turns: str, is_ordered: bool, tmp_path: Path) -> None:
    given = {"ID_KEY": "a-key-of-our-own", "TURNS": turns}
    api, internal = built(build_api, tmp_path, given), built(build_internal, tmp_path, given)
    users = ((api, api.accept), (internal, internal.process_inbound), (internal, internal.process_outbound))
    for service, user in users:
        kept = user.conversations
        assert (kept.store, kept.id_key, kept.is_ordered) == (service.store, b"a-key-of-our-own", is_ordered)


def test_the_api_keeps_marks_of_senders_as_long_as_its_limits_say(tmp_path: Path) -> None:
    parts = built(build_api, tmp_path, {})
    marks = parts.accept.marks
    assert (marks._store, marks._age) == (parts.store, parts.config.limits.marks_age.total_seconds())


def test_places_of_handlers_are_a_quarter_of_the_threads_less_the_hung(tmp_path: Path) -> None:
    internal = built(build_internal, tmp_path, {"THREADS": "12"})
    places = internal.process_inbound.places
    internal.handler._hung.begin("acme")
    assert [places.take("acme", True) for _ in range(3)] == [True, True, False]


def test_handlers_of_tenants_are_those_of_the_registry_with_the_deployments_limits(tmp_path: Path) -> None:
    internal = built(build_internal, tmp_path, {"HANDLER_KINDS": "text", **BEHIND_URL, "PLAN_ALL_OR_NOTHING": "true"})
    handlers: Any = internal.process_inbound.handlers
    assert handlers._tenants is internal.process_inbound.tenants
    assert (handlers._deployment.handler, handlers._kinds) == (internal.handler, {"text"})
    own = TenantHandler("http://127.0.0.1:9/of-acme", "acme-handler")
    code = handlers._make("acme", own, f"{SECRET}, {SECRET}")
    backend, deployment = code.handler._code, internal.handler._code
    assert (backend._url, backend._secrets) == (own.url, (SECRET, SECRET))
    assert code.handler.backend == code.marks._id == backend_id(own.url, "acme")
    assert code.marks._limits == internal.config.limits
    for name in ("_times", "_connections", "_max_replies", "_reach", "kinds"):
        assert getattr(backend, name) == getattr(deployment, name), name
    for name in ("_timeout", "_hung", "_stopping", "_all_or_nothing"):
        assert getattr(code.handler, name) == getattr(internal.handler, name), name
    assert code.close == backend.close


def test_one_cache_of_secrets_serves_access_tokens_and_signing_keys(internal: Internal) -> None:
    handlers: Any = internal.process_inbound.handlers
    credentials: Any = internal.process_outbound.credentials
    assert isinstance(credentials._secrets, SecretCache)
    assert handlers._secret_of == credentials._secrets.value


def test_in_process_handler_gets_its_timeout_threads_and_reply_limit(tmp_path: Path) -> None:
    handler = built(build_internal, tmp_path, {}).handler
    assert (handler._timeout, handler._hung._threads) == (30, 7)
    assert handler._code.max_replies == 30


def test_url_handler_is_called_by_its_settings(tmp_path: Path) -> None:
    handler = built(build_internal, tmp_path, BEHIND_URL).handler
    backend, seconds = handler._code, timedelta(seconds=1)
    assert handler._timeout == 30 + GRACE.total_seconds(), "the socket's clock comes first"
    assert handler._hung._threads == 7
    assert (backend._url, len(backend._secrets), backend._secrets[0]) == (URL, 2, SECRET)
    assert backend._times == PostTimes(
        connect=0.15 * seconds, write=30 * seconds, read=30 * seconds, total=30 * seconds
    )
    assert (backend._connections, backend._max_replies, backend._reach) == (7, 30, ANYWHERE)


@each_service
def test_tenants_are_those_of_the_environment_and_of_the_store_registry(
    build: Build, more: dict[str, str], tmp_path: Path
) -> None:
    parts = built(build, tmp_path, more)
    is_webhook = build is build_webhook
    (tenants,) = {it for _, it in objects(parts) if isinstance(it, RegisteredTenants | RegisteredIntakeTenants)}
    assert type(tenants) is (RegisteredIntakeTenants if is_webhook else RegisteredTenants)
    assert tenants._registry is parts.store
    assert tenants._cache._monotonic is time.monotonic, "the age of an answer does not depend on the date"


@each_service
def test_the_tenant_is_the_one_of_the_number(build: Build, more: dict[str, str], tmp_path: Path) -> None:
    (tenants,) = {it for _, it in objects(built(build, tmp_path, more)) if isinstance(it, EnvironmentTenants)}
    assert tenants.owner_of(Addressee("meta", "200000000000002")) is not None
    assert tenants.owner_of(Addressee("meta", "100000000000001")) is None


CA_CERTS = (Path(__file__).parents[1] / "data" / "redis-ca.pem").read_text()

STORES: dict[str, tuple[dict[str, str], Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]] = {
    "firestore": (
        {"STORE": "firestore", "FIRESTORE_DATABASE": "a-database", "FIRESTORE_EMULATOR_HOST": "127.0.0.1:9"},
        lambda kept: (*kept[:2], kept[-1]),
        ("a-project", "a-database", "127.0.0.1:9"),
    ),
    "redis": (
        {"STORE": "redis", "REDIS_URL": "redis://127.0.0.1:9/3"},
        lambda kept: (kept[0], kept[3]),
        ("redis://127.0.0.1:9/3", None),
    ),
    "redis with an authority of its own": (
        {"STORE": "redis", "REDIS_URL": "rediss://127.0.0.1:9/3", "REDIS_CA_CERTS": CA_CERTS},
        lambda kept: (kept[0], kept[3]),
        ("rediss://127.0.0.1:9/3", CA_CERTS.strip()),
    ),
}
STORE_CLASSES = (
    "firestore.store.FirestoreStore",
    "firestore.intake.FirestoreIntake",
    "redis.store.RedisStore",
    "redis.intake.RedisIntake",
)


@each_service
@pytest.mark.parametrize(("settings", "shown", "expected"), STORES.values(), ids=STORES)
def test_each_store_is_made_of_its_settings(
    build: Build,
    more: dict[str, str],
    settings: dict[str, str],
    shown: Callable[[Any], tuple[Any, ...]],
    expected: tuple[Any, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[str, tuple[Any, ...]]] = []

    def store(place: str, *given: Any, **named: Any) -> Any:
        made.append((place, (*given, *named.values())))
        return object()

    for place in STORE_CLASSES:
        monkeypatch.setattr(f"shared.stores.{place}", partial(store, place))
    parts = built(build, tmp_path, {**more, **settings})
    ((place, kept),) = made
    assert shown(kept) == expected
    if place == "firestore.store.FirestoreStore":
        return  # the records bring the times that it stores
    assert parts.config.limits in kept
    now = next(it for it in kept if callable(it))
    assert abs(now() - datetime.now(UTC)) < timedelta(minutes=1)


def test_webhook_gets_its_token_at_the_start_unless_an_emulator_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(GoogleToken, "begin", lambda token: begun.append(token))
    webhook = built(build_webhook, tmp_path, {})
    webhook.begin()
    assert begun == []
    replace(webhook, config={}).begin()
    assert begun == [webhook.token]


def test_closed_webhook_has_closed_its_store_its_queue_and_its_token(tmp_path: Path) -> None:
    closed: list[str] = []

    def closing(name: str) -> Any:
        return SimpleNamespace(close=lambda: closed.append(name))

    webhook = built(build_webhook, tmp_path, {})
    replace(webhook, store=closing("store"), queue=closing("queue"), token=closing("token")).close()
    assert closed == ["store", "queue", "token"]


DEPLOYED = {
    "APP_ENV": "prod",
    "STORE": "firestore",
    "WHATSAPP_PHONE_NUMBER_ID": "200000000000002",
    "GOOGLE_CLOUD_PROJECT": "a-project",
    "CLOUD_TASKS_LOCATION": "europe-west1",
    "INBOUND_TASK_QUEUE_NAME": "in",
    "OUTBOUND_TASK_QUEUE_NAME": "out",
    "INTERNAL_TASK_BASE_URL": "https://internal.example.com",
    "INTERNAL_TASK_TOKEN": "a-token-of-our-own",
    "META_APP_SECRET": "a-secret-of-our-own",
    "META_VERIFY_TOKEN": "a-word-of-our-own",
    "ID_KEY": "a-key-of-our-own",
}


def test_deployed_webhook_calls_the_queue_and_firestore_with_one_token() -> None:
    parts: Any = build_webhook(DEPLOYED)
    assert isinstance(parts.token, GoogleToken)
    assert parts.queue._client._token is parts.token
    assert parts.store._rest._client._token is parts.token


def test_lone_call_of_the_webhook_needs_no_task_unless_it_may_outlast_its_post() -> None:
    parts: Any = build_webhook(DEPLOYED)
    longest = (parts.store._writes._longest, parts.store._entries._longest, parts.queue._calls._longest)
    assert longest == (BATCH_SECONDS, FAILURE_SECONDS, PATIENCE), "the seconds after which the calls end by themselves"
    assert max(longest) < HEALTHY_SECONDS


def test_each_call_in_flight_of_the_webhook_has_a_connection() -> None:
    """Half of a bisected batch leaves as many for others; reads of what exists and of the registry have some too."""
    parts: Any = build_webhook(DEPLOYED)
    store, queue = (client._client._http._most for client in (parts.store._rest, parts.queue))
    writes, entries = (calls._in_flight.most for calls in (parts.store._writes, parts.store._entries))
    assert store >= max(2 * HALVES_AT_ONCE, 2 * writes) + entries
    assert queue == parts.queue._calls._in_flight.most == 64


@pytest.mark.parametrize("store", config.STORES)
def test_one_store_of_each_service_keeps_the_records_and_the_registry(tmp_path: Path, store: str) -> None:
    environment = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "STORE": store, "REDIS_URL": "redis://127.0.0.1:9/0"}
    environment |= {"FIRESTORE_EMULATOR_HOST": "127.0.0.1:9"}
    internal, webhook = config.load(environment, config.INTERNAL), config.load(environment, config.WEBHOOK)
    whole, half = build_store(internal), build_intake_store(webhook, GoogleToken())
    assert build_registry(internal, whole) is whole
    assert build_intake_registry(webhook, half) is half


def test_crash_of_the_registry_is_none_of_the_store(tmp_path: Path) -> None:
    environment = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "CRASH_AT": "before:registry.entries"}
    internal, webhook = config.load(environment, config.INTERNAL), config.load(environment, config.WEBHOOK)
    whole, half = build_store(internal), build_intake_store(webhook, GoogleToken())
    assert isinstance(whole, SqliteStore)
    assert isinstance(half, ThreadedIntake)
    assert not isinstance(build_registry(internal, whole), SqliteStore), "it would crash"
    assert not isinstance(build_intake_registry(webhook, half), ThreadedIntake)


def test_webhook_calls_no_emulator_with_its_token(tmp_path: Path) -> None:
    emulators = {"FIRESTORE_EMULATOR_HOST": "127.0.0.1:9", "CLOUD_TASKS_EMULATOR_HOST": "127.0.0.1:9"}
    parts: Any = build_webhook({"STORE": "firestore", "SQLITE_PATH": str(tmp_path / "pombo.sqlite"), **emulators})
    for client in (parts.queue._client, parts.store._rest._client):
        assert isinstance(client._token, NoToken)


def test_the_store_on_one_machine_is_the_file_of_the_settings(tmp_path: Path) -> None:
    built(build_webhook, tmp_path, {})
    assert (tmp_path / "pombo.sqlite").exists()


def test_each_service_uses_the_configured_queue_names(tmp_path: Path) -> None:
    environment = {
        "SQLITE_PATH": str(tmp_path / "queues.sqlite"),
        "INBOUND_TASK_QUEUE_NAME": "events-in",
        "OUTBOUND_TASK_QUEUE_NAME": "messages-out",
    }
    tasks = [Task("0e" * 20, kind, "correlation-1", generation=0) for kind in (Kind.INBOUND, Kind.OUTBOUND)]
    for parts in (build_webhook(environment), build_internal(environment)):
        assert [parts.queue.queue_of(task) for task in tasks] == ["events-in", "messages-out"]


def test_tasks_of_the_internal_service_go_where_its_registry_says(tmp_path: Path) -> None:
    parts: Any = built(build_internal, tmp_path, {})
    assert parts.process_inbound.dispatch is parts.process_outbound.dispatch is parts.sweep.dispatch
    assert parts.sweep.dispatch.tenants is parts.process_inbound.tenants


def test_both_services_count_what_they_do_in_their_store(tmp_path: Path, internal: Internal) -> None:
    """A minute apart, divided by TIME_SCALE, by a clock without crash points."""
    public = build_webhook({"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "TIME_SCALE": "20"})
    assert public.accept.counting is public.counting
    assert internal.process_outbound.counting is internal.counting
    for counting, store in ((public.counting, public.store), (internal.counting, internal.store)):
        assert counting._store is store
        assert counting._counters._every == 3
        assert counting._counters._clock == SystemClock()
    assert internal.shutdown._last == [internal.counting.finish]
