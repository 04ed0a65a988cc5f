"""Secrets on one machine: a JSON file that only its owner may read.

The file is an object from a secret's name to its versions, oldest first: {"pombo-credential-…": ["old", "new"]}. A
version of null is disabled. A single string is one version, for a file written by hand.
"""

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shared.domain.errors import SecretsUnavailable

FILE = "tenants.secrets.json"
"""Its name in the data directory."""

KEPT = 3
"""Versions of one secret that are kept, so that a wrong one can be removed by hand."""

_OWNER_ONLY = 0o600
_PATIENCE = 5.0
"""Seconds to wait for another process that writes: a write takes milliseconds."""

_PAUSE = 0.01


class FileSecrets:
    """The secrets port on one file. Several processes may use it: a write waits for the others, and a reader sees the
    file before or after a write.
    """

    def __init__(self, path: Path, patience: float = _PATIENCE) -> None:
        self._path = path
        self._patience = patience

    def newest(self, name: str) -> str | None:
        """The newest version that is not disabled, without white space at its ends. Raises SecretsUnavailable."""
        enabled = [version for version in self._read().get(name, ()) if version is not None]
        return enabled[-1].strip() if enabled else None

    def add(self, name: str, value: str) -> None:
        """Add a version. Raises SecretsUnavailable."""

        def added(secrets: dict[str, list[str | None]]) -> None:
            secrets[name] = [*secrets.get(name, ()), value][-KEPT:]

        self._change(added)

    def remove(self, name: str) -> None:
        """Remove all versions. Raises SecretsUnavailable."""
        self._change(lambda secrets: secrets.pop(name, None))

    def _change(self, change: Callable[[dict[str, list[str | None]]], object]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked():
                secrets = self._read()
                change(secrets)
                self._write(secrets)
        except OSError as error:
            raise SecretsUnavailable(f"{self._path} cannot be written.") from error

    def _read(self) -> dict[str, list[str | None]]:
        try:
            with self._path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                content = file.read()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise SecretsUnavailable(f"{self._path} cannot be read.") from error
        if mode & ~_OWNER_ONLY:
            raise SecretsUnavailable(
                f"{self._path} holds secrets, and others may read it (mode {mode:04o}): run chmod 600 {self._path}"
            )
        secrets = _parsed(content)
        if secrets is None:
            raise SecretsUnavailable(f"{self._path} is not a JSON object from names to lists of versions.")
        return secrets

    def _write(self, secrets: Mapping[str, Any]) -> None:
        """Replace the file as a whole: a reader, or a crash, never meets half of it."""
        part = self._path.with_name(f"{self._path.name}.new")
        part.unlink(missing_ok=True)
        with open(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNER_ONLY), "w", encoding="utf-8") as file:
            json.dump(secrets, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock that all writers take. It is a file of its own, because each write replaces the other one."""
        lock = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_CREAT | os.O_RDWR, _OWNER_ONLY)
        try:
            until = time.monotonic() + self._patience
            while not _has_locked(lock):
                if time.monotonic() >= until:
                    raise SecretsUnavailable(f"Another process is writing {self._path} and does not finish.")
                time.sleep(_PAUSE)
            yield
        finally:
            os.close(lock)


def _has_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _parsed(content: bytes) -> dict[str, list[str | None]] | None:
    """None if it is not the file's format. An exception is not passed on: it would hold the whole text."""
    try:
        document = json.loads(content)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    secrets = {name: value if isinstance(value, list) else [value] for name, value in document.items()}
    is_valid = all(version is None or isinstance(version, str) for versions in secrets.values() for version in versions)
    return secrets if is_valid else None
