"""Revisions: the code of an earlier revision of Pombo beside this one, and services of either in one stack."""

import io
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import httpx
from google.cloud.tasks_v2 import CloudTasksClient, Queue
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from local.queues import target_of
from local.tasks.protobuf import FieldMask
from shared.domain.record import Kind
from shared.domain.tasks import task_path
from tests.support.machine import missing
from tests.support.stack import ROOT, TEAM, Stack, wait_until
from tests.support.tasks_harness import http_target

BEFORE_REGISTRY = "10bfd825402ec348c62e67c2a1557048224f85a8"
"""The last revision without a registry of tenants."""


def checked_out(revision: str, directory: Path) -> Path:
    """The files of a revision. Skips the test if this checkout does not have it; in CI, fails it."""
    made = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True)
    if made.returncode:
        missing(f"this checkout has no commit {revision[:7]}: git fetch --unshallow brings the history")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory


def import_path(root: Path) -> str:
    """PYTHONPATH for the Pombo in this directory, and for the tests' handler."""
    return f"{root}:{TEAM}"


@contextmanager
def service_of(stack: Stack, root: Path, service: str) -> Iterator[str]:
    """A service of the Pombo in `root` beside the stack's own, with the same settings: its address."""
    told = Path(f"/proc/{stack.pids()[service]}/environ").read_bytes().decode().split("\0")
    environment = dict(line.split("=", 1) for line in told if "=" in line)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environment |= {"PORT": str(port), "PYTHONPATH": import_path(root)}
    with (stack.data_dir / "logs.jsonl").open("ab") as out, (stack.data_dir / "beside.stderr.log").open("ab") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", f"services.{service}"], cwd=root, env=environment, stdout=out, stderr=err
        )
    try:
        wait_until(lambda: _is_ready(url), f"the other {service} is ready", 60)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def lead_queue(stack: Stack, kind: Kind, url: str) -> None:
    """Let the shared queue of this kind call another internal service from now on."""
    address = stack.described["tasks"]
    environment = stack.environment
    parent = f"projects/{environment['GOOGLE_CLOUD_PROJECT']}/locations/{environment['CLOUD_TASKS_LOCATION']}"
    target = http_target(target_of(url, task_path(kind), None))
    assert urlsplit(url).port == target.uri_override.port
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:  # type: ignore[no-untyped-call]
        client = CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))
        queue = Queue(name=f"{parent}/queues/{environment[f'{kind.upper()}_TASK_QUEUE_NAME']}", http_target=target)
        client.update_queue(queue=queue, update_mask=FieldMask(paths=["http_target"]), timeout=5, retry=None)
