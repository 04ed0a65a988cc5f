"""Pinning: every image that we build on or with gets the digest that its tag names today, beside the tag."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click
import httpx

from local import terminal

FILES = (
    "services/base-image.txt",
    "cloudbuild.yaml",
    "cloudbuild-deploy.yaml",
    "infra/release/builder/cloudbuild.yaml",
)
SECONDS = 20.0
LOOPBACK = ("localhost", "127.0.0.1")

MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
"""An index before one machine's manifest, as docker pull asks. https://distribution.github.io/distribution/spec/api/"""

_IMAGE = re.compile(
    r"^(?P<before>(?:\s*(?:(?:- )?name|_[A-Z_]+_IMAGE): )?)"
    r"(?P<name>[a-z0-9][\w./:-]*:[\w.-]+)(?:@sha256:[0-9a-f]{64})?$",
    re.M,
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class NotPinned(Exception):
    """A registry did not say which image a tag names. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An image by its tag, as docker pull reads it."""

    registry: str
    repository: str
    tag: str

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Without a registry it is Docker Hub's, whose own images lie under library/."""
        name, _, tag = text.rpartition(":")
        first, slash, rest = name.partition("/")
        if slash and ("." in first or ":" in first or first == "localhost"):
            return cls(first, rest, tag)
        return cls("registry-1.docker.io", name if slash else f"library/{name}", tag)

    @property
    def base(self) -> str:
        """Of all that its repository has: a registry on this machine is asked without TLS, as docker does."""
        scheme = "http" if self.registry.partition(":")[0] in LOOPBACK else "https"
        return f"{scheme}://{self.registry}/v2/{self.repository}/"

    @property
    def url(self) -> str:
        """Of its manifest."""
        return f"{self.base}manifests/{self.tag}"


def images_in(text: str) -> list[str]:
    """The images that a file names, without digests, each once: a whole line, a step's `name:`, an _IMAGE."""
    return list(dict.fromkeys(found["name"] for found in _IMAGE.finditer(text)))


def pinned(text: str, digests: Mapping[str, str]) -> str:
    """The text with each image's digest behind its tag, in the place of one that was there."""
    return _IMAGE.sub(lambda found: f"{found['before']}{found['name']}@{digests[found['name']]}", text)


def pin(paths: Sequence[Path]) -> Mapping[str, str]:
    """Pin what these files name, all of it or nothing; the digest of each image. Raises NotPinned."""
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    names = dict.fromkeys(name for text in texts.values() for name in images_in(text))
    with httpx.Client(timeout=SECONDS, follow_redirects=True) as client:
        digests = {name: digest_of(Reference.parse(name), client) for name in names}
    for path, text in texts.items():
        path.write_text(pinned(text, digests), encoding="utf-8")
    return digests


def authorized(reference: Reference, client: httpx.Client) -> dict[str, str]:
    """The headers of a caller without an account there, if the registry asks for any. Raises NotPinned."""
    try:
        response = client.head(reference.url, headers={"Accept": MANIFESTS})
        if response.status_code != httpx.codes.UNAUTHORIZED:
            return {}
        return {"Authorization": f"Bearer {_token(response.headers.get('WWW-Authenticate', ''), client)}"}
    except httpx.HTTPError as error:
        raise NotPinned(f"{reference.registry} cannot be reached ({type(error).__name__}).") from error


def digest_of(reference: Reference, client: httpx.Client) -> str:
    """The digest that the tag names now. Raises NotPinned."""
    headers = {"Accept": MANIFESTS, **authorized(reference, client)}
    try:
        response = client.head(reference.url, headers=headers)
    except httpx.HTTPError as error:
        raise NotPinned(f"{reference.registry} cannot be reached ({type(error).__name__}).") from error
    digest: str = response.headers.get("Docker-Content-Digest", "")
    if response.status_code != httpx.codes.OK or not _DIGEST.fullmatch(digest):
        name = f"{reference.repository}:{reference.tag}"
        raise NotPinned(f"{reference.registry} answers {response.status_code} to {name} and names no digest.")
    return digest


def _token(challenge: str, client: httpx.Client) -> str:
    """An anonymous token, from where the registry says. https://distribution.github.io/distribution/spec/auth/token/"""
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = fields.pop("realm", "")
    if not challenge.lower().startswith("bearer ") or urlsplit(realm).scheme not in ("http", "https"):
        raise NotPinned("The registry asks for a login that is not anonymous.")
    answer = client.get(realm, params=fields)
    try:
        document = answer.raise_for_status().json()
        return str(document.get("token") or document["access_token"])
    except (httpx.HTTPStatusError, ValueError, KeyError, AttributeError) as error:
        raise NotPinned("The registry gives no anonymous token.") from error


@click.command()
@click.argument(
    "files", nargs=-1, type=terminal.FilePath(exists=True, dir_okay=False, path_type=Path), metavar="[FILE]..."
)
def main(files: tuple[Path, ...]) -> None:
    """Write today's digest behind each image's tag, in services/base-image.txt and the files for Cloud Build.

    \b
        make pin-images
        python -m infra.release.pin_images services/base-image.txt

    Run again, it takes what the tags name by then. The tags stay, for people to read.
    """
    try:
        digests = pin(files or [Path(name) for name in FILES])
    except NotPinned as error:
        raise click.ClickException(
            f"{error} Nothing was changed; run make pin-images where there is a network."
        ) from error
    for name, digest in digests.items():
        click.echo(f"{name} is {digest}")


if __name__ == "__main__":
    main(terminal.begin("pin_images"))
