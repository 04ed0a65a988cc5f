"""The file with the API key of a Pombo on this machine: made once, private, and always in force."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cli.api_key import keep_api_key
from cli.commands import pombo
from local.stack import Options
from shared import config
from shared.bootstrap.backends import RegistryStore, build_store
from shared.domain.errors import StoreUnavailable
from shared.domain.limits import Limits
from shared.domain.tenants import ApiKey, Scope
from shared.operations.keys import add_key, is_right, parse_key, revoke_key
from shared.operations.registry import values_of
from shared.pipeline.clock import SystemClock
from shared.pipeline.registry import EntryKind
from shared.stores.sqlite.store import SqliteStore


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"SQLITE_PATH": str(tmp_path / "pombo.sqlite")}


@contextmanager
def store_of(environ: dict[str, str]) -> Iterator[RegistryStore]:
    store = build_store(config.load(environ, config.CLI))
    yield store
    store.close()


def keys_of(environ: dict[str, str]) -> list[ApiKey]:
    with store_of(environ) as store:
        return list(values_of(store, EntryKind.KEY, None))


def is_in_force(environ: dict[str, str], path: Path) -> bool:
    presented = parse_key(path.read_text().strip())
    assert presented
    return any(key.id == presented.id and is_right(key, presented) for key in keys_of(environ))


def test_new_file_has_an_operators_key_of_every_scope_for_its_owner_alone(
    environ: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "api-key"
    keep_api_key(environ, path)
    (key,) = keys_of(environ)
    assert is_in_force(environ, path)
    assert (key.tenant, key.scopes) == (None, frozenset(Scope))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().endswith("\n")
    assert not path.with_suffix(".part").exists()


def test_file_and_registry_stay_as_they_are_at_the_next_start(environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "api-key"
    keep_api_key(environ, path)
    before = (path.read_text(), path.stat().st_mtime_ns, keys_of(environ))
    keep_api_key(environ, path)
    assert (path.read_text(), path.stat().st_mtime_ns, keys_of(environ)) == before


def test_the_same_key_is_in_force_in_a_store_that_was_emptied(environ: dict[str, str], tmp_path: Path) -> None:
    path, other = tmp_path / "api-key", {"SQLITE_PATH": str(tmp_path / "other.sqlite")}
    keep_api_key(environ, path)
    text = path.read_text()
    keep_api_key(other, path)
    assert path.read_text() == text
    assert is_in_force(other, path)
    (key,) = keys_of(other)
    assert (key.tenant, key.scopes) == (None, frozenset(Scope))


def test_revoked_key_is_replaced_and_stays_revoked(environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "api-key"
    keep_api_key(environ, path)
    text = path.read_text()
    with store_of(environ) as store:
        revoke_key(store, SystemClock(), text.split("_")[1])
    keep_api_key(environ, path)
    assert path.read_text() != text
    assert is_in_force(environ, path)
    assert sorted(key.revoked_at is None for key in keys_of(environ)) == [False, True]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe", b"pombo_0123_4567"])
def test_file_without_a_key_is_replaced(content: bytes, environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "api-key"
    path.write_bytes(content)
    path.chmod(0o644)
    path.with_suffix(".part").write_text("left by a start that was killed")
    keep_api_key(environ, path)
    assert is_in_force(environ, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_key_with_anothers_id_is_replaced_and_changes_nothing_of_that(environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "api-key"
    with store_of(environ) as store:
        theirs, _ = add_key(store, SystemClock(), "default", [Scope.READ])
    path.write_text(f"pombo_{theirs.id}_{'0' * 64}\n")
    keep_api_key(environ, path)
    assert is_in_force(environ, path)
    assert theirs in keys_of(environ)


def test_store_that_cannot_be_reached_is_reported_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "api-key"
    environ: dict[str, Any] = {"STORE": "redis", "REDIS_URL": "redis://127.0.0.1:9"}
    with pytest.raises(click.ClickException, match=r"The API key of .* cannot be kept: "):
        keep_api_key(environ, path)
    assert not path.exists()


@pytest.mark.parametrize("fails", [False, True])
def test_store_is_closed_in_either_case(
    fails: bool, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    class Closing(SqliteStore):
        def entries(self, names: Any) -> Any:
            if fails:
                raise StoreUnavailable
            return super().entries(names)

        def close(self) -> None:
            closed.append("closed")
            super().close()

    opened = Closing(tmp_path / "pombo.sqlite", Limits(), SystemClock().now)
    monkeypatch.setattr("cli.api_key.build_store", lambda _: opened)
    (tmp_path / "api-key").write_text(f"pombo_{'1' * 16}_{'0' * 64}\n")
    with pytest.raises(click.ClickException) if fails else nullcontext():
        keep_api_key(environ, tmp_path / "api-key")
    assert closed == ["closed"]


def test_pombo_up_keeps_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Options] = []
    monkeypatch.setattr("local.stack.run", lambda options, **_: started.append(options))
    assert CliRunner().invoke(pombo, ["up", "--data-dir", str(tmp_path)]).exit_code == 0
    assert [options.keep_api_key for options in started] == [keep_api_key]
