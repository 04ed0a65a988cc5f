"""Secrets in Google Cloud's Secret Manager, or with an emulator's address in a local one.

Based on these facts (google-cloud-secret-manager 2.32, https://cloud.google.com/secret-manager/docs, 2026-11):
`latest` is the version with the highest number, whatever its state; accessing a disabled or destroyed version fails
with FAILED_PRECONDITION; a secret without versions has no `latest` (NOT_FOUND); a listing comes newest first. A version
cannot be named by its creator, so a retry after a lost answer adds the same value twice, which changes nothing.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from shared.domain.errors import SecretsUnavailable
from shared.net.grpc_client import GrpcClient
from shared.net.patience import OutOfPatience, Patience

if TYPE_CHECKING:
    from google.cloud.secretmanager_v1 import SecretManagerServiceClient
    from google.cloud.secretmanager_v1.services.secret_manager_service.transports import (
        SecretManagerServiceGrpcTransport,
    )

T = TypeVar("T")
Work = Callable[["SecretManagerServiceClient", float], T]

LABELS = {"app": "pombo"}
"""On each secret that Pombo creates, so that an operator can list them."""

ENABLED_LOOKED_AT = 10
"""How many enabled versions are tried at most if the latest is disabled: each could be disabled meanwhile."""


class SecretManagerSecrets:
    """The secrets port on Secret Manager, in one project. An operation takes about 2 s at most."""

    def __init__(self, project: str, emulator: str | None = None) -> None:
        """`emulator` is host:port of an emulator on this machine."""
        self._project = f"projects/{project}"
        self._client = GrpcClient(_load, emulator)

    def newest(self, name: str) -> str | None:
        """The newest enabled version, without white space at its ends. Raises SecretsUnavailable."""
        from google.api_core.exceptions import FailedPrecondition, NotFound

        def read(patience: Patience) -> bytes | None:
            try:
                return self._version(f"{self._path(name)}/versions/latest", patience)
            except FailedPrecondition:
                return self._newest_enabled(name, patience)

        try:
            data = self._within_patience(name, read)
        except NotFound:
            return None
        return None if data is None else _text(name, data)

    def add(self, name: str, value: str) -> None:
        """Add a version, and the secret if it does not exist. Raises SecretsUnavailable."""
        from google.api_core.exceptions import NotFound

        payload = {"data": value.encode()}

        def add_version(patience: Patience) -> None:
            request = {"parent": self._path(name), "payload": payload}
            self._client.call(lambda c, s: c.add_secret_version(request=request, retry=None, timeout=s), patience)

        def add(patience: Patience) -> None:
            try:
                add_version(patience)
            except NotFound:
                self._create(name, patience)
                add_version(patience)

        try:
            self._within_patience(name, add)
        except NotFound as error:
            raise SecretsUnavailable(f"The secret {name} was removed while a version was added.") from error

    def remove(self, name: str) -> None:
        """Remove the secret with all its versions. Raises SecretsUnavailable."""
        from google.api_core.exceptions import NotFound

        def delete(patience: Patience) -> None:
            request = {"name": self._path(name)}
            self._client.call(lambda c, s: c.delete_secret(request=request, retry=None, timeout=s), patience)

        with suppress(NotFound):
            self._within_patience(name, delete)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _path(self, name: str) -> str:
        return f"{self._project}/secrets/{name}"

    def _version(self, path: str, patience: Patience) -> bytes:
        request = {"name": path}
        answer = self._client.call(
            lambda c, s: c.access_secret_version(request=request, retry=None, timeout=s), patience
        )
        return bytes(answer.payload.data)

    def _newest_enabled(self, name: str, patience: Patience) -> bytes | None:
        from google.api_core.exceptions import FailedPrecondition, NotFound

        request = {"parent": self._path(name), "filter": "state:ENABLED", "page_size": ENABLED_LOOKED_AT}
        pages = self._client.call(
            lambda c, s: c.list_secret_versions(request=request, retry=None, timeout=s), patience
        ).pages
        versions = [version.name for version in next(iter(pages)).versions]
        for path in sorted(versions, key=_number, reverse=True):
            with suppress(FailedPrecondition, NotFound):  # disabled or destroyed since
                return self._version(path, patience)
        return None

    def _create(self, name: str, patience: Patience) -> None:
        from google.api_core.exceptions import AlreadyExists

        secret = {"replication": {"automatic": {}}, "labels": LABELS}
        request = {"parent": self._project, "secret_id": name, "secret": secret}
        with suppress(AlreadyExists):
            self._client.call(lambda c, s: c.create_secret(request=request, retry=None, timeout=s), patience)

    def _within_patience(self, name: str, work: Callable[[Patience], T]) -> T:
        """Raises SecretsUnavailable, and NotFound."""
        from google.api_core.exceptions import Forbidden, GoogleAPIError, NotFound
        from google.auth.exceptions import GoogleAuthError

        try:
            return work(self._client.patience())
        except NotFound:
            raise
        except OutOfPatience as error:
            raise SecretsUnavailable("Secret Manager does not answer.") from error.__cause__
        except Forbidden as error:
            raise SecretsUnavailable(f"This account may not use the secret {name}.") from error
        except (GoogleAPIError, GoogleAuthError, OSError) as error:
            raise SecretsUnavailable from error


def _number(path: str) -> int:
    """The number of a version: the last part of its name."""
    number = path.rpartition("/")[2]
    return int(number) if number.isdecimal() else 0


def _text(name: str, data: bytes) -> str:
    """The exception is not passed on, because it would hold the secret."""
    text = data.decode(errors="replace").strip()
    if "\ufffd" in text:
        raise SecretsUnavailable(f"The secret {name} is not text in UTF-8.")
    return text


def _load() -> tuple[type["SecretManagerServiceClient"], type["SecretManagerServiceGrpcTransport"]]:
    from google.cloud.secretmanager_v1 import SecretManagerServiceClient
    from google.cloud.secretmanager_v1.services.secret_manager_service.transports import (
        SecretManagerServiceGrpcTransport,
    )

    return SecretManagerServiceClient, SecretManagerServiceGrpcTransport
