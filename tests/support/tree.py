"""The tree that is released, and the programs that a machine has to test it."""

import os
import shutil
from pathlib import Path

from tests.support.machine import missing

ROOT = Path(__file__).parents[2]
SERVICES = tuple((ROOT / "services" / "names.txt").read_text().split())
NOT_OURS = {".git", ".venv", ".pombo", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".cache"}


def files_of(root: Path) -> list[Path]:
    """Every file of the work tree, tracked or not."""
    found = []
    for directory, below, names in os.walk(root):
        below[:] = [name for name in below if name not in NOT_OURS]
        found += [Path(directory, name) for name in names]
    return found


def need_gcloud() -> None:
    """Skip the test if gcloud is not installed; in CI, fail it."""
    if shutil.which("gcloud") is None:
        missing("gcloud is not installed: its commands cannot be checked; install the Google Cloud CLI")
