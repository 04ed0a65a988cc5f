"""The API service of a test behind a real socket, which may lose its answers."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server

from tests.support.api_service import ApiService


@dataclass
class ServedApi:
    """`lost`: how many of the next answers never reach the caller, though the service has done its work."""

    service: ApiService
    url: str = ""
    lost: int = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if self.lost:
            self.lost -= 1
            list(self.service.app(environ, lambda *_: lambda _: None))
            raise ConnectionResetError
        return self.service.app(environ, start_response)


class _Silent(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        pass

    def connection_dropped(self, *_: Any) -> None:
        self.close_connection = True


@contextmanager
def served(service: ApiService) -> Iterator[ServedApi]:
    """Serve on this machine until the block ends."""
    made = ServedApi(service)
    server = make_server("127.0.0.1", 0, made, threaded=True, request_handler=_Silent)
    made.url = f"http://127.0.0.1:{server.server_port}"
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield made
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
