"""Requests as Cloud Monitoring counts them, by revision: how many, how many of them failed, and the 95th percentile.

https://cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.timeSeries/list. By Python's own library and a token of
gcloud's, because this runs where nothing else is.
"""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from infra.release.cloud_run import CloudRunService
from infra.release.tools import Refused, gcloud

DELAY = 240.0
"""Seconds until a request is sure to be counted: Google gives four minutes for its own metrics, sampled every minute.
https://cloud.google.com/monitoring/api/v3/latency-n-retention (2026-11)"""

ANSWER_SECONDS = 20

ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING"
"""gcloud's own word for another address of this API; the tests' cloud is at one."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The requests of one revision in a period. `p95` is in milliseconds, None without requests."""

    requests: int = 0
    failed: int = 0
    """Answered 5xx."""
    p95: float | None = None


def counted(service: CloudRunService, began: float, ended: float) -> dict[str, Counted]:
    """Each revision of a service that was asked anything between two Unix times. Raises Refused."""
    token = gcloud("auth", "print-access-token").strip()
    requests: dict[str, int] = {}
    failed: dict[str, int] = {}
    for labels, value in _series(service, "request_count", "REDUCE_SUM", began, ended, token):
        revision = labels["revision_name"]
        requests[revision] = requests.get(revision, 0) + round(value)
        if labels["response_code_class"] == "5xx":
            failed[revision] = failed.get(revision, 0) + round(value)
    latencies = _series(service, "request_latencies", "REDUCE_PERCENTILE_95", began, ended, token)
    p95 = {labels["revision_name"]: value for labels, value in latencies}
    return {name: Counted(count, failed.get(name, 0), p95.get(name)) for name, count in requests.items()}


def _series(
    service: CloudRunService, metric: str, reducer: str, began: float, ended: float, token: str
) -> Iterator[tuple[Mapping[str, str], float]]:
    """Each time series of a metric as one number for the whole while, with its labels. Raises Refused."""
    by = ["resource.labels.revision_name"]
    if metric == "request_count":
        by.append("metric.labels.response_code_class")
    asked = [
        ("filter", _filter(service, metric)),
        ("interval.startTime", _time(began)),
        ("interval.endTime", _time(ended)),
        # One point for all of it: what is aligned to minutes cannot be put together to a percentile afterwards.
        ("aggregation.alignmentPeriod", f"{round(ended - began)}s"),
        ("aggregation.perSeriesAligner", "ALIGN_DELTA"),
        ("aggregation.crossSeriesReducer", reducer),
        *(("aggregation.groupByFields", field) for field in by),
    ]
    for one in _ask(service.project, asked, token):
        labels = {**one.get("resource", {}).get("labels", {}), **one.get("metric", {}).get("labels", {})}
        if one["points"]:
            value = one["points"][0]["value"]  # the newest first
            yield labels, float(value.get("int64Value", value.get("doubleValue", 0)))


def _filter(service: CloudRunService, metric: str) -> str:
    parts = {
        "metric.type": f"run.googleapis.com/{metric}",
        "resource.type": "cloud_run_revision",
        "resource.labels.service_name": service.name,
        "resource.labels.location": service.region,
    }
    return " AND ".join(f'{name} = "{value}"' for name, value in parts.items())


def _time(unix: float) -> str:
    return datetime.fromtimestamp(round(unix), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ask(project: str, asked: list[tuple[str, str]], token: str) -> list[dict[str, Any]]:
    """The time series of an answer that is whole. Raises Refused."""
    base = os.environ.get(ENDPOINT, "https://monitoring.googleapis.com/").rstrip("/")
    url = f"{base}/v3/projects/{project}/timeSeries?{urllib.parse.urlencode(asked)}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            document = json.load(answer)
    except urllib.error.HTTPError as error:
        raise Refused(f"Cloud Monitoring answers {error.code}.") from error
    except (OSError, ValueError) as error:
        raise Refused(f"Cloud Monitoring cannot be read ({type(error).__name__}).") from error
    if document.get("executionErrors") or document.get("nextPageToken"):
        raise Refused("Cloud Monitoring's answer is not whole.")
    series: list[dict[str, Any]] = document.get("timeSeries", [])
    return series
