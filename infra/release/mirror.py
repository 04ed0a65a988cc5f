"""Mirroring: the images that we build on and with, copied by their digests into a registry of our own.

python -m infra.release.mirror --project my-project --region europe-west1

No one outside can change or delete what a build takes from there. Without Docker: by the registries' own protocol.
https://distribution.github.io/distribution/spec/api/
"""

import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import httpx

from infra.release.pin_images import MANIFESTS, NotPinned, Reference, authorized
from local import terminal

SECONDS = 60.0
CHUNK = 1 << 20
PLATFORM = {"os": "linux", "architecture": "amd64"}
"""What Cloud Run and Cloud Build run on. Of an index, this image alone is copied."""

NAMES = {"python": "_PYTHON_IMAGE", "google-cloud-cli": "_CLI_IMAGE", "terraform": "_TERRAFORM_IMAGE"}
"""Of a copy, and the substitution of cloudbuild.yaml that takes it."""

BUILDER = "builder"


@dataclass
class Registry:
    """A repository of images in a registry, and what to show it."""

    reference: Reference
    client: httpx.Client
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, **how: Any) -> httpx.Response:
        """Raises NotPinned where nothing good comes of it, but for 404, which says that something is not there."""
        headers = {**self.headers, **how.pop("headers", {})}
        url = path if "://" in path else f"{self.reference.base}{path}"
        try:
            response = self.client.request(method, url, headers=headers, **how)
        except httpx.HTTPError as error:
            raise NotPinned(f"{self.reference.registry} cannot be reached ({type(error).__name__}).") from error
        if response.is_error and response.status_code != httpx.codes.NOT_FOUND:
            raise NotPinned(f"{self.reference.registry} answers {response.status_code} to {method} {path}.")
        return response

    def manifest(self, which: str) -> tuple[bytes, str]:
        """Its bytes and its media type. Raises NotPinned where it is not there, or not what its digest says."""
        response = self.ask("GET", f"manifests/{which}", headers={"Accept": MANIFESTS})
        body = response.content
        if response.status_code != httpx.codes.OK:
            raise NotPinned(f"{self.reference.registry} has no {self.reference.repository}:{which}.")
        if which.startswith("sha256:") and digest_of(body) != which:
            raise NotPinned(f"{self.reference.registry} answers something else than {which}.")
        return body, response.headers.get("Content-Type", "")

    def blob(self, digest: str) -> Iterator[bytes]:
        """Raises NotPinned where it is not what its digest says."""
        seen = hashlib.sha256()
        with self.client.stream("GET", f"{self.reference.base}blobs/{digest}", headers=self.headers) as response:
            if response.status_code != httpx.codes.OK:
                raise NotPinned(f"{self.reference.registry} answers {response.status_code} to a layer.")
            for chunk in response.iter_bytes(CHUNK):
                seen.update(chunk)
                yield chunk
        if f"sha256:{seen.hexdigest()}" != digest:
            raise NotPinned(f"{self.reference.registry} answers something else than {digest}.")


def digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def copied(source: Registry, which: str, target: Registry) -> str:
    """Copy the image of our platform, layers first; its digest. What is there is not sent again. Raises NotPinned."""
    body, kind = source.manifest(which)
    document = httpx.Response(200, content=body).json()
    if "manifests" in document:
        found = [it["digest"] for it in document["manifests"] if PLATFORM.items() <= it.get("platform", {}).items()]
        if not found:
            raise NotPinned(f"{source.reference.repository}:{which} has no image for linux/amd64.")
        body, kind = source.manifest(found[0])
        document = httpx.Response(200, content=body).json()
    for blob in (document["config"], *document["layers"]):
        if target.ask("HEAD", f"blobs/{blob['digest']}").status_code != httpx.codes.OK:
            _send(source, blob, target)
    target.ask("PUT", f"manifests/{target.reference.tag}", content=body, headers={"Content-Type": kind})
    return digest_of(body)


def _send(source: Registry, blob: Mapping[str, Any], target: Registry) -> None:
    begun = target.ask("POST", "blobs/uploads/", content=b"")
    if "Location" not in begun.headers:
        raise NotPinned(f"{target.reference.registry} has no {target.reference.repository}; apply bootstrap first.")
    where = begun.request.url.join(begun.headers["Location"]).copy_merge_params({"digest": blob["digest"]})
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob["size"])}
    target.ask("PUT", str(where), content=source.blob(blob["digest"]), headers=headers)


def mirror(images: Mapping[str, str], place: str, token: str, client: httpx.Client) -> Iterator[tuple[str, str]]:
    """The substitutions that take the copies of these images (`name:tag`, perhaps `@digest`), each once it is there."""
    for name, substitution in NAMES.items():
        text, _, digest = images[name].partition("@")
        reference = Reference.parse(text)
        source = Registry(reference, client, authorized(reference, client))
        target = Reference.parse(f"{place}/{name}:{reference.tag}")
        there = Registry(target, client, {"Authorization": f"Bearer {token}"})
        yield substitution, f"{place}/{name}@{copied(source, digest or reference.tag, there)}"
    ours = Registry(Reference.parse(f"{place}/{BUILDER}:current"), client, {"Authorization": f"Bearer {token}"})
    built = ours.ask("GET", "manifests/current", headers={"Accept": MANIFESTS})
    if built.status_code == httpx.codes.OK:
        yield "_BUILDER_IMAGE", f"{place}/{BUILDER}@{digest_of(built.content)}"


def ours(root: Path) -> dict[str, str]:
    """The images that the files of this repository name, by the names of their copies, with digests where given."""
    text = (root / "cloudbuild.yaml").read_text(encoding="utf-8")
    lines = [line.partition(": ") for line in text.splitlines()]
    named = {key.strip(): value for key, _, value in lines if key.strip() in NAMES.values()}
    named["_PYTHON_IMAGE"] = (root / "services" / "base-image.txt").read_text(encoding="utf-8").strip()
    return {name: named[substitution] for name, substitution in NAMES.items()}


@click.command()
@click.option("--project", required=True)
@click.option("--region", required=True)
@click.option("--registry", hidden=True, default=None, help="of the tests")
def main(project: str, region: str, registry: str | None) -> None:
    """Copy the images that we build on and with into PROJECT's repository pombo-tools, and print what takes them.

    \b
        make mirror-images PROJECT=my-project REGION=europe-west1

    What is printed goes behind --substitutions= of a build. Run again, it sends only what is new.
    """
    place = f"{registry or f'{region}-docker.pkg.dev'}/{project}/pombo-tools"
    try:
        token = subprocess.run(
            ["gcloud", "auth", "print-access-token"], capture_output=True, text=True, check=True
        ).stdout
        with httpx.Client(timeout=SECONDS, follow_redirects=True) as client:
            found = []
            for substitution, image in mirror(ours(Path.cwd()), place, token.strip(), client):
                click.echo(f"{substitution} is {image}", err=True)
                found.append(f"{substitution}={image}")
    except (OSError, subprocess.CalledProcessError) as error:
        raise click.ClickException("gcloud gives no token; log in: gcloud auth login") from error
    except (NotPinned, httpx.HTTPError) as error:
        raise click.ClickException(f"{error} What is there already is not sent again; run it once more.") from error
    click.echo(",".join(found))


if __name__ == "__main__":
    main(terminal.begin("mirror"))
