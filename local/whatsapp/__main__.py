"""The WhatsApp simulator: Meta's send API, its webhooks, and a control address, on two loopback ports.

    python -m local.whatsapp --port 8082 --data-dir .pombo --webhook-url http://127.0.0.1:8080/webhooks/whatsapp

Graph listens on --port. The control address listens there too, and on --control-port (8087 for 8082), which stays open
while a fault closes Graph's port.

From the environment: META_APP_SECRET (a list; the first signs), META_APP_ID, WHATSAPP_ACCESS_TOKEN,
WHATSAPP_PHONE_NUMBER_ID, WHATSAPP_API_VERSION. It prints one JSON line when it listens. SIGTERM and SIGINT end it with
exit 0; a SIGKILL loses neither the ledger nor a waiting webhook. The control address is described in control_api.py.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from local.faults import BOOK, FaultBook
from local.whatsapp import graph_calls
from local.whatsapp.accounts import APP_ID, FILE, Accounts
from local.whatsapp.control_api import ControlApi
from local.whatsapp.graph_api import GraphApi, GraphPort
from local.whatsapp.http_transport import Handle, Request, Response, WebhookPoster
from local.whatsapp.listener import Listener
from local.whatsapp.log import log
from local.whatsapp.management_api import ManagementApi
from local.whatsapp.send_api import Account, SendApi
from local.whatsapp.simulator_store import SimulatorStore
from local.whatsapp.webhook_delivery import WebhookDeliveries
from local.whatsapp.webhook_payloads import BusinessNumber
from shared.signals import ENDING, ignore_further

RECEIPT_DELAYS = (0.05, 0.2, 0.5)
"""Seconds until sent, delivered and read: short, in order for a fast webhook, and after most responses."""

CONTROL_AFTER = 5
"""The control port's default offset from Graph's: 8087 for 8082."""


@dataclass(frozen=True, slots=True)
class Settings:
    port: int
    control_port: int
    data_dir: Path
    webhook_url: str
    time_scale: float
    app_secrets: tuple[str, ...]
    account: Account


def settings_from(arguments: list[str], environment: Mapping[str, str]) -> Settings:
    """Ends the program and names every fault if something is missing or wrong."""
    parser = argparse.ArgumentParser(prog="python -m local.whatsapp", description="WhatsApp on one machine.")
    parser.add_argument("--port", type=int, default=8082, help="0 takes a free one")
    parser.add_argument(
        "--control-port",
        type=int,
        help=f"0 takes a free one; without it {CONTROL_AFTER} after --port, or a free one where that is 0",
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--webhook-url", type=_http_url, required=True, help="where webhooks are delivered")
    parser.add_argument("--time-scale", type=_positive, default=1.0, help="divides the waits between redeliveries")
    parser.add_argument(
        "--receipt-delays",
        type=_delays,
        default=RECEIPT_DELAYS,
        metavar="SENT,DELIVERED,READ",
        help="seconds after acceptance; the time scale does not change them",
    )
    given = parser.parse_args(arguments)
    if missing := [name for name in ("META_APP_SECRET", "WHATSAPP_ACCESS_TOKEN") if not environment.get(name)]:
        parser.error(f"not in the environment: {', '.join(missing)}")
    account = Account(
        environment.get("WHATSAPP_PHONE_NUMBER_ID") or "100000000000001",
        environment["WHATSAPP_ACCESS_TOKEN"],
        environment.get("WHATSAPP_API_VERSION") or "v25.0",
        given.receipt_delays,
        environment.get("META_APP_ID") or APP_ID,
    )
    secrets = tuple(secret.strip() for secret in environment["META_APP_SECRET"].split(","))
    control_port = given.control_port
    if control_port is None:
        control_port = given.port and given.port + CONTROL_AFTER
    return Settings(given.port, control_port, given.data_dir, given.webhook_url, given.time_scale, secrets, account)


def _http_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError
    return text


def _positive(text: str) -> float:
    if (value := float(text)) <= 0:
        raise ValueError
    return value


def _delays(text: str) -> tuple[float, float, float]:
    sent, delivered, read = (float(part) for part in text.split(","))
    if min(sent, delivered, read) < 0:
        raise ValueError
    return sent, delivered, read


async def run(settings: Settings) -> None:
    """Serve and deliver until a signal comes."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    store = SimulatorStore(settings.data_dir / "whatsapp.sqlite")
    faults = FaultBook(settings.data_dir / BOOK)
    poster = WebhookPoster(settings.webhook_url)
    deliveries = WebhookDeliveries(store, poster, faults, settings.app_secrets[0], settings.time_scale)
    account = settings.account
    own = BusinessNumber(account.phone_number_id)
    accounts = Accounts(settings.data_dir / FILE, account.app_id, own, account.access_token)
    sends = SendApi(account, accounts, store, deliveries, faults)
    management = ManagementApi(accounts, store, account.version, settings.app_secrets)
    graph, control = Listener(settings.port), Listener(settings.control_port)
    port = GraphPort(graph, faults)
    certs = settings.data_dir / "oidc-certs.json"
    control.handle = ControlApi(store, deliveries, faults, port, own.id, accounts, certs).handle
    graph.handle = either(control.handle, GraphApi(faults, store, either_call(sends, management)).handle)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in ENDING:  # not with the loop's own method, whose end would let a further signal kill the process
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    deliveries.resume()
    await control.open()
    await port.settle()
    log("started", "The WhatsApp simulator is ready.", address=graph.address, control=control.address)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(deliveries.run()), tasks.create_task(port.run())]
        await stop.wait()
        ignore_further()
        for task in running:
            task.cancel()
    await graph.close()
    await control.close()
    store.close()
    accounts.close()
    faults.close()
    log("stopping", "The WhatsApp simulator is stopping. Waiting webhooks are delivered after the next start.")


def either(control: Handle, provider: Handle) -> Handle:
    """Serve both on Graph's port."""

    async def handle(request: Request) -> Response | None:
        return await (control if request.path.startswith("/control/") else provider)(request)

    return handle


def either_call(sends: SendApi, management: ManagementApi) -> Handle:
    """Serve sends, and all other calls of Graph."""

    async def handle(request: Request) -> Response | None:
        is_send = request.method == "POST" and graph_calls.MESSAGES.fullmatch(request.path)
        return await (sends.handle if is_send else management.handle)(request)

    return handle


def main() -> None:
    settings = settings_from(sys.argv[1:], os.environ)
    try:
        asyncio.run(run(settings))
    except OSError as error:
        sys.exit(f"The simulator cannot start: {error}")


if __name__ == "__main__":
    main()
