"""python tests/fuzz/no_queue.py: the webhook service on a real store, with a queue that takes everything."""

import os
from dataclasses import replace

from services.async_server import serve
from services.webhook.__main__ import make_app
from shared.bootstrap.webhook import Webhook, build_webhook
from tests.support import parts
from tests.support.event_loop import Asynchronous


def build() -> Webhook:
    built = build_webhook(os.environ)
    queue = Asynchronous(parts.NoQueue())
    return replace(built, queue=queue, accept=replace(built.accept, queue=queue))


if __name__ == "__main__":
    serve(build, make_app, default_port=8080)
