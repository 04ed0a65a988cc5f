"""The calls: each answers one request of google.cloud.secretmanager.v1.SecretManagerService, or refuses it.

Sentences are the real service's where its documentation or users quote them (2026-11). Not here: listing secrets,
policies, rotation, checksums, expiry.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from google.cloud import secretmanager_v1 as api
from google.protobuf import empty_pb2  # type: ignore[import-untyped]

from local.grpc_methods import CallRefused, Methods, ProtoMessage
from local.secret_manager.secret_table import SecretTable, State, Version

LARGEST = 65536
"""Bytes of one version's data, as documented."""

_SECRET_ID = re.compile(r"[A-Za-z0-9_-]{1,255}")
_PAGE = 25


@dataclass(frozen=True, slots=True)
class Calls:
    """Answers calls on a table. `prefixes`: only secrets whose ids begin with one of these may be used, as an IAM
    condition would have it; all if it is empty.
    """

    table: SecretTable
    prefixes: tuple[str, ...] = ()

    def methods(self) -> Methods:
        return {
            "CreateSecret": (api.CreateSecretRequest.pb(), self._create),
            "GetSecret": (api.GetSecretRequest.pb(), self._get),
            "DeleteSecret": (api.DeleteSecretRequest.pb(), self._delete),
            "AddSecretVersion": (api.AddSecretVersionRequest.pb(), self._add),
            "AccessSecretVersion": (api.AccessSecretVersionRequest.pb(), self._access),
            "GetSecretVersion": (api.GetSecretVersionRequest.pb(), self._get_version),
            "ListSecretVersions": (api.ListSecretVersionsRequest.pb(), self._list),
            "EnableSecretVersion": (api.EnableSecretVersionRequest.pb(), self._changes(State.ENABLED)),
            "DisableSecretVersion": (api.DisableSecretVersionRequest.pb(), self._changes(State.DISABLED)),
            "DestroySecretVersion": (api.DestroySecretVersionRequest.pb(), self._changes(State.DESTROYED)),
        }

    def _create(self, request: ProtoMessage) -> ProtoMessage:
        name = f"{request.parent}/secrets/{request.secret_id}"
        self._admit(name)
        if not _SECRET_ID.fullmatch(request.secret_id):
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "The provided Secret ID does not match the format.")
        if not request.secret.HasField("replication"):
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "Secret.replication must be provided.")
        secret = api.Secret.pb().FromString(request.secret.SerializeToString())
        secret.name = name
        if not self.table.create(name, secret.SerializeToString()):
            raise CallRefused(grpc.StatusCode.ALREADY_EXISTS, f"Secret [{name}] already exists.")
        return secret

    def _get(self, request: ProtoMessage) -> ProtoMessage:
        return api.Secret.pb().FromString(self._secret(request.name))

    def _delete(self, request: ProtoMessage) -> ProtoMessage:
        self._secret(request.name)
        self.table.delete(request.name)
        return empty_pb2.Empty()

    def _add(self, request: ProtoMessage) -> ProtoMessage:
        self._secret(request.parent)
        if not 0 < len(request.payload.data) <= LARGEST:
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "Secret Payload must be between 1 and 65536 bytes.")
        version = self.table.add(request.parent, request.payload.data)
        if version is None:
            raise _no_secret(request.parent)
        return _message(request.parent, version)

    def _access(self, request: ProtoMessage) -> ProtoMessage:
        secret, version = self._version(request.name)
        if version.state is not State.ENABLED:
            raise CallRefused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"Secret Version [{secret}/versions/{version.number}] is in {version.state.name} state.",
            )
        answer = api.AccessSecretVersionResponse.pb()(name=f"{secret}/versions/{version.number}")
        answer.payload.data = version.data
        return answer

    def _get_version(self, request: ProtoMessage) -> ProtoMessage:
        return _message(*self._version(request.name))

    def _list(self, request: ProtoMessage) -> ProtoMessage:
        """Newest first. The filter is one state, like state:ENABLED; a page token is the number to go on below."""
        self._secret(request.parent)
        wanted = re.fullmatch(r"(?:state:([A-Z]+))?", request.filter)
        if wanted is None:
            raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, "The local Secret Manager filters by state:STATE alone.")
        found = [each for each in self.table.versions(request.parent) if wanted[1] in (None, each.state.name)]
        if request.page_token:
            found = [each for each in found if each.number < int(request.page_token)]
        page = found[: request.page_size or _PAGE]
        answer = api.ListSecretVersionsResponse.pb()(total_size=len(found))
        answer.versions.extend(_message(request.parent, each) for each in page)
        if len(page) < len(found):
            answer.next_page_token = str(page[-1].number)
        return answer

    def _changes(self, state: State) -> Callable[[ProtoMessage], ProtoMessage]:
        def change(request: ProtoMessage) -> ProtoMessage:
            secret, version = self._version(request.name)
            if version.state is State.DESTROYED:
                raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "The version is in DESTROYED state.")
            self.table.change(secret, version.number, state)
            return _message(secret, Version(version.number, state, b""))

        return change

    def _version(self, name: str) -> tuple[str, Version]:
        """The secret's name, and the version that `name` names by its number or as the latest, whatever its state."""
        secret, _, wanted = name.rpartition("/versions/")
        self._secret(secret)
        for version in self.table.versions(secret):
            if wanted in ("latest", str(version.number)):
                return secret, version
        raise CallRefused(grpc.StatusCode.NOT_FOUND, f"Secret Version [{name}] not found.")

    def _secret(self, name: str) -> bytes:
        self._admit(name)
        secret = self.table.secret(name)
        if secret is None:
            raise _no_secret(name)
        return secret

    def _admit(self, name: str) -> None:
        if self.prefixes and not name.rpartition("/")[2].startswith(self.prefixes):
            raise CallRefused(
                grpc.StatusCode.PERMISSION_DENIED, f"Permission denied for resource '{name}' (or it may not exist)."
            )


def _no_secret(name: str) -> CallRefused:
    return CallRefused(grpc.StatusCode.NOT_FOUND, f"Secret [{name}] not found or has no versions.")


def _message(secret: str, version: Version) -> ProtoMessage:
    return api.SecretVersion.pb()(name=f"{secret}/versions/{version.number}", state=version.state.value)
