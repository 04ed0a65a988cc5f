"""What the simulator does when the webhook is not answered with 200, and when it is killed itself.

Meta: any other answer is redelivered, at once and then with decreasing frequency over 7 days, the whole POST each
time (its page "Create a webhook endpoint", a copy of 2026).
"""

import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.support.whatsapp_harness import Simulator, Webhook, running, until


@pytest.mark.parametrize("status", [201, 204, 302, 403, 404, 500, 503])
def test_anything_but_200_is_redelivered_with_the_same_bytes(tmp_path: Path, status: int) -> None:
    with running(tmp_path, "--time-scale", "20") as (simulator, webhook):
        webhook.answers += [status, status]
        simulator.inbound(batch=3)
        counts = simulator.quiet()
        assert len(webhook.posts) == counts["attempts"] == 3
        assert counts["delivered"] == 1
        assert len({post.body for post in webhook.posts}) == 1


def test_the_waits_grow_and_the_time_scale_divides_them(tmp_path: Path) -> None:
    with running(tmp_path, "--time-scale", "10") as (simulator, webhook):
        webhook.answers += [500, 500, 500]
        simulator.inbound()
        simulator.quiet()
        gaps = [after.at - before.at for before, after in zip(webhook.posts, webhook.posts[1:], strict=False)]
        for gap, wait in zip(gaps, (0.1, 0.2, 0.5), strict=True):
            assert wait <= gap < wait + 5


def test_webhook_that_was_down_recovers_within_seconds(tmp_path: Path) -> None:
    with running(tmp_path, "--time-scale", "10") as (simulator, webhook):
        webhook.close()
        ids = simulator.inbound()
        until(lambda: simulator.control("GET", "webhooks")["attempts"] >= 2, "two refused connections")
        until(lambda: '"error": "ConnectionRefusedError"' in simulator.log_text(), "it is told from a cut connection")
        webhook.open(webhook.port)
        simulator.quiet()
        assert [post.message_ids for post in webhook.posts] == [ids]


def test_deliveries_to_a_silent_webhook_time_out_together_after_ten_seconds(tmp_path: Path) -> None:
    with running(tmp_path) as (simulator, webhook):
        with Silence(webhook) as connections:
            simulator.inbound()
            simulator.inbound()
            until(lambda: len(connections) == 2, "both deliveries at once")
            begin = time.monotonic()
            until(lambda: simulator.control("GET", "webhooks")["attempts"] == 2, "both given up")
            assert 8 < time.monotonic() - begin < 14
        webhook.open(webhook.port)
        assert simulator.quiet()["delivered"] == 2


def test_failed_delivery_can_be_hurried_but_a_late_one_cannot(tmp_path: Path) -> None:
    """The waits are not scaled: without the hurry it would be 8 s until the fourth attempt."""
    with running(tmp_path) as (simulator, webhook):
        simulator.fault(on="webhook", kind="slow", seconds=3000)
        simulator.inbound()
        until(lambda: simulator.control("GET", "faults") == [], "it waits")
        webhook.answers += [500, 500, 500]
        ids = simulator.inbound()
        for attempts in (1, 2, 3):
            until(lambda n=attempts: simulator.control("GET", "webhooks")["attempts"] == n, "it failed again")
            assert simulator.control("POST", "webhooks")["hurried"] == 1
        until(lambda: simulator.control("GET", "webhooks")["delivered"] == 1, "it is delivered")
        assert [post.message_ids for post in webhook.posts] == [ids] * 4
        assert simulator.control("POST", "webhooks")["hurried"] == 0
        assert simulator.control("GET", "webhooks")["pending"] == 1


def test_delivery_that_failed_before_a_kill_can_be_hurried_after_it(tmp_path: Path) -> None:
    with running(tmp_path) as (simulator, webhook):
        webhook.answers += [500] * 4
        ids = simulator.inbound()
        for attempts in (1, 2, 3):
            until(lambda n=attempts: simulator.control("GET", "webhooks")["attempts"] == n, "it failed")
            simulator.control("POST", "webhooks")
        until(lambda: simulator.control("GET", "webhooks")["attempts"] == 4, "it waits 15 s")
        simulator.kill()
        simulator.start()
        assert simulator.control("POST", "webhooks")["hurried"] == 1
        simulator.quiet()
        assert {tuple(post.message_ids) for post in webhook.posts} == {tuple(ids)}


def test_cut_off_webhook_is_reported(tmp_path: Path) -> None:
    with running(tmp_path) as (simulator, webhook):
        webhook.close()
        with socket.create_server(("127.0.0.1", webhook.port)) as listener:
            simulator.inbound()
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.close()
            until(lambda: '"error": "IncompleteReadError"' in simulator.log_text(), "the cut is told")
        webhook.open(webhook.port)
        simulator.quiet()


def test_delivery_is_abandoned_after_seven_days(tmp_path: Path) -> None:
    with running(tmp_path, "--time-scale", str(7 * 86400)) as (simulator, webhook):
        webhook.close()
        simulator.inbound()
        counts = simulator.quiet()
        webhook.open(0)
        assert (counts["given_up"], counts["delivered"]) == (1, 0)


def test_a_killed_simulator_delivers_what_was_waiting(tmp_path: Path) -> None:
    with running(tmp_path, "--time-scale", "10") as (simulator, webhook):
        webhook.close()
        ids = [simulator.inbound()[0] for _ in range(20)]
        wamid = simulator.send().json()["messages"][0]["id"]
        simulator.kill()
        webhook.open(webhook.port)
        simulator.start()
        simulator.quiet()
        assert sorted(post.message_ids[0] for post in webhook.messages) == sorted(ids)
        assert sorted(webhook.receipts) == ["delivered", "read", "sent"]
        assert [entry["wamid"] for entry in simulator.ledger()] == [wamid]


def test_a_kill_under_load_loses_no_answered_message_and_none_of_its_receipts(tmp_path: Path) -> None:
    with running(tmp_path, "--time-scale", "10") as (simulator, webhook):
        answered: list[str] = []

        def send() -> None:
            while True:
                try:
                    answered.append(simulator.send().json()["messages"][0]["id"])
                except httpx.TransportError:
                    return

        senders = [threading.Thread(target=send) for _ in range(4)]
        for sender in senders:
            sender.start()
        until(lambda: len(answered) > 200, "some traffic")
        simulator.kill()
        for sender in senders:
            sender.join()
        simulator.start()
        simulator.quiet()
        accepted = {entry["wamid"] for entry in simulator.ledger()}
        assert set(answered) <= accepted
        receipts = {(status["id"], status["status"]) for post in webhook.posts for status in post.value["statuses"]}
        assert receipts == {(wamid, kind) for wamid in accepted for kind in ("sent", "delivered", "read")}


def test_faults_survive_a_kill(tmp_path: Path) -> None:
    with running(tmp_path) as (simulator, _):
        simulator.fault(on="send", kind="error", code=131016, times=0)
        simulator.kill()
        simulator.start()
        assert simulator.send().status_code == 500


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_two_seconds_and_loses_nothing(tmp_path: Path, name: signal.Signals) -> None:
    with running(tmp_path, "--time-scale", "10") as (simulator, webhook):
        webhook.close()
        ids = simulator.inbound()
        until(lambda: simulator.control("GET", "webhooks")["attempts"], "a refused connection")
        begin = time.monotonic()
        simulator.process.send_signal(name)
        assert simulator.stop() == 0
        assert time.monotonic() - begin < 2
        webhook.open(webhook.port)
        simulator.start()
        simulator.quiet()
        assert [post.message_ids for post in webhook.posts] == [ids]


def test_a_signal_ends_it_while_calls_and_deliveries_hang(tmp_path: Path) -> None:
    with running(tmp_path) as (simulator, webhook), Silence(webhook) as connections:
        simulator.fault(on="send", kind="slow", seconds=60)
        simulator.inbound()
        caller = threading.Thread(target=hung_up_on, args=(simulator,))
        caller.start()
        until(lambda: connections and simulator.ledger(), "a hanging delivery and a hanging call")
        begin = time.monotonic()
        assert simulator.stop() == 0
        assert time.monotonic() - begin < 2
        caller.join()


def hung_up_on(simulator: Simulator) -> None:
    with pytest.raises(httpx.TransportError):
        simulator.send()


class Silence:
    """In place of the webhook: whoever connects is never answered."""

    def __init__(self, webhook: Webhook) -> None:
        webhook.close()
        self.connections: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", webhook.port))
        self.thread = threading.Thread(target=self._accept)
        self.thread.start()

    def _accept(self) -> None:
        try:
            while True:
                self.connections.append(self.listener.accept()[0])
        except OSError:
            return

    def __enter__(self) -> list[socket.socket]:
        return self.connections

    def __exit__(self, *_: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
        for connection in self.connections:
            connection.close()
