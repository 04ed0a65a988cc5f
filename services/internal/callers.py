"""Callers: authenticates calls to the private service, before any body is read."""

import hmac
import math
import threading
import time
from collections.abc import Mapping
from typing import Any

import httpx
from google.auth import jwt
from werkzeug.datastructures import Headers

from shared import logs
from shared.config import Config
from shared.domain.errors import CertificatesUnavailable, Forbidden

CERTIFICATES_SECONDS = 3600
FETCH_SECONDS = 3
CLOCK_SKEW_SECONDS = 10
UNSIGNED = "SIGNATURE_REMOVED_BY_GOOGLE"
"""The text that Cloud Run puts in place of a signature that its IAM check has verified.
https://cloud.google.com/run/docs/troubleshooting#signature-removed
"""

CHECKED_INSTEAD = "X-Serverless-Authorization"
"""If a request has this header, IAM checks the token in it and passes Authorization on unchecked.
https://cloud.google.com/run/docs/authenticating/service-to-service, 2026-11
"""

ISSUERS = ("https://accounts.google.com", "accounts.google.com")


class Callers:
    """Checks the internal token and, if a service account is configured, its OIDC token as well.

    A token is verified by Google's signature. TRUST_CLOUD_RUN_IAM also accepts one whose signature Cloud Run has
    removed: IAM verified it before the request reached this process.
    """

    def __init__(self, config: Config) -> None:
        self._tokens = [token.encode() for token in config["INTERNAL_TASK_TOKEN"]]
        self._tasks_account = config.get("TASKS_SERVICE_ACCOUNT")
        self._scheduler_account = config.get("SCHEDULER_SERVICE_ACCOUNT")
        self._audience = config["INTERNAL_TASK_BASE_URL"]
        self._certificates = _Certificates(config["OIDC_CERTS_URL"])
        self._trusts_iam: bool = config["TRUST_CLOUD_RUN_IAM"]
        self._logged = _Once()

    def check_task(self, headers: Headers) -> None:
        """Raises Forbidden unless the caller is our queue, CertificatesUnavailable if that cannot be checked."""
        if not self._has_token(headers):
            raise Forbidden("token")
        if self._tasks_account:
            self._check_account(headers, "tasks", self._tasks_account)

    def check_sweep(self, headers: Headers) -> None:
        """Raises Forbidden unless the caller has the internal token or is the scheduler."""
        if self._has_token(headers):
            return
        if not self._scheduler_account:
            raise Forbidden("token")
        self._check_account(headers, "scheduler", self._scheduler_account)

    def _has_token(self, headers: Headers) -> bool:
        given = headers.get("X-Internal-Token", "").encode()
        return any(hmac.compare_digest(given, token) for token in self._tokens)

    def _check_account(self, headers: Headers, caller: str, account: str) -> None:
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Forbidden("no_identity")
        is_unsigned = _is_unsigned(token)
        if is_unsigned and (not self._trusts_iam or CHECKED_INSTEAD in headers):
            raise Forbidden("unsigned_identity")
        claims = self._unsigned_claims(token) if is_unsigned else self._signed_claims(token)
        proven = (
            claims.get("email") == account and claims.get("email_verified") is True and claims.get("iss") in ISSUERS
        )
        if not proven:
            raise Forbidden("another_identity")
        signature = "removed" if is_unsigned else "verified"
        if self._logged.first(caller, signature):
            logs.event("caller_verified", caller=caller, signature=signature)

    def _signed_claims(self, token: str) -> Mapping[str, Any]:
        try:
            key_id = jwt.decode_header(token).get("kid")  # type: ignore[no-untyped-call]
            claims: Mapping[str, Any] = jwt.decode(  # type: ignore[no-untyped-call]
                token,
                certs=self._certificates.holding(key_id),
                audience=self._audience,
                clock_skew_in_seconds=CLOCK_SKEW_SECONDS,
            )
            # The library checks whether exp has passed; NaN, which the JSON parser accepts, never has.
            is_of_its_time = all(math.isfinite(claims[name]) for name in ("iat", "exp"))
        except CertificatesUnavailable:
            raise
        except Exception as error:
            raise Forbidden("invalid_identity") from error
        if not is_of_its_time:
            raise Forbidden("invalid_identity")
        return claims

    def _unsigned_claims(self, token: str) -> Mapping[str, Any]:
        """The claims of a token that IAM has verified, with the same checks except the signature."""
        try:
            claims: Mapping[str, Any] = jwt.decode(token, verify=False)  # type: ignore[no-untyped-call]
            issued, ends = claims["iat"], claims["exp"]
            is_of_its_time = all(map(math.isfinite, (issued, ends))) and (
                issued - CLOCK_SKEW_SECONDS <= time.time() <= ends + CLOCK_SKEW_SECONDS
            )
        except Exception as error:
            raise Forbidden("invalid_identity") from error
        if not is_of_its_time or claims.get("aud") != self._audience:
            raise Forbidden("invalid_identity")
        return claims


def _is_unsigned(token: str) -> bool:
    """Whether Cloud Run has removed the signature: the last of the token's three parts is exactly its placeholder."""
    parts = token.split(".")
    return len(parts) == 3 and parts[2] == UNSIGNED


class _Once:
    """What this process has logged already."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: set[tuple[str, ...]] = set()

    def first(self, *what: str) -> bool:
        """Whether these values have not been logged yet; from now on they have."""
        with self._lock:
            is_first = what not in self._logged
            self._logged.add(what)
            return is_first


class _Certificates:
    """Google's certificates, fetched on first use, when an hour old, and when a token names a new one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._known: Mapping[str, str] = {}
        self._fetched_at = 0.0

    def holding(self, key_id: str | None) -> Mapping[str, str]:
        """The certificates, fresh enough to hold this key if there is one. Raises CertificatesUnavailable."""
        with self._lock:
            age = time.monotonic() - self._fetched_at
            if not self._known or age > CERTIFICATES_SECONDS or (key_id not in self._known and age > FETCH_SECONDS):
                self._known = self._fetch()
                self._fetched_at = time.monotonic()
            return self._known

    def _fetch(self) -> Mapping[str, str]:
        try:
            response = httpx.get(self._url, timeout=FETCH_SECONDS, trust_env=False)
            response.raise_for_status()
            found = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise CertificatesUnavailable from error
        if not (isinstance(found, dict) and found and all(isinstance(text, str) for text in found.values())):
            raise CertificatesUnavailable
        return found
