"""Callers: who may call the private service, and what happens where that cannot be told."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import crypt, jwt
from pytest_mock import MockerFixture, MockType
from werkzeug.datastructures import EnvironHeaders, Headers
from werkzeug.test import EnvironBuilder

from services.internal import callers as callers_module
from services.internal.callers import CERTIFICATES_SECONDS, FETCH_SECONDS, Callers
from shared import config, logs
from shared.domain.errors import CertificatesUnavailable, Forbidden
from tests.support.parts import lines

TOKEN = "test-internal-token"
AUDIENCE = "https://internal.example.com"
TASKS, SCHEDULER = "tasks@example.com", "scheduler@example.com"


class Key:
    """One key of Google's, by its id."""

    def __init__(self, key_id: str) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
        now = datetime.now(UTC)
        made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        made = made.serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        certificate = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self.certificate = {key_id: certificate.decode()}
        self.signer = crypt.RSASigner.from_string(pem, key_id)

    def sign(self, header: Mapping[str, str] | None = None, **changes: Any) -> str:
        """A token with these claims changed, or left out (None). `iat` and `exp` are seconds from now."""
        now = int(time.time())
        claims = {
            "iss": "https://accounts.google.com",
            "aud": AUDIENCE,
            "email": TASKS,
            "email_verified": True,
            "sub": "1",
            "iat": 0,
            "exp": 600,
        } | changes
        times = {name: now + claims[name] for name in ("iat", "exp") if claims[name] is not None}
        given = {name: value for name, value in (claims | times).items() if value is not None}
        return str(jwt.encode(self.signer, given, header=header).decode())


GOOGLE, NEXT, IMPOSTOR = Key("one"), Key("two"), Key("one")


@dataclass
class Certificates:
    """The address of Google's certificates."""

    url: str = ""
    status: int = 200
    body: bytes = field(default_factory=lambda: json.dumps(GOOGLE.certificate).encode())
    fetched: int = 0


@pytest.fixture
def certificates() -> Iterator[Certificates]:
    certificates = Certificates()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            certificates.fetched += 1
            self.send_response(certificates.status)
            self.send_header("Content-Length", str(len(certificates.body)))
            self.end_headers()
            self.wfile.write(certificates.body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        certificates.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield certificates
        server.shutdown()
        thread.join()


def config_of(certificates: Certificates, **environ: str) -> config.Config:
    given = {
        "INTERNAL_TASK_TOKEN": f"{TOKEN},an-older-token",
        "INTERNAL_TASK_BASE_URL": AUDIENCE,
        "TASKS_SERVICE_ACCOUNT": TASKS,
        "SCHEDULER_SERVICE_ACCOUNT": SCHEDULER,
        "OIDC_CERTS_URL": certificates.url,
    }
    return config.load(given | environ, config.INTERNAL)


def callers(certificates: Certificates, **environ: str) -> Callers:
    return Callers(config_of(certificates, **environ))


def headers(token: str | None, bearer: str | None = None, scheme: str = "Bearer") -> Headers:
    found = Headers()
    if token is not None:
        found["X-Internal-Token"] = token
    if bearer is not None:
        found["Authorization"] = f"{scheme} {bearer}"
    return found


# ---- the internal token


@pytest.mark.parametrize("token", [TOKEN, "an-older-token"])
def test_every_listed_internal_token_is_accepted(certificates: Certificates, token: str) -> None:
    checked = callers(certificates, TASKS_SERVICE_ACCOUNT="")
    checked.check_task(headers(token))
    checked.check_sweep(headers(token))
    assert certificates.fetched == 0


@pytest.mark.parametrize(
    "token", [None, "", f"{TOKEN},an-older-token", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), "t\xf6ken", "another"]
)
def test_unlisted_internal_token_is_refused(certificates: Certificates, token: str | None) -> None:
    checked = callers(certificates, TASKS_SERVICE_ACCOUNT="", SCHEDULER_SERVICE_ACCOUNT="")
    for check in (checked.check_task, checked.check_sweep):
        with pytest.raises(Forbidden):
            check(headers(token))


def test_the_internal_token_is_asked_for_before_anything_is_fetched(certificates: Certificates) -> None:
    with pytest.raises(Forbidden):
        callers(certificates).check_task(headers("another", GOOGLE.sign()))
    assert certificates.fetched == 0


# ---- OIDC


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_task_needs_both_tokens_where_an_account_is_configured(certificates: Certificates, scheme: str) -> None:
    checked = callers(certificates)
    checked.check_task(headers(TOKEN, GOOGLE.sign(), scheme))
    for missing in (headers(TOKEN), headers(None, GOOGLE.sign()), Headers()):
        with pytest.raises(Forbidden):
            checked.check_task(missing)


def test_both_issuer_names_of_google_are_accepted(certificates: Certificates) -> None:
    callers(certificates).check_task(headers(TOKEN, GOOGLE.sign(iss="accounts.google.com")))


CLAIMED_OTHERWISE: tuple[Mapping[str, Any], ...] = (
    {"exp": -60},
    {"exp": None},
    {"exp": math.nan},
    {"exp": math.inf},
    {"exp": 10**400},
    {"iat": math.nan},
    {"iat": 600, "exp": 1200},
    {"iat": None},
    {"aud": None},
    {"aud": "https://another.example.com"},
    {"aud": f"{AUDIENCE}/"},
    {"email": "other@example.com"},
    {"email": SCHEDULER},
    {"email": None},
    {"email_verified": False},
    {"email_verified": "true"},
    {"email_verified": None},
    {"iss": "https://accounts.example.com"},
    {"iss": None},
)


@pytest.mark.parametrize("changes", CLAIMED_OTHERWISE, ids=lambda changes: " and ".join(changes))
def test_a_token_that_claims_something_else_is_refused(certificates: Certificates, changes: Mapping[str, Any]) -> None:
    with pytest.raises(Forbidden):
        callers(certificates).check_task(headers(TOKEN, GOOGLE.sign(**changes)))


def test_a_token_of_another_key_is_refused(certificates: Certificates) -> None:
    for key in (IMPOSTOR, NEXT):
        with pytest.raises(Forbidden):
            callers(certificates).check_task(headers(TOKEN, key.sign()))


@pytest.mark.parametrize("algorithm", ["none", "HS256", "ES256"])
def test_a_token_that_chooses_its_own_algorithm_is_refused(certificates: Certificates, algorithm: str) -> None:
    with pytest.raises(Forbidden):
        callers(certificates).check_task(headers(TOKEN, GOOGLE.sign(header={"alg": algorithm})))


@pytest.mark.parametrize(
    "token", ["", " ", "x", "a.b", "a.b.c", "....", "\xe9.\xe9.\xe9", "e30.e30.", "bnVsbA.e30.e30"]
)
def test_malformed_oidc_token_is_refused(certificates: Certificates, token: str) -> None:
    with pytest.raises(Forbidden):
        callers(certificates).check_task(headers(TOKEN, token))


@pytest.mark.parametrize("scheme", ["Basic", "", "Token"])
def test_another_scheme_is_refused(certificates: Certificates, scheme: str) -> None:
    with pytest.raises(Forbidden):
        callers(certificates).check_task(headers(TOKEN, GOOGLE.sign(), scheme))


# Signed in the test: a token of the collection has expired by the end of a long run.
CAUSES: Mapping[str, Callable[[], Headers]] = {
    "token": lambda: headers("another", GOOGLE.sign()),
    "no_identity": lambda: headers(TOKEN),
    "another_identity": lambda: headers(TOKEN, GOOGLE.sign(email=SCHEDULER)),
    "invalid_identity": lambda: headers(TOKEN, GOOGLE.sign(aud="https://another.example.com")),
    "unsigned_identity": lambda: headers(TOKEN, unsigned()),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_refusal_cause_is_available_for_the_log(certificates: Certificates, cause: str) -> None:
    with pytest.raises(Forbidden) as refused:
        callers(certificates).check_task(CAUSES[cause]())
    assert refused.value.cause == cause


# ---- Cloud Run has verified the token and removed its signature

REMOVED = "SIGNATURE_REMOVED_BY_GOOGLE"


def unsigned(**changes: Any) -> str:
    """A token as Cloud Run hands it on, with these claims changed."""
    return GOOGLE.sign(**changes).rpartition(".")[0] + "." + REMOVED


def trusting(certificates: Certificates) -> Callers:
    """As in a Cloud Run service that IAM guards."""
    given = config_of(certificates)
    return Callers(replace(given, values={**given.values, "TRUST_CLOUD_RUN_IAM": True}))


def test_behind_iam_a_token_without_its_signature_is_judged_by_its_claims(certificates: Certificates) -> None:
    checked = trusting(certificates)
    checked.check_task(headers(TOKEN, unsigned()))
    checked.check_task(headers(TOKEN, unsigned(iss="accounts.google.com")))
    assert certificates.fetched == 0, "there is nothing to verify with them"


def test_behind_iam_a_signed_token_is_verified_as_ever(certificates: Certificates) -> None:
    checked = trusting(certificates)
    checked.check_task(headers(TOKEN, GOOGLE.sign()))
    checked.check_sweep(headers(None, GOOGLE.sign(email=SCHEDULER)))
    for token in (IMPOSTOR.sign(), NEXT.sign(), GOOGLE.sign(email=SCHEDULER), GOOGLE.sign(exp=-60)):
        with pytest.raises(Forbidden):
            checked.check_task(headers(TOKEN, token))


def test_behind_iam_a_task_needs_the_internal_token_besides(certificates: Certificates) -> None:
    for given in (headers(None, unsigned()), headers("another", unsigned())):
        with pytest.raises(Forbidden) as refused:
            trusting(certificates).check_task(given)
        assert refused.value.cause == "token"


def test_behind_iam_the_sweep_is_the_schedulers_by_its_claims_alone(certificates: Certificates) -> None:
    checked = trusting(certificates)
    checked.check_sweep(headers(None, unsigned(email=SCHEDULER)))
    for token in (unsigned(), unsigned(email="other@example.com")):
        with pytest.raises(Forbidden):
            checked.check_sweep(headers(None, token))


@pytest.mark.parametrize("changes", CLAIMED_OTHERWISE, ids=lambda changes: " and ".join(changes))
def test_behind_iam_a_token_that_claims_something_else_is_refused(
    certificates: Certificates, changes: Mapping[str, Any]
) -> None:
    checked = trusting(certificates)
    with pytest.raises(Forbidden):
        checked.check_task(headers(TOKEN, unsigned(**changes)))
    if changes.get("email") != SCHEDULER:
        with pytest.raises(Forbidden):
            checked.check_sweep(headers(None, unsigned(**{"email": SCHEDULER, **changes})))


@pytest.mark.parametrize("skew", [-9, 9])
def test_behind_iam_ten_seconds_of_clock_skew_are_tolerated(certificates: Certificates, skew: int) -> None:
    late = {"exp": skew} if skew < 0 else {"iat": skew}
    trusting(certificates).check_task(headers(TOKEN, unsigned(**late)))


@pytest.mark.parametrize(("seconds", "is_taken"), [(-11, False), (-10, True), (610, True), (611, False)], ids=str)
def test_behind_iam_the_tenth_second_still_counts(
    certificates: Certificates, mocker: MockerFixture, seconds: int, is_taken: bool
) -> None:
    token = unsigned()
    issued = jwt.decode(token, verify=False)["iat"]  # type: ignore[no-untyped-call]
    mocker.patch.object(callers_module, "time").time.return_value = issued + seconds
    with nullcontext() if is_taken else pytest.raises(Forbidden):
        trusting(certificates).check_task(headers(TOKEN, token))


@pytest.mark.parametrize(
    "form",
    [
        "{head}.{claims}.",
        "{head}.{claims}",
        "{head}.{claims}.signature_removed_by_google",
        "{head}.{claims}.x{removed}",
        "{head}.{claims}.{removed}x",
        "{head}.{claims}.x.{removed}",
        "{head}.{claims}.{removed}.{removed}",
        "{head}.{claims}.{removed}, Bearer {signed}",
        "{signed}, Bearer {head}.{claims}.{removed}",
        ".{claims}.{removed}",
        "{head}..{removed}",
        "e30.bnVsbA.{removed}",
        "e30.W10.{removed}",
        "\xe9.\xe9.{removed}",
        "..{removed}",
        "{removed}",
    ],
)
def test_behind_iam_no_other_token_form_is_accepted(certificates: Certificates, form: str) -> None:
    signed = GOOGLE.sign()
    head, claims, _ = signed.split(".")
    with pytest.raises(Forbidden):
        trusting(certificates).check_task(
            headers(TOKEN, form.format(head=head, claims=claims, removed=REMOVED, signed=signed))
        )


@pytest.mark.parametrize("name", ["X-Serverless-Authorization", "x-serverless-authorization"])
@pytest.mark.parametrize("value", ["Bearer a.b.c", ""])
def test_an_unsigned_token_is_not_believed_where_iam_has_checked_another(
    certificates: Certificates, name: str, value: str
) -> None:
    """IAM prefers X-Serverless-Authorization, so that anybody whom it admits could write the other one himself."""
    checked = trusting(certificates)
    task, sweep = headers(TOKEN, unsigned()), headers(None, unsigned(email=SCHEDULER))
    task[name] = sweep[name] = value
    for check, given in ((checked.check_task, task), (checked.check_sweep, sweep)):
        for form in (given, EnvironHeaders(EnvironBuilder(headers=given).get_environ())):
            with pytest.raises(Forbidden) as refused:
                check(form)
            assert refused.value.cause == "unsigned_identity"
    signed = headers(TOKEN, GOOGLE.sign())
    signed[name] = value
    checked.check_task(signed)


@pytest.mark.parametrize("trust", [{"TRUST_CLOUD_RUN_IAM": "false"}, {}], ids=["false", "unset"])
def test_without_the_setting_no_client_can_send_an_unsigned_token(
    certificates: Certificates, trust: Mapping[str, str]
) -> None:
    checked = callers(certificates, **trust)
    for given in (headers(TOKEN, unsigned()), headers(TOKEN, unsigned(exp=-60))):
        with pytest.raises(Forbidden) as refused:
            checked.check_task(given)
        assert refused.value.cause == "unsigned_identity"
    with pytest.raises(Forbidden) as refused:
        checked.check_sweep(headers(None, unsigned(email=SCHEDULER)))
    assert refused.value.cause == "unsigned_identity"


def test_form_of_each_callers_token_is_logged_once(
    certificates: Certificates, capfd: pytest.CaptureFixture[str]
) -> None:
    logs.configure("INFO")
    checked = trusting(certificates)
    for _ in range(3):
        checked.check_task(headers(TOKEN, unsigned()))
        checked.check_sweep(headers(None, unsigned(email=SCHEDULER)))
        checked.check_task(headers(TOKEN, GOOGLE.sign()))
        with pytest.raises(Forbidden):
            checked.check_task(headers(TOKEN, IMPOSTOR.sign()))
    said = [line for line in lines(capfd.readouterr().out) if line["event"] == "caller_verified"]
    assert [(line["caller"], line["signature"], line["severity"]) for line in said] == [
        ("tasks", "removed", "INFO"),
        ("scheduler", "removed", "INFO"),
        ("tasks", "verified", "INFO"),
    ]
    assert not any("@" in str(value) for line in said for value in line.values())


# ---- the scheduler


def test_the_sweep_takes_the_schedulers_oidc_instead_of_the_token(certificates: Certificates) -> None:
    callers(certificates).check_sweep(headers(None, GOOGLE.sign(email=SCHEDULER)))


def test_the_sweep_takes_no_other_account(certificates: Certificates) -> None:
    with pytest.raises(Forbidden):
        callers(certificates).check_sweep(headers(None, GOOGLE.sign(email=TASKS)))


def test_without_a_scheduler_the_sweep_takes_no_oidc(certificates: Certificates) -> None:
    with pytest.raises(Forbidden):
        callers(certificates, SCHEDULER_SERVICE_ACCOUNT="").check_sweep(headers(None, GOOGLE.sign(email=SCHEDULER)))
    assert certificates.fetched == 0


# ---- certificates


@pytest.mark.parametrize("status", [404, 500, 302])
def test_missing_certificates_refuse_only_until_they_are_back(certificates: Certificates, status: int) -> None:
    certificates.status = status
    checked = callers(certificates)
    with pytest.raises(CertificatesUnavailable):
        checked.check_task(headers(TOKEN, GOOGLE.sign()))
    certificates.status = 200
    checked.check_task(headers(TOKEN, GOOGLE.sign()))


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"text"', b"null", b"{}", b'{"one": 5}', b"\xff"])
def test_invalid_certificates_count_as_unavailable(certificates: Certificates, body: bytes) -> None:
    certificates.body = body
    with pytest.raises(CertificatesUnavailable):
        callers(certificates).check_task(headers(TOKEN, GOOGLE.sign()))


def test_certificates_are_fetched_without_a_proxy(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    callers(certificates).check_task(headers(TOKEN, GOOGLE.sign()))
    assert certificates.fetched == 1


def test_unreachable_certificate_server_counts_as_unavailable(certificates: Certificates) -> None:
    checked = callers(certificates, OIDC_CERTS_URL="http://127.0.0.1:9/certs")
    with pytest.raises(CertificatesUnavailable):
        checked.check_task(headers(TOKEN, GOOGLE.sign()))


@pytest.fixture
def now(mocker: MockerFixture) -> MockType:
    """The clock of the certificates: its return_value is the time."""
    monotonic: MockType = mocker.patch.object(callers_module, "time").monotonic
    monotonic.return_value = 1000.0
    return monotonic


def test_certificates_are_fetched_once_an_hour(certificates: Certificates, now: MockType) -> None:
    checked, good = callers(certificates), headers(TOKEN, GOOGLE.sign())
    for _ in range(3):
        checked.check_task(good)
    now.return_value += CERTIFICATES_SECONDS
    checked.check_task(good)
    assert certificates.fetched == 1
    now.return_value += 1
    checked.check_task(good)
    assert certificates.fetched == 2


def test_new_key_is_fetched_at_once_but_not_for_every_forged_token(certificates: Certificates, now: MockType) -> None:
    checked = callers(certificates)
    checked.check_task(headers(TOKEN, GOOGLE.sign()))
    certificates.body = json.dumps({**GOOGLE.certificate, **NEXT.certificate}).encode()
    for _ in range(5):
        with pytest.raises(Forbidden):
            checked.check_task(headers(TOKEN, NEXT.sign()))
    assert certificates.fetched == 1
    now.return_value += FETCH_SECONDS + 1
    checked.check_task(headers(TOKEN, NEXT.sign()))
    assert certificates.fetched == 2


def test_revoked_key_is_no_longer_accepted(certificates: Certificates, now: MockType) -> None:
    checked = callers(certificates)
    checked.check_task(headers(TOKEN, GOOGLE.sign()))
    certificates.body = json.dumps(NEXT.certificate).encode()
    now.return_value += CERTIFICATES_SECONDS + 1
    with pytest.raises(Forbidden):
        checked.check_task(headers(TOKEN, GOOGLE.sign()))
