"""A queue's HTTP target: it replaces its tasks' own address, method and identity, at each attempt.

Sources: HttpTarget and UriOverride of google-cloud-tasks 2.26 (types/target.py): "all tasks with HttpRequest are
overridden"; https://cloud.google.com/tasks/docs/configuring-queues (2026-11): it also applies to tasks that are already
in the queue, and authentication at the queue overrides the task's.
"""

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from google.cloud.tasks_v2 import HttpMethod, UriOverride

from local.grpc_methods import ProtoMessage
from local.tasks.refusals import invalid, not_imitated

_SCHEMES = {UriOverride.Scheme.HTTP: "http", UriOverride.Scheme.HTTPS: "https"}
_ALWAYS = (UriOverride.UriOverrideEnforceMode.ALWAYS, UriOverride.UriOverrideEnforceMode(0))
"""If no mode is given, it is ALWAYS."""


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """The URL to call, and the identity that the call carries: an account and an audience, or None."""

    method: str
    url: str
    identity: tuple[str, str] | None


def check(target: ProtoMessage) -> None:
    """Refuse an invalid target."""
    if target.HasField("oauth_token"):
        raise not_imitated("OAuth tokens")
    if target.header_overrides:
        raise not_imitated("headers of a queue")
    uri = target.uri_override
    if uri.uri_override_enforce_mode not in _ALWAYS:
        raise not_imitated("UriOverride's mode IF_NOT_EXISTS")
    if uri.HasField("host") and not uri.host:
        raise invalid("UriOverride.host cannot be an empty string.")
    if uri.HasField("port") and not 0 <= uri.port <= 65535:
        raise invalid("UriOverride.port must be a positive integer, or 0.")
    token = target.oidc_token
    if target.HasField("oidc_token") and not (token.service_account_email and token.audience):
        raise invalid("OidcToken.service_account_email and OidcToken.audience are both required for a queue.")


def request_of(target: ProtoMessage, own: ProtoMessage) -> TargetRequest:
    """A task's own request, as the queue changes it."""
    url = _url(target.uri_override, own.url)
    token = target.oidc_token if target.HasField("oidc_token") else own.oidc_token
    has_token = target.HasField("oidc_token") or own.HasField("oidc_token")
    return TargetRequest(
        method=HttpMethod(target.http_method or own.http_method).name,
        url=url,
        identity=(token.service_account_email, token.audience or url) if has_token else None,
    )


def _url(uri: ProtoMessage, own: str) -> str:
    if uri == type(uri)():
        return own
    try:
        return _overridden(urlsplit(own), uri).geturl()
    except ValueError:
        return own  # the service accepts such a URL too, and every attempt fails


def _overridden(own: SplitResult, uri: ProtoMessage) -> SplitResult:
    host = uri.host if uri.HasField("host") else own.hostname or ""
    port = (uri.port or None) if uri.HasField("port") else own.port
    host = f"[{host}]" if ":" in host else host
    return SplitResult(
        scheme=_SCHEMES.get(uri.scheme, own.scheme),
        netloc=host if port is None else f"{host}:{port}",
        path=uri.path_override.path if uri.HasField("path_override") else own.path,
        query=uri.query_override.query_params if uri.HasField("query_override") else own.query,
        fragment="",
    )
