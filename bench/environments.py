"""The environments: one for each service, built as its image is, and one for the baselines, the fakes and the load.

They lie in .cache/bench and are built once per lock file and Python. A service's holds the packages of its image only,
so that no development package changes its start. Its source is copied and compiled anew in each run.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "bench"
WEBHOOK, API = "webhook", "api"
BASELINES_LOCK = ROOT / "bench" / "baselines" / "requirements.txt"

INSTALL_SECONDS = 600
COMPILE_SECONDS = 300
NOT_COMPILED = "/(site-packages|lib2to3|idlelib|tkinter)/"
"""As in services/webhook/Dockerfile."""


@dataclass(frozen=True, slots=True)
class Environments:
    """Where the product, which is one of the services, and the baselines run."""

    app: Path
    """The product's working directory: what /app is in its image."""
    product: Path
    baselines: Path

    @property
    def product_python(self) -> Path:
        return self.product / "bin" / "python"

    @property
    def baselines_python(self) -> Path:
        return self.baselines / "bin" / "python"

    @property
    def product_variables(self) -> Mapping[str, str]:
        """As in services/webhook/Dockerfile."""
        return {"PYTHONPYCACHEPREFIX": str(self.app / "bytecode"), "PYTHONDONTWRITEBYTECODE": "1"}


def build(python: str, say: Callable[[str], None], service: str = WEBHOOK) -> Environments:
    """Build what is missing. Raises BenchError."""
    found, lock = located(service), lock_of(service)
    app = found.app
    if _install(python, found.baselines, BASELINES_LOCK, say, compile_packages=True):
        _mark(python, found.baselines, BASELINES_LOCK)
    is_new = _install(python, found.product, lock, say, compile_packages=False)
    _copy_product(app, service)
    if is_new:
        say(f"Compiling the packages of {service} and Python's own library")
        library = _output([str(found.product_python), "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"])
        _compile(found, ["-x", NOT_COMPILED, library])
        _compile(found, [str(found.product / "lib")])
        _mark(python, found.product, lock)
    _compile(found, ["shared", "services"])
    return found


def are_built(python: str, service: str = WEBHOOK) -> bool:
    """Whether `build` would install nothing."""
    found = located(service)
    pairs = ((found.product, lock_of(service)), (found.baselines, BASELINES_LOCK))
    return all(_is_marked(python, venv, lock) for venv, lock in pairs)


def located(service: str) -> Environments:
    """Where the environments are, or will be."""
    app = CACHE / ("product" if service == WEBHOOK else service)
    return Environments(app=app, product=app / "venv", baselines=CACHE / "baselines")


def lock_of(service: str) -> Path:
    """The packages of a service's image."""
    return ROOT / "services" / service / "requirements.txt"


def _install(python: str, venv: Path, lock: Path, say: Callable[[str], None], compile_packages: bool) -> bool:
    """Whether it had to be installed."""
    if _is_marked(python, venv, lock):
        return False
    say(f"Installing the packages of {lock.relative_to(ROOT)} into {venv.relative_to(ROOT)}")
    shutil.rmtree(venv, ignore_errors=True)
    _run([python, "-m", "venv", "--without-pip", str(venv)], f"{python} cannot create a virtual environment")
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--retries", "2", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    pip += [] if compile_packages else ["--no-compile"]
    _run([*pip, "--requirement", str(lock)], f"Cannot install the packages of {lock.relative_to(ROOT)}")
    return True


def _copy_product(app: Path, service: str) -> None:
    """What the image holds besides its packages."""
    for name in ("shared", "services"):
        shutil.rmtree(app / name, ignore_errors=True)
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "shared", app / "shared", ignore=without)
    shutil.copytree(ROOT / "services" / service, app / "services" / service, ignore=without)
    for path in (ROOT / "services").glob("*.py"):
        shutil.copy2(path, app / "services")


def _compile(found: Environments, what: Sequence[str]) -> None:
    command = [str(found.product_python), "-m", "compileall", "-qf", "--invalidation-mode", "unchecked-hash", *what]
    subprocess.run(
        command,
        cwd=found.app,
        env={"PATH": "/usr/bin:/bin", "PYTHONPYCACHEPREFIX": str(found.app / "bytecode")},
        timeout=COMPILE_SECONDS,
        capture_output=True,
        check=False,  # a file of Python's own tests does not compile, on purpose
    )


def _run(command: Sequence[str], fault: str) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"{fault}: {error}.") from error
    if ended.returncode != 0:
        lines = (ended.stderr or ended.stdout).strip().splitlines()
        raise BenchError(f"{fault}: {lines[-1] if lines else f'exit code {ended.returncode}'}")


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def _mark(python: str, venv: Path, lock: Path) -> None:
    (venv / ".built").write_text(_fingerprint(python, lock))


def _is_marked(python: str, venv: Path, lock: Path) -> bool:
    marker = venv / ".built"
    return marker.is_file() and marker.read_text() == _fingerprint(python, lock)


def _fingerprint(python: str, lock: Path) -> str:
    try:
        found = _output([python, "-c", "import sys; print(sys.base_prefix, sys.version)"])
    except (OSError, subprocess.SubprocessError) as error:
        raise BenchError(f"{python} does not run here: {error}.") from error
    return f"{found} {hashlib.sha256(lock.read_bytes()).hexdigest()}"
