"""Callers: who may call the private service. Checked before anything is read."""

import hmac
import math
import threading
import time
from collections.abc import Mapping
from typing import Any

import httpx
from google.auth import jwt
from werkzeug.datastructures import Headers

from shared.config import Config
from shared.domain.errors import CertificatesUnavailable, Forbidden

CERTIFICATES_SECONDS = 3600
FETCH_SECONDS = 3
UNSIGNED = "SIGNATURE_REMOVED_BY_GOOGLE"
"""What Cloud Run puts in place of a signature where it has checked it itself. Such a token proves nothing to us.
https://cloud.google.com/run/docs/troubleshooting#signature-removed
"""

ISSUERS = ("https://accounts.google.com", "accounts.google.com")


class Callers:
    """The internal token, and where a service account is configured, its OIDC token as well."""

    def __init__(self, config: Config) -> None:
        self._tokens = [token.encode() for token in config["INTERNAL_TASK_TOKEN"]]
        self._tasks_account = config.get("TASKS_SERVICE_ACCOUNT")
        self._scheduler_account = config.get("SCHEDULER_SERVICE_ACCOUNT")
        self._audience = config["INTERNAL_TASK_BASE_URL"]
        self._certificates = _Certificates(config["OIDC_CERTS_URL"])

    def check_task(self, headers: Headers) -> None:
        """Raises Forbidden unless it is our queue, CertificatesUnavailable where that cannot be told."""
        if not self._has_token(headers):
            raise Forbidden("token")
        if self._tasks_account:
            self._check_account(headers, self._tasks_account)

    def check_sweep(self, headers: Headers) -> None:
        """Raises Forbidden unless it brings the internal token, or is the scheduler."""
        if self._has_token(headers):
            return
        if not self._scheduler_account:
            raise Forbidden("token")
        self._check_account(headers, self._scheduler_account)

    def _has_token(self, headers: Headers) -> bool:
        given = headers.get("X-Internal-Token", "").encode()
        return any(hmac.compare_digest(given, token) for token in self._tokens)

    def _check_account(self, headers: Headers, account: str) -> None:
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Forbidden("no_identity")
        claims = self._claims(token)
        proven = (
            claims.get("email") == account and claims.get("email_verified") is True and claims.get("iss") in ISSUERS
        )
        if not proven:
            raise Forbidden("another_identity")

    def _claims(self, token: str) -> Mapping[str, Any]:
        try:
            key_id = jwt.decode_header(token).get("kid")  # type: ignore[no-untyped-call]
            claims: Mapping[str, Any] = jwt.decode(  # type: ignore[no-untyped-call]
                token, certs=self._certificates.holding(key_id), audience=self._audience, clock_skew_in_seconds=10
            )
            # The library asks whether exp is past; of NaN, which JSON's reader lets in, nothing is.
            is_of_its_time = all(math.isfinite(claims[name]) for name in ("iat", "exp"))
        except CertificatesUnavailable:
            raise
        except Exception as error:
            raise Forbidden("unsigned_identity" if token.endswith(UNSIGNED) else "invalid_identity") from error
        if not is_of_its_time:
            raise Forbidden("invalid_identity")
        return claims


class _Certificates:
    """Google's certificates, fetched when first needed, when an hour old, and when a token names a new one."""

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
