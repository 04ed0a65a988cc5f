"""python -m tests.support.slow_accept SECONDS: the webhook service, whose work on a POST takes so long."""

import asyncio
import os
import sys
from dataclasses import fields, replace
from typing import Any

from services.async_server import serve
from services.webhook.__main__ import make_app
from shared.bootstrap.webhook import Webhook, build_webhook
from shared.pipeline.accept import Accept


def build() -> Webhook:
    class Slow(Accept):
        async def __call__(self, *_: Any) -> None:
            await asyncio.sleep(float(sys.argv[1]))

    built = build_webhook(os.environ)
    slow = Slow(**{field.name: getattr(built.accept, field.name) for field in fields(Accept)})
    return replace(built, accept=slow)


if __name__ == "__main__":
    serve(build, make_app, default_port=9)
