"""pombo tenants, senders and keys on a store without a stack: their output, their refusals, and where secrets go."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from google.api_core.exceptions import NotFound as NotFoundByGoogle
from google.api_core.exceptions import ServiceUnavailable

from cli.commands import pombo
from cli.registry import context, drains, handler_of_tenant, senders, tenants
from shared.bootstrap import connect
from shared.domain.drains import RESUMED, DrainTask
from shared.domain.errors import QueueUnavailable, SecretsUnavailable
from shared.domain.identity import credential_fingerprint, message_event_id, sender_id
from shared.domain.marks import RefusedCredential
from shared.domain.onboarding import Checked, OnboardingRefused
from shared.domain.pace import take_place
from shared.domain.record import State
from shared.operations import registry
from shared.operations import senders as registry_senders
from shared.operations.dead_letters import Decision, Done
from shared.operations.drains import KNOWN_EVERYWHERE
from shared.operations.registry import Invalid, NotFound, Refused, Taken
from shared.pipeline.clock import SystemClock
from shared.pipeline.registry import EntryKind, EntryName, EntryWrite
from shared.stores.sqlite.store import SqliteStore
from shared.tenants.cache import FRESH_SECONDS, MOST
from shared.tenants.credentials import OLDEST_SECONDS
from shared.tenants.entries import sender_name, tenant_name
from tests.support.parts import LIMITS, NOW, an_event, ended
from tests.support.pipelines import Queue
from tests.support.stack import clean_environment, cli, fails

ROOT = Path(__file__).parents[2]
SIGNING = "whsec_" + "A" * 32
TOKEN = "EAAB-a-token"
NUMBER = ("--provider", "meta", "--id", "200", "--account", "300")
MINE = "pombo-credential-of-an-operator"


class MemorySecrets(dict[str, list[str]]):
    """Secrets by name, oldest version first."""

    is_down = False

    def newest(self, name: str) -> str | None:
        return self[name][-1] if name in self else None

    def add(self, name: str, value: str) -> None:
        if self.is_down:
            raise SecretsUnavailable
        self.setdefault(name, []).append(value)

    def remove(self, name: str) -> None:
        if self.is_down:
            raise SecretsUnavailable
        self.pop(name, None)


class Provider:
    """Knows every number and token, unless told otherwise."""

    def __init__(self) -> None:
        self.connected: list[tuple[str, str]] = []
        self.refusal: Exception | None = None
        self.expires_at: datetime | None = None

    def check(self, provider_id: str, account: str, token: str) -> Checked:
        if self.refusal:
            raise self.refusal
        self.connected.append((provider_id, token))
        return Checked(f"+1 555 0100 of {account}", self.expires_at)

    def subscribe(self, account: str, token: str) -> None:
        pass


class Desk:
    """The command line on one file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env: dict[str, str | None] = {
            "STORE": "sqlite",
            "SQLITE_PATH": str(directory / "pombo.sqlite"),
            "APP_ENV": None,
        }
        self.store = SqliteStore(directory / "pombo.sqlite", LIMITS, lambda: NOW)
        self.secrets, self.provider = MemorySecrets(), Provider()

    def invoke(self, *arguments: str, given: str | None = None) -> Result:
        return CliRunner(env=self.env).invoke(pombo, [*arguments, "--data-dir", str(self.directory)], input=given)

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        result = self.invoke(*arguments, given=given)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def json(self, *arguments: str, given: str | None = None) -> Any:
        return json.loads(self(*arguments, "--json", given=given))

    def refused(self, *arguments: str, given: str | None = None) -> Exception:
        """Why the command fails; it has printed nothing."""
        result = self.invoke(*arguments, given=given)
        assert result.exit_code != 0
        assert result.stdout == ""
        assert isinstance(result.exception, Exception | SystemExit)
        return result.exception if isinstance(result.exception, Exception) else click.ClickException(result.stderr)

    @property
    def written(self) -> str:
        """All that the database holds of the registry."""
        entries = [entry for kind in EntryKind for entry in registry.entries_of(self.store, kind, None)]
        return str(entries)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    for module in (context, connect):
        monkeypatch.setattr(module, "build_secrets", lambda _: desk.secrets)
    monkeypatch.setattr(connect, "build_onboarding", lambda _: desk.provider)
    monkeypatch.setattr(registry_senders, "RELEASE_SECONDS", 0.0)
    yield desk
    desk.store.close()


# ---- tenants


def test_added_tenant_is_printed_with_its_pair_of_queues(desk: Desk) -> None:
    assert desk.json("tenants", "add", "bakery", "--name", "Ana's") == {"id": "bakery", "queue": 0}
    assert desk.json("tenants", "add", "florist") == {"id": "florist", "queue": 1}
    assert "Added tenant kiosk, with pair 2 of the queues." in desk("tenants", "add", "kiosk")


def test_tenant_is_added_to_the_pairs_of_the_settings(desk: Desk) -> None:
    desk.env["TENANT_QUEUES"] = "1"
    assert [desk.json("tenants", "add", id)["queue"] for id in ("bakery", "florist")] == [0, 0]
    desk.env["TENANT_QUEUES"] = "0"
    assert "Added tenant kiosk, with the shared queues." in desk("tenants", "add", "kiosk")


@pytest.mark.parametrize("name", ["\x1b[31mAna", "A\nB", "x" * 201], ids=["escape", "lines", "long"])
def test_unprintable_or_long_name_is_a_usage_error(desk: Desk, name: str) -> None:
    assert desk.invoke("tenants", "add", "bakery", "--name", name).exit_code == 2
    desk("tenants", "add", "florist")
    assert desk.invoke("tenants", "set", "florist", "--name", name).exit_code == 2
    assert [tenant["name"] for tenant in desk.json("tenants", "list")["tenants"]] == [""]


def test_tenants_are_listed_with_what_is_known_of_them(desk: Desk) -> None:
    assert "There are no tenants but default" in desk("tenants", "list")
    desk("tenants", "add", "bakery", "--name", "Ana's bakery")
    desk("tenants", "suspend", "bakery")
    listed = desk.json("tenants", "list")
    (bakery,) = listed["tenants"]
    assert listed["unread"] == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z", bakery.pop("created_at"))
    assert bakery == {
        "id": "bakery",
        "name": "Ana's bakery",
        "state": "suspended",
        "queue": 0,
        "in_doubt": None,
        "handler": None,
    }
    assert re.search(r"bakery +suspended +0 +Ana's bakery +the deployment's", desk("tenants", "list"))


def test_tenant_is_shown_with_its_senders_and_keys(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    desk("senders", "add", "--tenant", "bakery", *NUMBER)
    desk("keys", "add", "--tenant", "bakery", "--scopes", "send")
    revoked = desk.json("keys", "add", "--tenant", "bakery", "--scopes", "send")["id"]
    desk("keys", "revoke", revoked)
    shown = desk.json("tenants", "show", "bakery")
    assert (shown["senders"], shown["keys"]) == (1, 1)
    assert "Tenant bakery: active" in desk("tenants", "show", "bakery")


def of_newer_version(desk: Desk, name: EntryName) -> None:
    """Write the entry as a newer version may."""
    (found,) = desk.store.entries([name])
    assert found
    assert desk.store.commit_entries([EntryWrite(name, found.tenant, {"state": "archived"}, found.version)])


def test_entry_of_a_newer_version_is_counted_and_not_shown(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    of_newer_version(desk, tenant_name("bakery"))
    assert desk.json("tenants", "list") == {"tenants": [], "unread": 1}
    assert "1 more cannot be read" in desk("tenants", "list")


def test_name_policy_and_handler_are_changed(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    changed = desk.json("tenants", "set", "bakery", "--name", "Ana", "--in-doubt", "hold")
    assert (changed["name"], changed["in_doubt"]) == ("Ana", "hold")
    assert desk.json("tenants", "set", "bakery", "--in-doubt", "deployment")["in_doubt"] is None
    assert desk.json("tenants", "set", "bakery", "--name", "")["name"] == ""


def test_signing_secret_is_made_shown_once_and_kept_as_a_reference(desk: Desk) -> None:
    added = desk.json("tenants", "add", "bakery", "--handler-url", "http://10.0.0.7/pombo")
    secret = added.pop("handler_secret")
    assert added == {"id": "bakery", "queue": 0}
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret)
    handler = desk.json("tenants", "show", "bakery")["handler"]
    assert handler == {"url": "http://10.0.0.7/pombo", "secret": "pombo-handler-bakery"}
    assert desk.secrets == {handler["secret"]: [secret]}
    assert secret not in desk.written


def test_signing_secret_from_standard_input_is_used_and_not_shown(desk: Desk) -> None:
    url = ("--handler-url", "https://bakery.example/pombo")
    output = desk("tenants", "add", "bakery", *url, "--handler-secret", "-", given=f"{SIGNING}\n")
    assert SIGNING not in output
    desk("tenants", "set", "bakery", "--handler-secret", "-", given=f"{SIGNING[:-1]}B, {SIGNING}")
    assert desk.secrets == {"pombo-handler-bakery": [SIGNING, f"{SIGNING[:-1]}B,{SIGNING}"]}
    assert desk.json("tenants", "show", "bakery")["handler"]["url"] == url[1]
    assert "handler_secret" not in desk.json("tenants", "set", "bakery", "--handler-url", "https://b.example/new")
    assert desk.json("tenants", "show", "bakery")["handler"]["url"] == "https://b.example/new"


def test_tenant_goes_back_to_the_deployments_handler(desk: Desk) -> None:
    desk("tenants", "add", "bakery", "--handler-url", "https://bakery.example/pombo")
    assert desk.json("tenants", "set", "bakery", "--no-handler")["handler"] is None
    assert desk.secrets == {}


def test_secret_of_an_existing_tenant_survives_a_second_add(desk: Desk) -> None:
    desk("tenants", "add", "bakery", "--handler-url", "https://bakery.example/pombo")
    before = dict(desk.secrets)
    error = desk.refused("tenants", "add", "bakery", "--handler-url", "https://evil.example/pombo")
    assert isinstance(error, Taken)
    assert desk.secrets == before
    assert desk.json("tenants", "show", "bakery")["handler"]["url"] == "https://bakery.example/pombo"


def test_tenant_stays_without_a_handler_if_its_secret_cannot_be_kept(desk: Desk) -> None:
    desk.secrets.is_down = True
    error = desk.refused("tenants", "add", "bakery", "--handler-url", "https://bakery.example/pombo")
    assert isinstance(error, SecretsUnavailable)
    assert desk.json("tenants", "show", "bakery")["handler"] is None


@pytest.mark.parametrize(
    "url", ["", "bakery.example", "ftp://b.example", "https://a:b@b.example", "https://b.example/?q"]
)
def test_invalid_handler_url_is_a_usage_error(desk: Desk, url: str) -> None:
    result = desk.invoke("tenants", "add", "bakery", "--handler-url", url)
    assert result.exit_code == 2
    assert desk.json("tenants", "list")["tenants"] == []


def test_plain_http_handler_is_refused_where_pombo_is_deployed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from an operator's machine, whose APP_ENV is local."""
    monkeypatch.setattr(handler_of_tenant, "is_deployment", lambda settings: settings["STORE"] == "sqlite")
    desk("tenants", "add", "bakery")
    for command in ("add", "florist"), ("set", "bakery"):
        assert desk.invoke("tenants", *command, "--handler-url", "http://10.0.0.7/pombo").exit_code == 2
    assert [(one["id"], one["handler"]) for one in desk.json("tenants", "list")["tenants"]] == [("bakery", None)]
    assert desk.secrets == {}
    desk("tenants", "set", "bakery", "--handler-url", "https://10.0.0.7/pombo")


def test_suspend_and_resume_can_be_repeated(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    for command, state in (("suspend", "suspended"), ("suspend", "suspended"), ("resume", "active")):
        assert desk.json("tenants", command, "bakery")["state"] == state


def test_resume_wakes_the_tenants_numbers_once_every_service_knows(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[DrainTask] = []
    stack = SimpleNamespace(runs=True, store=SimpleNamespace(time=SystemClock().now))
    running = SimpleNamespace(running=stack, settings=None)
    monkeypatch.setattr(drains, "deciding", lambda *_, **__: running)
    monkeypatch.setattr(drains, "build_queue", lambda _: SimpleNamespace(ensure_drain=woken.append))
    for tenant, number in (("bakery", "200"), ("florist", "201")):
        desk("tenants", "add", tenant)
        add = ("--provider", "meta", "--id", number, "--account", f"3{number}")
        desk("senders", "add", "--tenant", tenant, *add)
        desk("tenants", "suspend", tenant)
    before = SystemClock().now()
    desk("tenants", "resume", "bakery")
    (drain,) = woken
    assert drain.sender == sender_id("meta", "200")
    assert drain.since - before > timedelta(seconds=FRESH_SECONDS), "else the messages would wait ten minutes more"


def test_resume_without_a_stack_makes_no_task(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = SimpleNamespace(running=SimpleNamespace(runs=False), settings=None)
    monkeypatch.setattr(drains, "deciding", lambda *_, **__: stopped)
    monkeypatch.setattr(drains, "build_queue", lambda _: pytest.fail("no queue runs either"))
    desk("tenants", "add", "bakery")
    desk("tenants", "suspend", "bakery")
    assert "waiting messages are sent when one starts" in desk.invoke("tenants", "resume", "bakery").stderr


def test_removal_asks_for_the_id_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk("tenants", "add", "bakery", "--handler-url", "https://bakery.example/pombo")
    result = desk.invoke("tenants", "remove", "bakery")
    assert (result.exit_code, desk.json("tenants", "show", "bakery")["id"]) == (2, "bakery"), "nobody can be asked"
    monkeypatch.setattr("cli.registry.context.sys", Typing())
    for typed in ("", "bakerY", "y"):
        assert "the ids differ" in str(desk.invoke("tenants", "remove", "bakery", given=f"{typed}\n").stderr)
    assert desk.json("tenants", "remove", "bakery", given="bakery\n") == {"id": "bakery"}
    assert desk.json("tenants", "list")["tenants"] == []
    assert desk.secrets == {}


class Typing:
    """The sys module of a command whose standard input is a terminal."""

    class stdin:
        @staticmethod
        def isatty() -> bool:
            return True


def test_removal_of_a_tenant_with_senders_says_how_many(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    desk("senders", "add", "--tenant", "bakery", *NUMBER)
    error = desk.refused("tenants", "remove", "bakery", "--yes")
    assert isinstance(error, Refused)
    assert error.sentence == "Tenant bakery is not removed: it still has 1 sender."


# ---- senders


def test_added_sender_is_printed_with_its_id(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    assert desk.json("senders", "add", "--tenant", "bakery", *NUMBER) == {"id": sender_id("meta", "200")}
    (sender,) = desk.json("senders", "list", "--tenant", "bakery")["senders"]
    del sender["created_at"]
    assert sender == {
        "id": sender_id("meta", "200"),
        "tenant": "bakery",
        "provider": "meta",
        "provider_id": "200",
        "account": "300",
        "display": "",
        "credential": "",
        "order": "contact",
        "pace": None,
        "auth": {"state": "connected", "code": None, "since": None},
    }


def test_senders_are_listed_after_the_environments_with_their_trouble(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    added = desk.json("senders", "add", "--tenant", "bakery", *NUMBER, "--order", "sender", "--display", "Ana")["id"]
    refused = RefusedCredential("print", 190, NOW)
    desk.store.change_marks(added, lambda marks: replace(marks, refused=refused))
    listed = desk.json("senders", "list")["senders"]
    assert [(one["tenant"], one["auth"]["state"]) for one in listed] == [
        ("default", "connected"),
        ("bakery", "needs_reauth"),
    ]
    assert listed[1]["auth"] == {"state": "needs_reauth", "code": 190, "since": "2026-03-01T12:00:00.000Z"}
    assert (listed[1]["order"], listed[1]["display"]) == ("sender", "Ana")
    assert "needs_reauth (code 190) since 2026-03-01 12:00" in desk("senders", "list", "--tenant", "bakery")
    assert desk.json("senders", "list", "--tenant", "default")["senders"] == listed[:1]


def test_sender_is_shown_by_any_of_its_ids(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER)["id"]
    assert {desk.json("senders", "show", given)["id"] for given in (id, id[:8], f"{id[:8]}…", "200")} == {id}
    assert desk.json("senders", "show", "100000000000001")["tenant"] == "default"
    assert f"Sender {id} of tenant bakery: connected" in desk("senders", "show", "200")
    assert isinstance(desk.refused("senders", "show", "999"), NotFound)


REFUSALS: dict[str, tuple[tuple[str, ...], type[Refused], str]] = {
    "a number that another tenant has": (("florist", "200", "301"), Taken, "belongs to tenant bakery already"),
    "an account that another tenant has": (("florist", "201", "300"), Taken, "belongs to tenant bakery already"),
    "the number of the environment": (("bakery", "100000000000001", "300"), Taken, "tenant default"),
    "a tenant that does not exist": (("nobody", "201", "301"), NotFound, "There is no tenant nobody"),
    "the tenant of the environment": (("default", "201", "301"), Invalid, "add a tenant for another one"),
}


@pytest.mark.parametrize(("claim", "error", "sentence"), REFUSALS.values(), ids=REFUSALS.keys())
@pytest.mark.parametrize("token", [(), ("--token", "-")], ids=["without a token", "with a token"])
def test_refused_claim_is_explained_and_asks_no_provider(
    desk: Desk, claim: tuple[str, str, str], error: type[Refused], sentence: str, token: tuple[str, ...]
) -> None:
    for tenant in ("bakery", "florist"):
        desk("tenants", "add", tenant)
    desk("senders", "add", "--tenant", "bakery", *NUMBER)
    tenant, number, account = claim
    given = ("--tenant", tenant, "--provider", "meta", "--id", number, "--account", account)
    refused = desk.refused("senders", "add", *given, *token, given=TOKEN)
    assert isinstance(refused, error)
    assert sentence in refused.sentence
    assert desk.provider.connected == [], "else its secret would be replaced"


def test_slowest_pace_lets_a_message_go(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    desk("senders", "add", "--tenant", "bakery", *NUMBER, "--per-second", "0.001", "--burst", "1000")
    pace = registry_senders.find_sender(desk.store, sender_id("meta", "200")).pace
    assert pace is not None
    assert take_place(None, pace, LIMITS, NOW, timedelta()).taken


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "a" * 201])
def test_name_that_could_forge_output_is_a_usage_error(desk: Desk, name: str) -> None:
    assert desk.invoke("tenants", "add", "bakery", "--name", name).exit_code == 2
    assert desk.written == "[]"


@pytest.mark.parametrize("number", ["+15550100", "", "2 0", "2" * 33])
def test_phone_number_in_place_of_the_providers_id_is_a_usage_error(desk: Desk, number: str) -> None:
    desk("tenants", "add", "bakery")
    for given in (("--id", number, "--account", "300"), ("--id", "200", "--account", number)):
        assert desk.invoke("senders", "add", "--tenant", "bakery", "--provider", "meta", *given).exit_code == 2


def test_token_is_checked_before_the_sender_is_added(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    desk.provider.refusal = OnboardingRefused("WhatsApp does not know this number for this token.")
    error = desk.refused("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given=TOKEN)
    assert error is desk.provider.refusal
    assert desk.json("senders", "list", "--tenant", "bakery")["senders"] == []
    desk.provider.refusal = None
    output = desk("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given=f"{TOKEN}\n")
    assert desk.provider.connected == [("200", TOKEN)]
    assert TOKEN not in output + desk.written
    (sender,) = desk.json("senders", "list", "--tenant", "bakery")["senders"]
    assert sender["credential"] == f"pombo-credential-bakery-{sender['id']}"


def test_token_that_is_typed_is_not_echoed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.registry.context.sys", Typing())
    desk("tenants", "add", "bakery")
    result = desk.invoke("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given=f"{TOKEN}\n")
    assert desk.provider.connected == [("200", TOKEN)]
    assert TOKEN not in result.output


def test_pace_order_display_and_credential_are_changed(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    desk("senders", "add", "--tenant", "bakery", *NUMBER, "--per-second", "0.5")
    assert desk.json("senders", "show", "200")["pace"] == {"per_second": 0.5, "burst": 1}
    new = (
        "--per-second",
        "2",
        "--burst",
        "5",
        "--order",
        "sender",
        "--display",
        "Ana",
        "--credential",
        "pombo-credential-b",
    )
    changed = desk.json("senders", "set", "200", *new)
    assert changed == desk.json("senders", "show", "200")
    assert changed["pace"] == {"per_second": 2.0, "burst": 5}
    assert (changed["order"], changed["display"], changed["credential"]) == ("sender", "Ana", "pombo-credential-b")
    assert desk.json("senders", "set", "200", "--display", "Bia") == {**changed, "display": "Bia"}
    assert desk.json("senders", "set", "200", "--no-pace")["pace"] is None
    assert desk.json("senders", "show", "200")["order"] == "sender"


@pytest.mark.parametrize(
    "given",
    [
        (),
        ("--burst", "2"),
        *(("--per-second", rate) for rate in ("0", "1e-300", "-1", "81", "nan", "inf", "80/s", "")),
        ("--per-second", "1", "--no-pace"),
        ("--display", "a\x1b[31m"),
        ("--display", "a" * 201),
        ("--credential", ""),
        ("--credential", "pombo-credential-"),
        ("--credential", "bakery-token"),
    ],
    ids=lambda given: " ".join(given)[:20] or "nothing",
)
def test_change_of_a_sender_that_makes_no_sense_is_a_usage_error(desk: Desk, given: tuple[str, ...]) -> None:
    desk("tenants", "add", "bakery")
    desk("senders", "add", "--tenant", "bakery", *NUMBER)
    assert desk.invoke("senders", "set", "200", *given).exit_code == 2


def test_waiting_messages_take_new_places_only_when_pace_or_credential_changes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[str] = []
    monkeypatch.setattr(senders, "start_drains", lambda ids, *_: drained.extend(ids))
    desk("tenants", "add", "bakery")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER)["id"]
    changes = ["--per-second=2", "--per-second=2", "--display=Ana", "--no-pace", f"--credential={MINE}"]
    assert [desk("senders", "set", "200", change) and len(drained) for change in changes] == [1, 1, 1, 2, 3]
    assert set(drained) == {id}


def test_resume_wakes_a_sender_that_only_a_newer_version_can_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    drained: list[str] = []
    monkeypatch.setattr(tenants, "start_drains", lambda ids, *_: drained.extend(ids))
    desk("tenants", "add", "bakery")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER)["id"]
    (found,) = desk.store.entries([sender_name(id)])
    assert found
    assert desk.store.commit_entries([EntryWrite(found.name, "bakery", {"newer": 1}, found.version)])
    desk("tenants", "resume", "bakery")
    assert drained == [id]


def test_marks_of_connected_senders_are_not_read_one_by_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk("tenants", "add", "bakery")
    desk("senders", "add", "--tenant", "bakery", *NUMBER)
    monkeypatch.setattr(SqliteStore, "marks", lambda *_: pytest.fail("a read for each sender"))
    assert len(desk.json("senders", "list")["senders"]) == 2


def test_message_id_is_not_looked_for_at_too_many_senders(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.running.MOST_SENDERS", 1)
    for number in ("200", "201"):
        desk("tenants", "add", f"t{number}")
        add = ("--provider", "meta", "--id", number, "--account", f"3{number}")
        desk("senders", "add", "--tenant", f"t{number}", *add)
    desk.store.create(an_event(7, key=message_event_id("meta", "201", "wamid.x="), sender="201", tenant="t201"))
    assert "give --tenant" in str(desk.refused("trace", "wamid.x="))
    assert desk.json("trace", "wamid.x=", "--tenant", "t201")["correlation_id"] == "correlation-7"


def test_reconnect_replaces_the_token_of_the_sender_that_is_named(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given="old")["id"]
    refused = RefusedCredential(credential_fingerprint("old"), 190, NOW)
    desk.store.change_marks(id, lambda marks: replace(marks, refused=refused))
    assert desk.json("senders", "show", id)["auth"]["state"] == "needs_reauth"
    shown = desk.json("senders", "reconnect", id, "--token", "-", given=TOKEN)
    assert desk.secrets == {f"pombo-credential-bakery-{id}": ["old", TOKEN]}
    assert (shown["id"], shown["auth"]["state"]) == (id, "connected")


def test_reconnect_says_whether_the_waiting_messages_are_sent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.registry.drains._start", lambda *_: None)  # a queue that takes the task
    desk("tenants", "add", "bakery")
    desk("senders", "add", "--tenant", "bakery", *NUMBER)
    reconnect = ("senders", "reconnect", "200", "--token", "-")
    assert "Pombo sends its waiting messages." in desk(*reconnect, given=TOKEN)
    desk("tenants", "suspend", "bakery")
    said = desk(*reconnect, given=TOKEN)
    assert "sends its waiting" not in said
    assert "Its messages wait: tenant bakery is suspended. pombo tenants resume bakery begins to send them." in said
    desk("tenants", "resume", "bakery")
    assert "Pombo sends its waiting messages." in desk(*reconnect, given=TOKEN)


def test_reconnect_of_a_tenant_that_only_a_newer_version_can_read_is_told(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    desk("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given="old")
    (found,) = desk.store.entries([tenant_name("bakery")])
    assert found
    assert desk.store.commit_entries([EntryWrite(found.name, "bakery", {"newer": 1}, found.version)])
    assert "Reconnected sender " in desk("senders", "reconnect", "200", "--token", "-", given=TOKEN)


def test_end_of_a_token_is_told_when_it_is_given(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    add = ("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-")
    reconnect = ("senders", "reconnect", "200", "--token", "-")
    assert "ends" not in desk.invoke(*add, given=TOKEN).stderr
    desk.provider.expires_at = NOW
    assert "This token ends on 2026-03-01" in desk.invoke(*reconnect, given=TOKEN).stderr
    desk("senders", "remove", "200", "--yes")
    assert "This token ends on 2026-03-01" in desk.invoke(*add, given=TOKEN).stderr


@pytest.mark.parametrize(
    ("cause", "said"),
    [(ServiceUnavailable("away"), "cannot be reached"), (NotFoundByGoogle("none"), "does not exist")],
    ids=["away", "missing"],
)
def test_reconnect_without_a_queue_says_when_messages_go(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, cause: Exception, said: str
) -> None:
    """And not that they are sent."""

    def no_queue(_: str) -> None:
        raise QueueUnavailable from cause

    monkeypatch.setattr(senders, "drain_of", lambda _: no_queue)
    desk("tenants", "add", "bakery")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given="old")["id"]
    result = desk.invoke("senders", "reconnect", id, "--token", "-", given=TOKEN)
    assert (result.exit_code, result.stdout) == (0, f"Reconnected sender {id}.\n")
    assert said in result.stderr
    assert "within 10 minutes" in result.stderr
    assert desk.secrets == {f"pombo-credential-bakery-{id}": ["old", TOKEN]}


def test_reconnect_with_a_queue_says_that_messages_are_sent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "drain_of", lambda _: lambda _: None)
    desk("tenants", "add", "bakery")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER)["id"]
    result = desk.invoke("senders", "reconnect", id, "--token", "-", given=TOKEN)
    assert result.stdout == f"Reconnected sender {id}. Pombo sends its waiting messages.\n"
    assert "10 minutes" not in result.stderr


@pytest.mark.parametrize("cut", [40, 8, "…"])
def test_dead_letters_are_found_by_the_first_characters_of_a_sender(desk: Desk, cut: int | str) -> None:
    desk("tenants", "add", "bakery")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER)["id"]
    for number, sender in enumerate(("200", "201")):
        desk.store.create(an_event(number, tenant="bakery", sender=sender, **ended(State.DEAD, reason="error")))
    asked = id[:cut] if isinstance(cut, int) else id[:12] + cut
    assert desk.json("dead", "list", "--sender", asked)["total"] == 1
    discard = ("dead", "discard", "--sender", asked, "--reason", "a test", "--dry-run")
    assert desk.json(*discard)["total"] == 1


@pytest.mark.parametrize("id", ["5b1c9a0e", "5b1c", "5b1c9a0e7c5a…"])
def test_what_names_no_sender_is_refused_as_a_filter(desk: Desk, id: str) -> None:
    desk("tenants", "add", "bakery")
    for command in ("list",), ("discard", "--reason", "a test", "--yes"):
        assert isinstance(desk.refused("dead", *command, "--sender", id), NotFound)


def test_drain_begins_by_the_clock_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's machine whose clock is behind would begin it before the services know of the change."""
    queue, running = Queue(), SimpleNamespace(runs=True, store=SimpleNamespace(time=lambda: NOW))
    monkeypatch.setattr(drains, "deciding", lambda *_, **__: SimpleNamespace(running=running, settings=None))
    monkeypatch.setattr(drains, "build_queue", lambda _: queue)
    drains.start_drains(["a" * 40], Path(), RESUMED)
    assert [(drain.sender, drain.since) for drain in queue.drains] == [("a" * 40, NOW + timedelta(seconds=6))]


CHANGES = [
    (("senders", "set", "200", "--per-second", "1"), "sender_changed"),
    (("senders", "set", "200", "--credential", MINE), "sender_changed"),
    (("senders", "reconnect", "200", "--token", "-"), "reconnected"),
    (("tenants", "resume", "bakery"), "resumed"),
]


@pytest.mark.parametrize(("command", "reason"), CHANGES)
def test_only_a_reconnect_begins_a_drain_as_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], reason: str
) -> None:
    """A resumed tenant's number may still be unable to send, and so may one whose pace was changed."""
    queue, running = Queue(), SimpleNamespace(runs=True, store=SimpleNamespace(time=lambda: NOW))
    monkeypatch.setattr(drains, "deciding", lambda *_, **__: SimpleNamespace(running=running, settings=None))
    monkeypatch.setattr(drains, "build_queue", lambda _: queue)
    desk("tenants", "add", "bakery")
    desk("senders", "add", "--tenant", "bakery", *NUMBER)
    desk(*command, given=TOKEN)
    assert [drain.reason for drain in queue.drains] == [reason]


@pytest.mark.parametrize(
    "command",
    [
        ("senders", "set", "200", "--per-second", "1"),
        ("senders", "reconnect", "200", "--token", "-"),
        ("tenants", "resume", "bakery"),
    ],
    ids=["set", "reconnect", "resume"],
)
def test_change_with_a_wrong_setting_of_the_queue_is_made_and_names_it(desk: Desk, command: tuple[str, ...]) -> None:
    desk("tenants", "add", "bakery")
    desk("senders", "add", "--tenant", "bakery", *NUMBER)
    desk.env["DRAIN_TASK_QUEUE_NAME"] = "no such name"
    result = desk.invoke(*command, given=TOKEN)
    assert (result.exit_code, "within 10 minutes" in result.stderr) == (0, True), result.output
    assert "DRAIN_TASK_QUEUE_NAME" in result.stderr


def test_sender_with_the_environments_token_gets_one_of_its_own(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    drained: list[str] = []
    monkeypatch.setattr(senders, "drain_of", lambda _: drained.append)
    desk("tenants", "add", "bakery")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER)["id"]
    shown = desk.json("senders", "reconnect", "200", "--token", "-", given=TOKEN)
    assert (drained, shown["display"]) == ([id], "+1 555 0100 of 300")
    assert shown["credential"] == f"pombo-credential-bakery-{id}"
    assert desk.json("senders", "show", id)["credential"] == shown["credential"]
    assert desk.secrets == {shown["credential"]: [TOKEN]}


def test_number_of_the_environment_gets_its_token_from_there(desk: Desk) -> None:
    error = desk.refused("senders", "reconnect", "100000000000001", "--token", "-", given=TOKEN)
    assert "environment: replace it there" in str(error)
    assert desk.secrets == {}


@pytest.mark.parametrize(
    "command",
    [
        ("tenants", "add", "x", "--handler-secret", "-"),
        ("tenants", "set", "bakery", "--no-handler", "--handler-url", "https://b.example"),
        ("tenants", "set", "bakery", "--no-handler", "--handler-secret", "-"),
        ("tenants", "set", "bakery"),
        ("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", "--credential", "mine"),
    ],
    ids=["secret without its address", "no address and one", "no handler and its secret", "nothing", "two tokens"],
)
def test_options_that_contradict_each_other_are_a_usage_error(desk: Desk, command: tuple[str, ...]) -> None:
    desk("tenants", "add", "bakery")
    before = desk.written
    assert desk.invoke(*command, given=SIGNING).exit_code == 2
    assert (desk.written, desk.secrets) == (before, {})


SECRETS: dict[str, tuple[tuple[str, ...], str]] = {
    "token of a new sender": (("senders", "add", "--tenant", "bakery", *NUMBER, "--token"), TOKEN),
    "token of a reconnect": (("senders", "reconnect", "200", "--token"), TOKEN),
    "handler secret": (("tenants", "add", "x", "--handler-url", "https://b.example", "--handler-secret"), SIGNING),
    "changed handler secret": (("tenants", "set", "bakery", "--handler-secret"), SIGNING),
}
each_secret = pytest.mark.parametrize(("command", "secret"), SECRETS.values(), ids=SECRETS.keys())


@each_secret
def test_secret_as_an_argument_is_a_usage_error_that_does_not_repeat_it(
    desk: Desk, command: tuple[str, ...], secret: str
) -> None:
    result = desk.invoke(*command, secret)
    assert result.exit_code == 2
    assert secret not in result.output
    assert desk.secrets == {}


@each_secret
@pytest.mark.parametrize(
    "given", ["", " \n", "a\nb", "ä", "x" * 9000], ids=["empty", "blank", "lines", "letter", "long"]
)
def test_unusable_secret_is_refused_before_anything_happens(
    desk: Desk, command: tuple[str, ...], secret: str, given: str
) -> None:
    assert desk.invoke(*command, "-", given=given).exit_code == 1
    assert (desk.secrets, desk.provider.connected, desk.written) == ({}, [], "[]")


def test_signing_secret_of_another_form_is_refused(desk: Desk) -> None:
    error = desk.refused(
        "tenants", "add", "x", "--handler-url", "https://b.example", "--handler-secret", "-", given="abc"
    )
    assert "must be whsec_" in str(error)
    assert desk.written == "[]"


def test_removed_sender_is_gone_with_the_secret_that_pombo_made(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given=TOKEN)["id"]
    assert desk.secrets == {f"pombo-credential-bakery-{id}": [TOKEN]}
    assert desk.invoke("senders", "remove", id).exit_code == 2, "nobody can be asked"
    assert desk.json("senders", "remove", id, "--yes") == {"id": id}
    assert desk.json("senders", "list", "--tenant", "bakery")["senders"] == []
    assert desk.secrets == {}


def test_secret_that_could_not_be_removed_is_named(desk: Desk) -> None:
    desk("tenants", "add", "bakery", "--handler-url", "https://b.example")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given=TOKEN)["id"]
    desk.secrets.is_down = True
    for command, name in (
        (("senders", "remove", id, "--yes"), f"pombo-credential-bakery-{id}"),
        (("tenants", "set", "bakery", "--no-handler"), "pombo-handler-bakery"),
    ):
        result = desk.invoke(*command)
        assert isinstance(result.exception, SecretsUnavailable)
        assert f"its secret {name} is still there: remove it by hand" in result.stderr


@pytest.mark.parametrize(
    "command", [("add", "--tenant", "bakery", *NUMBER), ("reconnect", "200")], ids=["add", "again"]
)
def test_token_goes_nowhere_while_no_stack_runs(desk: Desk, command: tuple[str, ...]) -> None:
    desk("tenants", "add", "bakery")
    if command[0] == "reconnect":
        desk("senders", "add", "--tenant", "bakery", *NUMBER)
    desk.env |= {"STORE": None, "SQLITE_PATH": None}
    error = desk.refused("senders", *command, "--token", "-", given=TOKEN)
    assert "The token cannot be checked: no Pombo is running here. Start one with" in str(error)
    assert (desk.secrets, desk.provider.connected) == ({}, [])


def test_secret_that_an_operator_made_outlives_the_sender(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    desk.secrets.add("pombo-credential-bakery", TOKEN)
    desk("senders", "add", "--tenant", "bakery", *NUMBER, "--credential", "pombo-credential-bakery")
    assert desk.json("senders", "show", "200")["credential"] == "pombo-credential-bakery"
    desk("senders", "remove", "200", "--yes")
    assert desk.secrets == {"pombo-credential-bakery": [TOKEN]}


def interrupted_removal(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> str:
    """A number of tenant bakery whose removal was ended by Ctrl-C while it waited."""

    def ctrl_c(*_: Any) -> None:
        raise KeyboardInterrupt

    desk("tenants", "add", "bakery")
    id: str = desk.json("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given=TOKEN)["id"]
    with monkeypatch.context() as patch:
        patch.setattr(SystemClock, "sleep", ctrl_c)
        assert desk.invoke("senders", "remove", id, "--yes").exit_code != 0
    return id


def test_sender_that_is_being_removed_is_in_no_list(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted_removal(desk, monkeypatch)
    for tenant in (), ("--tenant", "bakery"):
        assert "bakery" not in [one["tenant"] for one in desk.json("senders", "list", *tenant)["senders"]]
    assert desk.json("tenants", "show", "bakery")["senders"] == 0
    error = desk.refused("tenants", "remove", "bakery", "--yes")
    assert str(error) == "Tenant bakery is not removed: it still has 1 number whose removal has not ended."


@pytest.mark.parametrize(
    "command",
    [("show",), ("reconnect", "--token", "-"), ("set", "--display", "Ana")],
    ids=["show", "reconnect", "set"],
)
def test_sender_that_is_being_removed_does_not_exist_to_a_command(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    id = interrupted_removal(desk, monkeypatch)
    for given in (id, id[:8], "200"):
        error = desk.refused("senders", command[0], given, *command[1:], given="another")
        assert isinstance(error, NotFound)
        assert "run pombo senders remove again" in str(error)
    assert desk.secrets == {f"pombo-credential-bakery-{id}": [TOKEN]}


def test_interrupted_removal_is_ended_by_the_same_command(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    id = interrupted_removal(desk, monkeypatch)
    assert desk.json("senders", "remove", id[:8], "--yes") == {"id": id}
    assert desk.secrets == {}
    assert list(desk.store.entries([sender_name(id)])) == [None]
    desk("tenants", "remove", "bakery", "--yes")


def test_waiting_messages_of_a_sender_removed_during_its_reconnect_stay(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[str] = []
    monkeypatch.setattr(senders, "drain_of", lambda _: drained.append)
    desk("tenants", "add", "bakery")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given=TOKEN)["id"]

    def removed_meanwhile(*_: str) -> None:
        desk("senders", "remove", id, "--yes")

    monkeypatch.setattr(desk.provider, "subscribe", removed_meanwhile)
    assert isinstance(desk.refused("senders", "reconnect", id, "--token", "-", given="another"), NotFound)
    assert drained == []


def test_secret_that_another_sender_uses_outlives_the_one_it_was_made_for(desk: Desk) -> None:
    for tenant in ("bakery", "florist"):
        desk("tenants", "add", tenant)
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given=TOKEN)["id"]
    made = f"pombo-credential-bakery-{id}"
    second = ("--provider", "meta", "--id", "201", "--account", "301", "--credential", made)
    user = desk.json("senders", "add", "--tenant", "florist", *second)["id"]
    result = desk.invoke("senders", "remove", id, "--yes")
    assert f"Its secret {made} is kept, because sender {user[:8]} of tenant florist uses it too" in result.stderr
    assert (result.exit_code, desk.secrets) == (0, {made: [TOKEN]})


def test_secret_from_before_another_was_named_is_removed_with_its_sender(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    desk.secrets.add(MINE, TOKEN)
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER, "--token", "-", given=TOKEN)["id"]
    desk("senders", "set", id, "--credential", MINE)
    result = desk.invoke("senders", "remove", id, "--yes")
    assert (result.exit_code, result.stderr, desk.secrets) == (0, "", {MINE: [TOKEN]})


def test_secret_that_may_be_left_is_named_where_it_cannot_be_looked_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_allowed(_: str) -> None:
        raise SecretsUnavailable

    desk("tenants", "add", "bakery")
    id = desk.json("senders", "add", "--tenant", "bakery", *NUMBER, "--credential", MINE)["id"]
    monkeypatch.setattr(desk.secrets, "newest", not_allowed)
    result = desk.invoke("senders", "remove", id, "--yes")
    assert f"If Pombo made the secret pombo-credential-bakery-{id} for it before" in result.stderr
    assert result.exit_code == 0


def test_missing_secret_of_a_number_is_reported(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    named = ("--credential", "pombo-credential-bakery")
    missing = "There is no secret pombo-credential-bakery yet"
    assert missing in desk.invoke("senders", "add", "--tenant", "bakery", *NUMBER, *named).stderr
    assert missing in desk.invoke("senders", "set", "200", *named).stderr
    desk.secrets.add("pombo-credential-bakery", TOKEN)
    assert desk.invoke("senders", "set", "200", *named).stderr == ""


def test_number_of_the_environment_is_not_removed(desk: Desk) -> None:
    assert "the environment's" in str(desk.refused("senders", "remove", "100000000000001", "--yes"))


# ---- what came in before


def strangers(desk: Desk, *numbers: str) -> None:
    dropped = {**ended(State.DROPPED, reason="unknown_sender"), "tenant": "", "attempt": 0}
    for count, number in enumerate(numbers):
        desk.store.create(an_event(count, sender=number, **dropped))


def test_adding_a_sender_offers_to_replay_what_came_before(desk: Desk) -> None:
    strangers(desk, "200", "200", "999")
    desk("tenants", "add", "bakery")
    result = desk.invoke("senders", "add", "--tenant", "bakery", *NUMBER, "--json")
    assert json.loads(result.stdout) == {"id": sender_id("meta", "200")}
    match = re.search(r"2 events were dropped before .* To replay: \S*pombo (.*)$", result.stderr.strip())
    assert match
    preview = desk.json(*match[1].replace(f"--data-dir {desk.directory}", "").split(), "--dry-run")
    assert (preview["total"], preview["replayed"]) == (2, 2)


def test_nothing_is_offered_where_nothing_came_before(desk: Desk) -> None:
    strangers(desk, "999")
    desk("tenants", "add", "bakery")
    assert desk.invoke("senders", "add", "--tenant", "bakery", *NUMBER).stderr == ""


def test_replay_retries_what_came_before_and_nothing_else(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    strangers(desk, "200", "200", "999")
    desk("tenants", "add", "bakery")
    replayed: list[str] = []

    class Deciding:
        def replay(self, may_double: bool) -> Any:
            assert not may_double
            return lambda key: replayed.append(key) or Decision(Done.REPLAYED)

    monkeypatch.setattr(senders, "deciding", lambda *_, **__: Deciding())
    result = desk.invoke("senders", "add", "--tenant", "bakery", *NUMBER, "--replay", "--json")
    assert json.loads(result.stdout) == {"id": sender_id("meta", "200")}
    assert sorted(replayed) == sorted(an_event(count).key for count in (0, 1))
    assert "2 replayed." in result.stderr


def test_replay_without_a_stack_adds_nothing(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    desk.env["CLOUD_TASKS_EMULATOR_HOST"] = "127.0.0.1:9"
    assert desk.invoke("senders", "add", "--tenant", "bakery", *NUMBER, "--replay").exit_code == 1
    assert desk.json("senders", "list", "--tenant", "bakery")["senders"] == []


# ---- keys


def test_key_is_shown_once_and_kept_as_a_hash(desk: Desk) -> None:
    desk("tenants", "add", "bakery")
    made = desk.json("keys", "add", "--tenant", "bakery", "--scopes", "send, dead:read")
    assert set(made) == {"id", "key"}
    secret = re.fullmatch(rf"pombo_{made['id']}_([0-9a-f]{{64}})", made["key"])
    assert secret
    assert secret[1] not in desk.written
    assert hashlib.sha256(secret[1].encode()).hexdigest() in desk.written
    for output in (desk("keys", "list"), json.dumps(desk.json("keys", "list"))):
        assert made["id"] in output
        assert secret[1] not in output
    (listed,) = desk.json("keys", "list", "--tenant", "bakery")["keys"]
    assert (listed["tenant"], listed["scopes"], listed["revoked_at"]) == ("bakery", ["dead:read", "send"], None)
    assert "digest" not in listed


def test_operators_key_has_no_tenant(desk: Desk) -> None:
    desk.json("keys", "add", "--scopes", "manage")
    assert desk.json("keys", "list")["keys"][0]["tenant"] is None
    assert "(operator)" in desk("keys", "list")
    assert desk.json("keys", "list", "--tenant", "default")["keys"] == []


def test_key_is_revoked_by_the_beginning_of_its_id(desk: Desk) -> None:
    id = desk.json("keys", "add", "--scopes", "read")["id"]
    for unusable in (id[:7], "0" * 16 if id[0] != "0" else "1" * 16, ""):
        assert isinstance(desk.refused("keys", "revoke", unusable), NotFound)
    assert desk.json("keys", "revoke", id[:8])["id"] == id
    assert desk.json("keys", "list")["keys"][0]["revoked_at"]


@pytest.mark.parametrize("what", ["senders", "keys"])
def test_list_of_a_tenant_that_does_not_exist_is_refused(desk: Desk, what: str) -> None:
    for mistyped in ("bakry", "Bakery", ""):
        assert isinstance(desk.refused(what, "list", "--tenant", mistyped), NotFound)
    desk("tenants", "add", "bakery")
    assert desk.json(what, "list", "--tenant", "bakery")[what] == []


def test_revoked_key_stays_in_the_list(desk: Desk) -> None:
    id = desk.json("keys", "add", "--scopes", "read")["id"]
    revoked = desk.json("keys", "revoke", id)
    assert revoked["revoked_at"]
    assert desk.json("keys", "list")["keys"] == [revoked]
    assert desk.json("keys", "revoke", id) == revoked


@pytest.mark.parametrize("scopes", ["", "all", "send,", "send write"])
def test_unknown_scope_is_a_usage_error(desk: Desk, scopes: str) -> None:
    assert desk.invoke("keys", "add", "--scopes", scopes).exit_code == 2


# ---- all of them


COMMANDS: Mapping[str, tuple[str, ...]] = {
    "tenants": ("add", "list", "show", "set", "suspend", "resume", "remove"),
    "senders": ("add", "list", "show", "set", "reconnect", "remove"),
    "keys": ("add", "list", "revoke"),
}


@pytest.mark.parametrize("group", COMMANDS)
def test_every_command_has_a_help_with_examples(group: str) -> None:
    (found,) = [command for name, command in pombo.commands.items() if name == group]
    assert isinstance(found, click.Group)
    assert tuple(found.commands) == COMMANDS[group]
    for name in COMMANDS[group]:
        shown = CliRunner().invoke(pombo, [group, name, "--help"]).output
        assert f"pombo {group} {name}" in shown.partition("Examples:")[2]
        assert "--json" in shown


def test_page_of_tenants_has_the_times_of_the_code() -> None:
    page = " ".join((ROOT / "docs" / "tenants.md").read_text().split())
    known = KNOWN_EVERYWHERE.total_seconds()
    for told in (
        f"at most {FRESH_SECONDS:g} seconds, and up to {MOST:,} entries",
        f"another handler URL | within {FRESH_SECONDS:g} s",
        f"signing secret | within {OLDEST_SECONDS:g} s",
        f"begins to send them after {known:g} seconds",
    ):
        assert told in page


def test_refusal_is_one_line_and_exit_code_1_or_2_for_what_is_never_right(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "pombo.sqlite", LIMITS, lambda: NOW).ping()
    env = clean_environment(STORE="sqlite", SQLITE_PATH=str(tmp_path / "pombo.sqlite"))
    assert fails(cli("tenants", "show", "nobody", env=env)) == (
        "pombo: There is no tenant nobody: pombo tenants list shows their ids."
    )
    invalid = fails(cli("tenants", "add", "Bakery", env=env), code=2)
    assert invalid.startswith("pombo: A tenant's id has 1 to 63 characters")
    usage = fails(cli("senders", "add", "--tenant", "bakery", env=env), code=2)
    assert "--help" in usage
