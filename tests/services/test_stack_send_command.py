"""pombo send on a running stack: a reminder that reaches WhatsApp once, at its time."""

import json
import time

from tests.support.stack import Stack, as_operator

SCALE = 20
"""How much faster time goes on the stack."""


def test_reminder_is_sent_at_its_time_and_its_timeline_is_shown(stack: Stack, contact: str) -> None:
    began = time.time()
    reminder = (
        "send",
        "Your appointment is at nine.",
        "--to",
        f"+{contact}",
        "--at",
        "40s",
        "--key",
        f"visit-{contact}",
    )

    first = as_operator(stack, *reminder)
    waited = as_operator(stack, *reminder, "--wait")

    assert first.returncode == 0, first.stderr
    assert (waited.returncode, waited.stderr) == (0, "")
    assert time.time() - began >= 40 / SCALE - 0.2
    heading, *timeline, end = waited.stdout.splitlines()
    id = heading.removeprefix("Message ").removesuffix(": sent")
    assert first.stdout.startswith(f"Message {id}: pending\n  Accepted for sending. Its timeline: ")
    assert "Accepted for sending. To be sent at " in timeline[1]
    assert any(line.endswith("  Accepted by WhatsApp.") for line in timeline)
    assert end == "  Message is sent: Your appointment is at nine."
    assert stack.texts(contact) == ["Your appointment is at nine."]
    traced = json.loads(as_operator(stack, "trace", id[:12], "--json").stdout)
    assert [reply["shown"] for reply in traced["replies"]] == ["sent"]
