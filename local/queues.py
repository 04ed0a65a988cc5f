"""The queues of the stack, as Terraform creates them in a project: each defines where its tasks go, and as whom."""

import time
from collections.abc import Callable, Mapping
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
from shared.domain.record import Kind
from shared.domain.tasks import task_path

READY_SECONDS = 30

RATES: Mapping[str, tuple[float, int]] = {"INBOUND_TASK_QUEUE_NAME": (100, 80), "OUTBOUND_TASK_QUEUE_NAME": (20, 10)}
"""Dispatches a second, and how many at once."""

KINDS: Mapping[str, Kind] = {"INBOUND_TASK_QUEUE_NAME": Kind.INBOUND, "OUTBOUND_TASK_QUEUE_NAME": Kind.OUTBOUND}

RETRY = RetryConfig(
    max_attempts=100, min_backoff=timedelta(seconds=5), max_backoff=timedelta(seconds=600), max_doublings=5
)


def ensure_queues(
    address: str, project: str, location: str, settings: Mapping[str, str], look: Callable[[], None]
) -> None:
    """Create both queues once the emulator answers. Existing queues keep their settings, except for their target. Calls
    `look` before every attempt, and raises what it raises, or TimeoutError.
    """
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:  # type: ignore[no-untyped-call]
        client = CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))
        parent = f"projects/{project}/locations/{location}"
        deadline = time.monotonic() + READY_SECONDS
        for variable, (rate, at_once) in RATES.items():
            queue = Queue(
                name=f"{parent}/queues/{settings[variable]}",
                rate_limits=RateLimits(max_dispatches_per_second=rate, max_concurrent_dispatches=at_once),
                retry_config=RETRY,
                http_target=target_of(
                    settings["INTERNAL_TASK_BASE_URL"], KINDS[variable], settings.get("TASKS_SERVICE_ACCOUNT")
                ),
            )
            _ensure(client, parent, queue, deadline, look)


def _ensure(client: CloudTasksClient, parent: str, queue: Queue, deadline: float, look: Callable[[], None]) -> None:
    while True:
        look()
        try:
            client.create_queue(parent=parent, queue=queue, timeout=2, retry=None)
            return
        except exceptions.AlreadyExists:
            client.update_queue(queue=queue, update_mask=FieldMask(paths=["http_target"]), timeout=2, retry=None)
            return
        except (exceptions.ServiceUnavailable, exceptions.DeadlineExceeded) as error:
            if time.monotonic() > deadline:
                raise TimeoutError("The Cloud Tasks emulator does not answer.") from error
            time.sleep(0.05)


def target_of(base_url: str, kind: Kind, account: str | None) -> HttpTarget:
    """Where a queue sends each of its tasks, whatever their own address, and the identity that the call carries."""
    parts = urlsplit(base_url)
    return HttpTarget(
        http_method=HttpMethod.POST,
        uri_override=UriOverride(
            scheme=UriOverride.Scheme.HTTPS if parts.scheme == "https" else UriOverride.Scheme.HTTP,
            host=parts.hostname,
            port=parts.port or 0,
            path_override=PathOverride(path=parts.path.rstrip("/") + task_path(kind)),
            uri_override_enforce_mode=UriOverride.UriOverrideEnforceMode.ALWAYS,
        ),
        oidc_token=OidcToken(service_account_email=account, audience=base_url.rstrip("/")) if account else None,
    )
