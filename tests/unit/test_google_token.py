"""The access token: from a metadata server, a key file or a person's credential, and renewed before it ends."""

import asyncio
import json
import ssl
import subprocess
import sys
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth.exceptions import TransportError

from shared.net import google_token
from shared.net.async_http import NotConnected
from shared.net.google_token import AccessToken, GoogleToken, TokenUnavailable, default_fetch
from tests.support.real_servers import until

ROOT = Path(__file__).parents[2]
PRIVATE = "c4n4ry"


@dataclass
class Issuer:
    """A server that issues tokens: to a caller of the metadata path, and in exchange for a grant."""

    address: str = ""
    seconds: float = 3600
    """How long each token is valid."""
    delay: float = 0
    status: int = 200
    issued: int = 0
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def serve(self, verb: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        self.asked.append((verb, path, headers, body))
        time.sleep(self.delay)
        if self.status != 200:
            return self.status, json.dumps({"error": "refused", "error_description": PRIVATE}).encode()
        self.issued += 1
        token = {"access_token": f"token-{self.issued}", "expires_in": self.seconds, "token_type": "Bearer"}
        return 200, json.dumps(token).encode()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, answer = issuer.serve(self.command, self.path, dict(self.headers.items()), body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.address = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield issuer
        server.shutdown()
        thread.join()


@pytest.fixture
def token(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleToken]:
    """The token of an instance whose metadata server is the issuer."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("GCE_METADATA_HOST", issuer.address)
    token = GoogleToken()
    yield token
    token.close()


def line(text: str) -> bytes:
    return f"Authorization: Bearer {text}\r\n".encode()


def renewed(token: GoogleToken, used: bytes | None = None, seconds: float = 5) -> bytes:
    return asyncio.run(token.renewed(used, seconds))


# ---- the first token


def test_metadata_server_is_asked_as_an_instance_asks_it(token: GoogleToken, issuer: Issuer) -> None:
    """https://cloud.google.com/compute/docs/access/authenticate-workloads#curl"""
    assert renewed(token) == line("token-1")
    ((verb, path, headers, _),) = issuer.asked
    assert (verb, headers["Metadata-Flavor"]) == ("GET", "Google")
    scope = "https://www.googleapis.com/auth/cloud-platform"
    assert path == f"/computeMetadata/v1/instance/service-accounts/default/token?scopes={scope}"


def test_first_call_waits_and_the_next_finds_the_token(token: GoogleToken, issuer: Issuer) -> None:
    issuer.delay = 0.1
    assert token.header is None
    assert renewed(token) == token.header == line("token-1")
    assert renewed(token) == line("token-1")
    assert issuer.issued == 1


def test_token_is_there_before_the_first_call_if_begun(token: GoogleToken, issuer: Issuer) -> None:
    for _ in range(3):
        token.begin()
    until(lambda: token.header)
    assert issuer.issued == 1


def test_concurrent_first_calls_share_one_request(token: GoogleToken, issuer: Issuer) -> None:
    issuer.delay = 0.1

    async def calls() -> list[bytes]:
        return await asyncio.gather(*(token.renewed(None, 5) for _ in range(20)))

    async def in_threads() -> list[list[bytes]]:
        return await asyncio.gather(*(asyncio.to_thread(asyncio.run, calls()) for _ in range(3)))

    assert asyncio.run(in_threads()) == [[line("token-1")] * 20] * 3
    assert issuer.issued == 1


def test_first_call_does_not_wait_longer_than_it_may(token: GoogleToken, issuer: Issuer) -> None:
    issuer.delay = 0.5
    began = time.monotonic()
    with pytest.raises(TokenUnavailable, match="TimeoutError"):
        renewed(token, seconds=0.1)
    assert time.monotonic() - began < 0.4
    until(lambda: token.header)


# ---- renewal


def test_token_is_renewed_in_the_background_before_it_ends(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google_token, "_AGAIN", 0.05)
    issuer.seconds = 2
    token = GoogleToken(lambda: google_token.from_metadata_server(issuer.address), early=1.9)
    renewed(token)
    until(lambda: issuer.issued >= 3)
    assert token.header is not None
    token.close()


def test_token_of_an_hour_is_renewed_225_seconds_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 4 minutes before its end on the metadata server gives out a new one."""
    waits: list[float] = []
    token = GoogleToken(lambda: AccessToken("one", time.time() + 3599))
    wait = token._wanted.wait

    def noted(seconds: float) -> bool:
        waits.append(seconds)
        return wait(seconds)

    monkeypatch.setattr(token._wanted, "wait", noted)
    token.begin()
    until(lambda: waits)
    token.close()
    assert 3370 < waits[0] <= 3374


def test_token_that_ended_is_none_and_the_call_gets_a_new_one(issuer: Issuer) -> None:
    """An instance may have slept past the end."""
    issuer.seconds = 0.2
    token = GoogleToken(lambda: google_token.from_metadata_server(issuer.address))
    renewed(token)
    until(lambda: token.header is None)
    issuer.seconds = 3600
    assert renewed(token) == token.header == line("token-2")
    token.close()


def test_refused_token_is_renewed_at_once(token: GoogleToken, issuer: Issuer) -> None:
    first = renewed(token)
    assert renewed(token, first) == line("token-2")
    assert renewed(token, first) == line("token-2"), "another call has renewed it"
    assert issuer.issued == 2


def test_refused_tokens_request_one_a_second_while_the_server_has_no_newer_one() -> None:
    """A metadata server gives out the same token until it is about to end."""
    texts = ["same", "same", "newer"]
    fetched: list[float] = []

    def fetch() -> AccessToken:
        fetched.append(time.monotonic())
        return AccessToken(texts[len(fetched) - 1], time.time() + 3600)

    token = GoogleToken(fetch)
    same = renewed(token)
    for _ in range(20):
        assert renewed(token, same) == same
    assert len(fetched) == 2
    until(lambda: renewed(token, same) == line("newer"))
    assert renewed(token, same) == line("newer"), "another call has renewed it"
    assert len(fetched) == 3
    assert 0.9 < fetched[2] - fetched[1] < 3
    token.close()


def test_tokens_that_have_ended_already_are_not_requested_all_the_time() -> None:
    """The clock of the instance may be wrong."""
    fetched: list[float] = []

    def fetch() -> AccessToken:
        fetched.append(time.monotonic())
        return AccessToken("ended", time.time() - 1)

    token = GoogleToken(fetch)
    renewed(token)
    began = time.monotonic()
    while time.monotonic() < began + 0.5:
        with suppress(TokenUnavailable):
            assert renewed(token, seconds=0.1) == line("ended")
    assert len(fetched) in (2, 3)
    token.close()


def test_failing_renewal_keeps_the_token_that_is_still_valid(
    token: GoogleToken, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(google_token, "_LONGEST_PAUSE", 0.1)
    first = renewed(token)
    issuer.status = 503
    with pytest.raises(TokenUnavailable, match="HTTPException"):
        renewed(token, first)
    assert token.header == first
    issuer.status = 200
    until(lambda: token.header == line("token-2"))


def test_renewal_is_not_requested_all_the_time(issuer: Issuer) -> None:
    """A metadata server gives out the same token until it is about to end."""
    issuer.seconds = 60
    token = GoogleToken(lambda: google_token.from_metadata_server(issuer.address))
    renewed(token)
    time.sleep(0.3)
    assert issuer.issued == 1
    token.close()


# ---- failures


@pytest.mark.parametrize("status", [403, 404, 500])
def test_failure_names_only_the_class_and_is_retried(token: GoogleToken, issuer: Issuer, status: int) -> None:
    issuer.status = status
    with pytest.raises(TokenUnavailable) as raised:
        renewed(token)
    assert str(raised.value) == "No access token (HTTPException)."
    assert isinstance(raised.value, NotConnected), "the request was not sent"
    issuer.status = 200
    until(lambda: token.header)


@pytest.mark.parametrize("error", [OSError(PRIVATE), ValueError(PRIVATE), KeyError(PRIVATE)], ids=repr)
def test_whatever_is_raised_is_unavailable_and_nothing_private_is_told(error: Exception) -> None:
    def fetch() -> AccessToken:
        raise error

    token = GoogleToken(fetch)
    for _ in range(2):
        with pytest.raises(TokenUnavailable) as raised:
            renewed(token, seconds=0.5)
        assert str(raised.value) == f"No access token ({type(error).__name__})."
    token.close()


def test_failures_are_retried_with_growing_pauses() -> None:
    tries: list[float] = []

    def fetch() -> AccessToken:
        tries.append(time.monotonic())
        raise OSError

    token = GoogleToken(fetch)
    token.begin()
    until(lambda: len(tries) >= 4)
    token.close()
    assert tries[3] - tries[0] > 0.6


def test_pause_between_failures_is_two_seconds_at_most() -> None:
    pauses: list[float] = []

    class Failing(GoogleToken):
        def _sleep(self, seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 20:
                self.close()

    def fetch() -> AccessToken:
        raise OSError

    Failing(fetch)._renew_always()
    assert len(pauses) == 20
    assert max(pauses) <= 2


def test_close_ends_the_thread_that_waits_for_the_next_renewal(token: GoogleToken) -> None:
    renewed(token)
    assert token._thread is not None
    token.close()
    token._thread.join(5)
    assert not token._thread.is_alive()


class Unreachable:
    """Stands for http.client's connections: notes each address with its timeout, and fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[tuple[str, float]] = []
        for name in ("HTTPConnection", "HTTPSConnection"):
            monkeypatch.setattr(google_token.http.client, name, self._open)

    def _open(self, address: str, timeout: float, **_: ssl.SSLContext) -> NoReturn:
        self.opened.append((address, timeout))
        raise OSError


def test_request_for_a_token_takes_5_seconds_at_most(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = service_account(issuer) | {"token_uri": "https://a.example/token"}
    environ = key_file(tmp_path, content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", environ["GOOGLE_APPLICATION_CREDENTIALS"])
    unreachable = Unreachable(monkeypatch)
    with pytest.raises(OSError):
        default_fetch({"K_SERVICE": "webhook"})()
    with pytest.raises(TransportError):
        default_fetch(environ)()
    assert {*unreachable.opened} == {("metadata.google.internal", 5.0), ("a.example", 5.0)}


# ---- other credentials


def key_file(tmp_path: Path, content: dict[str, Any]) -> dict[str, str]:
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps(content))
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}


def service_account(issuer: Issuer) -> dict[str, Any]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {
        "type": "service_account",
        "project_id": "pombo-test",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "webhook@pombo-test.iam.gserviceaccount.com",
        "token_uri": f"http://{issuer.address}/token",
    }


def person(issuer: Issuer) -> dict[str, Any]:
    return {
        "type": "authorized_user",
        "client_id": "id",
        "client_secret": "secret",
        "refresh_token": "refresh",
        "token_uri": f"http://{issuer.address}/token",
    }


@pytest.mark.parametrize("kind", [service_account, person])
def test_credential_of_a_file_gets_a_token(
    kind: Any, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = kind(issuer)
    if content["type"] == "authorized_user":  # google-auth ignores the address in the file
        monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", content["token_uri"])
    environ = key_file(tmp_path, content) | {"GCE_METADATA_HOST": "127.0.0.1:1"}
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", environ["GOOGLE_APPLICATION_CREDENTIALS"])
    fetch = default_fetch(environ)
    for number in (1, 2):
        found = fetch()
        assert found.text == f"token-{number}"
        assert 3500 < found.ends - time.time() < 3700
    assert {path for _, path, *_ in issuer.asked} == {"/token"}
    if kind is service_account:
        assertion = parse_qs(issuer.asked[0][3].decode())["assertion"][0].split(".")[1]
        claims = json.loads(urlsafe_b64decode(assertion + "=="))
        assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"


def test_credential_that_impersonates_an_account_gets_its_token(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = "webhook@pombo-test.iam.gserviceaccount.com"
    url = f"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{account}:generateAccessToken"
    asked: list[str] = []

    def call(url: str, *_: Any) -> tuple[int, dict[str, str], bytes]:
        asked.append(url)
        if "iamcredentials" in url:
            return 200, {}, b'{"accessToken": "of-the-account", "expireTime": "2100-01-01T00:00:00Z"}'
        return 200, {}, b'{"access_token": "of-the-person", "expires_in": 3600}'

    monkeypatch.setattr(google_token, "_http_call", call)
    content = {
        "type": "impersonated_service_account",
        "service_account_impersonation_url": url,
        "source_credentials": person(issuer),
        "delegates": [],
    }
    environ = key_file(tmp_path, content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", environ["GOOGLE_APPLICATION_CREDENTIALS"])
    assert default_fetch(environ)().text == "of-the-account"
    assert asked[-1] == url


def test_refused_credential_reveals_nothing_private(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.status = 400
    environ = key_file(tmp_path, service_account(issuer))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", environ["GOOGLE_APPLICATION_CREDENTIALS"])
    token = GoogleToken()
    with pytest.raises(TokenUnavailable, match="RefreshError") as raised:
        renewed(token)
    token.close()
    assert PRIVATE not in str(raised.value)


# ---- what is imported

LOADED = """
import os, sys
from shared.net.google_token import default_fetch
print(default_fetch(os.environ)().text)
print(*sys.modules)
"""
HEAVY = {"requests", "urllib3", "aiohttp", "grpc"}


@pytest.mark.parametrize("kind", ["metadata", "service_account"])
def test_token_is_got_without_a_heavy_http_library(kind: str, issuer: Issuer, tmp_path: Path) -> None:
    environ = {"GCE_METADATA_HOST": issuer.address}
    if kind == "service_account":
        environ = key_file(tmp_path, service_account(issuer))
    ended = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    text, loaded = ended.stdout.splitlines()
    assert text == "token-1"
    assert set(loaded.split()) & (HEAVY | ({"google.auth"} if kind == "metadata" else set())) == set()
