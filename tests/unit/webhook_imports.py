"""python tests/unit/webhook_imports.py: write tests/data/webhook_imports.json from what the webhook service imports."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "tests" / "data" / "webhook_imports.json"
PROJECT = ("shared", "services", "cli", "local", "pombo", "handlers")
STORES: Mapping[str, Mapping[str, str]] = {
    "sqlite": {},
    "firestore": {"FIRESTORE_EMULATOR_HOST": "127.0.0.1:9"},
    "redis": {"REDIS_URL": "redis://127.0.0.1:9/0"},
}
_PROGRAM = """
import os, sys
before = set(sys.modules)
from shared.bootstrap.webhook import build_webhook
build_webhook(os.environ)
print("\\n".join(set(sys.modules) - before))
"""


def imported(store: str) -> set[str]:
    """What a fresh process imports to build the webhook service with the local settings of this store."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "SQLITE_PATH": str(Path(directory) / "pombo.sqlite"),
            "STORE": store,
            **STORES[store],
        }
        command = (sys.executable, "-c", _PROGRAM)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def of_project(modules: set[str]) -> list[str]:
    """The modules of this repository among them."""
    return sorted(module for module in modules if module.partition(".")[0] in PROJECT)


if __name__ == "__main__":
    LISTS.write_text(json.dumps({store: of_project(imported(store)) for store in STORES}, indent=1) + "\n")
