"""The handlers of the internal service: the deployment's, from its settings, and those that tenants have."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shared import config
from shared.bootstrap.adapters import port
from shared.config import Config
from shared.config.parsers import BadValue, list_of, webhook_secret
from shared.domain.errors import SecretsUnavailable
from shared.domain.tenants import TenantHandler
from shared.handlers.hung_threads import HungThreads
from shared.handlers.loader import HandlerNotFound, TeamFunction, load_handler
from shared.handlers.runner import HandlerRunner
from shared.net.egress_policy import ANYWHERE
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.clock import Clock, SystemClock
from shared.pipeline.ports import Store
from shared.pipeline.tenant_handlers import MakeHandler, TenantCode

if TYPE_CHECKING:
    from shared.handlers.url import Backend

Stopping = Callable[[], bool]


def build_handler(settings: Config, hung: HungThreads, stopping: Stopping) -> HandlerRunner:
    """The team's code, in this process or behind HANDLER_URL. Raises ConfigError if it cannot be found."""
    if settings.get("HANDLER_URL"):
        backend = _backend(settings, settings["HANDLER_URL"], settings["HANDLER_URL_SECRET"])
        return _behind_url(settings, backend, hung, stopping)
    try:
        function = TeamFunction(load_handler(settings["HANDLER"]), settings.limits.max_replies)
    except HandlerNotFound as error:
        raise config.ConfigError([str(error)]) from error
    runner = HandlerRunner(
        function,
        timeout=settings.limits.handler_timeout,
        hung=hung,
        stopping=stopping,
        all_or_nothing=settings["PLAN_ALL_OR_NOTHING"],
        show_traceback=settings["HANDLER_TRACEBACK"],
    )
    return port(settings, "handler", runner)


def maker_of_handlers(
    settings: Config, hung: HungThreads, stopping: Stopping, store: Store, clock: Clock
) -> MakeHandler:
    """What makes a tenant's own handler, with the same limits as the deployment's. Only an operator can give a tenant
    an address so far, so it may lead anywhere, like HANDLER_URL.
    """

    def make(tenant: str, own: TenantHandler, secret: str) -> TenantCode:
        backend = _backend(settings, own.url, _signing_keys(secret), tenant)
        runner = _behind_url(settings, backend, hung, stopping)
        return TenantCode(runner, BackendMarks(backend.backend, store, settings.limits, clock), backend.close)

    return make


def _signing_keys(secret: str) -> Sequence[str]:
    """The keys in the value of a secret, written as in HANDLER_URL_SECRET. Raises SecretsUnavailable."""
    try:
        return list_of(webhook_secret)(secret)
    except BadValue:
        raise SecretsUnavailable("The secret of the tenant's handler is not a list of whsec_ keys.") from None


def _backend(settings: Config, url: str, keys: Sequence[str], tenant: str = "") -> "Backend":
    from shared.handlers.url import Backend

    limits = settings.limits
    return Backend(
        url,
        secrets=keys,
        timeout=limits.handler_timeout,
        connect=limits.post.connect,
        connections=settings["THREADS"],
        max_replies=limits.max_replies,
        now=SystemClock().now,
        kinds=settings["HANDLER_KINDS"],
        reach=ANYWHERE,
        tenant=tenant,
    )


def _behind_url(settings: Config, backend: "Backend", hung: HungThreads, stopping: Stopping) -> HandlerRunner:
    from shared.handlers.url import GRACE

    runner = HandlerRunner(
        backend,
        timeout=settings.limits.handler_timeout + GRACE,
        hung=hung,
        stopping=stopping,
        all_or_nothing=settings["PLAN_ALL_OR_NOTHING"],
    )
    return port(settings, "handler", runner)
