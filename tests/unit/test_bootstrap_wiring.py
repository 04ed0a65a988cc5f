"""Bootstrap: what each part is given, which no test of the parts alone can see."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.bootstrap import channels, receiving
from shared.bootstrap.channels import CHANNELS, ChannelMaker, explain, reading
from shared.bootstrap.internal import Internal, build_internal
from shared.bootstrap.receiving import RECEIVERS
from shared.bootstrap.webhook import build_webhook
from shared.domain.deadline import HEALTHY_SECONDS
from shared.domain.identity import backend_id
from shared.domain.limits import Limits, PostTimes
from shared.domain.message_kinds import DEFAULT_KINDS, KINDS
from shared.domain.record import Kind, Task
from shared.handlers.url import GRACE
from shared.net.egress_policy import ANYWHERE
from shared.net.google_token import GoogleToken
from shared.net.patience import PATIENCE
from shared.net.rest_client import NoToken
from shared.pipeline.channels import Channels
from shared.pipeline.intake import Addressee
from shared.queues.task_content import QueueSettings
from shared.stores.firestore.batches import BATCH_SECONDS, HALVES_AT_ONCE
from shared.tenants.environment import EnvironmentTenants
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
    assert internal.process_inbound.backend._id == backend_id(URL)
    assert internal.process_inbound.backend._limits == internal.config.limits


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
    assert (internal.senders.backend, internal.process_inbound.backend._id) == (None, None)


def test_least_waits_of_meta_are_scaled_with_ours(internal: Internal) -> None:
    assert internal.process_outbound.limits.waits.minute == timedelta(seconds=3)


def channels_of(tmp_path: Path) -> dict[str, Channels[Any]]:
    """Those of each user: the two services and the command line."""
    environment = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite")}
    webhook, internal = build_webhook(environment), build_internal(environment)
    return {
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


def test_both_services_and_the_command_line_have_the_same_providers(tmp_path: Path) -> None:
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
    of_commands: Any = reading()["meta"]
    assert [one._secrets for one in (of_webhook, of_internal, of_commands)] == [(b"app-secret",), (), ()]
    assert [one._verify_tokens for one in (of_webhook, of_internal, of_commands)] == [(b"verify-token",), (), ()]
    assert [list(one._credentials.values()) for one in (of_internal, of_commands)] == [["access-token"], []]
    assert not hasattr(of_webhook, "_credentials")


def test_the_senders_watched_are_those_of_the_registry(internal: Internal) -> None:
    (sender,) = internal.senders.tenants.senders()
    assert (sender.tenant, sender.provider, sender.id) == ("default", "meta", "100000000000001")


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
    "INTERNAL_TASK_BASE_URL": "http://127.0.0.1:7",
    "INTERNAL_TASK_TOKEN": "new-token, old-token",
    "TASKS_SERVICE_ACCOUNT": "tasks@a-project.iam.gserviceaccount.com",
}
"""Each setting with a value of its own, so that one in another's place is noticed."""

BEHIND_URL = {"HANDLER_URL": URL, "HANDLER_URL_SECRET": f"{SECRET}, whsec_" + "b3RoZXItc2VjcmV0LW90aGVyLXNlY3JldA=="}
BUILT = {
    "webhook": (build_webhook, {}),
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
    assert owners == ({"accept", "store"} if hasattr(parts, "accept") else {*INTERNAL_PARTS, "store"})
    assert parts.config.limits.handler_timeout == timedelta(seconds=30)
    assert (parts.config.limits.sweep_after, parts.config.limits.inbound_retention) == (
        timedelta(seconds=2),
        timedelta(days=9) / 20,
    )


INTERNAL_PARTS = ("process_inbound", "process_outbound", "sweep", "senders")


@each_service
def test_every_part_is_made_once_and_shared(build: Build, more: dict[str, str], tmp_path: Path) -> None:
    """Two shutdowns, and half of the service would not know; two stores, and twice the connections."""
    found: dict[str, set[int]] = {}
    for _, it in objects(built(build, tmp_path, more)):
        found.setdefault(type(it).__name__, set()).add(id(it))
    several = {"Limits", "PostTimes", "GroupCommit", "InFlight", "Portion"}
    assert {name for name, those in found.items() if len(those) > 1} <= several
    of_webhook = {"SqliteIntake", "MetaReceiver", "CloudTasksIntake", "GoogleToken"}
    of_internal = {"SqliteStore", "MetaChannel", "CloudTasksQueue", "Shutdown"}
    halves = of_webhook if build is build_webhook else of_internal
    assert {"Channels", "EnvironmentTenants", "SystemClock", *halves} <= set(found)
    assert ("Shutdown" in found) is (build is build_internal), "only there does work go on beside the requests"


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
    assert channel._credentials == {"200000000000002": "an-access-token"}
    assert channel._times == parts.config.limits.post
    assert channel._reach is ANYWHERE


def test_in_process_handler_gets_its_timeout_threads_and_reply_limit(tmp_path: Path) -> None:
    handler = built(build_internal, tmp_path, {}).handler
    assert (handler._timeout, handler._threads) == (30, 7)
    assert handler._code.max_replies == 30


def test_url_handler_is_called_by_its_settings(tmp_path: Path) -> None:
    handler = built(build_internal, tmp_path, BEHIND_URL).handler
    backend, seconds = handler._code, timedelta(seconds=1)
    assert (handler._timeout, handler._threads) == (30 + GRACE.total_seconds(), 7), "the socket's clock comes first"
    assert (backend._url, len(backend._secrets), backend._secrets[0]) == (URL, 2, SECRET)
    assert backend._times == PostTimes(
        connect=0.15 * seconds, write=30 * seconds, read=30 * seconds, total=30 * seconds
    )
    assert (backend._connections, backend._max_replies, backend._reach) == (7, 30, ANYWHERE)


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
}


def test_deployed_webhook_calls_the_queue_and_firestore_with_one_token() -> None:
    parts: Any = build_webhook(DEPLOYED)
    assert isinstance(parts.token, GoogleToken)
    assert parts.queue._client._token is parts.token
    assert parts.store._rest._client._token is parts.token


def test_lone_call_of_the_webhook_needs_no_task_unless_it_may_outlast_its_post() -> None:
    parts: Any = build_webhook(DEPLOYED)
    longest = (parts.store._writes._longest, parts.queue._calls._longest)
    assert longest == (BATCH_SECONDS, PATIENCE), "the seconds after which the calls end by themselves"
    assert max(longest) < HEALTHY_SECONDS


def test_each_call_in_flight_of_the_webhook_has_a_connection() -> None:
    """Half of a bisected batch leaves as many for others, and the reads of what exists have some too."""
    parts: Any = build_webhook(DEPLOYED)
    store, queue = (client._client._http._most for client in (parts.store._rest, parts.queue))
    assert store >= max(2 * HALVES_AT_ONCE, 2 * parts.store._writes._in_flight.most)
    assert queue == parts.queue._calls._in_flight.most == 64


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
