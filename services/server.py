"""The server of the internal service and of the API service: gunicorn around one Flask app.

https://docs.gunicorn.org/en/stable/settings.html (27.0). One worker of many threads, because Cloud Run scales by
instances; no worker timeout, because the request has its own budget; 8 s to end, because Cloud Run gives 10.
"""

import ctypes
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol, TypeVar

import flask
from gunicorn.app.base import BaseApplication

from services import serving
from services.bounded_worker import BoundedWorker
from services.serving import GRACEFUL_SECONDS, KEEPALIVE_SECONDS, address, built
from shared import logs
from shared.bootstrap.adapters import Shutdown
from shared.signals import ignore_further

PR_SET_PDEATHSIG = 1


class Parts(serving.Parts, Protocol):
    """What this server needs of its service."""

    @property
    def shutdown(self) -> Shutdown: ...


P = TypeVar("P", bound=Parts)


def serve(
    build: Callable[[], P],
    make_app: Callable[[P], flask.Flask],
    default_port: int,
    worker: type[BoundedWorker] = BoundedWorker,
) -> None:
    """Serve until SIGTERM. With an invalid configuration, report every fault and exit 1 before listening."""
    parts = built(build)
    host, port = address(parts, default_port)
    _Server(lambda: make_app(parts), parts, f"{host}:{port}", worker).run()  # type: ignore[no-untyped-call]


class _Server(BaseApplication):
    def __init__(
        self,
        make_app: Callable[[], flask.Flask],
        parts: Parts,
        bind: str,
        worker: type[BoundedWorker] = BoundedWorker,
    ) -> None:
        self._make_app = make_app
        self._parts = parts
        self._bind = bind
        self._worker = worker
        super().__init__()  # type: ignore[no-untyped-call]

    def load_config(self) -> None:
        settings: dict[str, Any] = {
            "bind": self._bind,
            "workers": 1,
            "worker_class": self._worker,
            "threads": self._parts.config["THREADS"],
            "timeout": 0,
            "graceful_timeout": GRACEFUL_SECONDS,
            "keepalive": KEEPALIVE_SECONDS,
            "loglevel": "error",
            "control_socket_disable": True,
            "forwarded_allow_ips": "",  # trust no client's header about the connection or the path
            "post_fork": _die_with_parent,
            "post_worker_init": self._handle_sigterm,
            "worker_exit": self._log_stopping,
            "on_exit": _ignore_signals,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)  # type: ignore[union-attr] # the base class makes it before it calls us

    def load(self) -> flask.Flask:
        return self._make_app()

    def _handle_sigterm(self, worker: Any) -> None:
        """On SIGTERM, first stop our own threads, then let gunicorn shut down."""
        then = signal.getsignal(signal.SIGTERM)

        def end(number: int, frame: FrameType | None) -> None:
            self._parts.shutdown.begin()
            if callable(then):
                then(number, frame)

        signal.signal(signal.SIGTERM, end)
        signal.siginterrupt(signal.SIGTERM, False)
        logs.event("started", stage=self._parts.config.service, pid=worker.pid)

    def _log_stopping(self, server: Any, worker: Any) -> None:  # noqa: ARG002 - gunicorn's signature
        self._parts.shutdown.end()
        logs.event("stopping", stage=self._parts.config.service, pid=worker.pid)


def _ignore_signals(server: Any) -> None:  # noqa: ARG001 - gunicorn's signature
    """What follows the first signal does not end the master, which is about to exit with 0."""
    ignore_further()


def _die_with_parent(server: Any, worker: Any) -> None:  # noqa: ARG001 - gunicorn's signature
    """End the worker with its master: a killed service leaves no process. (On Linux; elsewhere gunicorn checks.)"""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
