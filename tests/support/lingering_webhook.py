"""python -m tests.support.lingering_webhook FILE: the webhook service, which ends only once this file exists.

Until then its event loop runs, so that a test can tell what the service closed by itself.
"""

import asyncio
import socket
import sys
from pathlib import Path

from services import async_server
from services.webhook.__main__ import make_app
from shared.bootstrap import webhook as bootstrap


class Lingering(async_server._Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        while not Path(sys.argv[1]).exists():
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    async_server._Server = Lingering  # type: ignore[misc]
    async_server.serve(bootstrap.parts, make_app, default_port=9)
