"""The options of pombo say: what a customer does, and the sentences for what makes no sense. No stack is needed."""

import hashlib
from base64 import b64decode
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cli import simulator
from cli.commands import pombo
from cli.running import Running
from cli.say_content import CALLER, SayContent, content_options

Options = dict[str, Any]


def asked(*arguments: str) -> Options:
    """The order of these arguments. Raises UsageError."""
    found: list[SayContent] = []

    @click.command()
    @content_options
    def command(**given: Any) -> None:
        found.append(SayContent(**given))

    command.main([*arguments], standalone_mode=False)
    found[0].check()
    nothing: Any = None
    return found[0].order(nothing)


@pytest.mark.parametrize(
    ("arguments", "order"),
    [
        (["hello"], {"from": CALLER, "type": "text", "content": {"body": "hello"}}),
        ([""], {"from": CALLER, "type": "text", "content": {"body": ""}}),
        (["x", "--from", "+15550003333"], {"from": "+15550003333", "type": "text", "content": {"body": "x"}}),
        (["x", "--user-id", "US.1"], {"user_id": "US.1", "type": "text", "content": {"body": "x"}}),
        (
            ["x", "--user-id", "US.1", "--from", "15550003333"],
            {"user_id": "US.1", "from": "15550003333", "type": "text", "content": {"body": "x"}},
        ),
        (
            ["x", "--to", "123456123"],
            {"from": CALLER, "phone_number_id": "123456123", "type": "text", "content": {"body": "x"}},
        ),
        (
            ["--location", "-38.5,9.25"],
            {"from": CALLER, "type": "location", "content": {"latitude": -38.5, "longitude": 9.25}},
        ),
        (
            ["--location", "90, -180", "a pole"],
            {
                "from": CALLER,
                "type": "location",
                "content": {"latitude": 90.0, "longitude": -180.0, "name": "a pole"},
            },
        ),
        (
            ["--reaction", "👍", "--reply-to", "wamid.1"],
            {"from": CALLER, "type": "reaction", "content": {"message_id": "wamid.1", "emoji": "👍"}},
        ),
        (
            ["--reaction", "", "--reply-to", "wamid.1"],
            {"from": CALLER, "type": "reaction", "content": {"message_id": "wamid.1"}},
        ),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_each_customer_action_becomes_a_simulator_order(arguments: list[str], order: Options) -> None:
    assert asked(*arguments) == order


@pytest.mark.parametrize("arguments", [["yes"], ["--location", "1,2"], ["--image", "12345"]], ids=" ".join)
def test_answer_quotes_the_message_it_answers(arguments: list[str]) -> None:
    order = asked(*arguments, "--reply-to", "wamid.1")
    assert order["fields"] == {"context": {"from": "15550001111", "id": "wamid.1"}}


def test_image_by_id_becomes_a_simulator_order(tmp_path: Path) -> None:
    content = asked("--image", "900000000000001", "our table")["content"]
    assert (content["id"], content["mime_type"], content["caption"]) == ("900000000000001", "image/jpeg", "our table")
    assert "caption" not in asked("--image", "900000000000001")["content"]


def test_an_image_from_a_file_is_described_as_meta_does(tmp_path: Path) -> None:
    path = tmp_path / "mesa é.png"
    path.write_bytes(b"picture")
    order = asked("--image", str(path))
    content = order["content"]
    assert order["type"] == "image"
    assert content["mime_type"] == "image/png"
    assert b64decode(content["sha256"]) == hashlib.sha256(b"picture").digest()
    assert content["id"].isdigit()
    assert asked("--image", str(path)) == order, "the same file has the same id"
    path.write_bytes(b"another")
    assert asked("--image", str(path))["content"]["id"] != content["id"]


NO_PLACE = "give a location as LAT,LON in degrees"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Give TEXT, or --tap, --reaction, --image or --location."),
        (["--reply-to", "wamid.1"], "Give TEXT, or --tap"),
        (["x", "--tap", "a"], "--tap takes no TEXT"),
        (["x", "--reaction", "👍"], "--reaction takes no TEXT"),
        (["--tap", "a", "--location", "1,2"], "--tap and --location are two messages"),
        (["--reaction", "", "--image", "1"], "--reaction and --image are two messages"),
        *(
            (["--location", place], NO_PLACE)
            for place in ("1", "1,2,3", "a,b", "90.1,0", "0,180.1", "nan,0", "0,inf", "")
        ),
        (["--image", "nowhere.jpg"], "the file does not exist"),
        (["--image", __file__], "the file's name must end like an image's"),
        (["--image", ""], "the file does not exist"),
        (["x", "--to", "+1555"], "give the business number's phone number id"),
        (["x", "--to", "1" * 33], "give the business number's phone number id"),
        (["x", "--to", ""], "give the business number's phone number id"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_contradictory_arguments_are_a_usage_error_with_a_sentence(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    result = CliRunner().invoke(pombo, ["say", *arguments, "--data-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
    assert "1555" not in result.output


def test_a_file_that_cannot_be_read_is_a_wrong_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    path.touch()

    def refused(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(click.BadParameter, match="cannot read the file: Permission denied"):
        asked("--image", str(path))


# ---- what a customer was sent

BUTTONS = {
    "type": "button",
    "body": {"text": "Welcome"},
    "action": {"buttons": [{"type": "reply", "reply": {"id": "drinks", "title": "Order a drink"}}]},
}
LIST = {
    "type": "list",
    "body": {"text": "What may it be?"},
    "action": {
        "button": "See",
        "sections": [
            {"title": "Hot", "rows": [{"id": "tea", "title": "Tea", "description": "Mint"}]},
            {"title": "Cold", "rows": [{"id": "drinks", "title": "Others"}]},
        ],
    },
}


def entry(wamid: str, body: Any, to: str | None = f"+{CALLER}", recipient: str | None = None) -> Options:
    return {"wamid": wamid, "type": "interactive", "body": body, "to": to, "recipient": recipient}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The ledger, newest first."""
    entries: list[Options] = []
    monkeypatch.setattr(simulator, "ledger", lambda _: entries)
    return entries


def test_a_tap_is_a_reply_to_the_newest_message_that_has_the_button(sent: list[Options]) -> None:
    sent += [entry("wamid.3", {"body": "later"}), entry("wamid.2", LIST), entry("wamid.1", BUTTONS)]
    assert asked("--tap", "tea") == {
        "from": CALLER,
        "type": "interactive",
        "content": {"type": "list_reply", "list_reply": {"id": "tea", "title": "Tea", "description": "Mint"}},
        "fields": {"context": {"from": "15550001111", "id": "wamid.2"}},
    }
    assert asked("--tap", "drinks")["content"]["type"] == "list_reply"
    older = asked("--tap", "drinks", "--reply-to", "wamid.1")
    assert older["content"] == {"type": "button_reply", "button_reply": {"id": "drinks", "title": "Order a drink"}}
    assert older["fields"]["context"]["id"] == "wamid.1"


@pytest.mark.parametrize("person", [("--from", "15550003333"), ("--user-id", "US.2")], ids=" ".join)
def test_a_customer_taps_and_reacts_to_their_own_messages_alone(sent: list[Options], person: tuple[str, str]) -> None:
    sent += [entry("wamid.2", BUTTONS), entry("wamid.1", BUTTONS, to=None, recipient="US.1")]
    with pytest.raises(click.ClickException, match="no button or row with this id; they have none"):
        asked("--tap", "drinks", *person)
    with pytest.raises(click.ClickException, match="has received no message to react to"):
        asked("--reaction", "👍", *person)


def test_a_customer_with_a_user_id_has_messages_too(sent: list[Options]) -> None:
    sent += [entry("wamid.2", BUTTONS), entry("wamid.1", BUTTONS, to=None, recipient="US.1")]
    assert asked("--tap", "drinks", "--user-id", "US.1")["fields"]["context"]["id"] == "wamid.1"
    assert asked("--reaction", "👍", "--user-id", "US.1")["content"]["message_id"] == "wamid.1"
    assert asked("--reaction", "👍")["content"]["message_id"] == "wamid.2"
    assert asked("--reaction", "👍", "--from", f"+{CALLER}")["content"]["message_id"] == "wamid.2"


def test_unknown_button_is_answered_with_the_existing_ones(sent: list[Options]) -> None:
    sent += [entry("wamid.2", LIST), entry("wamid.1", BUTTONS)]
    with pytest.raises(click.ClickException) as caught:
        asked("--tap", "coffee")
    assert caught.value.message == "This customer has received no button or row with this id; they have: tea, drinks."


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"body": "hello"}, "hello"),
        (BUTTONS, "Welcome"),
        ({"link": "https://example.com/a", "caption": "a caption"}, "a caption"),
        ({"message_id": "wamid.1", "emoji": "👍"}, "👍"),
        ({"name": "reminder", "language": {"code": "pt_BR"}}, "reminder"),
        ({"latitude": 1.5, "longitude": -2, "name": "a place"}, "a place"),
        ({"latitude": 1.5, "longitude": -2}, "1.5, -2"),
        ({"id": "900000000000001"}, "900000000000001"),
        ({"type": "flow", "action": {"buttons": "odd", "sections": [1, {"rows": None}]}}, ""),
        ([{"name": {}}], ""),
    ],
)
def test_message_shows_its_text_and_choices(body: Any, words: str) -> None:
    one = entry("wamid.1", body)
    assert simulator.text_of(one) == words
    if body is not BUTTONS:
        assert list(simulator.choices(one)) == []


def test_command_without_a_simulator_reports_that_it_needs_one() -> None:
    store: Any = None
    with pytest.raises(click.ClickException, match="This command needs the WhatsApp simulator of a Pombo that runs"):
        simulator.ledger(Running(store, "1", None, None))


@pytest.mark.parametrize("reaction", ["xx", "👍👍", "👍 ", "x👍"])
def test_reaction_that_is_not_one_emoji_is_refused(reaction: str) -> None:
    result = CliRunner().invoke(pombo, ["say", "--reaction", reaction, "--reply-to", "wamid.1"])
    assert result.exit_code == 2
    assert "a reaction is not one emoji; WhatsApp takes one, or none to take it back." in result.output
