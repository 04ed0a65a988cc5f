"""The queues of the stack, as Terraform creates them in a project: each defines where its tasks go, and as whom."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import urlsplit

import grpc
from google.api_core import exceptions
from google.cloud.tasks_v2 import (
    CloudTasksClient,
    HttpMethod,
    HttpTarget,
    OidcToken,
    PathOverride,
    Queue,
    RateLimits,
    RetryConfig,
    UriOverride,
)
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from local.tasks.protobuf import FieldMask
from shared.config import SETTINGS
from shared.domain.drains import DRAIN_PATH
from shared.domain.record import Kind
from shared.domain.tasks import task_path

READY_SECONDS = 30
AT_A_TIME = 8
"""Queues that are created at once."""

Rate = tuple[float, int]
"""Dispatches a second, and how many at once."""

RATES: Mapping[str, Rate] = {
    "INBOUND_TASK_QUEUE_NAME": (100, 80),
    "OUTBOUND_TASK_QUEUE_NAME": (20, 10),
    "DRAIN_TASK_QUEUE_NAME": (1, 1),
}
"""Of each shared queue, by the variable that names it. A drain wakes 200 messages a second, which is enough."""

MAX_CONCURRENCY_PER_TENANT = 2
"""Messages of a tenant that are sent at once: with half a second each, 4 a second, like four busy agents."""

TENANT_RATES: Mapping[str, Rate] = {
    "INBOUND_TENANT_QUEUE_PATTERN": (80, 4),
    "TENANT_QUEUE_PATTERN": (80, MAX_CONCURRENCY_PER_TENANT),
}
"""Of each numbered queue, by the variable with its pattern. 80 a second is what Meta accepts of a number by default
(https://developers.facebook.com/docs/whatsapp/cloud-api/overview#throughput, 2026-11). Events: a handler takes longer
than a send, and four are a quarter of an instance's 16 threads, as many as a tenant's handler may hold.
"""

PATHS: Mapping[str, str] = {
    "INBOUND_TASK_QUEUE_NAME": task_path(Kind.INBOUND),
    "OUTBOUND_TASK_QUEUE_NAME": task_path(Kind.OUTBOUND),
    "DRAIN_TASK_QUEUE_NAME": DRAIN_PATH,
    "INBOUND_TENANT_QUEUE_PATTERN": task_path(Kind.INBOUND),
    "TENANT_QUEUE_PATTERN": task_path(Kind.OUTBOUND),
}
"""The only path to which the queues of each variable lead."""

RETRY = RetryConfig(
    max_attempts=100, min_backoff=timedelta(seconds=5), max_backoff=timedelta(seconds=600), max_doublings=5
)


def ensure_queues(
    address: str, project: str, location: str, settings: Mapping[str, str], look: Callable[[], None]
) -> None:
    """Create all queues once the emulator answers. Existing queues keep their settings, except for their target. Calls
    `look` before every attempt, and raises what it raises, or TimeoutError.
    """
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:  # type: ignore[no-untyped-call]
        client = CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))
        parent = f"projects/{project}/locations/{location}"
        deadline = time.monotonic() + READY_SECONDS
        first, *others = queues_of(settings, parent)
        _ensure(client, parent, first, deadline, look)  # the others once it answers
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(lambda queue: _ensure(client, parent, queue, deadline, look), others))


def queues_of(settings: Mapping[str, str], parent: str) -> Sequence[Queue]:
    """The shared queues, then the numbered ones."""
    base_url, account = settings["INTERNAL_TASK_BASE_URL"], settings.get("TASKS_SERVICE_ACCOUNT")
    return [
        Queue(
            name=f"{parent}/queues/{name}",
            rate_limits=RateLimits(max_dispatches_per_second=rate[0], max_concurrent_dispatches=rate[1]),
            retry_config=RETRY,
            http_target=target_of(base_url, PATHS[variable], account),
        )
        for name, variable, rate in _named(settings)
    ]


def names_of(settings: Mapping[str, str]) -> Sequence[str]:
    """The names of the same queues."""
    return [name for name, _, _ in _named(settings)]


def _named(settings: Mapping[str, str]) -> Sequence[tuple[str, str, Rate]]:
    """Each queue: its name, its variable, its rate. A variable that `settings` lacks has its default."""
    read = {name: settings.get(name) or _default_of(name) for name in (*RATES, *TENANT_RATES, "TENANT_QUEUES")}
    shared = [(read[variable], variable, rate) for variable, rate in RATES.items()]
    numbered = [
        (read[variable].format(n=number), variable, rate)
        for number in range(int(read["TENANT_QUEUES"]))
        for variable, rate in TENANT_RATES.items()
    ]
    return shared + numbered


def _default_of(name: str) -> str:
    (setting,) = (setting for setting in SETTINGS if setting.name == name)
    return setting.local or setting.always or ""


def _ensure(client: CloudTasksClient, parent: str, queue: Queue, deadline: float, look: Callable[[], None]) -> None:
    while True:
        look()
        try:
            client.create_queue(parent=parent, queue=queue, timeout=2, retry=None)
            return
        except exceptions.AlreadyExists:
            client.update_queue(queue=queue, update_mask=FieldMask(paths=["http_target"]), timeout=2, retry=None)
            return
        except exceptions.FailedPrecondition:  # deleted within the last 7 days: the shared queue takes its tasks
            return
        except (exceptions.ServiceUnavailable, exceptions.DeadlineExceeded) as error:
            if time.monotonic() > deadline:
                raise TimeoutError("The Cloud Tasks emulator does not answer.") from error
            time.sleep(0.05)


def target_of(base_url: str, path: str, account: str | None) -> HttpTarget:
    """Where a queue sends each of its tasks, whatever their own address, and the identity that the call carries."""
    parts = urlsplit(base_url)
    return HttpTarget(
        http_method=HttpMethod.POST,
        uri_override=UriOverride(
            scheme=UriOverride.Scheme.HTTPS if parts.scheme == "https" else UriOverride.Scheme.HTTP,
            host=parts.hostname,
            port=parts.port or 0,
            path_override=PathOverride(path=parts.path.rstrip("/") + path),
            uri_override_enforce_mode=UriOverride.UriOverrideEnforceMode.ALWAYS,
        ),
        oidc_token=OidcToken(service_account_email=account, audience=base_url.rstrip("/")) if account else None,
    )
