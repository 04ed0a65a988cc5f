"""The secrets port: the same cases on the file and, through Secret Manager's own client, on the local server."""

import json
import os
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from local.faulty_proxy import FaultyProxy
from shared.domain.errors import SecretsUnavailable
from shared.secrets.file_secrets import FILE, KEPT, FileSecrets
from shared.secrets.secret_manager import LABELS, SecretManagerSecrets
from tests.support.permissions import ADDING_SECRET_CALLS, OPERATORS_SECRET_CALLS, SECRET_CALLS
from tests.support.secrets_backend import ADDING, PROJECT, ROOT, FileBackend, SecretManager, ServerBackend

Backend = FileBackend | ServerBackend


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecretManager]:
    server = SecretManager(tmp_path_factory.mktemp("secrets"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["file", "server"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    is_file = request.param == "file"
    found = FileBackend(tmp_path) if is_file else ServerBackend(request.getfixturevalue("server"))
    yield found
    found.close()


@pytest.fixture
def name() -> str:
    return f"pombo-credential-{uuid.uuid4().hex}"


@dataclass
class Noted:
    """A client, and the calls that are made of it."""

    client: Any
    calls: set[str] = field(default_factory=set)

    def __getattr__(self, method: str) -> Any:
        if method != "transport":
            self.calls.add(method)
        return getattr(self.client, method)


def versions(server: SecretManager, name: str) -> int:
    client, channel = server.client()
    with channel:
        return len(list(client.list_secret_versions(parent=f"projects/{PROJECT}/secrets/{name}")))


# ---- both


def test_newest_version_counts(backend: Backend, name: str) -> None:
    secrets = backend.port()
    secrets.add(name, "first")
    assert secrets.newest(name) == "first"
    secrets.add(name, "second")
    assert secrets.newest(name) == "second"
    assert backend.port().newest(name) == "second"


def test_a_secret_that_does_not_exist_has_no_value(backend: Backend, name: str) -> None:
    assert backend.port().newest(name) is None


def test_newest_enabled_version_counts_if_later_ones_are_disabled(backend: Backend, name: str) -> None:
    secrets = backend.port()
    for value in ("first", "second", "third"):
        secrets.add(name, value)
    backend.disable(name, 3)
    assert secrets.newest(name) == "second"
    backend.disable(name, 2)
    assert secrets.newest(name) == "first"


def test_a_secret_without_an_enabled_version_has_no_value(backend: Backend, name: str) -> None:
    secrets = backend.port()
    secrets.add(name, "only")
    backend.disable(name, 1)
    assert secrets.newest(name) is None


def test_white_space_around_a_value_does_not_count(backend: Backend, name: str) -> None:
    secrets = backend.port()
    secrets.add(name, " a value \n")
    assert secrets.newest(name) == "a value"


def test_removed_secret_has_no_value_and_can_be_removed_again(backend: Backend, name: str) -> None:
    secrets = backend.port()
    secrets.add(name, "value")
    secrets.remove(name)
    assert secrets.newest(name) is None
    secrets.remove(name)
    secrets.add(name, "again")
    assert secrets.newest(name) == "again"


def test_sixteen_threads_that_add_lose_no_secret(backend: Backend, name: str) -> None:
    secrets = backend.port()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: secrets.add(f"{name}-{n}", f"value {n}"), range(16)))
    assert [secrets.newest(f"{name}-{n}") for n in range(16)] == [f"value {n}" for n in range(16)]


def test_sixteen_threads_that_create_one_secret_all_succeed(backend: Backend, name: str) -> None:
    secrets = backend.port()
    values = {f"value {n}" for n in range(16)}
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda value: secrets.add(name, value), values))
    assert secrets.newest(name) in values


def test_processes_that_add_at_the_same_time_lose_no_secret(backend: Backend, name: str) -> None:
    backend.port().add(name, "there before")
    names = [[f"{name}-{process}-{n}" for n in range(8)] for process in range(4)]
    processes = [
        subprocess.Popen([sys.executable, "-c", ADDING, *backend.in_a_process(), *some], cwd=ROOT) for some in names
    ]
    assert [process.wait(60) for process in processes] == [0] * 4
    secrets = backend.port()
    added = [each for some in names for each in some]
    assert [secrets.newest(each) for each in added] == [f"value of {each}" for each in added]
    assert secrets.newest(name) == "there before"


CALLS: dict[str, Callable[[SecretManagerSecrets | FileSecrets, str], object]] = {
    "newest": lambda secrets, name: secrets.newest(name),
    "add": lambda secrets, name: secrets.add(name, "hidden-value"),
    "remove": lambda secrets, name: secrets.remove(name),
}


@pytest.mark.parametrize("call", CALLS)
def test_secret_that_may_not_be_used_is_unavailable_and_not_absent(backend: Backend, call: str) -> None:
    name = backend.deny()
    with pytest.raises(SecretsUnavailable) as raised:
        CALLS[call](backend.port(), name)
    assert raised.value.retryable
    assert "hidden-value" not in repr(raised.value) + str(raised.value) + repr(raised.value.__cause__)


# ---- the file


def test_file_that_others_may_read_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / FILE
    secrets = FileSecrets(path)
    secrets.add("a", "value")
    for mode in (0o640, 0o604, 0o660, 0o700):
        path.chmod(mode)
        with pytest.raises(SecretsUnavailable, match=f"chmod 600 {path}"):
            secrets.newest("a")
        with pytest.raises(SecretsUnavailable, match="chmod 600"):
            secrets.add("a", "other")
    path.chmod(0o400)
    assert secrets.newest("a") == "value"


def test_file_is_created_for_its_owner_only(tmp_path: Path) -> None:
    FileSecrets(tmp_path / "new" / "deeper" / FILE).add("a", "value")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new" / "deeper").iterdir()}
    assert modes == {FILE: 0o600, f"{FILE}.lock": 0o600}


def test_file_of_an_earlier_crash_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.new").write_text('{"half": ')
    secrets = FileSecrets(tmp_path / FILE)
    secrets.add("a", "value")
    assert secrets.newest("a") == "value"
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_file_written_by_hand_may_hold_one_text_for_a_secret(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.touch(0o600)
    path.write_text('{"a": "by hand\\n"}')
    secrets = FileSecrets(path)
    assert secrets.newest("a") == "by hand"
    secrets.add("a", "next")
    assert secrets.newest("a") == "next"


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": ["b", 2]}', '{"a": {"b": "c"}}', '{"a": "hidden-value'])
def test_file_of_another_format_is_unavailable_without_its_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(SecretsUnavailable, match="not a JSON object") as raised:
        FileSecrets(path).newest("a")
    error: BaseException | None = raised.value
    while error is not None:
        assert "hidden-value" not in repr(vars(error)) + repr(error)
        error = error.__cause__ or error.__context__
    assert path.read_text() == text


def test_file_keeps_a_few_versions(tmp_path: Path) -> None:
    secrets = FileSecrets(tmp_path / FILE)
    for n in range(KEPT + 2):
        secrets.add("a", f"value {n}")
    assert json.loads((tmp_path / FILE).read_text())["a"] == [f"value {n}" for n in range(2, KEPT + 2)]


def test_writer_that_does_not_finish_is_waited_for_only_so_long(tmp_path: Path) -> None:
    first, second = FileSecrets(tmp_path / FILE), FileSecrets(tmp_path / FILE, patience=0.05)
    first.add("a", "value")
    with first._locked(), pytest.raises(SecretsUnavailable, match="Another process"):
        second.add("a", "other")
    assert second.newest("a") == "value"


def test_file_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(SecretsUnavailable, match="cannot be read") as raised:
        FileSecrets(tmp_path / FILE).newest("a")
    assert isinstance(raised.value.__cause__, OSError)


def test_no_descriptor_stays_open_after_a_write(tmp_path: Path) -> None:
    secrets = FileSecrets(tmp_path / FILE)
    secrets.add("a", "value")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        secrets.add("a", "value")
    assert len(os.listdir("/proc/self/fd")) < before + 10


def test_directory_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SecretsUnavailable, match="cannot be"):
        FileSecrets(tmp_path / "file" / FILE).add("a", "value")


# ---- Secret Manager


def test_created_secret_is_labelled_and_replicated_automatically(server: SecretManager, name: str) -> None:
    secrets = SecretManagerSecrets(PROJECT, server.address)
    secrets.add(name, "value")
    client, channel = server.client()
    with channel:
        found = client.get_secret(name=f"projects/{PROJECT}/secrets/{name}")
    secrets.close()
    assert dict(found.labels) == LABELS == {"app": "pombo"}
    assert found.replication.automatic is not None
    assert "automatic" in found.replication


def test_destroyed_versions_are_passed_over(server: SecretManager, name: str) -> None:
    secrets = SecretManagerSecrets(PROJECT, server.address)
    secrets.add(name, "first")
    secrets.add(name, "second")
    client, channel = server.client()
    with channel:
        client.destroy_secret_version(name=f"projects/{PROJECT}/secrets/{name}/versions/2")
    assert secrets.newest(name) == "first"
    secrets.close()


def test_newest_of_many_enabled_versions_counts(server: SecretManager, name: str) -> None:
    """By its number, not by its text; and however many later ones are disabled."""
    emulated = ServerBackend(server)
    secrets = emulated.port()
    for number in range(1, 13):
        secrets.add(name, f"value {number}")
    emulated.disable(name, 12)
    assert secrets.newest(name) == "value 11"
    for number in range(1, 12):
        if number != 2:
            emulated.disable(name, number)
    assert secrets.newest(name) == "value 2"
    emulated.close()


def test_reading_makes_only_the_calls_that_the_services_account_may_make(server: SecretManager, name: str) -> None:
    """Terraform's role is held to the same table (tests/infra/rules_permissions.py)."""
    secrets = SecretManagerSecrets(PROJECT, server.address)
    backend = ServerBackend(server)
    secrets.add(name, "first")
    secrets.add(name, "second")
    noted = Noted(secrets._client.get())
    secrets._client._client = noted
    assert secrets.newest(name) == "second"
    backend.disable(name, 2)
    assert secrets.newest(name) == "first"
    assert secrets.newest(f"{name}-none") is None
    assert noted.calls == set(SECRET_CALLS)
    secrets.close()


def test_operators_commands_make_only_the_calls_whose_permissions_are_documented(
    server: SecretManager, name: str
) -> None:
    secrets = SecretManagerSecrets(PROJECT, server.address)
    noted = Noted(secrets._client.get())
    secrets._client._client = noted
    secrets.add(name, "first")
    assert noted.calls == set(ADDING_SECRET_CALLS), "what the API service calls too"
    secrets.remove(name)
    assert noted.calls == set(OPERATORS_SECRET_CALLS)
    page = (ROOT / "docs" / "deploy.md").read_text()
    assert "`roles/secretmanager.secretVersionManager`" in page
    for permission in (OPERATORS_SECRET_CALLS[call] for call in ("create_secret", "delete_secret")):
        assert f"`{permission}`" in page
    secrets.close()


def test_secret_without_a_version_has_no_value(server: SecretManager, name: str) -> None:
    client, channel = server.client()
    with channel:
        request = {"parent": f"projects/{PROJECT}", "secret_id": name, "secret": {"replication": {"automatic": {}}}}
        client.create_secret(request=request)
    secrets = SecretManagerSecrets(PROJECT, server.address)
    assert secrets.newest(name) is None
    secrets.add(name, "value")
    assert secrets.newest(name) == "value"
    secrets.close()


def test_version_that_is_not_text_is_unavailable(server: SecretManager, name: str) -> None:
    secrets = SecretManagerSecrets(PROJECT, server.address)
    secrets.add(name, "value")
    client, channel = server.client()
    with channel:
        client.add_secret_version(parent=f"projects/{PROJECT}/secrets/{name}", payload={"data": b"\xff\xfe"})
    with pytest.raises(SecretsUnavailable, match="not text"):
        secrets.newest(name)
    secrets.close()


@pytest.mark.parametrize("call", CALLS)
def test_server_that_is_down_is_unavailable_within_seconds(call: str, name: str) -> None:
    with FaultyProxy("127.0.0.1", 9) as proxy:
        proxy.cut()
        secrets = SecretManagerSecrets(PROJECT, proxy.address)
        began = time.monotonic()
        with pytest.raises(SecretsUnavailable, match="does not answer") as raised:
            CALLS[call](secrets, name)
        assert time.monotonic() - began < 4
        assert raised.value.__cause__ is not None
        secrets.close()


def test_silent_server_is_unavailable_within_seconds(server: SecretManager, name: str) -> None:
    with FaultyProxy("127.0.0.1", server.port, names_target=True) as proxy, proxy.silent():
        secrets = SecretManagerSecrets(PROJECT, proxy.address)
        began = time.monotonic()
        with pytest.raises(SecretsUnavailable):
            secrets.newest(name)
        assert 1.5 < time.monotonic() - began < 4
        secrets.close()


def test_add_whose_answer_was_lost_is_retried(server: SecretManager, name: str) -> None:
    with FaultyProxy("127.0.0.1", server.port, names_target=True) as proxy:
        secrets = SecretManagerSecrets(PROJECT, proxy.address)
        secrets.add(name, "first")
        proxy.swallow_next_answer(holding=b"the-second-value")
        secrets.add(name, "the-second-value")
        assert proxy.swallowed == 1
        assert secrets.newest(name) == "the-second-value"
        secrets.close()
    assert versions(server, name) == 3


def test_creation_whose_answer_was_lost_is_success(server: SecretManager, name: str) -> None:
    with FaultyProxy("127.0.0.1", server.port, names_target=True) as proxy:
        secrets = SecretManagerSecrets(PROJECT, proxy.address)
        assert secrets.newest(name) is None
        proxy.swallow_next_answer(holding=b"\x12" + bytes([len(name)]) + name.encode())  # field 2: secret_id
        secrets.add(name, "value")
        assert proxy.swallowed == 1
        assert secrets.newest(name) == "value"
        secrets.close()


def test_server_that_comes_back_is_used_again(tmp_path: Path, name: str) -> None:
    server = SecretManager(tmp_path)
    server.start()
    secrets = SecretManagerSecrets(PROJECT, server.address)
    secrets.add(name, "value")
    server.kill()
    with pytest.raises(SecretsUnavailable):
        secrets.newest(name)
    server.start()
    try:
        assert secrets.newest(name) == "value"
    finally:
        secrets.close()
        server.kill()
