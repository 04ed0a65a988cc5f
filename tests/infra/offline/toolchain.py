"""Toolchain: Terraform with a stand-in for the google provider, set up once in a folder that git ignores.

Downloads are pinned by hash (bindings.lock, provider.lock; `uv pip compile --no-deps --generate-hashes` rewrites them).
They do not go into the project's own environment, because the stand-in needs another protobuf than the services. The
schema is generated here and never committed: it derives from a package under another licence.
"""

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.infra.offline.bindings import PROVIDER, read
from tests.infra.offline.schema import schema_of

HERE = Path(__file__).resolve().parent
_LONGEST_DOWNLOAD = 170
"""Seconds: below the timeout of a test."""

_TYPE = re.compile(r'^(resource|data) "(google_\w+)"', re.M)


class Unavailable(Exception):
    """The toolchain cannot be set up here."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The terraform command, and the configuration that points it to the stand-in."""

    terraform: str
    config: Path
    version: str
    attached: str = ""
    """Where the stand-in runs (TF_REATTACH_PROVIDERS); if empty, Terraform starts it for each command."""

    @property
    def program(self) -> Path:
        """The stand-in."""
        return next(self.config.parent.rglob("terraform-provider-google_*"))

    def environment(self) -> dict[str, str]:
        """The environment of every call: without the user's own configuration, and without the network."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
        return kept | {
            # Programs that Terraform would run to ask Google. These replacements only record the call.
            "PATH": os.pathsep.join([str(HERE / "bin"), kept.get("PATH", "")]),
            "TF_CLI_CONFIG_FILE": str(self.config),
            "TF_DISABLE_PLUGIN_TLS": "1",  # the stand-in has no certificate
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
            "GOGC": "400",  # a fifth less processor time, for a few MB more
            **({"TF_REATTACH_PROVIDERS": self.attached} if self.attached else {}),
        }


def types_in(folder: Path) -> list[str]:
    """The resources and data sources in the Terraform files under a folder, in the form that the bindings use."""
    found = {
        ("data." if kind == "data" else "") + name
        for path in folder.rglob("*.tf")
        for kind, name in _TYPE.findall(path.read_text())
    }
    return ["provider", *sorted(found)]


def set_up(cache: Path, types: Collection[str]) -> Toolchain:
    """The toolchain for these types; created if it is not in the cache yet. Raises Unavailable."""
    terraform = shutil.which("terraform")
    if terraform is None:
        raise Unavailable("terraform is not installed: https://developer.hashicorp.com/terraform/install")
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache / "lock"):
        wheel = _bindings(cache)
        packages = _packages(cache)
        schema, version = _schema(cache, wheel, types)
        config = _mirror(cache, version, schema, packages)
    return Toolchain(terraform, config, version)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Run one process at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _key(*parts: bytes | str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()[:16]


def _bindings(cache: Path) -> Path:
    lock = HERE / "bindings.lock"
    folder = cache / f"bindings-{_key(lock.read_bytes())}"
    if not folder.exists():
        _pip("download", "--no-deps", "--require-hashes", "-r", str(lock), into=folder, option="--dest")
    return next(folder.glob("*.whl"))


def _packages(cache: Path) -> Path:
    lock = HERE / "provider.lock"
    folder = cache / f"packages-{_key(lock.read_bytes(), sys.version)}"
    if not folder.exists():
        _pip("install", "--no-deps", "--require-hashes", "-r", str(lock), into=folder, option="--target")
    return folder


def _pip(*command: str, into: Path, option: str) -> None:
    """Raises Unavailable. An interrupted installation does not count as complete."""
    unfinished = into.with_name(f"{into.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    words = [sys.executable, "-m", "pip", *command, option, str(unfinished), "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run(words, capture_output=True, text=True, timeout=_LONGEST_DOWNLOAD, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        said = str(error.stderr or "it took too long").strip()[-500:]
        raise Unavailable(f"pip {command[0]} of {command[-1]} failed: {said}") from error
    unfinished.rename(into)


def _schema(cache: Path, wheel: Path, types: Collection[str]) -> tuple[Path, str]:
    makers = [(HERE / name).read_bytes() for name in ("bindings.py", "schema.py")]
    path = cache / f"schema-{_key(wheel.parent.name, *types, *makers)}.json"
    if not path.exists():
        version, modules = read(wheel, types)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(schema_of(modules, version)))
        unfinished.rename(path)
    return path, json.loads(path.read_text())["version"]


def _mirror(cache: Path, version: str, schema: Path, packages: Path) -> Path:
    """A folder in which terraform init finds the stand-in as hashicorp/google, and the configuration that names it."""
    mirror = cache / f"mirror-{_key(str(schema), str(packages), str(HERE), sys.executable)}"
    system = f"{'darwin' if sys.platform == 'darwin' else 'linux'}_{_architecture()}"
    folder = mirror / "registry.terraform.io" / PROVIDER / version / system
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"terraform-provider-google_v{version}"
    words = [sys.executable, str(HERE / "provider.py"), str(schema), str(HERE / "immutable.json")]
    path = os.pathsep.join([str(packages), str(HERE.parent)])
    _put(program, f'#!/bin/sh\nPYTHONPATH={shlex.quote(path)} exec {shlex.join(words)} "$@"\n', mode=0o755)
    config = mirror / "terraform.rc"
    _put(config, f"provider_installation {{\n  filesystem_mirror {{\n    path = {json.dumps(str(mirror))}\n  }}\n}}\n")
    return config


def _put(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace the text atomically, and leave no other file: Terraform may be reading the folder for another process's
    tests.
    """
    if path.exists() and path.read_text() == text:
        return
    with tempfile.NamedTemporaryFile("w", dir=_mirror_of(path), delete=False) as new:
        new.write(text)
    Path(new.name).chmod(mode)
    Path(new.name).replace(path)


def _mirror_of(path: Path) -> Path:
    """The mirror's own folder, in which Terraform reads files only by name."""
    return next(folder for folder in path.parents if folder.name.startswith("mirror-"))


def _architecture() -> str:
    return "arm64" if os.uname().machine in ("arm64", "aarch64") else "amd64"
