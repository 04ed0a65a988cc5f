"""An OIDC token: the Authorization of a task with `oidc_token`, signed with the emulator's own key.

The key is created once and kept in the data directory. Its certificate is written to oidc-certs.json in the form of
https://www.googleapis.com/oauth2/v1/certs (key id to PEM certificate), so a verifier of Google's tokens verifies these
if it is configured to read that file. Claims:
https://developers.google.com/identity/openid-connect/openid-connect#an-id-tokens-payload.
"""

import datetime
import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import crypt, jwt

_crypt: Any = crypt  # neither module has types
_jwt: Any = jwt

ISSUER = "https://accounts.google.com"
LIFETIME = 3600
REUSED = 300.0
"""Seconds for which a token is reused: signing takes a millisecond of CPU, and there are three hundred a second. A
reused token is valid for at least 55 minutes more, longer than any dispatch deadline.
"""


class TokenMinter:
    def __init__(self, directory: Path, clock: Callable[[], float]) -> None:
        pem = _kept_key(directory / "oidc-key.pem", clock())
        certificate = x509.load_pem_x509_certificate(pem)
        key_id = certificate.fingerprint(hashes.SHA256()).hex()[:40]
        certificates = {key_id: certificate.public_bytes(serialization.Encoding.PEM).decode()}
        _write(directory / "oidc-certs.json", json.dumps(certificates).encode(), 0o644)
        self._signer = _crypt.RSASigner.from_string(pem[: pem.index(b"-----BEGIN CERTIFICATE")], key_id)
        self._clock = clock
        self._lock = threading.Lock()
        self._minted: dict[tuple[str, str], tuple[float, str]] = {}

    def token(self, service_account: str, audience: str) -> str:
        now = self._clock()
        with self._lock:
            minted_at, token = self._minted.get((service_account, audience), (0.0, ""))
            if not 0 <= now - minted_at < REUSED:
                token = self._mint(service_account, audience, int(now))
                self._minted[service_account, audience] = (now, token)
        return token

    def _mint(self, service_account: str, audience: str, now: int) -> str:
        claims = {
            "iss": ISSUER,
            "aud": audience,
            "email": service_account,
            "email_verified": True,
            "sub": str(int(hashlib.sha256(service_account.encode()).hexdigest(), 16))[:21],
            "iat": now,
            "exp": now + LIFETIME,
        }
        return str(_jwt.encode(self._signer, claims).decode())


def _kept_key(path: Path, now: float) -> bytes:
    """Private key and certificate in one file, so that a kill cannot leave one without the other."""
    if not path.exists():
        _write(path, _new_key(now), 0o600)
    return path.read_bytes()


def _new_key(now: float) -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "local-cloud-tasks")])
    today = datetime.datetime.fromtimestamp(now, datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace the file whole, and never let others read it for longer than its mode allows."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
    unfinished.replace(path)
