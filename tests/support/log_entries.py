"""Log entries as Cloud Logging stores them: the envelope of a Pombo log line, and Cloud Run's log of a request.

By https://cloud.google.com/logging/docs/reference/v2/rest/v2/LogEntry and https://cloud.google.com/run/docs/logging,
with values of realistic length.
"""

import json
from collections.abc import Mapping
from typing import Any

SERVICE, PROJECT = "pombo-internal", "my-company-whatsapp"
TIME = "2026-11-28T10:15:02.123456789Z"

ENVELOPE: Mapping[str, Any] = {
    "insertId": "6a0d2f16000e1b2c3d4e5f60",
    "labels": {"instanceId": "0" * 116},
    "logName": f"projects/{PROJECT}/logs/run.googleapis.com%2Fstdout",
    "receiveTimestamp": TIME,
    "resource": {
        "type": "cloud_run_revision",
        "labels": {
            "configuration_name": SERVICE,
            "location": "europe-west1",
            "project_id": PROJECT,
            "revision_name": f"{SERVICE}-00012-abc",
            "service_name": SERVICE,
        },
    },
}
"""The envelope of each line, without the fields that the line provides (time, severity, labels, trace)."""

REQUEST: Mapping[str, Any] = {
    **ENVELOPE,
    "logName": f"projects/{PROJECT}/logs/run.googleapis.com%2Frequests",
    "severity": "INFO",
    "timestamp": TIME,
    "trace": f"projects/{PROJECT}/traces/{'0' * 32}",
    "spanId": "0" * 16,
    "traceSampled": True,
    "httpRequest": {
        "requestMethod": "POST",
        "requestUrl": f"https://{SERVICE}-123456789012.europe-west1.run.app/internal/process_inbound",
        "requestSize": "1843",
        "status": 200,
        "responseSize": "214",
        "userAgent": "Google-Cloud-Tasks",
        "remoteIp": "2a00:1450:4001:0802:0000:0000:0000:200e",
        "serverIp": "2001:4860:4802:0032:0000:0000:0000:0035",
        "latency": "0.184317s",
        "protocol": "HTTP/1.1",
    },
}
"""A request in Cloud Run's own log."""


def kilobytes(entry: Mapping[str, Any]) -> float:
    """Kilobytes to a tenth, as JSON without blanks."""
    return round(len(json.dumps(entry, separators=(",", ":"))) / 1000, 1)
