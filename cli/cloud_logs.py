"""Cloud Logging: the log lines of a deployment, for a timeline. An extra (cloud) that no service imports.

https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list and
https://cloud.google.com/logging/docs/structured-logging (seen November 2026): Cloud Logging takes severity, time and
labels out of a line of standard output and keeps the rest as jsonPayload. It indexes labels.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import click

from shared.domain.identity import is_correlation_id

PAGE_SIZE = 1000
"""The API's maximum page size; it allows 60 calls a minute for a project."""

LINES_AT_MOST = 5000
"""A message has some dozens of lines. More than this is a flood of duplicates, and its beginning is enough."""

RETENTION = timedelta(days=30)
"""How long a project's _Default log bucket keeps lines: nothing older can be found."""

MARGIN = timedelta(minutes=1)
"""Another machine's clock may date the first line about an event this much before or after its received_at."""

LABELS = ("correlation_id", "inbound_event_id", "delivery")


@dataclass(frozen=True, slots=True)
class CloudLogs:
    """The log lines of one project. `client`: an existing client, for another address than Google's."""

    project: str
    client: Any = None

    def log_lines(
        self, events: Collection[str], ids: Collection[str], since: datetime | None = None
    ) -> Iterator[Mapping[str, Any]]:
        """The lines of these events about one of these ids, oldest first. Raises ClickException."""
        window = _window(since, datetime.now(UTC))
        wanted = _filter(events, [id for id in ids if is_correlation_id(id)], window)
        if wanted is not None:
            yield from self._read(wanted)

    def _read(self, wanted: str) -> Iterator[Mapping[str, Any]]:
        client = self.client or connect(self.project)
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError

        try:
            entries = client.list_entries(
                resource_names=[f"projects/{self.project}"],
                filter_=wanted,
                order_by="timestamp asc",
                page_size=PAGE_SIZE,
            )
            yield from _lines(islice(entries, LINES_AT_MOST))
        except exceptions.GoogleAPICallError as error:
            raise click.ClickException(_refusal(error, self.project)) from error
        except GoogleAuthError as error:
            raise click.ClickException(_NO_CREDENTIALS) from error
        except OSError as error:
            raise click.ClickException("Cannot reach Cloud Logging from this machine.") from error


_NO_CREDENTIALS = "This machine has no valid Google credentials. Get them with: gcloud auth application-default login."


def connect(project: str) -> Any:
    """A client with this machine's credentials. Raises ClickException."""
    try:
        from google.cloud import logging
    except ImportError as error:
        raise click.ClickException(
            "--cloud needs google-cloud-logging. Install it in the clone with: .venv/bin/pip install -e '.[cloud]'."
        ) from error
    from google.auth.exceptions import GoogleAuthError

    try:
        return logging.Client(project=project, _use_grpc=False)  # type: ignore[no-untyped-call]  # no types there
    except (GoogleAuthError, OSError) as error:
        raise click.ClickException(_NO_CREDENTIALS) from error


def _window(since: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    oldest = now - RETENTION
    return (max(oldest, since - MARGIN) if since else oldest), now + MARGIN


def _filter(events: Collection[str], ids: Collection[str], window: tuple[datetime, datetime]) -> str | None:
    """A filter in the logging query language; None if there is no id to ask for. Ids are letters, digits, hyphens and
    underscores: they need no escaping, and put nothing private into Google's audit logs.
    """
    if not ids:
        return None
    start, end = (at.isoformat(timespec="microseconds").replace("+00:00", "Z") for at in window)
    any_of = " OR ".join(f'"{id}"' for id in sorted(ids))
    about = " OR ".join(f"labels.{name}=({any_of})" for name in LABELS)
    kinds = " OR ".join(f'"{event}"' for event in sorted(events))
    return f'timestamp>="{start}" AND timestamp<="{end}" AND ({about}) AND jsonPayload.event=({kinds})'


def _lines(entries: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """The lines as they were written. The time is the entry's."""
    for entry in entries:
        if isinstance(entry.payload, Mapping) and entry.timestamp is not None:
            yield {**(entry.labels or {}), **entry.payload, "time": entry.timestamp}


def _refusal(error: Any, project: str) -> str:
    from google.api_core import exceptions

    match error:
        case exceptions.Forbidden():
            return f"These credentials may not read the logs of {project}: they need the role roles/logging.viewer."
        case exceptions.Unauthorized():
            return _NO_CREDENTIALS
        case exceptions.NotFound():
            return f"The project {project} does not exist, or these credentials may not see it."
        case exceptions.TooManyRequests():
            return "Cloud Logging's read limit is reached. Try again in a minute."
        case _:
            return f"The call to Cloud Logging failed ({type(error).__name__}). Try again."
