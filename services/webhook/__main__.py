"""python -m services.webhook: serve the public service on PORT (8080)."""

from services.async_server import serve
from services.exchange import App, Receive, Scope, Send
from shared.bootstrap import webhook as bootstrap
from shared.bootstrap.webhook import Webhook


def make_app(parts: Webhook) -> App:
    """The service of these parts as an ASGI app of its own.

    The app that functions-framework makes of the function answers the same. But its routes would redirect a request
    without a path to the address in its Host header, and with its middlewares they take more time than ours for a
    webhook.
    """
    from starlette.requests import Request

    from services.webhook.main import answer
    from services.webhook.service import Service

    service = Service.of(parts)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await answer(Request(scope, receive, send), service)
        await response(scope, receive, send)

    return app


if __name__ == "__main__":
    serve(bootstrap.parts, make_app, default_port=8080)
