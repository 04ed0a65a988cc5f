"""OIDC tokens, checked with google-auth as a service would check Google's own.

Claims: https://developers.google.com/identity/openid-connect/openid-connect#an-id-tokens-payload; OidcToken in
google-cloud-tasks 2.26 (types/target.py)."""

import json
import stat
import time

import pytest
from google.auth import exceptions, jwt, transport
from google.oauth2 import id_token

from tests.support.tasks_harness import Emulator, a_target, wait_until

ACCOUNT = "tasks@pombo-local.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    with Emulator(tmp_path_factory.mktemp("tasks")) as emulator:
        yield emulator


@pytest.fixture
def target():
    with a_target() as target:
        yield target


def token_of(emulator, target, path="/p", **oidc):
    emulator.create(
        emulator.queue(),
        target.url + path,
        headers={"authorization": "mine"},
        oidc_token={"service_account_email": ACCOUNT, **oidc},
    )
    (request,) = wait_until(lambda: target.received)
    (header,) = request.headers.get_all("Authorization")  # the task's own is replaced
    scheme, _, token = header.partition(" ")
    assert scheme == "Bearer"
    return token


def certificates(emulator):
    return json.loads((emulator.data_dir / "oidc-certs.json").read_text())


def test_a_token_has_the_claims_of_googles(emulator, target):
    claims = jwt.decode(token_of(emulator, target, audience="https://svc"), certs=certificates(emulator))
    assert claims["iss"] == "https://accounts.google.com"
    assert claims["aud"] == "https://svc"
    assert claims["email"] == ACCOUNT
    assert claims["email_verified"] is True
    assert claims["sub"].isdecimal()
    assert claims["exp"] - claims["iat"] == 3600
    assert abs(claims["iat"] - time.time()) < 5


def test_a_token_verifies_as_a_service_verifies_googles(emulator, target):
    """google.oauth2.id_token, with certificates fetched in the format of googleapis.com/oauth2/v1/certs."""

    class Certificates(transport.Request):
        def __call__(self, *_, **__):
            certificates = (emulator.data_dir / "oidc-certs.json").read_bytes()
            return type("Response", (transport.Response,), {"status": 200, "headers": {}, "data": certificates})()

    token = token_of(emulator, target, audience="https://svc")
    claims = id_token.verify_oauth2_token(token, Certificates(), audience="https://svc")
    assert claims["email"] == ACCOUNT
    with pytest.raises(exceptions.GoogleAuthError):
        id_token.verify_token(token, Certificates(), audience="https://other")


def test_the_audience_is_the_whole_url_if_none_is_given(emulator, target):
    """OidcToken.audience: "If not specified, the URI specified in target will be used"."""
    claims = jwt.decode(token_of(emulator, target, path="/p?q=1"), certs=certificates(emulator))
    assert claims["aud"] == target.url + "/p?q=1"


def test_a_changed_token_does_not_verify(emulator, target):
    token = token_of(emulator, target, audience="https://svc")
    head, payload, signature = token.split(".")
    changed = signature[:-8] + ("A" * 8 if signature[-8:] != "A" * 8 else "B" * 8)
    with pytest.raises(ValueError, match="signature"):
        jwt.decode(f"{head}.{payload}.{changed}", certs=certificates(emulator))


def test_the_key_is_private_and_survives_a_kill(tmp_path, target):
    with Emulator(tmp_path) as emulator:
        before = certificates(emulator)
        assert stat.S_IMODE((tmp_path / "oidc-key.pem").stat().st_mode) == 0o600
        emulator.kill()
        emulator.start()
        assert certificates(emulator) == before
        assert jwt.decode(token_of(emulator, target, audience="a"), certs=before)["aud"] == "a"


def test_no_token_is_ever_logged(emulator, target):
    token = token_of(emulator, target, path="/p?secret=1")
    text = json.dumps(emulator.log)
    assert token not in text
    assert "secret" not in text
