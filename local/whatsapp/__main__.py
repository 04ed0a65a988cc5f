"""The WhatsApp simulator is a program: Meta's send API, its webhooks, and a control address, on one loopback port.

    python -m local.whatsapp --port 8082 --data-dir .pombo --webhook-url http://127.0.0.1:8080/webhooks/whatsapp

From the environment: META_APP_SECRET (a list; the first signs), WHATSAPP_ACCESS_TOKEN, WHATSAPP_PHONE_NUMBER_ID,
WHATSAPP_API_VERSION. It prints one JSON line when it listens. SIGTERM and SIGINT end it with exit 0; a SIGKILL loses
neither the ledger nor a webhook still to be delivered. The control address is described in control.py.
"""

import argparse
import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from local.faults import BOOK, FaultBook
from local.whatsapp.control import Control
from local.whatsapp.delivery import Deliveries
from local.whatsapp.errors import UNKNOWN_PATH, GraphError
from local.whatsapp.log import log
from local.whatsapp.send_api import Account, SendApi
from local.whatsapp.store import Store
from local.whatsapp.wire import Answer, Handle, Poster, Request, json_answer, serve

RECEIPT_DELAYS = (0.05, 0.2, 0.5)
"""Seconds until sent, delivered and read: soon, in order for whoever is quick, and not before most answers."""

MESSAGES = re.compile(r"/(v[0-9]+\.[0-9]+)/([^/]+)/messages")


@dataclass(frozen=True, slots=True)
class Settings:
    port: int
    data_dir: Path
    webhook_url: str
    time_scale: float
    app_secret: str
    account: Account


def settings_from(arguments: list[str], environment: Mapping[str, str]) -> Settings:
    """Ends the program, naming every fault, if something is missing."""
    parser = argparse.ArgumentParser(prog="python -m local.whatsapp", description="WhatsApp on one machine.")
    parser.add_argument("--port", type=int, default=8082, help="0 takes a free one")
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
    )
    secret = environment["META_APP_SECRET"].split(",")[0].strip()
    return Settings(given.port, given.data_dir, given.webhook_url, given.time_scale, secret, account)


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
    store = Store(settings.data_dir / "whatsapp.sqlite")
    faults = FaultBook(settings.data_dir / BOOK)
    poster = Poster(settings.webhook_url)
    deliveries = Deliveries(store, poster, faults, settings.app_secret, settings.time_scale)
    sends = SendApi(settings.account, store, deliveries, faults)
    certs = settings.data_dir / "oidc-certs.json"
    control = Control(store, deliveries, faults, settings.account.phone_number_id, certs)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    deliveries.resume()
    server = await serve(settings.port, routed(sends, control))
    log("started", "The simulator listens.", address=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with asyncio.TaskGroup() as tasks:
        delivering = tasks.create_task(deliveries.run())
        await stop.wait()
        delivering.cancel()
    server.close()
    store.close()
    faults.close()
    log("stopping", "The simulator ends; what waits is delivered after the next start.")


def routed(sends: SendApi, control: Control) -> Handle:
    async def handle(request: Request) -> Answer | None:
        if request.path.startswith("/control/"):
            return await control.handle(request)
        if request.method == "POST" and (path := MESSAGES.fullmatch(request.path)):
            return await sends.post(request, path[1], path[2])
        return json_answer(400, GraphError(UNKNOWN_PATH, "There is no such call here.").document())

    return handle


def main() -> None:
    settings = settings_from(sys.argv[1:], os.environ)
    try:
        asyncio.run(run(settings))
    except OSError as error:
        sys.exit(f"The simulator cannot start: {error}")


if __name__ == "__main__":
    main()
