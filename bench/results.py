"""The results of a run as JSON: the machine, the versions, every sample, and the summaries."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.environments import API, ROOT, Environments, located
from bench.figures import FIGURES, Summary, summarise
from bench.options import Options

PACKAGES = (
    *("flask", "flask-openapi3", "functions-framework", "google-api-core", "google-cloud-firestore"),
    *("google-cloud-tasks", "grpcio", "gunicorn", "httptools", "protobuf", "pydantic", "pywa", "redis", "uvloop"),
    "werkzeug",
)
_LIST = "import importlib.metadata as m; print({d.name.lower(): d.version for d in m.distributions()})"


def summaries_of(samples: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, Summary]]:
    """By figure and then by server. `samples` is by server and then by figure."""
    return {
        figure.key: found
        for figure in FIGURES
        if (found := summarise({server: its.get(figure.key, []) for server, its in samples.items()}))
    }


def document(
    options: Options,
    environments: Environments,
    samples: Mapping[str, Mapping[str, list[float]]],
    harness: Mapping[str, Any],
    stores: Mapping[str, Any],
    api: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that a reader needs to judge the figures. No path and no name of the machine."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "system": platform.system(),
            "python": _python(environments.product_python),
        },
        "versions": {
            "product": _versions(environments.product_python),
            "baselines": _versions(environments.baselines_python),
            **({API: _versions(located(API).product_python)} if api else {}),
        },
        "options": {"rounds": options.rounds, "seconds": options.seconds, "rows": list(options.rows)},
        "samples": samples,
        "figures": {
            key: {server: asdict(summary) for server, summary in found.items()}
            for key, found in summaries_of(samples).items()
        },
        "harness": harness,
        "stores": stores,
        "api": api,
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def default_path() -> Path:
    return ROOT / "bench" / "results" / f"{datetime.now(UTC):%Y-%m-%d-%H%M%S}-{commit()}.json"


def commit() -> str:
    """The short commit, with `-modified` if the product's or the benchmark's source differs from it."""
    try:
        name = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--", "shared", "services", "bench", ":!bench/results")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{name}-modified" if changed else name


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _python(python: Path) -> str:
    """The version that the servers run on."""
    code = "import platform; print(platform.python_version())"
    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, timeout=30, check=True
    ).stdout.strip()


def _versions(python: Path) -> dict[str, str]:
    output = subprocess.run([str(python), "-c", _LIST], capture_output=True, text=True, timeout=30, check=True).stdout
    found: dict[str, str] = json.loads(output.replace("'", '"'))
    return {name: found[name] for name in PACKAGES if name in found}
