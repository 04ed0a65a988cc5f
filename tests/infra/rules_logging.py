"""Rules for Cloud Logging: which log entries are kept, and which must not be."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from code_side import Code
from log_filters import Entry, FilterInvalid, parse
from plans import Plan

EXCLUSION = "google_logging_project_exclusion"
TOKEN = "a-verify-token-of-a-test"
PARAMETER = "hub.verify_token"
_PATTERN = re.compile(r'httpRequest\.requestUrl=~"([^"\\]+)"')
_SAME_IN_RE2 = re.compile(r"(\(\?i\))?[A-Za-z0-9%._|()\[\]-]+")
"""Only what Python's regular expressions and RE2, which Cloud Logging uses, read alike."""


def request_entry(url: str, method: str = "GET", of: str = "cloud_run_revision", status: int = 200) -> Entry:
    """A request as Cloud Run or a load balancer logs it, https://cloud.google.com/run/docs/logging#log-types."""
    return {
        "resource": {"type": of, "labels": {"service_name": "pombo-webhook"}},
        "logName": "projects/my-project-1/logs/run.googleapis.com%2Frequests",
        "severity": "INFO" if status < 400 else "WARNING",
        "httpRequest": {"requestMethod": method, "requestUrl": url, "status": status},
    }


def spellings(name: str) -> Iterator[str]:
    """A parameter's name as a client may write it: as it is, percent-encoded whole, and each character by itself."""
    codes = [f"%{ord(character):02x}" for character in name]
    yield from (name, "".join(codes), "".join(codes).upper())
    for at, code in enumerate(codes):
        yield name[:at] + code + name[at + 1 :]
        yield name[:at] + code.upper() + name[at + 1 :]


def handshakes() -> Iterator[Entry]:
    """Requests that bring a verify token, right or wrong, to any address of the webhook."""
    for host in ("pombo-webhook-123456789012.europe-west1.run.app", "hooks.example.com"):
        for name in spellings(PARAMETER):
            url = f"https://{host}/webhooks/whatsapp?hub.mode=subscribe&{name}={TOKEN}&hub.challenge=1158201444"
            yield request_entry(url)
            yield request_entry(url, status=403)
    yield request_entry(f"https://hooks.example.com/?{PARAMETER}={TOKEN}", of="http_load_balancer")


def other_requests() -> Iterator[Entry]:
    """Requests whose log entries an operator needs."""
    address = "https://pombo-webhook-123456789012.europe-west1.run.app"
    yield request_entry(f"{address}/webhooks/whatsapp", "POST")
    yield request_entry(f"{address}/webhooks/whatsapp", "POST", status=500)
    yield request_entry(f"{address}/webhooks/whatsapp")
    yield request_entry(f"{address}/health")
    yield request_entry(f"{address}/webhooks/whatsapp?hub.mode=subscribe")
    yield request_entry("https://pombo-internal-1.europe-west1.run.app/internal/process_inbound", "POST")


def excludes(text: str, entry: Entry) -> bool:
    """Whether an exclusion's filter matches an entry. Raises FilterInvalid."""
    return all(_matches(part, entry) for part in text.split(" AND "))


def _matches(part: str, entry: Entry) -> bool:
    found = _PATTERN.fullmatch(part.strip())
    if not found:
        return parse(part)(entry)
    if not _SAME_IN_RE2.fullmatch(found[1]):
        raise FilterInvalid(f"{found[1]}: this form of regular expression is not known here.")
    request: Mapping[str, Any] = entry.get("httpRequest", {})
    return re.search(found[1], request.get("requestUrl", "")) is not None


def the_verify_token_is_in_no_log(plan: Plan, code: Code) -> Iterator[str]:
    filters = [it["filter"] for it in plan.of(EXCLUSION) if not it.get("disabled")]
    try:
        kept = [entry for entry in handshakes() if not any(excludes(text, entry) for text in filters)]
        lost = [entry for entry in other_requests() if any(excludes(text, entry) for text in filters)]
    except FilterInvalid as error:
        yield f"An exclusion of log entries is not what we allow: {error}"
        return
    for entry in kept[:1]:
        yield f"The request log keeps the verify token: {entry['httpRequest']['requestUrl']}."
    for entry in lost:
        yield f"The request log loses {entry['httpRequest']['requestMethod']} {entry['httpRequest']['requestUrl']}."


RULES = (the_verify_token_is_in_no_log,)
