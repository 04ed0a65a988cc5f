"""pombo conversations on a store without a stack: what it lists and shows, and what it refuses."""

import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.commands import pombo, run
from shared.domain.conversations import Alias, Conversation, Thread, created_in
from shared.domain.record import Kind
from shared.operations import conversations as operations
from shared.stores.sqlite.store import SqliteStore
from tests.support.builders import LIMITS, NOW, pending

ID, OTHER = "4f1c2a90" + "1" * 32, "4f1c2a90" + "2" * 32
UNREADABLE_TOO = "1 more cannot be read: written by a newer version of Pombo, or damaged."
NUMBER, USER = "15550002222", "US.13491208655302741918"


class Desk:
    """The command line on one file."""

    def __init__(self, directory: Path) -> None:
        self.directory, path = directory, directory / "pombo.sqlite"
        self.env: dict[str, str | None] = {"STORE": "sqlite", "SQLITE_PATH": str(path), "APP_ENV": None}
        self.store = SqliteStore(path, LIMITS, lambda: NOW)

    def invoke(self, *arguments: str) -> Result:
        given = ["conversations", *arguments, "--data-dir", str(self.directory)]
        return CliRunner(env=self.env).invoke(pombo, given, standalone_mode=False)

    def __call__(self, *arguments: str) -> str:
        result = self.invoke(*arguments)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def refused(self, *arguments: str) -> str:
        result = self.invoke(*arguments)
        assert result.exception is not None
        return str(result.exception)

    def damage(self, table: str, column: str, id: str) -> None:
        self.store._file.write(lambda db: db.execute(f"UPDATE {table} SET body = '{{}}' WHERE {column} = ?", (id,)))

    def write(self, number: int, id: str = ID, tenant: str = "default", **changes: Any) -> str:
        """A message in this conversation, so many minutes after the first one."""
        at = NOW + timedelta(minutes=number)
        found = self.store.conversation_entries([id]).get(id)
        known = found if isinstance(found, Conversation) else Conversation(id, tenant, "meta", "1000001", USER)
        known = replace(known, **changes)
        message = pending(key=f"{number:040}", received_at=at, tenant=tenant)
        placed, entries = created_in(message, Thread(known), at)
        self.store.create(placed, entries)
        return placed.key


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.store.close()


def test_conversations_are_listed_with_the_newest_message_first(desk: Desk) -> None:
    desk.write(1)
    desk.write(2, OTHER, unread=3, assignee="Ana")
    first, second = desk.json("list")["conversations"]
    assert (first["id"], second["id"]) == (OTHER, ID)
    assert first == {
        "id": OTHER,
        "tenant": "default",
        "provider": "meta",
        "sender": "1000001",
        "state": "open",
        "unread": 3,
        "assignee": "Ana",
        "last_inbound_at": None,
        "last_message_at": "2026-03-01T12:02:00.000Z",
    }
    shown = desk("list").splitlines()
    assert [line.split()[0] for line in shown] == ["CONVERSATION", OTHER, ID]
    assert "2026-03-01 12:02:00" in shown[1]


def test_list_shows_nothing_of_the_customer(desk: Desk) -> None:
    desk.write(1, aliases=frozenset({NUMBER}))
    for said in (desk("list"), desk("list", "--json")):
        assert NUMBER not in said
        assert USER not in said


def test_list_is_of_one_tenant_and_as_long_as_asked_for(desk: Desk) -> None:
    desk.write(1)
    desk.write(2, OTHER)
    desk.write(3, "5" * 40, tenant="bakery")
    assert [one["id"] for one in desk.json("list", "--tenant", "bakery")["conversations"]] == ["5" * 40]
    assert desk.json("list", "--limit", "1")["is_all"] is False
    assert desk("list", "--limit", "1").splitlines()[-1] == "These are the newest 1; --limit shows more."
    assert desk.json("list", "--limit", "2")["is_all"] is True
    assert "has no conversation" in desk("list", "--tenant", "nobody")


def test_list_says_how_many_conversations_it_cannot_read(desk: Desk) -> None:
    desk.write(0, "5" * 40)
    desk.write(1)
    desk.write(2, OTHER)
    desk.damage("conversations", "id", OTHER)
    listed = desk.json("list")
    assert ([one["id"] for one in listed["conversations"]], listed["unreadable"]) == ([ID, "5" * 40], 1)
    assert UNREADABLE_TOO in desk("list")
    desk.store._file.write(lambda db: db.execute("UPDATE conversations SET body = '{}'"))
    assert "has no conversation" not in desk("list")


@pytest.mark.parametrize("keys", [("1", "2", "3"), ("3", "1", "2"), ("2", "3", "1")])
def test_replies_of_one_plan_are_shown_in_their_order(desk: Desk, keys: Sequence[str]) -> None:
    desk.write(1)
    first, second, third = (key * 40 for key in keys)
    for key, after in ((first, None), (second, first), (third, second)):
        desk.store.create(pending(key=key, received_at=NOW, conversation=ID, after=after))
    of = operations.conversation(desk.store, ID)
    assert of is not None
    assert [record.key for record in operations.messages(desk.store, of, None, 9).records][-3:] == [
        third,
        second,
        first,
    ]


def test_list_goes_through_all_pages(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "PAGE", 2)
    for number in range(1, 8):
        desk.write(number, f"{number:040}")
    assert len(desk.json("list")["conversations"]) == 7


def test_no_more_conversations_are_read_than_are_asked_for(desk: Desk) -> None:
    for number in range(1, 6):
        desk.write(number, f"{number:040}")
    newest = operations.newest(desk.store, "default", 2)
    assert [one.id for one in newest.conversations] == [f"{5:040}", f"{4:040}"]


def test_conversation_is_shown_with_its_messages_the_newest_first(desk: Desk) -> None:
    first, second = desk.write(1, aliases=frozenset({NUMBER})), desk.write(2)
    event = pending(Kind.INBOUND, key="e" * 40, conversation=ID, received_at=NOW)
    desk.store.create(event)
    shown = desk.json("show", ID)
    assert [(one["key"], one["direction"], one["after"]) for one in shown["messages"]] == [
        (second, "outbound", first),
        (first, "outbound", None),
        (event.key, "inbound", None),
    ]
    assert (shown["contact"], shown["aliases"], shown["is_all"]) == (USER, [NUMBER], True)
    said = desk("show", ID)
    assert f"customer {USER}, {NUMBER}" in said
    assert "assigned to nobody" in said
    assert [line.split()[2] for line in said.splitlines()[-3:]] == ["out", "out", "in"]
    assert desk("show", ID, "--limit", "1").splitlines()[-1] == "These are the newest 1; --limit shows more."


def test_part_of_an_id_is_enough_if_one_conversation_has_it(desk: Desk) -> None:
    desk.write(1)
    assert desk.json("show", ID[:9])["id"] == ID
    assert desk.json("show", ID[:9] + "…")["id"] == ID
    desk.write(2, OTHER)
    assert desk.refused("show", ID[:8]) == "2 ids start with this; give more characters."
    assert desk.json("show", ID[:9])["id"] == ID


def test_alias_shows_the_conversation_that_it_leads_to(desk: Desk) -> None:
    desk.write(1)
    desk.store.create(pending(key="a" * 40), (Alias(OTHER, ID),))
    assert desk.json("show", OTHER)["id"] == ID


def test_messages_of_the_conversation_that_became_this_one_are_shown_too(desk: Desk) -> None:
    early = desk.write(1, OTHER)
    late = desk.write(2, ID, formerly=(OTHER,))
    assert [one["key"] for one in desk.json("show", ID)["messages"]] == [late, early]


def test_pages_go_on_through_the_conversation_that_became_this_one(desk: Desk) -> None:
    early = [desk.write(number, OTHER) for number in (1, 2, 3)]
    late = [desk.write(number, ID, formerly=(OTHER,)) for number in (4, 5, 6, 7)]
    of = operations.conversation(desk.store, ID)
    assert of is not None
    found, after = list[str](), None
    for _ in range(6):  # pages of two: two and an empty one, then two
        page = operations.messages(desk.store, of, after, 2)
        found += [record.key for record in page.records]
        after = page.ends_at
        if after is None:
            break
    assert (found, after) == ([*late[::-1], *early[::-1]], None)


def test_show_says_whether_there_are_more_messages_than_it_shows(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("cli.conversations.show"), "PAGE", 2)
    for number in (1, 2, 3):
        desk.write(number)
    for limit, is_all in (("2", False), ("3", True)):
        shown = desk.json("show", ID, "--limit", limit)
        assert (len(shown["messages"]), shown["is_all"]) == (int(limit), is_all)
        assert ("These are the newest 2; --limit shows more." in desk("show", ID, "--limit", limit)) is not is_all


def test_id_leads_through_all_the_conversations_that_this_one_was(desk: Desk) -> None:
    desk.write(1)
    desk.store.create(pending(key="a" * 40), (Alias(OTHER, "5" * 40), Alias("5" * 40, ID)))
    assert desk.json("show", OTHER)["id"] == ID


def test_conversation_that_cannot_be_read_is_named_so_by_its_id_or_a_part_of_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.write(1)
    desk.damage("conversations", "id", ID)
    whole = "This conversation cannot be read: a newer version of Pombo wrote it, or it was damaged."
    part = (
        "None of the newest 2,000 conversations of the tenant default that can be read begins with this id. "
        "1 more cannot be read: written by a newer version of Pombo, or damaged."
    )
    for name, value in desk.env.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    for id, sentence in ((ID, whole), (ID[:9], part)):
        monkeypatch.setattr("sys.argv", ["pombo", "conversations", "show", id, "--data-dir", str(desk.directory)])
        with pytest.raises(SystemExit) as ended:
            run()
        said = capsys.readouterr()
        assert (ended.value.code, said.out, said.err.rstrip("\n")) == (1, "", f"pombo: {sentence}")


def test_part_of_an_id_is_found_beside_a_conversation_that_cannot_be_read(desk: Desk) -> None:
    desk.write(1)
    desk.write(2, "5" * 40)
    desk.damage("conversations", "id", "5" * 40)
    assert desk.json("show", ID[:9])["id"] == ID


def test_messages_that_cannot_be_read_are_counted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2):
        desk.write(number)
    assert (desk.json("show", ID)["unreadable"], "cannot be read" in desk("show", ID)) == (0, False)
    desk.damage("records", "key", f"{1:040}")
    shown = desk.json("show", ID)
    assert ([one["key"] for one in shown["messages"]], shown["unreadable"]) == ([f"{2:040}"], 1)
    assert desk("show", ID).splitlines()[-1] == UNREADABLE_TOO
    desk.damage("records", "key", f"{2:040}")
    assert "kept no longer" not in desk("show", ID)
    monkeypatch.setattr(importlib.import_module("cli.conversations.show"), "PAGE", 1)
    assert desk.json("show", ID)["unreadable"] == 2, "on two pages"


def test_number_that_the_customer_has_no_longer_is_shown_as_such(desk: Desk) -> None:
    desk.write(1, aliases=frozenset({USER, NUMBER, "15550003333"}), lost=frozenset({NUMBER}))
    assert f"customer {USER}, {NUMBER} (no longer), 15550003333\n" in desk("show", ID), "each name once"
    assert desk.json("show", ID)["lost"] == [NUMBER]


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("4f1c", "Give 8 or more characters of the id of a conversation; list them with: pombo conversations list."),
        (
            "f" * 40,
            "No conversation has this id, and none of the newest 2,000 of the tenant default begins with it; list them "
            "with: pombo conversations list.",
        ),
    ],
)
def test_unknown_id_is_refused_with_what_to_do(desk: Desk, id: str, sentence: str) -> None:
    desk.write(1)
    assert desk.refused("show", id) == sentence
