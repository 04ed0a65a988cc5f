"""The servers that a run compares, and how each is started."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import payloads
from bench.environments import ROOT, Environments

BASELINES = ROOT / "bench" / "baselines"
THREADS = "16"
"""Of the servers that are no other's default: as many as the product has."""


@dataclass(frozen=True, slots=True)
class Server:
    """One server under test. `durable`: each message is a document and a task before the 200, each receipt a write."""

    name: str
    durable: bool
    command: Callable[[Environments, int], list[str]]
    directory: Callable[[Environments], Path] = lambda _: BASELINES


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the fakes are."""

    firestore: int
    tasks: int
    metadata: int


def _product(environments: Environments, port: int) -> list[str]:  # noqa: ARG001 - the port is in PORT
    return [str(environments.product_python), "-m", "services.webhook"]


def _stock(environments: Environments, port: int) -> list[str]:
    program = str(environments.baselines / "bin" / "functions-framework")
    return [program, "--target", "webhook", "--source", "stock.py", "--host", "127.0.0.1", "--port", str(port)]


def _floor(environments: Environments, port: int) -> list[str]:  # noqa: ARG001 - the port is in PORT
    return [str(environments.baselines_python), "floor.py"]


def _gunicorn(module: str) -> Callable[[Environments, int], list[str]]:
    def command(environments: Environments, port: int) -> list[str]:
        program = [str(environments.baselines / "bin" / "gunicorn"), "--no-control-socket"]
        return [*program, "--worker-class", "gthread", "--threads", THREADS, "--bind", f"127.0.0.1:{port}", module]

    return command


PRODUCT, STOCK = "product", "stock"

SERVERS: Mapping[str, Server] = {
    server.name: server
    for server in (
        Server(PRODUCT, True, _product, lambda environments: environments.app),
        Server(STOCK, True, _stock),
        Server("floor", True, _floor),
        Server("ack", False, _gunicorn("ack:app")),
        Server("pywa", False, _gunicorn("pywa_server:app")),
    )
}


def variables(server: Server, environments: Environments, port: int, at: Addresses, token: bool) -> dict[str, str]:
    """The environment variables of a server. `token`: it fetches a token from the metadata server at its start."""
    mine = {"PATH": "/usr/bin:/bin", "PORT": str(port), **settings(at)}
    if token:
        mine |= {"GCE_METADATA_HOST": f"127.0.0.1:{at.metadata}", "GCE_METADATA_IP": f"127.0.0.1:{at.metadata}"}
    return {**mine, **(environments.product_variables if server.name == PRODUCT else {})}


def settings(at: Addresses) -> dict[str, str]:
    """What Pombo's webhook service and the stock server are told."""
    return {
        "META_APP_SECRET": payloads.SECRET,
        "META_VERIFY_TOKEN": payloads.VERIFY_TOKEN,
        "WHATSAPP_PHONE_NUMBER_ID": payloads.SENDER,
        "INTERNAL_TASK_TOKEN": "local-internal-token",
        "INTERNAL_TASK_BASE_URL": "http://127.0.0.1:9",
        "GOOGLE_CLOUD_PROJECT": "pombo-bench",
        "CLOUD_TASKS_LOCATION": "local",
        "STORE": "firestore",
        "FIRESTORE_EMULATOR_HOST": f"127.0.0.1:{at.firestore}",
        "CLOUD_TASKS_EMULATOR_HOST": f"127.0.0.1:{at.tasks}",
    }
