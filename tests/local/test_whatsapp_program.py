"""The simulator as a program: how it starts, what it says, and the rest of its control address."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.whatsapp_harness import CUSTOMER, ROOT, SECRET, SENDER, TOKEN, Simulator, Webhook, message, running


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Simulator, Webhook]]:
    with running(tmp_path_factory.mktemp("simulator")) as started:
        yield started


@pytest.fixture
def simulator(world: tuple[Simulator, Webhook]) -> Simulator:
    simulator, webhook = world
    simulator.quiet()
    simulator.control("DELETE", "ledger")
    webhook.posts.clear()
    return simulator


@pytest.fixture
def webhook(world: tuple[Simulator, Webhook]) -> Webhook:
    return world[1]


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "local.whatsapp", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]} | environment,
        capture_output=True,
        text=True,
        timeout=20,
    )


def test_missing_secrets_stop_the_start_with_all_their_names(tmp_path: Path) -> None:
    ended = program("--data-dir", str(tmp_path), "--webhook-url", "http://127.0.0.1:1/")
    assert ended.returncode == 2
    assert "META_APP_SECRET, WHATSAPP_ACCESS_TOKEN" in ended.stderr


@pytest.mark.parametrize("option", [("--time-scale", "0"), ("--receipt-delays", "1,2"), ("--webhook-url", "here")])
def test_invalid_option_stops_the_start_with_usage(tmp_path: Path, option: tuple[str, str]) -> None:
    arguments = ("--data-dir", str(tmp_path), "--webhook-url", "http://127.0.0.1:1/", *option)
    ended = program(*arguments, META_APP_SECRET=SECRET, WHATSAPP_ACCESS_TOKEN=TOKEN)
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage:")


def test_port_in_use_stops_the_start_with_one_line(simulator: Simulator, tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path), "--webhook-url", "http://127.0.0.1:1/")
    port = simulator.address.rsplit(":", 1)[1]
    ended = program(*where, "--port", port, META_APP_SECRET=SECRET, WHATSAPP_ACCESS_TOKEN=TOKEN)
    assert ended.returncode == 1
    assert ended.stderr.startswith("The simulator cannot start: ")
    assert ended.stderr.count("\n") == 1


def test_it_listens_on_loopback_alone(simulator: Simulator) -> None:
    assert simulator.address.startswith("http://127.0.0.1:")
    port = int(simulator.address.rsplit(":", 1)[1])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=2)


def test_the_first_of_several_app_secrets_signs(tmp_path: Path) -> None:
    with running(tmp_path, META_APP_SECRET=f"{SECRET},older") as (simulator, webhook):
        simulator.inbound()
        simulator.quiet()
        assert webhook.posts[0].is_signed


def test_sender_and_version_come_from_the_environment(tmp_path: Path) -> None:
    chosen = {"WHATSAPP_PHONE_NUMBER_ID": "100000000000007", "WHATSAPP_API_VERSION": "v26.0"}
    with running(tmp_path, **chosen) as (simulator, webhook):
        fields = message(text={"body": "hi"})
        assert simulator.call(fields).status_code == 400
        assert simulator.call(fields, path="/v26.0/100000000000007/messages").status_code == 200
        simulator.quiet()
        assert webhook.posts[0].value["metadata"]["phone_number_id"] == "100000000000007"


def test_the_log_is_json_lines_without_private_data(tmp_path: Path) -> None:
    with running(tmp_path, "--time-scale", "20") as (simulator, webhook):
        webhook.answers += [500]
        simulator.inbound(content={"body": "something private"}, id="wamid.PRIVATE")
        simulator.send("something private")
        simulator.call(message(text={"body": "something private" * 1000}))
        simulator.call(message(text={"body": "hi"}), token="stolen")
        simulator.quiet()
        simulator.stop()
        events = [json.loads(line)["event"] for line in simulator.log_text().splitlines()]
        assert {"started", "call_refused", "webhook_failed", "stopping"} == set(events)
        for private in (CUSTOMER, "something private", "wamid", "stolen", TOKEN, SECRET):
            assert private not in simulator.log_text()


def test_unread_log_stops_nothing(tmp_path: Path) -> None:
    arguments = ["--port", "0", "--data-dir", str(tmp_path), "--webhook-url", "http://127.0.0.1:1/"]
    process = subprocess.Popen(
        [sys.executable, "-m", "local.whatsapp", *arguments],
        cwd=ROOT,
        env=os.environ | {"META_APP_SECRET": SECRET, "WHATSAPP_ACCESS_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout
        address = json.loads(process.stdout.readline())["address"]
        with httpx.Client() as caller:
            for _ in range(600):
                assert caller.post(f"{address}/v25.0/{SENDER}/messages").status_code == 401
        process.terminate()
        assert process.wait(timeout=5) == 0


def test_a_raw_body_is_signed_and_delivered_once(simulator: Simulator, webhook: Webhook) -> None:
    webhook.answers += [500]
    body = b'{"object": "whatsapp_business_account" , "entry": []}\n'
    answer = simulator.client.post(f"{simulator.address}/control/webhook", content=body)
    assert answer.json() == {"status": 500, "body": "ok"}
    (post,) = webhook.posts
    assert post.body == body
    assert post.is_signed


def test_a_raw_body_to_a_webhook_that_is_down_has_no_status(tmp_path: Path) -> None:
    with running(tmp_path) as (simulator, webhook):
        webhook.close()
        answer = simulator.client.post(f"{simulator.address}/control/webhook", content=b"{}")
        assert answer.json() == {"status": None, "body": "ConnectionRefusedError"}


def test_the_certificates_of_the_tasks_emulator_are_served_once_they_are_there(simulator: Simulator) -> None:
    absent = simulator.client.get(f"{simulator.address}/control/oidc-certs")
    assert absent.status_code == 404
    assert absent.json()["error"].endswith(".")
    (simulator.data_dir / "oidc-certs.json").write_text('{"kid": "certificate"}')
    assert simulator.control("GET", "oidc-certs") == {"kid": "certificate"}


def test_clearing_the_ledger_empties_it(simulator: Simulator) -> None:
    simulator.send()
    simulator.control("DELETE", "ledger")
    assert simulator.ledger() == []
    assert simulator.control("GET", "calls") == []


def test_forgotten_webhooks_are_never_delivered(tmp_path: Path) -> None:
    with running(tmp_path, "--time-scale", "10") as (simulator, webhook):
        webhook.answers += [500]
        simulator.inbound()
        simulator.control("DELETE", "webhooks")
        assert simulator.quiet()["pending"] == 0
        simulator.kill()
        simulator.start()
        assert simulator.quiet()["delivered"] == 0


def test_an_unknown_control_path_is_404_with_a_sentence(simulator: Simulator) -> None:
    answer = simulator.client.get(f"{simulator.address}/control/nothing")
    assert answer.status_code == 404
    assert answer.json()["error"].endswith(".")


@pytest.mark.parametrize(
    "raw", [b"nonsense\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
)
def test_malformed_request_is_answered_400_and_disconnected(simulator: Simulator, raw: bytes) -> None:
    port = int(simulator.address.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(raw)
        with connection.makefile("rb") as answer:
            assert answer.read().startswith(b"HTTP/1.1 400 ")
    assert simulator.send().status_code == 200
