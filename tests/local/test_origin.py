"""Every port that local/ serves answers programs on this machine, and no web page that a browser here has open."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.origin_check import refusal
from tests.support.tasks_harness import Emulator
from tests.support.whatsapp_harness import CUSTOMER, SENDER, TOKEN, Simulator, message, running

FOREIGN_HOST = "Only 127.0.0.1:{port} and localhost:{port} are served here; Host names another address."
FOREIGN_ORIGIN = "A page of another address may not call this port; only programs on this machine may."


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with running(tmp_path_factory.mktemp("whatsapp")) as (simulator, _):
        yield simulator


def port_of(simulator: Simulator, which: str) -> int:
    address = simulator.address if which == "graph" else simulator.control_address
    return int(address.rpartition(":")[2])


def ask(port: int, method: str, path: str, body: bytes = b"", **headers: str | None) -> tuple[int, str]:
    """The status, and what the answer says is wrong. A header that is None is not sent."""
    given = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body)), **headers}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in given.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    said = json.loads(answer.read())
    connection.close()
    return answer.status, said.get("error", "") if isinstance(said, dict) else ""


CALLS: dict[str, tuple[str, str, str, bytes]] = {
    "control on its own port: a message": (
        "control",
        "POST",
        "/control/inbound",
        json.dumps({"from": CUSTOMER, "type": "text", "content": {"body": "hi"}}).encode(),
    ),
    "control on its own port: a fault": ("control", "POST", "/control/faults", b'{"on":"send","kind":"drop"}'),
    "control on its own port: a signed webhook": ("control", "POST", "/control/webhook", b"{}"),
    "control on its own port: the ledger": ("control", "GET", "/control/ledger", b""),
    "control on its own port: clears the ledger": ("control", "DELETE", "/control/ledger", b""),
    "control on Graph's port: a fault": ("graph", "POST", "/control/faults", b'{"on":"send","kind":"drop"}'),
    "Graph: a message": (
        "graph",
        "POST",
        f"/v25.0/{SENDER}/messages",
        json.dumps(message(text={"body": "x"})).encode(),
    ),
}
each_call = pytest.mark.parametrize(("which", "method", "path", "body"), CALLS.values(), ids=CALLS)
HOSTS = [
    "attacker.example",
    "attacker.example:{port}",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.0.0.1.example:{port}",
    "",
    None,
]
ORIGINS = ["http://attacker.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}", "http://127.0.0.1", ""]


def state(simulator: Simulator) -> tuple[object, ...]:
    """All that a call could have changed."""
    return tuple(simulator.control("GET", what) for what in ("ledger", "calls", "faults", "webhooks"))


@each_call
@pytest.mark.parametrize("host", HOSTS, ids=str)
def test_a_foreign_host_is_refused_and_changes_nothing(
    simulator: Simulator, which: str, method: str, path: str, body: bytes, host: str | None
) -> None:
    port, before = port_of(simulator, which), state(simulator)
    host = host.format(port=port) if host is not None else None
    headers = {"Host": host, "Authorization": f"Bearer {TOKEN}"}
    assert ask(port, method, path, body, **headers) == (403, FOREIGN_HOST.format(port=port))
    assert state(simulator) == before


@each_call
@pytest.mark.parametrize("origin", ORIGINS)
def test_a_foreign_origin_is_refused_and_changes_nothing(
    simulator: Simulator, which: str, method: str, path: str, body: bytes, origin: str
) -> None:
    port, before = port_of(simulator, which), state(simulator)
    headers = {"Origin": origin.format(port=port), "Authorization": f"Bearer {TOKEN}"}
    assert ask(port, method, path, body, **headers) == (403, FOREIGN_ORIGIN)
    assert state(simulator) == before


@pytest.mark.parametrize("which", ["graph", "control"])
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_this_machines_own_names_are_served_with_and_without_an_origin(
    simulator: Simulator, which: str, name: str
) -> None:
    port = port_of(simulator, which)
    for origin in (None, f"http://{name}:{port}", f"http://127.0.0.1:{port}"):
        assert ask(port, "GET", "/control/faults", Host=f"{name}:{port}", Origin=origin) == (200, "")


def test_a_preflight_of_another_page_is_refused(simulator: Simulator) -> None:
    port = port_of(simulator, "control")
    given = {"Origin": "http://attacker.example", "Access-Control-Request-Method": "DELETE"}
    assert ask(port, "OPTIONS", "/control/ledger", **given) == (403, FOREIGN_ORIGIN)


def test_a_browser_leaves_out_the_port_that_is_its_default() -> None:
    assert refusal({"host": "localhost"}, 80) is None
    assert refusal({"host": "localhost:80", "origin": "http://localhost"}, 80) is None
    assert refusal({"host": "localhost"}, 9082) is not None


@pytest.mark.parametrize("host", ["attacker.example", "127.0.0.1:{port}"])
@pytest.mark.parametrize("path", ["/v2/{queue}:purge", "/google.cloud.tasks.v2.CloudTasks/PurgeQueue"])
def test_tasks_emulator_refuses_a_page_and_purges_nothing(host: str, path: str, tmp_path: Path) -> None:
    """A page speaks HTTP/1.1, or HTTP/2 with TLS: never the HTTP/2 without TLS that gRPC uses here."""
    with Emulator(tmp_path) as emulator:
        queue = emulator.paused_queue()
        task = emulator.create(queue)
        headers = {"Host": host.format(port=emulator.port), "Origin": "http://attacker.example"}
        connection = http.client.HTTPConnection("127.0.0.1", emulator.port, timeout=10)
        connection.request("POST", path.format(queue=queue), b"{}", {**headers, "Content-Type": "text/plain"})
        answer = connection.getresponse()
        error = json.loads(answer.read())["error"]
        connection.close()
        assert (answer.status, error["status"]) == (403, "PERMISSION_DENIED")
        assert error["message"] in (FOREIGN_HOST.format(port=emulator.port), FOREIGN_ORIGIN)
        assert not emulator.is_gone(task.name)
