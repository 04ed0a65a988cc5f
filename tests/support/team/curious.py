"""A handler that asks for every present and future kind, and answers with the kind."""

import json
import os
from pathlib import Path

from pombo import handles

CALLS = Path(os.environ["HANDLER_CALLS"])


@handles("*")
def handle(message):
    with CALLS.open("a") as calls:
        calls.write(json.dumps({"id": message.id, "kind": message.kind}) + "\n")
    return message.kind
