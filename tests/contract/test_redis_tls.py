"""A real redis-server with TLS, a password, and an authority of its own: as Memorystore is reached."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from shared.domain.errors import StoreUnavailable
from shared.domain.limits import Limits
from shared.pipeline.intake import Created
from shared.stores.redis.store import RedisStore
from tests.support.real_servers import free_port
from tests.support.redis_backend import RedisServer

NOW = datetime(2026, 11, 28, tzinfo=UTC)
PASSWORD = "0f3c2a64-8d11-4b8e-9d5e-2f6f3c1f8a55"


class Authority:
    """One that signs a server's certificate, which names the server in its common name alone."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = (
            self._built(self._name, self._key).add_extension(basic, True).sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self._certificate.public_bytes(Encoding.PEM).decode()

    def sign(self, directory: Path) -> tuple[Path, Path]:
        """The files of a server's certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "10.0.0.3")])
        signed = self._built(subject, key).sign(self._key, hashes.SHA256())
        (directory / "cert.pem").write_bytes(signed.public_bytes(Encoding.PEM))
        (directory / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return directory / "cert.pem", directory / "key.pem"

    def _built(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        built = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        today = datetime.now(UTC)
        return built.not_valid_before(today - timedelta(1)).not_valid_after(today + timedelta(1))


@contextmanager
def served(directory: Path, authority: Authority) -> Iterator[tuple[RedisServer, int]]:
    """A server with a password, and the port on which it speaks TLS."""
    cert, key = authority.sign(directory)
    port = free_port()
    with RedisServer(directory, password=PASSWORD) as server:
        files = {"tls-cert-file": str(cert), "tls-key-file": str(key), "tls-ca-cert-file": str(cert)}
        server.raw.config_set("tls-auth-clients", "no", *itertools.chain(*files.items()))
        server.raw.config_set("tls-port", port)
        yield server, port


def sentence(store: RedisStore) -> str:
    with pytest.raises(StoreUnavailable) as raised:
        store.ping()
    store.close()
    return str(raised.value.sentence)


def test_a_store_with_a_password_and_the_servers_authority_is_written_to(tmp_path, a_record):
    authority = Authority("the server's own")
    with served(tmp_path, authority) as (server, port):
        store = RedisStore(f"rediss://:{PASSWORD}@127.0.0.1:{port}/0", Limits(), lambda: NOW, authority.pem)
        record = a_record()
        assert store.create(record) == Created()
        assert server.raw.exists(f"pombo:record:{record.key}"), "it is in this server"
        store.close()


def test_either_of_two_authorities_can_have_signed(tmp_path):
    """Memorystore names the next authority beside the one that ends, five years before."""
    old, new = Authority("old"), Authority("new")
    with served(tmp_path, new) as (_, port):
        store = RedisStore(f"rediss://:{PASSWORD}@127.0.0.1:{port}/0", Limits(), lambda: NOW, old.pem + new.pem)
        store.ping()
        store.close()


def test_a_server_of_another_authority_is_refused(tmp_path):
    with served(tmp_path, Authority("another")) as (_, port):
        url = f"rediss://:{PASSWORD}@127.0.0.1:{port}/0"
        assert sentence(RedisStore(url, Limits(), lambda: NOW, Authority("ours").pem)) == "Redis cannot be reached."


def test_an_authority_of_the_system_does_not_count_beside_the_servers_own(tmp_path, monkeypatch):
    """Anybody may have a certificate of one of those, for a name that is not compared."""
    public = Authority("a public one")
    (tmp_path / "system.pem").write_text(public.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    with served(tmp_path, public) as (_, port):
        url = f"rediss://:{PASSWORD}@127.0.0.1:{port}/0"
        assert sentence(RedisStore(url, Limits(), lambda: NOW, Authority("ours").pem)) == "Redis cannot be reached."


def test_the_name_of_a_server_counts_where_its_authority_signs_for_others_too(tmp_path, monkeypatch):
    public = Authority("a public one")
    (tmp_path / "system.pem").write_text(public.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    with served(tmp_path, public) as (_, port):
        url = f"rediss://:{PASSWORD}@127.0.0.1:{port}/0"
        assert sentence(RedisStore(url, Limits(), lambda: NOW)) == "Redis cannot be reached."


@pytest.mark.parametrize("user", ["", ":wrong@"])
def test_wrong_or_missing_password_is_reported_without_it(tmp_path, user):
    authority = Authority("the server's own")
    with served(tmp_path, authority) as (_, port):
        store = RedisStore(f"rediss://{user}127.0.0.1:{port}/0", Limits(), lambda: NOW, authority.pem)
        assert sentence(store) == "Redis refused the user or the password in REDIS_URL."
