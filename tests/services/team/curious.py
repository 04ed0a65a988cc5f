"""A handler that asks for everything there is, and for what is never handed over, and answers with the kind."""

import json
import os
from pathlib import Path

from shared.domain.messages import KINDS
from shared.handlers import handles

CALLS = Path(os.environ["HANDLER_CALLS"])
NEVER = ("echo", "smb_message_echoes", "message_echoes", "history", "standby", "messages", "account_update", "group")


@handles(*KINDS, *NEVER)
def handle(message):
    with CALLS.open("a") as calls:
        calls.write(json.dumps({"id": message.id, "kind": message.kind}) + "\n")
    return message.kind
