"""Times that must outlast one another, in both services and in the platform around them, computed in one place.

The unit tests check the code against them; the rules of the infrastructure check a plan.
"""

from collections.abc import Iterator
from datetime import timedelta

from local.children import END_SECONDS
from services.serving import GRACEFUL_SECONDS
from shared.config import LEAST_DOUBT_WINDOW
from shared.domain.limits import Limits
from shared.handlers.url import GRACE

LONGEST_DEADLINE = timedelta(minutes=30)
"""Of a task, https://cloud.google.com/tasks/docs/reference/rest/v2/projects.locations.queues.tasks (November 2026)."""

LONGEST_REQUEST = timedelta(minutes=60)
"""Of Cloud Run, https://cloud.google.com/run/docs/configuring/request-timeout (November 2026)."""

SHUTDOWN = timedelta(seconds=10)
"""From Cloud Run's SIGTERM to its SIGKILL, https://cloud.google.com/run/docs/container-contract (November 2026)."""

REDELIVERY = timedelta(days=7)
"""How long Meta redelivers a webhook."""

ROUNDING = timedelta(milliseconds=1)
"""A scaled time is a whole number of microseconds."""


def outlasted(webhook: Limits, internal: Limits, request: timedelta, scale: float = 1) -> Iterator[str]:
    """A sentence for each time that ends too early. `request`: after how long Cloud Run cuts a request of internal."""
    for shorter, ends, longer, lasts in _pairs(webhook, internal, request, scale):
        if ends > lasts + ROUNDING:
            yield f"{shorter} ends after {ends.total_seconds():g} s, {longer} after {lasts.total_seconds():g} s."
    if webhook.dispatch_deadline != internal.dispatch_deadline:
        yield "The webhook's tasks have another dispatch deadline than internal's."


def _pairs(
    webhook: Limits, internal: Limits, request: timedelta, scale: float
) -> Iterator[tuple[str, timedelta, str, timedelta]]:
    """What ends first, when, with what has to lie between; and what ends after it, when."""
    it, a_moment = internal, 2 * ROUNDING
    send = it.begin_within + it.post.longest + it.clock_margin
    yield "A send", send, "its lease", it.outbound_lease
    yield "A probe and its trial", it.post.longest + send, "their claim", it.claim
    yield "A handler's backend", it.handler_timeout + GRACE + a_moment, "the inbound lease", it.inbound_lease
    yield "The inbound lease", it.inbound_lease + it.request_margin, "the request", request
    yield "The outbound lease", it.outbound_lease + it.request_margin, "the request", request
    yield "process_outbound", it.request_budget + it.request_margin, "the request", request
    yield "A sweep", it.sweep_budget + it.request_margin, "the request", request
    yield "process_outbound", it.request_budget + a_moment, "the doubt window", it.doubt_window
    yield "process_outbound", it.request_budget + a_moment, "the least doubt window", LEAST_DOUBT_WINDOW / scale
    yield "The request", request, "Cloud Run's longest", LONGEST_REQUEST
    for name, limits in (("webhook", webhook), ("internal", internal)):
        yield "The request", request + it.dispatch_margin, f"{name}'s dispatch deadline", limits.dispatch_deadline
        yield f"{name}'s dispatch deadline", limits.dispatch_deadline, "Cloud Tasks' longest", LONGEST_DEADLINE
        yield "Meta's redelivery", REDELIVERY / scale + a_moment, f"{name}'s memory", limits.inbound_retention
    graceful = timedelta(seconds=GRACEFUL_SECONDS)
    yield "A graceful end", graceful + a_moment, "Cloud Run's patience", SHUTDOWN
    yield "A graceful end", graceful + a_moment, "the local stack's patience", timedelta(seconds=END_SECONDS)
