"""python .ci/audit.py LOCK...: check once a day whether any pinned package has a known vulnerability.

pip-audit queries OSV's advisories (AUDIT_URL) for every package in the lock files. Exit 1 for a vulnerability, with the
package, its version, the advisory and the version that fixes it. If the advisories cannot be reached, it prints that in
one line and exits 0: another service's outage must stop no fix. docs/decisions/0029-the-audit-of-dependencies.md has
the reasons.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

URL = os.environ.get("AUDIT_URL") or "https://api.osv.dev/v1/query"
CACHE = Path(os.environ.get("AUDIT_CACHE") or ".cache/audit")
DAY = 24 * 3600
PROBE_SECONDS, ANSWER_SECONDS, AUDIT_SECONDS = 3, 10, 300
NETWORK = ("requests.exceptions.", "ConnectionError", "ServiceError", "HTTPError", "Timeout")
"""Parts of the last line of pip-audit's error if it could not query: it has no exit code for that."""


class NotAsked(Exception):
    """The advisories could not be queried; the message says why."""


class Broken(Exception):
    """The audit failed for a reason of our own."""


def main(locks: Sequence[str]) -> int:
    asked_of = hashlib.sha256(b"\0".join(Path(lock).read_bytes() for lock in locks)).hexdigest()
    good = CACHE / f"{asked_of}.good"
    if good.exists() and time.time() - good.stat().st_mtime < DAY:
        return 0
    faults = 0
    try:
        probe()
        for fault in vulnerable(audited(locks)):
            print(f"pombo: {fault}", file=sys.stderr)
            faults += 1
    except NotAsked as why:
        print(f"pombo: warning: the dependencies were not audited: {why}", file=sys.stderr)
        return 1 if faults else 0
    except Broken as why:
        print(f"pombo: the dependencies could not be audited: {why}", file=sys.stderr)
        return 1
    if not faults:
        good.parent.mkdir(parents=True, exist_ok=True)
        good.touch()
    return 1 if faults else 0


def probe() -> None:
    """Whether the advisories answer at all: pip-audit takes long to find out, and reports it as a traceback."""
    query = json.dumps({"package": {"name": "pip", "ecosystem": "PyPI"}, "version": "26.0"}).encode()
    asked = urllib.request.Request(URL, query, {"Content-Type": "application/json"})  # noqa: S310 - http in tests alone
    try:
        with urllib.request.urlopen(asked, timeout=PROBE_SECONDS) as answer:  # noqa: S310
            json.load(answer)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NotAsked(f"{URL} cannot be reached ({reason}).") from error


def audited(locks: Sequence[str]) -> dict[str, Any]:
    """pip-audit's report on every package in the locks."""
    files = [option for lock in locks for option in ("-r", lock)]
    how = ("--require-hashes", "--disable-pip", "--vulnerability-service", "osv", "--osv-url", URL, "--format", "json")
    quiet = ("--progress-spinner", "off", "--desc", "off", "--timeout", str(ANSWER_SECONDS))
    command = [sys.executable, "-m", "pip_audit", *files, *how, *quiet, "--cache-dir", str(CACHE / "http")]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=AUDIT_SECONDS)  # noqa: S603 - our own
    except subprocess.TimeoutExpired as error:
        raise NotAsked(f"{URL} was too slow.") from error
    try:
        answer: dict[str, Any] = json.loads(ended.stdout)
        return answer
    except ValueError as error:
        last = ended.stderr.strip().splitlines()[-1:] or [f"pip-audit ended with {ended.returncode}"]
        if any(word in last[0] for word in NETWORK):
            raise NotAsked(f"{URL} did not answer every query ({last[0].split(':')[0]}).") from error
        raise Broken(last[0]) from error


def vulnerable(answer: dict[str, Any]) -> Iterator[str]:
    """One sentence for each vulnerability. Raises NotAsked at the end if a package was skipped: then the rest is not an
    all-clear, though pip-audit treats it as one.
    """
    found = answer["dependencies"]
    for package in found:
        for advisory in package.get("vulns", ()):
            names = ", ".join((advisory["id"], *sorted(advisory["aliases"])))
            mended = ", ".join(advisory["fix_versions"])
            advice = f"fixed in {mended}; raise it in pyproject.toml, then make lock" if mended else "not fixed yet"
            yield f"{package['name']} {package['version']} has a known vulnerability: {names}, {advice}."
    left_out = [package["name"] for package in found if "skip_reason" in package]
    if left_out or not found:
        raise NotAsked(f"{len(left_out)} of {len(found)} packages were skipped, {', '.join(left_out[:3])} among them.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
