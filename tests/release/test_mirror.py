"""Mirroring, from one registry to another that both speak the protocol of one; and the builder image."""

import hashlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from infra.release.mirror import NAMES, ours
from tests.release.test_dockerfiles import linted
from tests.support.dockerfile import parse
from tests.support.tree import ROOT

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


@dataclass
class Registry:
    """Manifests by `repository:tag` and `repository@digest`, and blobs by repository and digest."""

    token: str
    manifests: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    address: str = ""
    changed: list[str] = field(default_factory=list)
    cuts: int = 0

    def hold(self, name: str, layers: list[bytes], *, in_index: bool) -> str:
        """An image; its digest."""
        repository = name.partition(":")[0]
        config = json.dumps({"of": name}).encode()
        for blob in (config, *layers):
            self.blobs[repository, digest(blob)] = blob
        described = [{"digest": digest(blob), "size": len(blob)} for blob in (config, *layers)]
        body = json.dumps({"config": described[0], "layers": described[1:]}).encode()
        self._put(repository, name.partition(":")[2], body, MANIFEST)
        if in_index:
            other = {"digest": digest(b"arm"), "platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}}
            mine = {"digest": digest(body), "platform": {"os": "linux", "architecture": "amd64"}}
            index = json.dumps({"manifests": [other, mine]}).encode()
            self._put(repository, name.partition(":")[2], index, INDEX)
        return digest(body)

    def _put(self, repository: str, which: str, body: bytes, kind: str) -> None:
        for name in (which, digest(body)):
            self.manifests[f"{repository} {name}"] = (body, kind)


def serve(state: Registry) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _parts(self) -> tuple[str, str, str]:
            found = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/(.*)", urlsplit(self.path).path)
            assert found, self.path
            return found[1], found[2], found[3]

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if self.path.startswith("/token"):
                return self._answer(200, json.dumps({"token": state.token}).encode())
            if self.headers["Authorization"] != f"Bearer {state.token}":
                challenge = f'Bearer realm="http://{state.address}/token",service="s",scope="x"'
                return self._answer(401, b"", {"WWW-Authenticate": challenge})
            repository, kind, which = self._parts()
            if kind == "manifests":
                assert "image.index" in self.headers["Accept"]
                body, media = state.manifests.get(f"{repository} {which}", (None, ""))
            else:
                body, media = state.blobs.get((repository, which)), "application/octet-stream"
                if body is not None and self.command == "GET" and state.cuts:
                    state.cuts -= 1
                    body = body[:-1]
            if body is None:
                return self._answer(404, b"")
            return self._answer(200, body, {"Content-Type": media})

        def do_POST(self) -> None:
            repository = self._parts()[0]
            length = int(self.headers.get("Content-Length", 0))
            self.rfile.read(length)
            assert self.headers["Authorization"] == f"Bearer {state.token}"
            self._answer(202, b"", {"Location": f"/v2/{repository}/blobs/uploads/1?state=2"})

        def do_PUT(self) -> None:
            repository, kind, which = self._parts()
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Authorization"] == f"Bearer {state.token}"
            state.changed.append(f"{repository} {kind}")
            if kind == "blobs":
                query = parse_qs(urlsplit(self.path).query)
                assert query["state"] == ["2"], "what the registry said about where is kept"
                if query["digest"] != [digest(body)]:
                    return self._answer(400, b"")
                state.blobs[repository, digest(body)] = body
            else:
                document = json.loads(body)
                wanted = [document["config"], *document["layers"]]
                if any((repository, it["digest"]) not in state.blobs for it in wanted):
                    return self._answer(400, b"")
                state._put(repository, which, body, self.headers["Content-Type"])
            return self._answer(201, b"")

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.address = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


@dataclass
class World:
    """A tree of ours that names images of one registry, and the project's own."""

    tree: Path
    theirs: Registry
    project: Registry
    digests: dict[str, str]

    def mirror(self) -> subprocess.CompletedProcess[str]:
        place = ("--project=p", "--region=r", f"--registry={self.project.address}")
        return subprocess.run(
            [sys.executable, "-m", "infra.release.mirror", *place],
            cwd=self.tree,
            env={"PATH": str(self.tree / "bin"), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def named(self, name: str) -> str:
        return f"{self.project.address}/p/pombo-tools/{name}@{self.digests[name]}"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    theirs, project = Registry("for-anybody"), Registry("of-gcloud")
    servers = [serve(theirs), serve(project)]
    digests = {
        "python": theirs.hold("library/python:3.11-slim-bookworm", [b"debian", b"python"], in_index=True),
        "google-cloud-cli": theirs.hold(
            "tools/google-cloud-cli:528.0.0", [b"debian", b"x" * 3_000_000], in_index=False
        ),
        "terraform": theirs.hold("hashicorp/terraform:1.11.4", [b"terraform"], in_index=True),
    }
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "base-image.txt").write_text(f"{theirs.address}/library/python:3.11-slim-bookworm\n")
    (tmp_path / "cloudbuild.yaml").write_text(
        f"substitutions:\n  _TERRAFORM_IMAGE: {theirs.address}/hashicorp/terraform:1.11.4\n"
        f'  _CLI_IMAGE: {theirs.address}/tools/google-cloud-cli:528.0.0\n  _PYTHON_IMAGE: ""\n'
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gcloud").write_text("#!/bin/sh\necho of-gcloud\n")
    (tmp_path / "bin" / "gcloud").chmod(0o755)
    yield World(tmp_path, theirs, project, digests)
    for server in servers:
        server.shutdown()
        server.server_close()


def test_each_image_is_copied_with_its_digest_and_printed_as_substitution(world: World) -> None:
    done = world.mirror()
    assert done.returncode == 0, done.stderr
    assert done.stdout == ",".join(f"{NAMES[name]}={world.named(name)}" for name in NAMES) + "\n"
    for name, wanted in world.digests.items():
        body, kind = world.project.manifests[f"p/pombo-tools/{name} {wanted}"]
        assert (digest(body), kind) == (wanted, MANIFEST)
        for blob in (json.loads(body)["config"], *json.loads(body)["layers"]):
            assert digest(world.project.blobs[f"p/pombo-tools/{name}", blob["digest"]]) == blob["digest"]


def test_copying_again_sends_no_layer_again(world: World) -> None:
    first = world.mirror().stdout
    world.project.changed.clear()
    assert world.mirror().stdout == first
    assert {change.rpartition(" ")[2] for change in world.project.changed} == {"manifests"}


def test_a_digest_that_is_pinned_is_the_one_that_is_copied(world: World) -> None:
    path = world.tree / "services" / "base-image.txt"
    (index,) = [
        name.rpartition(" ")[2]
        for name, (body, kind) in world.theirs.manifests.items()
        if name.startswith("library/python sha256:") and kind == INDEX
    ]
    path.write_text(f"{path.read_text().strip()}@{index}\n")
    world.theirs.hold("library/python:3.11-slim-bookworm", [b"another"], in_index=True)
    assert world.named("python") in world.mirror().stdout


def test_the_builder_image_is_named_once_it_is_there(world: World) -> None:
    assert "_BUILDER_IMAGE" not in world.mirror().stdout
    world.digests["builder"] = world.project.hold("p/pombo-tools/builder:current", [b"ours"], in_index=False)
    assert world.mirror().stdout.endswith(f",_BUILDER_IMAGE={world.named('builder')}\n")


def test_truncated_layer_is_not_stored(world: World) -> None:
    world.theirs.cuts = 1
    done = world.mirror()
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stderr.endswith("What is there already is not sent again; run it once more.\n")
    assert world.mirror().returncode == 0


def test_manifest_with_another_digest_is_not_stored(world: World) -> None:
    name = f"library/python {world.digests['python']}"
    body, kind = world.theirs.manifests[name]
    world.theirs.manifests[name] = (body.replace(b'"size"', b'"Size"', 1), kind)
    done = world.mirror()
    assert done.returncode == 1
    assert f"answers something else than {world.digests['python']}." in done.stderr
    assert "p/pombo-tools/python manifests" not in world.project.changed


def test_missing_image_is_reported(world: World) -> None:
    path = world.tree / "services" / "base-image.txt"
    path.write_text(f"{world.theirs.address}/library/python:3.99\n")
    done = world.mirror()
    assert done.returncode == 1
    assert f"Error: {world.theirs.address} has no library/python:3.99. What is there" in done.stderr


def test_missing_login_is_reported_in_a_sentence(world: World) -> None:
    (world.tree / "bin" / "gcloud").unlink()
    assert "gcloud gives no token; log in: gcloud auth login" in world.mirror().stderr


def test_every_image_that_we_build_on_or_with_is_mirrored() -> None:
    """A file for Cloud Build takes each of its images by a substitution that the mirror prints."""
    named = ours(ROOT)
    assert set(named) == set(NAMES)
    for file in ("cloudbuild.yaml", "cloudbuild-deploy.yaml", "infra/release/builder/cloudbuild.yaml"):
        substitutions: dict[str, Any] = yaml.safe_load((ROOT / file).read_text())["substitutions"]
        for name, default in substitutions.items():
            if name.endswith("_IMAGE") and name not in ("_BUILDER_IMAGE", "_PYTHON_IMAGE"):
                (ours_name,) = [it for it, substitution in NAMES.items() if substitution == name]
                assert default == named[ours_name]
            elif name == "_BUILDER_IMAGE":
                assert default == named["google-cloud-cli"], "without a builder image the tests run in the CLI's"


# ---- the builder image

BUILDER = (ROOT / "infra" / "release" / "builder" / "Dockerfile").read_text()


def test_the_builder_image_has_nothing_to_find(hadolint: str) -> None:
    assert linted(hadolint, BUILDER) == []


def test_the_builder_image_has_all_that_ci_would_install() -> None:
    run = next(it.value for it in parse(BUILDER) if it.name == "RUN" and "apt-get install" in it.value)
    installed = set(run.partition("--no-install-recommends")[2].partition("&&")[0].split())
    ci = (ROOT / ".ci" / "run").read_text()
    assert set(re.findall(r"missing\+=\(([\w-]+)\)", ci)) <= installed
    checked = next(it.value for it in parse(BUILDER) if it.name == "RUN" and "command -v" in it.value)
    assert set(re.findall(r"^need ([\w-]+)", ci, re.M)) <= set(checked.partition(" in ")[2].partition(";")[0].split())
    assert ("ENV", "CI_INSTALLS=never") in [(it.name, it.value) for it in parse(BUILDER)]


def test_the_builder_image_is_built_on_what_is_given() -> None:
    assert [it.value for it in parse(BUILDER) if it.name in ("ARG", "FROM")] == [
        "CLI_IMAGE",
        "TERRAFORM_IMAGE",
        "${TERRAFORM_IMAGE} AS terraform",
        "${CLI_IMAGE}",
    ]
