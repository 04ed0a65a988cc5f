"""The audit of our dependencies, by the real pip-audit against a service of advisories on this machine."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = (ROOT / "requirements.lock", ROOT / "requirements-dev.lock")
ADVISORY = {
    "id": "GHSA-0000-0000-0000",
    "aliases": ["CVE-2026-00000"],
    "summary": "It could be made to do what it should not.",
    "affected": [
        {
            "package": {"name": "flask", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "9.9.9"}]}],
        }
    ],
}


@dataclass
class Advisories:
    """What OSV answers: no advisory, but for those that a test adds."""

    url: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    fails_after: int = 1_000_000
    asked: list[tuple[str, str]] = field(default_factory=list)

    def answer(self, query: Any) -> tuple[int, Any]:
        name, version = query["package"]["name"], query["version"]
        self.asked.append((name, version))
        found = [self.about[name]] if name in self.about else []
        return (self.status if len(self.asked) <= self.fails_after else 500), {"vulns": found} if found else {}


@pytest.fixture
def advisories() -> Iterator[Advisories]:
    told = Advisories()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, document = told.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_port}/v1/query"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield told
        server.shutdown()
        thread.join()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """Two packages, with a hash each."""
    path = tmp_path / "a.lock"
    hashed = " --hash=sha256:" + "0" * 64
    path.write_text(f"flask==3.1.0{hashed}\nclick==8.1.8{hashed}\n")
    return path


def audit(advisories: Advisories, cache: Path, *locks: Path) -> subprocess.CompletedProcess[str]:
    given = {"AUDIT_URL": advisories.url, "AUDIT_CACHE": str(cache), "no_proxy": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, ".ci/audit.py", *map(str, locks)],
        cwd=ROOT,
        env=os.environ | given,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_every_package_of_both_locks_is_asked_for_by_its_version(advisories: Advisories, tmp_path: Path) -> None:
    ended = audit(advisories, tmp_path, *LOCKS)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    asked = set(advisories.asked)
    for lock in LOCKS:
        lines = [line.partition(" \\")[0] for line in lock.read_text().splitlines() if line and line[0].isalnum()]
        pinned = [Requirement(line) for line in lines]
        assert len(pinned) > 30
        for one in pinned:
            if one.marker is None or one.marker.evaluate():
                (version,) = one.specifier
                assert (canonicalize_name(one.name), version.version) in asked


def test_vulnerability_fails_the_audit_and_names_package_and_fix(
    advisories: Advisories, lock: Path, tmp_path: Path
) -> None:
    advisories.about |= {"flask": ADVISORY, "click": ADVISORY | {"affected": []}}
    ended = audit(advisories, tmp_path, lock)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert sorted(ended.stderr.splitlines()) == [
        "pombo: click 8.1.8 has a known vulnerability: CVE-2026-00000, GHSA-0000-0000-0000, not fixed yet.",
        "pombo: flask 3.1.0 has a known vulnerability: CVE-2026-00000, GHSA-0000-0000-0000, fixed in 9.9.9; "
        "raise it in pyproject.toml, then make lock.",
    ]
    assert list(tmp_path.glob("*.good")) == [], "that is no answer to be remembered"


def test_a_good_answer_is_good_for_a_day_and_for_the_same_locks(
    advisories: Advisories, lock: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    audit(advisories, cache, lock)
    times = len(advisories.asked)
    assert times == 3  # the first only to see whether anybody is there
    assert audit(advisories, cache, lock).returncode == 0
    assert len(advisories.asked) == times
    (good,) = cache.glob("*.good")
    os.utime(good, (time.time() - 25 * 3600,) * 2)
    audit(advisories, cache, lock)
    assert len(advisories.asked) == 2 * times
    lock.write_text(lock.read_text().replace("3.1.0", "3.1.1"))
    audit(advisories, cache, lock)
    assert len(advisories.asked) == 3 * times


@pytest.mark.parametrize("in_ci", ["", "true"])
def test_unreachable_advisory_service_warns_in_one_line_and_passes(
    lock: Path, tmp_path: Path, in_ci: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", in_ci)
    nobody = Advisories(url="http://127.0.0.1:9/v1/query")
    ended = audit(nobody, tmp_path, lock)
    assert (ended.returncode, ended.stdout) == (0, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("pombo: warning: the dependencies were not audited: http://127.0.0.1:9/v1/query cannot be ")
    assert list(tmp_path.glob("*.good")) == []


@pytest.mark.parametrize("after", [0, 1])
def test_failing_advisory_service_warns_and_passes(
    advisories: Advisories, lock: Path, tmp_path: Path, after: int
) -> None:
    advisories.fails_after = after
    ended = audit(advisories, tmp_path, lock)
    assert (ended.returncode, ended.stdout) == (0, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("pombo: warning: the dependencies were not audited: ")


def test_a_package_without_a_hash_is_a_fault_of_the_lock(advisories: Advisories, tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    lock.write_text("flask==3.1.0\n")
    ended = audit(advisories, tmp_path, lock)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("pombo: the dependencies could not be audited: ")
