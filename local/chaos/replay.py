"""The dead letters that nobody planned are replayed, as a person would: by `pombo dead replay`.

Those of which no copy can have arrived: what was in doubt is left to a person, and what was to be dead stays so.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import click

REASONS = ("attempts", "waited")
"""For these a message dies of bad luck; the handler's errors and WhatsApp's refusals are the plan's."""

SECONDS = 300


def replay(data_dir: Path) -> int:
    """How many were replayed. Raises ClickException where it cannot be done."""
    words = ["dead", "replay", *(word for reason in REASONS for word in ("--error", reason)), "--yes", "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "STORE"}  # the stack's own says which
    ended = subprocess.run(
        [sys.executable, "-m", "shared.cli.main", *words, "--data-dir", str(data_dir)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if ended.returncode:
        raise click.ClickException(f"The dead letters could not be replayed: {ended.stderr.strip()}")
    return int(json.loads(ended.stdout)["replayed"])
