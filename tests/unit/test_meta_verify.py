"""The signature of Meta's webhooks: over the bytes as they came, with any of the app's secrets, and never without."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.channels.meta.channel import MetaChannel
from shared.domain.errors import Forbidden, SignatureInvalid
from shared.domain.limits import PostTimes
from shared.pipeline.intake import Incoming

BODY = b'{"object":"whatsapp_business_account","entry":[]}'
VECTORS = [  # made with openssl dgst -sha256 -hmac test_app_secret
    (BODY, "dec6a680679a968e7e0319355b23599cbfc54502c0784668e9618baa0c633756"),
    (
        b'{"object": "whatsapp_business_account", "entry": []}',
        "56cbbaf4961c6cfdae48b7f116c047e5eb513d2c931baae63a2bc1afd26f803a",
    ),
]


def channel(*secrets: str) -> MetaChannel:
    return MetaChannel(app_secrets=secrets, base_url="", version="v25.0", post=PostTimes())


def request(body: bytes, signature: str | None) -> Incoming:
    headers = {} if signature is None else {"x-hub-signature-256": signature}
    return Incoming("meta", "POST", "/webhooks/whatsapp", headers, body)


def signed(body: bytes, secret: str = "test_app_secret") -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@pytest.mark.parametrize(("body", "digest"), VECTORS)
def test_the_right_signature_over_these_very_bytes_is_accepted(body: bytes, digest: str) -> None:
    channel("test_app_secret").verify(request(body, f"sha256={digest}"))


def test_the_same_json_in_other_bytes_is_refused() -> None:
    escaped = rb'{"body":"p\u00e3o a\u0040b.c \/x \ud83d\ude00"}'
    plain = '{"body":"pão a@b.c /x 😀"}'.encode()
    channel("test_app_secret").verify(request(escaped, signed(escaped)))
    with pytest.raises(SignatureInvalid):
        channel("test_app_secret").verify(request(plain, signed(escaped)))


def test_any_bytes_verify_even_if_they_are_not_text() -> None:
    body = bytes(range(256))
    channel("test_app_secret").verify(request(body, signed(body)))
    channel("test_app_secret").verify(request(b"", signed(b"")))


def test_every_secret_of_a_rotation_is_accepted() -> None:
    for secret in ("old", "new"):
        channel("new", "old").verify(request(BODY, signed(BODY, secret)))
    with pytest.raises(SignatureInvalid):
        channel("new", "old").verify(request(BODY, signed(BODY, "other")))


def test_without_a_secret_nothing_is_accepted() -> None:
    for meta in (channel(), channel(""), channel("", "")):
        with pytest.raises(SignatureInvalid):
            meta.verify(request(BODY, signed(BODY, "")))


DIGEST = VECTORS[0][1]


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        "sha256=",
        DIGEST,
        f"sha1={DIGEST}",
        f"SHA256={DIGEST}",
        f"sha256={DIGEST.upper()}",
        f"sha256={DIGEST[:-1]}",
        f"sha256={DIGEST}0",
        f"sha256={DIGEST}\n",
        f" sha256={DIGEST}",
        f"sha256= {DIGEST}",
        f"sha256={DIGEST},sha256={DIGEST}",
        f"sha256={DIGEST[:-1]}é",
        f"sha256={DIGEST[:-1]}\u0664",  # a digit, but of another script
        "sha256=" + "0" * 64,
        "sha256=" + "g" * 64,
    ],
)
def test_an_absent_malformed_or_wrong_signature_is_refused(signature: str | None) -> None:
    with pytest.raises(SignatureInvalid):
        channel("test_app_secret").verify(request(BODY, signature))


@given(st.binary(max_size=50), st.text(max_size=80))
def test_no_header_raises_anything_but_signature_invalid(body: bytes, signature: str) -> None:
    for header in (signature, "sha256=" + signature):
        with pytest.raises(SignatureInvalid):
            channel("test_app_secret", "\udcff").verify(request(body, header))


def test_fingerprint_differs_by_credential_and_reveals_nothing() -> None:
    meta = channel()
    one, other = meta.fingerprint("token-1"), meta.fingerprint("token-2")
    assert one != other
    assert one == channel().fingerprint("token-1")
    assert "token" not in one
    assert meta.fingerprint("") == ""


# ---- the handshake


def asked(token: str) -> Incoming:
    query = f"hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token={token}"
    return Incoming("meta", "GET", f"/webhooks/whatsapp?{query}", {}, b"")


def test_any_listed_verify_token_gets_the_challenge() -> None:
    meta = MetaChannel(verify_tokens=["new", "old"])
    for token in ("new", "old"):
        assert meta.handshake(asked(token)).body == b"1158201444"


@pytest.mark.parametrize("tokens", [(), ("",), ("a-word",)])
@pytest.mark.parametrize("token", ["", "another-word"])
def test_handshake_without_a_valid_verify_token_is_forbidden(tokens: tuple[str, ...], token: str) -> None:
    with pytest.raises(Forbidden) as refused:
        MetaChannel(verify_tokens=tokens).handshake(asked(token))
    assert refused.value.cause == "verify_token"
