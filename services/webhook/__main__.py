"""python -m services.webhook: serve the public service on PORT (8080)."""

from collections.abc import Awaitable, Callable
from typing import cast

from services.async_server import serve
from services.exchange import App, Receive, Scope, Send
from shared.bootstrap import webhook as bootstrap


def make_app() -> App:
    """The function as an ASGI app of its own.

    The app that functions-framework makes of it answers the same. But its routes would redirect a request without a
    path to the address in its Host header, and with its middlewares they take more time than ours for a webhook.
    """
    from starlette.requests import Request
    from starlette.responses import Response

    from services.webhook.main import webhook

    function = cast(Callable[[Request], Awaitable[Response]], webhook)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await function(Request(scope, receive, send))
        await response(scope, receive, send)

    return app


if __name__ == "__main__":
    serve(bootstrap.parts, make_app, default_port=8080)
