"""The queues of the stack, as Terraform makes them in a project."""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta

import grpc
from google.api_core import exceptions
from google.cloud.tasks_v2 import CloudTasksClient, Queue, RateLimits, RetryConfig
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

READY_SECONDS = 30

RATES: Mapping[str, tuple[float, int]] = {"INBOUND_TASK_QUEUE_NAME": (100, 80), "OUTBOUND_TASK_QUEUE_NAME": (20, 10)}
"""Dispatches a second, and how many at once."""

RETRY = RetryConfig(
    max_attempts=100, min_backoff=timedelta(seconds=5), max_backoff=timedelta(seconds=600), max_doublings=5
)


def ensure_queues(
    address: str, project: str, location: str, names: Mapping[str, str], look: Callable[[], None]
) -> None:
    """Make both queues once the emulator answers; those that are there stay as they are. Raises TimeoutError, and
    whatever `look` raises, which is called before every try.
    """
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:  # type: ignore[no-untyped-call]
        client = CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))
        parent = f"projects/{project}/locations/{location}"
        deadline = time.monotonic() + READY_SECONDS
        for variable, (rate, at_once) in RATES.items():
            queue = Queue(
                name=f"{parent}/queues/{names[variable]}",
                rate_limits=RateLimits(max_dispatches_per_second=rate, max_concurrent_dispatches=at_once),
                retry_config=RETRY,
            )
            _ensure(client, parent, queue, deadline, look)


def _ensure(client: CloudTasksClient, parent: str, queue: Queue, deadline: float, look: Callable[[], None]) -> None:
    while True:
        look()
        try:
            client.create_queue(parent=parent, queue=queue, timeout=2, retry=None)
            return
        except exceptions.AlreadyExists:
            return
        except (exceptions.ServiceUnavailable, exceptions.DeadlineExceeded) as error:
            if time.monotonic() > deadline:
                raise TimeoutError("The Cloud Tasks emulator does not answer.") from error
            time.sleep(0.05)
