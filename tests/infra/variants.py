"""Variants: the roots, each with variables that a team might set."""

import json
from collections.abc import Mapping
from typing import Any

STAGING, PROD, BOOTSTRAP = "environments/staging", "environments/prod", "bootstrap"


def given(variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Variables as options of a command; None leaves one at its default."""
    texts = {name: it if isinstance(it, str) else json.dumps(it) for name, it in variables.items() if it is not None}
    return tuple(f"-var={name}={text}" for name, text in texts.items())


BARE: Mapping[str, Any] = {
    "project": "my-project-1",
    "region": "europe-west1",
    "whatsapp_phone_number_id": "100000000000001",
    "handler": "handlers.echo:handle",
}
"""Only the variables without a default."""

EVERYTHING: Mapping[str, Any] = {
    "project": "my-project-1",
    "region": "us-central1",
    "firestore_location": "nam5",
    "scheduler_region": "us-east1",
    "whatsapp_phone_number_id": "100000000000001",
    "meta_app_id": "900000000000009",
    "handler_url": "https://backend.example.com/answer",
    "handler_variables": {"CLINIC_URL": "https://clinic.example.com"},
    "handler_secrets": ["CLINIC_KEY"],
    "images": {"webhook": "example.com/webhook@sha256:1", "internal": "example.com/internal@sha256:1"},
    "tenant_queues": 3,
    "settings": {
        "handler_timeout": 300,
        "threads": 32,
        "webhook_concurrency": 200,
        "log_level": "DEBUG",
        "sweep_after": "900s",
    },
    "secret_versions": {"META_APP_SECRET": 2},
    "min_instances": {"webhook": 1},
    "max_instances": {"internal": 20},
    "memory": {"internal": "1Gi"},
    "queue_suffix": "-2",
    "queue_log_sampling": 1,
    "store": "redis",
    "redis": True,
    "redis_auth": True,
    "media_bucket": True,
    "alert_emails": ["oncall@example.com"],
    "alert_thresholds": {"backend_down_critical": 20, "failed_receipts_percent": 10, "api_errors_percent": 10},
    "runbook": "https://example.com/docs/runbook.md",
    "outbound_rate": 50,
    "tenant_queue_per_second": 60,
    "max_concurrency_per_tenant": 3,
    "inbound_tenant_queue_per_second": 40,
    "inbound_max_concurrency_per_tenant": 5,
    "critical_channels": [
        "projects/my-project-1/notificationChannels/1",
        "projects/my-project-1/notificationChannels/2",
    ],
    "warning_channels": ["projects/my-project-1/notificationChannels/3"],
    "log_location": "us-central1",
    "audited_apis": ["secretmanager.googleapis.com", "datastore.googleapis.com"],
    "firestore_backups": {"daily": 7, "weekly": 98},
    "budget": {"billing_account": "012345-6789AB-CDEF01", "amount": 200},
}
"""Every variable, and every optional part."""

KMS_KEY = "projects/my-keys/locations/{}/keyRings/pombo/cryptoKeys/pombo"

KEYED: Mapping[str, Any] = {
    **EVERYTHING,
    "firestore_location": None,
    "kms_key": KMS_KEY.format("us-central1"),
    "redis_auth": None,
}
"""The same with a key of the team's own, which requires the database in the region."""

BOOTSTRAPPED: Mapping[str, Any] = {
    "project": "my-project-1",
    "region": "europe-west1",
    "redis": True,
    "handler_secrets": ["CLINIC_KEY"],
}

ENVIRONMENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "staging": (STAGING, ("-var-file=example.tfvars",)),
    "prod": (PROD, ("-var-file=example.tfvars",)),
    "bare": (STAGING, given(BARE)),
    "everything": (PROD, given(EVERYTHING)),
    "keyed": (PROD, given(KEYED)),
    "no-pairs": (STAGING, given({**BARE, "tenant_queues": 0})),
}
VARIANTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **ENVIRONMENTS,
    "bootstrap": (BOOTSTRAP, given(BOOTSTRAPPED)),
    "bootstrap-keyed": (
        BOOTSTRAP,
        given(
            {**BOOTSTRAPPED, "secret_locations": ["europe-west1"], "kms_key": KMS_KEY.format("europe-west1")},
        ),
    ),
    "bootstrap-bare": (BOOTSTRAP, given({name: BARE[name] for name in ("project", "region")})),
}
