"""Cross-checks: errors in a combination of values that are each valid."""

from collections.abc import Mapping
from typing import Any


def faults_together(environ: Mapping[str, str], values: Mapping[str, Any]) -> list[str]:
    """Errors in a combination of values, in any environment."""
    faults = []
    queue = values.get("INBOUND_TASK_QUEUE_NAME")
    if queue and queue == values.get("OUTBOUND_TASK_QUEUE_NAME"):
        faults.append("OUTBOUND_TASK_QUEUE_NAME must differ from INBOUND_TASK_QUEUE_NAME: each queue has its own rate.")
    faults += _names_of_two_queues(values)
    if values.get("STORE") == "redis" and not environ.get("REDIS_URL", "").strip():
        faults.append("REDIS_URL is missing: STORE=redis needs the address of its server, like redis://10.0.0.3:6379.")
    if values.get("TRUST_CLOUD_RUN_IAM") and not environ.get("K_SERVICE"):
        faults.append(
            "TRUST_CLOUD_RUN_IAM must be false outside a Cloud Run service (K_SERVICE is not set): without IAM in "
            "front of the service, anyone could forge such a token."
        )
    if "REDIS_CA_CERTS" in values and str(values.get("REDIS_URL", "")).startswith("redis:"):
        faults.append("REDIS_CA_CERTS is set, but REDIS_URL does not use TLS: REDIS_URL must begin with rediss://.")
    return faults


def _names_of_two_queues(values: Mapping[str, Any]) -> list[str]:
    """Errors if two queues, of which at least one is numbered or the drains', have the same name."""
    count = values.get("TENANT_QUEUES", 0)
    named = {name: {values[name]} for name in ("INBOUND_TASK_QUEUE_NAME", "OUTBOUND_TASK_QUEUE_NAME") if name in values}
    faults = []
    for name in ("DRAIN_TASK_QUEUE_NAME", "INBOUND_TENANT_QUEUE_PATTERN", "TENANT_QUEUE_PATTERN"):
        if name not in values:
            continue
        made = {values[name].format(n=number) for number in range(count)} if "PATTERN" in name else {values[name]}
        faults += [
            f"{name} must name no queue that {other} names: each queue has its own rate and leads to one path."
            for other, names in named.items()
            if made & names
        ]
        named[name] = made
    return faults


def handler_faults(environ: Mapping[str, str], values: dict[str, Any]) -> list[str]:
    """Errors unless exactly one of HANDLER and HANDLER_URL is set. HANDLER_URL replaces HANDLER's local default."""
    names = ("HANDLER", "HANDLER_URL", "HANDLER_URL_SECRET", "HANDLER_KINDS")
    named = {name for name in names if environ.get(name, "").strip()}
    faults = _one_handler(named, values)
    if "HANDLER_KINDS" in named and "HANDLER_KINDS" in values and "HANDLER_URL" not in named:
        faults.append("HANDLER_KINDS is set without HANDLER_URL; a Python handler declares its kinds with @handles.")
    return faults


def _one_handler(named: set[str], values: dict[str, Any]) -> list[str]:
    if {"HANDLER", "HANDLER_URL"} <= named:
        return ["HANDLER and HANDLER_URL are both set; set exactly one of them."]
    if "HANDLER_URL" in named:
        values.pop("HANDLER", None)
        if "HANDLER_URL_SECRET" not in named:
            return ["HANDLER_URL_SECRET is missing: Pombo signs its requests to HANDLER_URL with it."]
    elif "HANDLER_URL_SECRET" in named:
        return ["HANDLER_URL_SECRET is set without HANDLER_URL; set both or neither."]
    elif "HANDLER" not in values and "HANDLER" not in named:
        return ["HANDLER is missing: name the team's code as module:function, or set HANDLER_URL."]
    return []


def deployed_faults(values: Mapping[str, Any]) -> list[str]:
    faults = []
    if values.get("STORE") == "sqlite":
        faults.append("STORE must not be sqlite in staging and prod: instances share no disk.")
    if values.get("STORE") == "redis" and str(values.get("REDIS_URL", "")).startswith("redis:"):
        faults.append("REDIS_URL must begin with rediss:// in staging and prod: records hold what customers wrote.")
    if values.get("DEDUPE_TTL_DAYS", 8) < 8:
        faults.append("DEDUPE_TTL_DAYS must be at least 8: Meta redelivers webhooks for 7 days.")
    return faults
