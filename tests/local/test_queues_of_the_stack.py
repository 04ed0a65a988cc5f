"""The queues of the stack: made once, and each says where its tasks go and whose identity they carry."""

import uuid
from collections.abc import Iterator

import pytest
from google.cloud import tasks_v2
from google.protobuf.field_mask_pb2 import FieldMask

from local.queues import RATES, CannotCreate, ensure_queues, names_of, queues_of, target_of
from shared.domain.drains import DRAIN_PATH
from shared.domain.record import Kind
from shared.domain.tasks import task_path
from tests.support.parts import free_port
from tests.support.tasks_harness import LOCATION, Emulator, a_target, http_target, wait_until

ACCOUNT = "tasks@pombo-local.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with Emulator(tmp_path_factory.mktemp("tasks")) as emulator:
        yield emulator


def ensured(emulator: Emulator, base_url: str, names: dict[str, str], **more: str) -> dict[str, tasks_v2.Queue]:
    settings = {**names, "INTERNAL_TASK_BASE_URL": base_url, "TENANT_QUEUES": "0", **more}
    ensure_queues(f"127.0.0.1:{emulator.port}", "pombo-local", "local", settings, lambda: None)
    return {variable: emulator.client.get_queue(name=f"{LOCATION}/queues/{name}") for variable, name in names.items()}


@pytest.fixture
def names() -> dict[str, str]:
    return {variable: f"q-{uuid.uuid4().hex[:12]}" for variable in RATES}


def test_each_queue_leads_to_the_one_path_that_it_serves(emulator: Emulator, names: dict[str, str]) -> None:
    made = ensured(emulator, "http://127.0.0.1:9081", names)
    paths = {
        "INBOUND_TASK_QUEUE_NAME": task_path(Kind.INBOUND),
        "OUTBOUND_TASK_QUEUE_NAME": task_path(Kind.OUTBOUND),
        "DRAIN_TASK_QUEUE_NAME": DRAIN_PATH,
    }
    assert made.keys() == paths.keys()
    for variable, path in paths.items():
        uri = made[variable].http_target.uri_override
        assert (uri.scheme.name, uri.host, uri.port) == ("HTTP", "127.0.0.1", 9081)
        assert uri.path_override.path == path
        assert uri.uri_override_enforce_mode.name == "ALWAYS"
        assert made[variable].http_target.http_method.name == "POST"
        assert "oidc_token" not in made[variable].http_target


def test_the_stack_has_a_pair_of_queues_for_each_number(emulator: Emulator, names: dict[str, str]) -> None:
    prefix = f"q-{uuid.uuid4().hex[:8]}"
    patterns = {"INBOUND_TENANT_QUEUE_PATTERN": prefix + "-in{n:03d}", "TENANT_QUEUE_PATTERN": prefix + "-out{n}"}
    ensured(emulator, "http://127.0.0.1:9081", names, TENANT_QUEUES="12", **patterns)
    found = {
        queue.name.rpartition("/")[2].removeprefix(prefix): (
            queue.http_target.uri_override.path_override.path,
            queue.rate_limits.max_dispatches_per_second,
            queue.rate_limits.max_concurrent_dispatches,
            queue.retry_config.max_attempts,
        )
        for queue in emulator.client.list_queues(parent=LOCATION)
        if prefix in queue.name
    }
    wanted = {f"-in{number:03d}": ("/internal/process_inbound", 80, 4, 100) for number in range(12)}
    wanted |= {f"-out{number}": ("/internal/process_outbound", 80, 2, 100) for number in range(12)}
    assert found == wanted


def test_the_stack_has_twenty_pairs_and_the_shared_queues_by_default() -> None:
    numbered = {f"{kind}-t{number:03d}" for kind in ("inbound", "outbound") for number in range(20)}
    assert set(names_of({})) == {"inbound", "outbound", "drain", *numbered}
    assert len(names_of({"TENANT_QUEUES": "0"})) == 3


def test_a_drain_wakes_one_page_a_second() -> None:
    drain = queues_of({"INTERNAL_TASK_BASE_URL": "http://127.0.0.1:9081"}, LOCATION)[2]
    assert drain["name"] == f"{LOCATION}/queues/drain"
    assert drain["rateLimits"] == {"maxDispatchesPerSecond": 1, "maxConcurrentDispatches": 1}


def test_a_queue_that_is_there_is_led_to_the_new_address_and_else_left_alone(
    emulator: Emulator, names: dict[str, str]
) -> None:
    name = ensured(emulator, "http://127.0.0.1:9081", names)["INBOUND_TASK_QUEUE_NAME"].name
    emulator.client.pause_queue(name=name)
    changed = tasks_v2.Queue(name=name, rate_limits={"max_dispatches_per_second": 7})
    emulator.client.update_queue(queue=changed, update_mask=FieldMask(paths=["rate_limits.max_dispatches_per_second"]))
    after = ensured(emulator, "http://127.0.0.1:9999", names)
    inbound = after["INBOUND_TASK_QUEUE_NAME"]
    assert inbound.http_target.uri_override.port == 9999
    assert inbound.state.name == "PAUSED"
    assert inbound.rate_limits.max_dispatches_per_second == 7


def test_a_task_that_was_made_for_the_old_address_reaches_the_new_one(
    emulator: Emulator, names: dict[str, str]
) -> None:
    with a_target() as service:
        made = ensured(emulator, service.url, names, TASKS_SERVICE_ACCOUNT=ACCOUNT)
        emulator.create(made["OUTBOUND_TASK_QUEUE_NAME"].name, "http://127.0.0.1:9/internal/process_outbound")
        (request,) = wait_until(lambda: service.received)
        assert request.path == task_path(Kind.OUTBOUND)
        assert request.headers["Authorization"].startswith("Bearer ")


def test_queue_that_was_deleted_is_left_to_the_shared_one(emulator: Emulator, names: dict[str, str]) -> None:
    deleted = ensured(emulator, "http://127.0.0.1:9081", names)["DRAIN_TASK_QUEUE_NAME"].name
    emulator.client.delete_queue(name=deleted)
    settings = {**names, "INTERNAL_TASK_BASE_URL": "http://127.0.0.1:9081", "TENANT_QUEUES": "0"}
    ensure_queues(f"127.0.0.1:{emulator.port}", "pombo-local", "local", settings, lambda: None)
    assert deleted not in [queue.name for queue in emulator.client.list_queues(parent=LOCATION)]


def test_queue_that_the_emulator_refuses_is_named(emulator: Emulator, names: dict[str, str]) -> None:
    with pytest.raises(CannotCreate, match=r"refused the queue .*/queues/a b: INVALID_ARGUMENT"):
        ensured(emulator, "http://127.0.0.1:9081", names | {"INBOUND_TASK_QUEUE_NAME": "a b"})


def test_emulator_that_never_answers_is_reported(names: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local.queues.READY_SECONDS", 0.1)
    looks: list[int] = []
    settings = {**names, "INTERNAL_TASK_BASE_URL": "http://127.0.0.1:9081"}
    with pytest.raises(CannotCreate, match="does not answer"):
        ensure_queues(f"127.0.0.1:{free_port()}", "pombo-local", "local", settings, lambda: looks.append(1))
    assert len(looks) > 1, "a child that has died ends the wait"


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("https://internal.example.com", ("HTTPS", "internal.example.com", 0, "/internal/process_inbound")),
        ("https://internal.example.com/", ("HTTPS", "internal.example.com", 0, "/internal/process_inbound")),
        ("http://[::1]:9081/a/path", ("HTTP", "::1", 9081, "/a/path/internal/process_inbound")),
    ],
)
def test_target_address_is_split_into_all_its_parts(base_url: str, address: tuple[str, str, int, str]) -> None:
    target = http_target(target_of(base_url, task_path(Kind.INBOUND), ACCOUNT))
    uri = target.uri_override
    assert (uri.scheme.name, uri.host, uri.port, uri.path_override.path) == address
    assert target.oidc_token.service_account_email == ACCOUNT
    assert target.oidc_token.audience == base_url.rstrip("/"), "as INTERNAL_TASK_BASE_URL is read"
