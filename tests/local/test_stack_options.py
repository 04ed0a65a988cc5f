"""What a command that breaks the stack may ask of it: settings before the user's own, a door before the store, and a
control address that outlives the provider.
"""

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

import click
import httpx
import pytest
from click.testing import CliRunner

from cli.tour.hello import what_next, where_decided
from cli.tour.samples import _running_webhook, try_samples
from local.stack import EndedAtStart, Options, Stack, _locked, _serve
from local.terminal import WrongSettings
from local.whatsapp.accounts import APP_ID
from shared import config
from tests.support.stack import Stack as RunningStack
from tests.support.stack import wait_until

ROOT = Path(__file__).parents[2]


def environment_of(stack: Stack) -> dict[str, str]:
    """As its children get it."""
    return stack._environment


def test_its_settings_go_before_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDLER", "handlers.menu:handle")
    monkeypatch.setenv("LOG_LEVEL", "DEBUG")

    environment = environment_of(Stack(Options(tmp_path, first_port=0, settings={"HANDLER": "handlers.echo:handle"})))

    assert (environment["HANDLER"], environment["LOG_LEVEL"]) == ("handlers.echo:handle", "DEBUG")


def test_empty_setting_removes_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDLER_URL", "http://127.0.0.1:9/")
    settings = {"HANDLER": "handlers.echo:handle", "HANDLER_URL": ""}

    environment = environment_of(Stack(Options(tmp_path, first_port=0, settings=settings)))

    assert config.load(environment, config.INTERNAL).get("HANDLER_URL") is None


@pytest.mark.parametrize(("store", "setting"), [("redis", "REDIS_URL"), ("firestore", "FIRESTORE_EMULATOR_HOST")])
def test_services_reach_the_store_server_through_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, setting: str
) -> None:
    monkeypatch.delenv(setting, raising=False)
    behind = []

    def door(port: int) -> int:
        behind.append(port)
        return 4242

    environment = environment_of(Stack(Options(tmp_path, store, first_port=0, store_proxy=door)))

    assert "4242" in environment[setting]
    assert len(behind) == 1
    assert str(behind[0]) not in environment[setting]


def test_ports_move_with_the_first_one_and_control_is_the_eighth(tmp_path: Path) -> None:
    described = Stack(Options(tmp_path, first_port=9000)).describe()

    assert (described["whatsapp"], described["control"]) == ("http://127.0.0.1:9002", "http://127.0.0.1:9007")
    assert described["api"] == "http://127.0.0.1:9004"


def test_a_stores_own_server_has_the_seventh_port_and_the_sixth_is_kept_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    stack = Stack(Options(tmp_path, "redis", first_port=9000))
    assert environment_of(stack)["REDIS_URL"] == "redis://127.0.0.1:9006/0"
    assert sorted(stack._ports.values()) == [9000, 9001, 9002, 9003, 9004, 9006, 9007]


def test_api_key_is_kept_before_the_stack_is_ready_and_again_when_the_store_forgot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Path]] = []

    def keep(environ: Mapping[str, str], path: Path) -> None:
        asked.append((environ["FIRESTORE_EMULATOR_HOST"], path))
        if len(asked) == 1:
            raise click.ClickException("The store is not back yet.")

    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    stack = Stack(Options(tmp_path, "firestore", first_port=9000, keep_api_key=keep), say=lambda _: None)
    stack._revive(Revived("store"))  # type: ignore[arg-type]
    wait_until(lambda: len(asked) == 2, "the key is kept, at the second try")
    assert set(asked) == {("127.0.0.1:9006", tmp_path / "api-key")}


class Keeper:
    """Keeps the API's key at the second try; at the first the store does not answer, or the settings are wrong."""

    def __init__(self, error: click.ClickException) -> None:
        self.error, self.tries = error, 0

    def __call__(self, *_: object) -> None:
        self.tries += 1
        if self.tries == 1:
            raise self.error


def test_start_asks_a_store_again_that_did_not_keep_the_api_key_at_once(tmp_path: Path) -> None:
    keeper = Keeper(click.ClickException("The store cannot be reached."))
    Stack(Options(tmp_path, first_port=0, keep_api_key=keeper))._keep_api_key_at_start()
    assert keeper.tries == 2


@pytest.mark.parametrize(
    ("error", "told_to_end", "ready_seconds"),
    [
        (WrongSettings(["STORE is wrong."]), False, 60),
        (click.ClickException("The store cannot be reached."), False, -1),
        (click.ClickException("The store cannot be reached."), True, 60),
    ],
)
def test_start_without_an_api_key_ends_where_no_second_try_can_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: click.ClickException, told_to_end: bool, ready_seconds: int
) -> None:
    monkeypatch.setattr("local.stack.READY_SECONDS", ready_seconds)
    keeper = Keeper(error)
    stack = Stack(Options(tmp_path, first_port=0, keep_api_key=keeper), told_to_end=lambda: told_to_end)
    with pytest.raises(EndedAtStart if told_to_end else type(error)):
        stack._keep_api_key_at_start()
    assert keeper.tries == 1


@pytest.mark.parametrize("setting", ["META_APP_ID", "META_VERIFY_TOKEN", "MAX_ATTEMPTS"])
def test_setting_that_one_service_would_refuse_stops_the_start(tmp_path: Path, setting: str) -> None:
    stack = Stack(Options(tmp_path, first_port=0, settings={setting: "not \x00 right"}))
    with pytest.raises(WrongSettings, match=setting):
        stack._check_settings()


def test_commands_of_the_stack_know_the_simulators_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("META_APP_ID", raising=False)
    stack = Stack(Options(tmp_path, first_port=0))
    assert stack._cli_environment()["META_APP_ID"] == APP_ID
    assert "META_APP_SECRET" not in stack._cli_environment()


def test_certificates_are_fetched_from_the_port_that_stays_open(tmp_path: Path) -> None:
    stack = Stack(Options(tmp_path, first_port=0))

    assert environment_of(stack)["OIDC_CERTS_URL"] == stack.describe()["control"] + "/control/oidc-certs"


def test_existing_data_directory_becomes_private_to_its_owner(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o700)
    ours = ("logs.jsonl", "internal.stderr.log", "lock", "ports.json", "faults.sqlite", "api-key", "oidc-old.pem")
    for name in ours:
        (data_dir / name).touch()
        (data_dir / name).chmod(0o644)
    (data_dir / "mine.jsonl").touch()
    (data_dir / "mine.jsonl").chmod(0o640)
    umask = os.umask(0o022)
    try:
        keeper = Keeper(click.ClickException("The store cannot be reached."))
        stack = Stack(Options(data_dir, first_port=0, sweep=False, keep_api_key=keeper), say=lambda _: None)
        with stack.running():
            assert keeper.tries == 2, "its start does not end with the first try"
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data_dir.rglob("*") if path.is_file()}
            umask_of_child = re.search(r"Umask:\s+(\d+)", Path(f"/proc/{stack._pids()['internal']}/status").read_text())
        assert os.umask(0o022) == 0o022, "as it was before"
    finally:
        os.umask(umask)

    assert modes.pop("mine.jsonl") == 0o640, "a file of the user's own is left alone"
    assert {"whatsapp.sqlite", "pombo.sqlite", "tasks.sqlite", "webhook.stderr.log", "stack.json"} <= modes.keys()
    assert modes == dict.fromkeys(modes, 0o600)
    assert umask_of_child
    assert umask_of_child[1] == "0077"


def test_new_data_directory_is_private_to_its_owner(tmp_path: Path) -> None:
    with _locked(tmp_path / "a" / "data"):
        assert stat.S_IMODE((tmp_path / "a" / "data").stat().st_mode) == 0o700


def test_a_process_that_was_started_again_has_its_new_pid_in_both_files(tmp_path: Path) -> None:
    stack = Stack(Options(tmp_path, first_port=0), say=lambda _: None)
    (tmp_path / "stack.json").write_text("{}")
    died = Revived("internal")
    stack._children["internal"] = died  # type: ignore[assignment]

    stack._revive(died)  # type: ignore[arg-type]

    for name in ("pids.json", "stack.json"):
        written = json.loads((tmp_path / name).read_text())
        assert (written.get("pids") or written)["internal"] == 4242


def test_stack_json_names_the_secrets_that_are_set_and_holds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDLER_URL_SECRET", "whsec_c4n4ry")
    monkeypatch.delenv("META_APP_SECRET", raising=False)

    Stack(Options(tmp_path, first_port=0), say=lambda _: None)._describe()

    text = (tmp_path / "stack.json").read_text()
    assert "c4n4ry" not in text
    known = set(json.loads(text)["secrets"])
    assert {"HANDLER_URL_SECRET", "META_APP_SECRET"} <= known, "the second by the default of one machine"
    assert known <= {setting.name for setting in config.SETTINGS if setting.secret}


def test_a_stack_that_was_killed_is_not_used_for_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".pombo").mkdir()
    Path(".pombo/stack.json").write_text('{"webhook": "http://127.0.0.1:9"}')
    assert _running_webhook() is None
    with _locked(Path(".pombo")):
        assert _running_webhook() == "http://127.0.0.1:9"


class Revived:
    """A child that has died, until it is started."""

    def __init__(self, name: str) -> None:
        self.name, self.pid, self.returncode = name, 1, -9

    def start(self) -> None:
        self.pid = 4242


def test_control_of_a_running_stack_answers_while_whatsapp_is_unreachable(tmp_path: Path) -> None:
    with RunningStack(tmp_path, is_forked=True) as stack:
        faults = stack.described["control"] + "/control/faults"
        stack.http.post(faults, json={"on": "provider", "kind": "unreachable"}).raise_for_status()
        with pytest.raises(httpx.ConnectError):
            stack.http.get(stack.described["whatsapp"])
        stack.http.delete(faults).raise_for_status()
        assert stack.http.get(stack.described["whatsapp"] + "/control/faults").json() == []


# ---- what it tells of its settings


@pytest.mark.parametrize(
    ("settings", "handler"),
    [
        ({}, "handlers/echo.py"),
        ({"HANDLER": "handlers.menu:handle"}, "handlers/menu.py"),
        ({"HANDLER": "elsewhere.mine:handle"}, "elsewhere.mine:handle"),
        ({"HANDLER_URL": "http://127.0.0.1:9000/", "HANDLER_URL_SECRET": "no secret"}, "http://127.0.0.1:9000/"),
    ],
)
def test_handler_in_use_is_named_by_file_or_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], handler: str
) -> None:
    monkeypatch.chdir(ROOT)
    for name in ("HANDLER", "HANDLER_URL", "HANDLER_URL_SECRET"):
        monkeypatch.delenv(name, raising=False)

    told = Stack(Options(tmp_path, first_port=0, settings=settings)).handler

    assert told == handler
    assert ("your backend decides" in where_decided(told)) is ("HANDLER_URL" in settings)


def test_misspelt_setting_is_reported_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setenv("HANDLER_TIMOUT", "5s")

    Stack(Options(tmp_path, first_port=0), said.append)._check_settings()

    assert said == ["Note: HANDLER_TIMOUT is set, but Pombo has no such setting. Did you mean HANDLER_TIMEOUT?"]


def test_each_setting_the_services_refuse_is_reported_on_its_own_line(tmp_path: Path) -> None:
    wrong = {"PORT": "none", "HANDLER": "foo", "HANDLER_TIMOUT": "5s"}

    with pytest.raises(WrongSettings) as caught:
        Stack(Options(tmp_path, first_port=0, settings=wrong))._check_settings()

    assert [fault.split()[0] for fault in caught.value.faults] == ["PORT", "HANDLER"]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> str:
    """pombo, as it is typed where a shell does not find it."""
    monkeypatch.setattr("local.invocation.program", lambda: ".venv/bin/pombo")
    return ".venv/bin/pombo"


def test_commands_suggested_by_up_lead_to_that_stack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for directory, option in ((tmp_path / "other data", f" --data-dir '{tmp_path}/other data'"), (Path(".pombo"), "")):
        directory.mkdir()
        stack = Stack(Options(directory.resolve(), first_port=9000), told_to_end=lambda: True)

        _serve(stack)

        said = capsys.readouterr().out
        assert f'In another terminal: {script} say "hello" --wait{option}   Ctrl-C' in said
        assert f'  {script} say "how are you?" --wait{option} ' in what_next(stack)
        assert f"  {script} trace ID{option} " in what_next(stack)
        assert f"  {script} ledger{option} " in what_next(stack)


def test_make_try_uses_the_given_ports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And then starts a Pombo for itself, also where one runs."""
    monkeypatch.chdir(tmp_path)
    made: list[Options] = []

    def stack(options: Options, told_to_end: object) -> Stack:
        made.append(options)
        raise click.ClickException("enough")

    monkeypatch.setattr("cli.tour.samples.Stack", stack)
    monkeypatch.setattr("cli.tour.samples._running_webhook", lambda: "http://127.0.0.1:9")
    monkeypatch.setenv("HANDLER", "handlers.menu:handle")  # the command would set it, in the process of the tests
    assert "enough" in CliRunner().invoke(try_samples, ["--ports", "9000"]).output
    assert [options.first_port for options in made] == [9000]
