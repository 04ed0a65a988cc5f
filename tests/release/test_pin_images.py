"""Pinning, against a registry that speaks the protocol of one."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from infra.release.pin_images import FILES, Reference, images_in
from tests.support.tree import ROOT, files_of

OLD, NEW, TOOL = (f"sha256:{digit * 64}" for digit in "0ab")


@dataclass
class Registry:
    """The part of a registry that a pull begins with, and the place that gives its tokens."""

    tags: dict[str, str] = field(default_factory=dict)
    asks_for: str = "Bearer"
    gives_token: bool = True
    address: str = ""
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def registry() -> Iterator[Registry]:
    state = Registry({"library/python:3.11-slim": NEW, "tools/cli:5.0": TOOL})

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            where = urlsplit(self.path).path
            state.asked.append(where)
            if self.headers["Authorization"] != "Bearer let-me":
                scope = "repository:" + where.split("/v2/")[1].split("/manifests/")[0] + ":pull"
                realm = f'realm="http://{state.address}/token",service="registry.test",scope="{scope}"'
                return self._answer(401, {"WWW-Authenticate": f"{state.asks_for} {realm}"})
            name = where.removeprefix("/v2/").replace("/manifests/", ":")
            assert "image.index" in self.headers["Accept"]
            if name not in state.tags:
                return self._answer(404, {})
            return self._answer(200, {"Docker-Content-Digest": state.tags[name]})

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            assert query["service"] == ["registry.test"]
            assert query["scope"][0].endswith(":pull")
            body = b'{"token": "let-me"}' if state.gives_token else b"{}"
            self._answer(200, {"Content-Length": str(len(body))})
            self.wfile.write(body)

        def _answer(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def run(*files: Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "infra.release.pin_images", *map(str, files)],
        cwd=cwd,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def written(directory: Path, at: str) -> tuple[Path, Path]:
    base, build = directory / "base-image.txt", directory / "build.yaml"
    base.write_text(f"{at}/library/python:3.11-slim\n")
    build.write_text(
        f"substitutions:\n  _CLI_IMAGE: {at}/tools/cli:5.0\n"
        f"steps:\n  - name: {at}/tools/cli:5.0\n    script: echo name: python:3.11\n"
        f"  - id: again\n    name: {at}/tools/cli:5.0@{OLD}\n"
    )
    return base, build


def test_each_image_gets_the_digest_that_its_tag_names(registry: Registry, tmp_path: Path) -> None:
    base, build = written(tmp_path, registry.address)
    done = run(base, build)
    assert (done.returncode, done.stderr) == (0, "")
    assert base.read_text() == f"{registry.address}/library/python:3.11-slim@{NEW}\n"
    assert build.read_text() == (
        f"substitutions:\n  _CLI_IMAGE: {registry.address}/tools/cli:5.0@{TOOL}\n"
        f"steps:\n  - name: {registry.address}/tools/cli:5.0@{TOOL}\n    script: echo name: python:3.11\n"
        f"  - id: again\n    name: {registry.address}/tools/cli:5.0@{TOOL}\n"
    )
    assert done.stdout.splitlines() == [
        f"{registry.address}/library/python:3.11-slim is {NEW}",
        f"{registry.address}/tools/cli:5.0 is {TOOL}",
    ]


def test_pinning_again_takes_what_the_tag_names_by_then(registry: Registry, tmp_path: Path) -> None:
    base, build = written(tmp_path, registry.address)
    run(base, build)
    registry.tags["library/python:3.11-slim"] = OLD
    run(base, build)
    assert base.read_text() == f"{registry.address}/library/python:3.11-slim@{OLD}\n"


def test_a_tag_that_is_not_there_changes_no_file(registry: Registry, tmp_path: Path) -> None:
    del registry.tags["tools/cli:5.0"]
    files = written(tmp_path, registry.address)
    before = [path.read_text() for path in files]
    done = run(*files)
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: {registry.address} answers 404 to tools/cli:5.0 and names no digest."
        " Nothing was changed; run make pin-images where there is a network.\n"
    )
    assert [path.read_text() for path in files] == before


@pytest.mark.parametrize("fault", [{"asks_for": "Basic"}, {"gives_token": False}])
def test_registry_that_requires_a_login_is_reported_in_one_sentence(
    registry: Registry, fault: dict[str, object], tmp_path: Path
) -> None:
    for name, value in fault.items():
        setattr(registry, name, value)
    done = run(written(tmp_path, registry.address)[0])
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "anonymous" in done.stderr


def test_missing_network_is_reported_in_one_sentence_and_changes_nothing(tmp_path: Path) -> None:
    files = written(tmp_path, "127.0.0.1:1")
    before = [path.read_text() for path in files]
    done = run(*files)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: 127.0.0.1:1 cannot be reached (ConnectError)."
        " Nothing was changed; run make pin-images where there is a network.\n"
    )
    assert [path.read_text() for path in files] == before


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag"),
    [
        ("python:3.11-slim", "registry-1.docker.io", "library/python", "3.11-slim"),
        ("hashicorp/terraform:1.11.4", "registry-1.docker.io", "hashicorp/terraform", "1.11.4"),
        ("gcr.io/a/b/cli:5", "gcr.io", "a/b/cli", "5"),
        ("localhost:5000/x:1", "localhost:5000", "x", "1"),
    ],
)
def test_an_image_is_read_as_docker_reads_it(text: str, registry: str, repository: str, tag: str) -> None:
    assert Reference.parse(text) == Reference(registry, repository, tag)
    assert Reference.parse("python:3").url == "https://registry-1.docker.io/v2/library/python/manifests/3"


def test_every_image_of_ours_is_found() -> None:
    base, *builds = FILES
    assert images_in((ROOT / base).read_text()) != []
    assert set(builds) == {str(path.relative_to(ROOT)) for path in files_of(ROOT) if path.match("cloudbuild*.yaml")}
    for name in builds:
        substitutions = yaml.safe_load((ROOT / name).read_text())["substitutions"]
        named = [value.partition("@")[0] for key, value in substitutions.items() if key.endswith("_IMAGE") and value]
        assert images_in((ROOT / name).read_text()) == list(dict.fromkeys(named))
