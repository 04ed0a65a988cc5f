"""One message: a text as Meta sends it goes through a deployment, and the log says how far it got."""

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Sequence

from infra.release.place import Place
from infra.release.public_checks import ask
from infra.release.tools import Refused, gcloud

PHONE_NUMBER_ID = "100000000000001"

OF_THE_MESSAGE = ("inbound_new", "inbound_processing_finished", "tenant_needs_reauth")
"""Each with the message's correlation ID: stored; handled, with its reply planned; and the reply was handed to Meta,
which refuses an invented token."""

BESIDE_IT = ("inbound_duplicate", "swept")
"""The same message again; and the sweep, which Cloud Scheduler calls with a token of its own each minute."""

WRONG = ("task_refused", "unexpected_error", "config_error")

LONGEST_SECONDS = 600.0
PAUSE_SECONDS = 15.0


def body_of(message_id: str, at: float) -> bytes:
    """https://developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/reference/messages/text"""
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "15550001111", "phone_number_id": PHONE_NUMBER_ID},
        "contacts": [{"profile": {"name": "Check"}, "wa_id": "15550002222"}],
        "messages": [
            {
                "from": "15550002222",
                "id": message_id,
                "timestamp": str(int(at)),
                "type": "text",
                "text": {"body": "A check."},
            }
        ],
    }
    changes = [{"field": "messages", "value": value}]
    document = {"object": "whatsapp_business_account", "entry": [{"id": "300000000000003", "changes": changes}]}
    return json.dumps(document, separators=(",", ":")).encode()


def send(webhook_url: str, app_secret: str) -> None:
    """The same message twice, signed. Raises Refused unless it is taken both times."""
    body = body_of(f"wamid.CHECK{secrets.token_hex(12)}", time.time())
    signature = hmac.new(app_secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"Content-Type": "application/json", "X-Hub-Signature-256": f"sha256={signature}"}
    for which in ("a signed message", "the same message again"):
        status, _ = ask(webhook_url, body, headers)
        if status != 200:
            raise Refused(f"The webhook answers {status or 'nothing'} to {which}, and must answer 200.")


def follow_it(where: Place, since: str, longest: float = LONGEST_SECONDS, pause: float = PAUSE_SECONDS) -> str:
    """Wait until the log has every line that it must have. Raises Refused."""
    deadline = time.monotonic() + longest
    while missing := _missing(_lines_without_fault(where, since)):
        if time.monotonic() + pause > deadline:
            raise Refused(f"After {longest:.0f} s the log has no {', '.join(missing)} of the message.")
        time.sleep(pause)
    # Lines reach the log out of order: once more, for one that was written before the last and came after it.
    time.sleep(pause)
    _lines_without_fault(where, since)
    return "Stored once of two deliveries, handled, and its reply refused by Meta for its invented token."


def _lines_without_fault(where: Place, since: str) -> list[dict[str, object]]:
    """Raises Refused if the log has an event that must not occur."""
    lines = _lines(where, since)
    if wrong := [line for line in lines if _event(line) in WRONG]:
        raise Refused(f"The log has {_event(wrong[0])}: {_reason(wrong[0])}.")
    return lines


def _lines(where: Place, since: str) -> list[dict[str, object]]:
    events = " OR ".join(f'"{event}"' for event in (*OF_THE_MESSAGE, *BESIDE_IT, *WRONG))
    query = f'resource.type="cloud_run_revision" AND timestamp>="{since}" AND jsonPayload.event=({events})'
    found: list[dict[str, object]] = json.loads(
        gcloud("logging", "read", query, f"--project={where.project}", "--format=json", "--limit=500") or "[]"
    )
    return found


def _missing(lines: Sequence[dict[str, object]]) -> list[str]:
    """What the message that got furthest still lacks, and what has to be seen beside it."""
    seen: dict[str, set[str]] = {"": set()}
    for line in lines:
        labels = line.get("labels")
        which = str(labels.get("correlation_id", "")) if isinstance(labels, dict) else ""
        seen.setdefault(which, set()).add(_event(line))
    furthest = max(seen.values(), key=lambda events: len(events & set(OF_THE_MESSAGE)))
    beside = set[str]().union(*seen.values())
    return [it for it in OF_THE_MESSAGE if it not in furthest] + [it for it in BESIDE_IT if it not in beside]


def _event(line: dict[str, object]) -> str:
    payload = line.get("jsonPayload")
    return str(payload.get("event")) if isinstance(payload, dict) else ""


def _reason(line: dict[str, object]) -> str:
    payload = line.get("jsonPayload")
    found = (
        [str(payload[name]) for name in ("reason", "cause", "error") if name in payload]
        if isinstance(payload, dict)
        else []
    )
    return ", ".join(found) or "no reason"
