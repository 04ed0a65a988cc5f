"""The files of a stack in its data directory, and whether a stack holds them."""

import fcntl
from pathlib import Path

STACK_FILE = "stack.json"
LAST_FILE = "last.json"
"""Which store the last stack kept its records in, and its address if its server did not end with the stack."""

LOCK_FILE = "lock"
LOG_FILE = "logs.jsonl"
SQLITE_FILE = "pombo.sqlite"
API_KEY_FILE = "api-key"
"""An operator's key of the API: the same for each stack on this directory."""


def is_running(data_dir: Path) -> bool:
    """Whether a stack runs on this directory. It holds a lock, which ends with its process in any case; a killed stack
    leaves stack.json behind.
    """
    try:
        with (data_dir / LOCK_FILE).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
