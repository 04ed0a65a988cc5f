"""A provider that is down: every call of the Graph API meets the fault, and the control address still answers."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from local.whatsapp.__main__ import settings_from
from tests.support.whatsapp_harness import SECRET, SENDER, TOKEN, Simulator, Webhook, running, until

Call = Callable[[Simulator], httpx.Response]

CALLS: dict[str, Call] = {
    "message": lambda simulator: simulator.send(),
    "read": lambda simulator: simulator.read("wamid.A"),
    "typing": lambda simulator: simulator.read("wamid.A", typing=True),
    "other": lambda simulator: simulator.send(messaging_product="messenger"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Simulator, Webhook]]:
    with running(tmp_path_factory.mktemp("simulator"), "--time-scale", "10") as started:
        yield started


@pytest.fixture
def simulator(world: tuple[Simulator, Webhook]) -> Simulator:
    simulator, webhook = world
    simulator.control("DELETE", "faults")
    simulator.quiet()
    simulator.control("DELETE", "ledger")
    webhook.posts.clear()
    return simulator


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def ends(answer: Future[Any]) -> bool:
    """Whether the call ended without an answer."""
    return isinstance(answer.exception(timeout=10), httpx.RemoteProtocolError)


def is_refused(simulator: Simulator) -> bool:
    try:
        simulator.send()
    except httpx.ConnectError:
        return True
    return False


# ---- error and refuse


@pytest.mark.parametrize("call", CALLS)
def test_refuse_meets_every_call_with_503_and_code_2(simulator: Simulator, call: str) -> None:
    simulator.fault(on="provider", kind="refuse", times=0)
    answer = CALLS[call](simulator)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, 2)
    assert (simulator.ledger(), simulator.calls()) == ([], [(call, 503, 2)])


@pytest.mark.parametrize("call", CALLS)
def test_an_error_with_a_code_meets_every_call(simulator: Simulator, call: str) -> None:
    simulator.fault(on="provider", kind="error", code=131016, times=0)
    answer = CALLS[call](simulator)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, 131016)
    assert (simulator.ledger(), simulator.calls()) == ([], [(call, 500, 131016)])


def test_a_plain_500_has_an_empty_body(simulator: Simulator) -> None:
    simulator.fault(on="provider", kind="error", status=500)
    answer = simulator.send()
    assert (answer.status_code, answer.content) == (500, b"")
    assert simulator.calls() == [("message", 500, None)]


def test_a_500_with_a_code_has_metas_body(simulator: Simulator) -> None:
    simulator.fault(on="provider", kind="error", status=500, code=2)
    answer = simulator.send()
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, 2)


@pytest.mark.parametrize("status", [429, 502])
def test_another_plain_status_has_no_graph_error(simulator: Simulator, status: int) -> None:
    simulator.fault(on="provider", kind="error", status=status)
    answer = simulator.read("wamid.A")
    assert answer.status_code == status
    assert not answer.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize("fault", [{"kind": "refuse"}, {"kind": "error", "status": 429}])
def test_provider_that_is_down_can_send_retry_after(simulator: Simulator, fault: dict) -> None:
    simulator.fault(on="provider", retry_after=7, **fault)
    assert simulator.send().headers["retry-after"] == "7"


def test_a_provider_that_is_down_checks_nothing(simulator: Simulator) -> None:
    simulator.fault(on="provider", kind="refuse", times=0)
    assert simulator.call({}, token="another").status_code == 503
    assert simulator.client.get(f"{simulator.address}/v25.0/{SENDER}").status_code == 503


def test_a_provider_fault_is_used_up_by_calls_of_any_kind(simulator: Simulator) -> None:
    simulator.fault(on="provider", kind="refuse", times=4)
    assert [call(simulator).status_code for call in CALLS.values()] == [503] * 4
    assert simulator.send().status_code == 200
    assert simulator.control("GET", "faults") == []


def test_provider_fault_can_name_the_calls_it_affects(simulator: Simulator) -> None:
    simulator.fault(on="provider", kind="refuse", times=0, match={"type": "read"})
    assert [call(simulator).status_code for call in CALLS.values()] == [200, 503, 200, 400]


def test_a_probe_is_answered_while_sends_are_refused(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="refuse", times=0)
    assert simulator.send().status_code == 503
    assert simulator.read("wamid.A").json()["error"]["code"] == 131009
    assert simulator.calls() == [("message", 503, 2), ("read", 400, 131009)]


def test_a_fault_of_the_provider_comes_before_one_on_send(simulator: Simulator) -> None:
    simulator.fault(on="send", kind="error", code=131026)
    simulator.fault(on="provider", kind="refuse")
    assert [simulator.send().status_code for _ in range(3)] == [503, 400, 200]


# ---- hang


@pytest.mark.parametrize("call", CALLS)
def test_a_hanging_call_is_dropped_when_its_seconds_are_over(simulator: Simulator, call: str) -> None:
    simulator.fault(on="provider", kind="hang", seconds=0.4)
    begin = time.monotonic()
    with pytest.raises(httpx.RemoteProtocolError):
        CALLS[call](simulator)
    assert time.monotonic() - begin >= 0.4
    assert (simulator.ledger(), simulator.calls()) == ([], [(call, None, None)])
    assert simulator.send().status_code == 200


def test_hanging_calls_are_dropped_when_faults_are_cleared(simulator: Simulator, threads: ThreadPoolExecutor) -> None:
    simulator.fault(on="provider", kind="hang")
    simulator.fault(on="provider", kind="hang", times=0, seconds=3000)
    calls = [threads.submit(simulator.send) for _ in range(3)]
    until(lambda: len(simulator.calls()) == 3, "three hanging calls")
    assert not any(call.done() for call in calls)
    begin = time.monotonic()
    simulator.control("DELETE", "faults")
    assert all(ends(call) for call in calls)
    assert time.monotonic() - begin < 1
    assert simulator.ledger() == []
    assert simulator.send().status_code == 200


def test_a_hang_that_was_cleared_meets_no_later_call(simulator: Simulator) -> None:
    simulator.fault(on="provider", kind="hang", times=0)
    simulator.control("DELETE", "faults")
    assert simulator.send().status_code == 200


def test_a_signal_ends_the_simulator_while_a_call_hangs(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    with running(tmp_path) as (simulator, _):
        simulator.fault(on="provider", kind="hang")
        call = threads.submit(simulator.send)
        until(simulator.calls, "a hanging call")
        assert simulator.stop() == 0
        assert ends(call)


def test_a_client_that_left_is_not_waited_for(simulator: Simulator) -> None:
    """Or the connections of an outage would be more than a process may have."""
    sockets = simulator.sockets()
    simulator.fault(on="provider", kind="hang", times=0)
    for _ in range(10):
        with httpx.Client(timeout=0.1) as impatient, pytest.raises(httpx.ReadTimeout):
            impatient.get(f"{simulator.address}/v25.0/{SENDER}")
    until(lambda: simulator.sockets() <= sockets + 2, "their connections are closed")


# ---- unreachable


def test_an_unreachable_provider_refuses_connections_until_faults_are_cleared(simulator: Simulator) -> None:
    simulator.send()
    simulator.control("DELETE", "ledger")
    simulator.fault(on="provider", kind="unreachable")
    assert is_refused(simulator)
    assert is_refused(simulator)
    assert (simulator.ledger(), simulator.calls()) == ([], [])
    simulator.control("DELETE", "faults")
    assert simulator.send().status_code == 200


def test_an_unreachable_provider_comes_back_after_its_seconds(simulator: Simulator) -> None:
    begin = time.monotonic()
    simulator.fault(on="provider", kind="unreachable", seconds=0.5)
    assert is_refused(simulator)
    until(lambda: not is_refused(simulator), "it comes back", seconds=5)
    assert time.monotonic() - begin >= 0.5
    assert simulator.control("GET", "faults") == []


def test_the_control_port_answers_while_graphs_port_is_closed(simulator: Simulator) -> None:
    simulator.fault(on="provider", kind="unreachable", times=0)
    (fault,) = simulator.control("GET", "faults")
    assert (fault["on"], fault["kind"]) == ("provider", "unreachable")
    assert is_refused(simulator)
    made = simulator.control("GET", "faults/made")["provider unreachable"]
    simulator.fault(on="provider", kind="unreachable", times=0)
    assert simulator.control("GET", "faults/made")["provider unreachable"] == made + 1


def test_the_control_port_serves_no_graph_calls(simulator: Simulator) -> None:
    answer = simulator.client.post(f"{simulator.control_address}/v25.0/{SENDER}/messages", json={})
    assert answer.status_code == 404


def test_control_works_on_graphs_port_too_while_that_is_open(simulator: Simulator) -> None:
    fault = {"on": "provider", "kind": "unreachable"}
    answer = simulator.client.post(f"{simulator.address}/control/faults", json=fault)
    assert answer.status_code == 200
    assert is_refused(simulator)


def test_a_call_in_flight_is_answered_before_its_connection_closes(
    simulator: Simulator, threads: ThreadPoolExecutor
) -> None:
    simulator.fault(on="send", kind="slow", seconds=0.5)
    call = threads.submit(simulator.send)
    until(simulator.ledger, "the message is accepted")
    simulator.fault(on="provider", kind="unreachable")
    answer = call.result()
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert is_refused(simulator)


def test_closed_graph_port_stays_reserved(simulator: Simulator) -> None:
    port = int(simulator.address.rpartition(":")[2])
    simulator.fault(on="provider", kind="unreachable")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))


def test_an_outage_outlives_a_kill_and_ends_when_cleared(tmp_path: Path) -> None:
    with running(tmp_path) as (simulator, _):
        simulator.fault(on="provider", kind="unreachable")
        restart_on_the_same_ports(simulator)
        assert is_refused(simulator)
        simulator.control("DELETE", "faults")
        assert simulator.send().status_code == 200
        restart_on_the_same_ports(simulator)
        assert simulator.send().status_code == 200


def test_an_outage_ends_on_time_after_a_kill(tmp_path: Path) -> None:
    with running(tmp_path) as (simulator, _):
        simulator.fault(on="provider", kind="unreachable", seconds=1)
        restart_on_the_same_ports(simulator)
        until(lambda: not is_refused(simulator), "it comes back", seconds=10)


def test_calls_hang_again_after_a_kill_until_faults_are_cleared(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    with running(tmp_path) as (simulator, _):
        simulator.fault(on="provider", kind="hang", times=0)
        first = threads.submit(simulator.send)
        until(simulator.calls, "a hanging call")
        restart_on_the_same_ports(simulator)
        assert ends(first)
        second = threads.submit(simulator.send)
        until(lambda: len(simulator.calls()) == 2, "another hanging call")
        simulator.control("DELETE", "faults")
        assert ends(second)


def restart_on_the_same_ports(simulator: Simulator) -> None:
    ports = [address.rpartition(":")[2] for address in (simulator.address, simulator.control_address)]
    simulator.options = ("--port", ports[0], "--control-port", ports[1])
    simulator.kill()
    simulator.start()
    assert simulator.address.endswith(ports[0])


# ---- the ports


@pytest.mark.parametrize("option", [(), ("--control-port", "0")])
def test_free_control_port_is_used_beside_a_free_port(tmp_path: Path, option: tuple[str, ...]) -> None:
    with running(tmp_path, *option) as (simulator, _):
        assert simulator.control_address != simulator.address
        assert simulator.control("GET", "calls") == []


@pytest.mark.parametrize(("port", "control_port"), [([], 8087), (["--port", "9000"], 9005), (["--port", "0"], 0)])
def test_the_control_port_is_five_after_graphs_where_none_is_given(port: list[str], control_port: int) -> None:
    where = ["--data-dir", ".", "--webhook-url", "http://127.0.0.1:1/"]
    environment = {"META_APP_SECRET": SECRET, "WHATSAPP_ACCESS_TOKEN": TOKEN}
    assert settings_from([*port, *where], environment).control_port == control_port
    assert settings_from([*port, *where, "--control-port", "9999"], environment).control_port == 9999


# ---- the other places stay as they are


def test_receipt_can_fail_with_a_code(simulator: Simulator, world: tuple[Simulator, Webhook]) -> None:
    simulator.fault(on="receipt", kind="error", code=131042)
    simulator.send()
    simulator.quiet()
    (failed,) = [post.value["statuses"][0] for post in world[1].posts if post.receipts == ["failed"]]
    assert failed["errors"][0]["code"] == 131042


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"kind": "drop"}, "kind is one of error, hang, refuse, unreachable where on is provider."),
        ({"kind": "error"}, "An error needs a code (Meta's error), a status (a plain answer) or both."),
        ({"kind": "error", "status": 200}, "status is a whole number from 400 to 599."),
        ({"kind": "hang", "seconds": "1"}, "seconds is a number from 0 to 3600."),
        ({"kind": "hang", "code": 2}, "hang on provider has no code; it has match, seconds, times."),
        (
            {"kind": "unreachable", "match": {"type": "read"}},
            "unreachable on provider has no match; it has seconds, times.",
        ),
    ],
)
def test_a_provider_fault_with_a_wrong_field_is_refused_with_one_sentence(
    simulator: Simulator, fault: dict, sentence: str
) -> None:
    assert simulator.refusal({"on": "provider", **fault}) == sentence
    assert simulator.control("GET", "faults") == []
