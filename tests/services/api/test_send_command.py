"""pombo send against the API service: what it sends, what it shows, and how it refuses."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli import api_access
from cli import send as command
from cli.commands import pombo
from pombo.client import Message, Moment
from shared.domain.errors import StoreUnavailable
from shared.domain.tenants import DEFAULT_TENANT, Scope
from tests.support.http_server import scripted_server
from tests.support.parts import NOW, SENDER, ended, step
from tests.support.served_api import ServedApi
from tests.support.stack import clean_environment, cli, fails

TO = ("--to", "+15550002222")
TEXT = "Your appointment is at nine."
Send = Callable[..., Result]
LOOK_SECONDS, PATIENCE_SECONDS = command.LOOK_SECONDS, api_access.PATIENCE_SECONDS
"""As they are; these tests are less patient."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a repetition, or for a message."""
    monkeypatch.setattr("cli.api_access.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("cli.send.LOOK_SECONDS", 0.01)


@pytest.fixture
def key(served_api: ServedApi) -> str:
    return served_api.service.key()


@pytest.fixture
def run(served_api: ServedApi, key: str) -> Send:
    """pombo send to the service, with a key of tenant default."""

    def sent(*arguments: str, url: str | None = None, **environment: str | None) -> Result:
        env = {"POMBO_API_KEY": key, **environment}
        return CliRunner(env=env).invoke(pombo, ["send", *arguments, "--url", url or served_api.url])

    return sent


@pytest.fixture
def stored(served_api: ServedApi) -> Callable[[Result], Any]:
    """The record of the message that a command with --json sent."""

    def found(result: Result) -> Any:
        assert result.exit_code == 0, result.output
        return served_api.service.stored(json.loads(result.stdout)["id"])

    return found


def refused(result: Result) -> tuple[int, str]:
    """The exit code and the one sentence of a failed command."""
    assert result.exception is not None
    return (2 if "Usage:" in result.stderr else result.exit_code), result.stderr.splitlines()[-1].removeprefix(
        "Error: "
    )


def test_text_is_stored_and_its_id_shown(served_api: ServedApi, run: Send) -> None:
    result = run(TEXT, *TO)
    assert result.exit_code == 0, result.output
    heading, more = result.stdout.splitlines()
    found = re.fullmatch(r"Message ([0-9a-f]{40}): pending", heading)
    assert found is not None
    assert more == "  Accepted for sending."
    record = served_api.service.stored(found[1])
    assert (record.payload["content"], record.contact, record.sender) == ({"body": TEXT}, "15550002222", SENDER)


def test_json_is_the_answer_of_the_api(run: Send, stored: Any) -> None:
    result = run(TEXT, *TO, "--json")
    assert json.loads(result.stdout).keys() == {"id", "state", "shown", "correlation_id"}
    assert stored(result).correlation_id == json.loads(result.stdout)["correlation_id"]


def test_template_is_sent_with_its_language_and_parameters(run: Send, stored: Any) -> None:
    plain = stored(run("--template", "hello", *TO, "--json"))
    assert (plain.payload["type"], plain.payload["content"]) == (
        "template",
        {"name": "hello", "language": {"code": "en"}},
    )
    filled = ("--language", "pt_BR", "--parameter", "Ana", "--parameter", "nine")
    content = stored(run("--template", "reminder", *filled, *TO, "--json")).payload["content"]
    assert content["language"] == {"code": "pt_BR"}
    (body,) = content["components"]
    assert [each["text"] for each in body["parameters"]] == ["Ana", "nine"]


@pytest.mark.parametrize(
    ("at", "when"),
    [
        ("2h", timedelta(hours=2)),
        ("15s", timedelta(seconds=15)),
        ("{later}+00:00", timedelta(days=3)),
        ("{later}Z", timedelta(days=3)),
        ("{later}+01:00", timedelta(days=3, hours=-1)),
        ("2026-01-01T00:00:00Z", None),
    ],
)
def test_time_is_a_duration_or_rfc_3339(
    served_api: ServedApi, run: Send, stored: Any, at: str, when: timedelta | None
) -> None:
    began = served_api.service.clock.now()
    whole = began.replace(microsecond=0)
    later = f"{whole + timedelta(days=3):%Y-%m-%dT%H:%M:%S}"
    record = stored(run(TEXT, *TO, "--at", at.replace("{later}", later), "--json"))
    assert record.send_at == (when and (whole if "{later}" in at else began) + when)


def test_repeated_command_with_the_same_key_counts_once(run: Send, served_api: ServedApi) -> None:
    first, second = (run(TEXT, *TO, "--key", "order-17") for _ in range(2))
    assert first.stdout == second.stdout
    assert refused(run("Another", *TO, "--key", "order-17"))[0] == 1


def test_repeated_command_says_where_the_message_is_by_now(run: Send, served_api: ServedApi, stored: Any) -> None:
    api, again = served_api.service, (TEXT, *TO, "--key", "order-17")
    record = stored(run(*again, "--json"))
    done, dead = (replace(record, **ended(state, reason=None)) for state in ("done", "dead"))

    api.store.port.change(record.key, lambda _: step(done))
    result = run(*again)
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [f"Message {record.key}: sent", "  It was accepted before with this --key."],
    )
    assert json.loads(run(*again, "--json").stdout)["shown"] == "sent"

    api.store.port.change(record.key, lambda _: step(dead))
    result = run(*again)
    assert result.stdout.splitlines()[0] == f"Message {record.key}: failed"
    assert refused(result) == (1, f"{command.NOT_AGAIN}")


def test_key_that_may_only_send_repeats_a_command_too(run: Send, served_api: ServedApi) -> None:
    only_send = served_api.service.key(DEFAULT_TENANT, Scope.SEND)
    for _ in range(2):
        result = run(TEXT, *TO, "--key", "order-17", POMBO_API_KEY=only_send)
        assert (result.exit_code, result.stdout.splitlines()[1]) == (0, "  Accepted for sending.")


def test_number_is_named_by_any_of_its_ids(run: Send, served_api: ServedApi, stored: Any) -> None:
    api = served_api.service
    first, _ = api.tenant("bakery", "201", "202")
    operator = api.key(None)
    for named in (first.id, "201"):
        assert stored(run(TEXT, *TO, "--from", named, "--json", POMBO_API_KEY=operator)).sender == "201"
    assert "from is missing" in refused(run(TEXT, *TO, POMBO_API_KEY=operator))[1]


def test_number_is_named_as_it_is_shown(run: Send, served_api: ServedApi, stored: Any) -> None:
    api = served_api.service
    api.tenant("bakery", "201", "202")
    operator = api.key(None)
    sentence = "Invalid value for '--from': No number is shown like this by pombo senders list: give an id from there."
    assert refused(run(TEXT, *TO, "--from", "+15550009999", POMBO_API_KEY=operator)) == (2, sentence)
    for id in ("203", "204"):
        body = {"tenant": "bakery", "provider": "meta", "id": id, "account": f"9{id}", "token": "t"}
        api.provider.numbers[f"9{id}", id] = "t"
        api.call("POST", "/v1/senders", {**body, "display": "+1 555 000 9999"}, key=operator)
        result = run(TEXT, *TO, "--from", "+15550009999", "--json", POMBO_API_KEY=operator)
        if id == "203":
            assert stored(result).sender == "203"
    assert "More than one number" in refused(result)[1]
    assert "No number" in refused(run(TEXT, *TO, "--from", "+", POMBO_API_KEY=operator))[1]


# ---- refusals


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((TEXT, "--to", "5550002222"), "Invalid value for '--to': to is a phone number with + and its country code"),
        ((TEXT, "--to", ""), "Invalid value for '--to': to is"),
        ((TEXT,), "Missing option '--to'."),
        (TO, "Give either TEXT or --template."),
        ((TEXT, *TO, "--template", "t"), "Give either TEXT or --template."),
        ((TEXT, *TO, "--language", "en"), "--language and --parameter are of a --template."),
        ((TEXT, *TO, "--parameter", "a"), "--language and --parameter are of a --template."),
        (("--template", "", *TO), "Invalid value for '--template': "),
        (("", *TO), "Invalid value for TEXT: "),
        (("x" * 4097, *TO), "Invalid value for TEXT: "),
        ((TEXT, *TO, "--from", "999"), "Invalid value for '--from': There is no such number"),
        (
            (TEXT, *TO, "--at", "tomorrow"),
            "Invalid value for '--at': give how much later, like 15s, 2h or 3d, or a time",
        ),
        ((TEXT, *TO, "--at", ""), "Invalid value for '--at': give how much later"),
        ((TEXT, *TO, "--at", "2026-12-01T09:00:00"), "Invalid value for '--at': give how much later"),
        ((TEXT, *TO, "--at", "31d"), "Invalid value for '--at': delay must be more than 0 and at most 30 days."),
        ((TEXT, *TO, "--at", "0s"), "Invalid value for '--at': delay must be more than 0 and at most 30 days."),
        ((TEXT, *TO, "--at", "9999-12-31T00:00:00Z"), "Invalid value for '--at': send_at is more than 30 days ahead"),
        ((TEXT, *TO, "--key", ""), "Invalid value for '--key': An Idempotency-Key is 1 to 255 printable"),
        ((TEXT, *TO, "--key", "a b"), "Invalid value for '--key': An Idempotency-Key is"),
    ],
)
def test_wrong_call_names_its_option_and_stores_nothing(
    served_api: ServedApi, run: Send, arguments: tuple[str, ...], sentence: str
) -> None:
    code, said = refused(run(*arguments))
    assert (code, said[: len(sentence)]) == (2, sentence)
    assert served_api.service.made == []


@pytest.mark.parametrize("url", ["", "api.example.com", "http://api.example.com", "ftp://127.0.0.1"])
def test_address_that_cannot_be_right_is_refused(run: Send, url: str) -> None:
    result = CliRunner(env={"POMBO_API_KEY": "k"}).invoke(pombo, ["send", TEXT, *TO, "--url", url])
    code, said = refused(result)
    assert (code, said.partition(" of the API")[0]) == (2, "Invalid value for '--url': The address")


def test_address_needs_a_key(run: Send, tmp_path: Path) -> None:
    sentence = "--url needs an API key: set POMBO_API_KEY, or give --api-key-file."
    assert refused(run(TEXT, *TO, POMBO_API_KEY=None)) == (2, sentence)
    assert refused(run(TEXT, *TO, POMBO_API_KEY=" ")) == (2, sentence)
    missing = tmp_path / "missing"
    code, said = refused(run(TEXT, *TO, "--api-key-file", str(missing)))
    assert (code, said) == (1, f"The API key cannot be read from {missing}: No such file or directory.")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert refused(run(TEXT, *TO, "--api-key-file", str(tmp_path / "binary")))[1].endswith(": it is no text.")
    (tmp_path / "empty").write_text("\n")
    assert refused(run(TEXT, *TO, "--api-key-file", str(tmp_path / "empty"))) == (2, sentence)


def test_key_file_goes_before_the_variable(run: Send, key: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{key}\n")
    assert run(TEXT, *TO, "--api-key-file", str(file), POMBO_API_KEY="wrong").exit_code == 0


def test_request_of_a_command_is_repeated_for_twenty_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.api_access.PATIENCE_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setenv("POMBO_API_KEY", "k")
    assert api_access.find_api("https://api.example.com", None, tmp_path).client.patience == 20


def test_refused_key_is_one_sentence(run: Send) -> None:
    assert refused(run(TEXT, *TO, POMBO_API_KEY="pombo_1_wrong")) == (
        1,
        "The request needs a valid API key in the header Authorization: Bearer.",
    )


def test_key_without_the_scope_is_told_which(run: Send, served_api: ServedApi) -> None:
    key = served_api.service.key(DEFAULT_TENANT, Scope.READ)
    assert refused(run(TEXT, *TO, POMBO_API_KEY=key)) == (1, "The API key lacks the scope send.")


def test_api_that_does_not_answer_says_how_to_repeat(run: Send, served_api: ServedApi) -> None:
    served_api.lost = 1
    code, said = refused(run(TEXT, *TO, "--key", "order-17"))
    assert (code, said) == (
        1,
        f"The API does not answer at {served_api.url}. The message may be stored: repeat the command with "
        "--key order-17, and it counts once.",
    )
    made = len(served_api.service.made)
    assert run(TEXT, *TO, "--key", "order-17").exit_code == 0
    assert made == 1


def test_store_that_is_away_gives_the_key_that_was_made(run: Send, served_api: ServedApi) -> None:
    served_api.service.is_down(served_api.service.store, StoreUnavailable())
    code, said = refused(run(TEXT, *TO))
    assert code == 1
    assert re.search(r"cannot reach its store or its queue: .* --key [0-9a-f]{32}, and it counts once\.$", said)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((404, {}, b"<html>"), "The API answered with status 404."),
        ((202, {}, {"id": 1}), "{url} does not answer as Pombo's API does."),
    ],
)
def test_other_server_is_not_taken_for_the_api(run: Send, answer: Any, sentence: str) -> None:
    with scripted_server() as other:
        other.will(answer)
        assert refused(run(TEXT, *TO, url=other.url)) == (1, sentence.replace("{url}", other.url))


def test_without_a_stack_it_says_how_to_start_one(tmp_path: Path) -> None:
    env = clean_environment(POMBO_API_KEY="k")
    line = fails(cli("send", TEXT, *TO, "--data-dir", str(tmp_path), env=env))
    assert line.startswith(f"pombo: No Pombo is running with its data in {tmp_path}. Start one with: ")


# ---- the stack on this machine


def local(data_dir: Path, *arguments: str, **environment: str | None) -> Result:
    return CliRunner(env=environment).invoke(pombo, ["send", *arguments, "--data-dir", str(data_dir)])


def test_stack_is_found_with_its_key_and_its_number(stack: Path, stored: Any) -> None:
    others = {"POMBO_API_KEY": "of another", "STORE": "redis", "REDIS_URL": "redis://x"}
    assert stored(local(stack, TEXT, *TO, "--json", **others)).sender == SENDER


def test_stack_that_was_found_is_named_in_the_next_command(stack: Path) -> None:
    result = local(stack, TEXT, *TO)
    id = result.stdout.split()[1].rstrip(":")
    assert re.search(rf"  Accepted for sending\. Its timeline: \S*pombo trace {id} --data-dir {stack}$", result.stdout)


def test_own_key_file_sends_from_its_tenants_only_number(stack: Path, served_api: ServedApi, stored: Any) -> None:
    api = served_api.service
    api.tenant("bakery", "201")
    (stack / "own").write_text(api.key("bakery"))
    assert stored(local(stack, TEXT, *TO, "--api-key-file", str(stack / "own"), "--json")).sender == "201"


def test_stack_without_an_api_is_reported(stack: Path) -> None:
    described = json.loads((stack / "stack.json").read_text())
    (stack / "stack.json").write_text(json.dumps({**described, "api": None}))
    assert refused(local(stack, TEXT, *TO)) == (1, f"The Pombo with its data in {stack} has no API: restart it.")


# ---- --wait


def a_message(state: str, shown: str, **more: Any) -> Message:
    return Message("1", "outbound", state, shown, "t", "s", "c", "text", "cc", NOW, content={"body": TEXT}, **more)


class Messages:
    """A client that shows these messages, one after another; then the last one."""

    def __init__(self, *messages: Message) -> None:
        self.left = list(messages)

    def message(self, id: str) -> Message:
        assert id == "1"
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


def watched(*messages: Message) -> Message:
    client: Any = Messages(*messages)
    return command.watch(client, "1")


def test_wait_ends_with_the_final_message_and_reports_failed_attempts_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tried = (Moment(NOW, "planned", "Accepted for sending."), Moment(NOW, "provider_down", "WhatsApp is\ndown."))
    waits = a_message("pending", "pending", timeline=tried)
    last = a_message("done", "sent", timeline=tried)
    assert watched(waits, waits, last) is last
    assert capsys.readouterr().err == "12:00:00  WhatsApp is\\ndown.\n"


def test_wait_ends_a_minute_after_the_time_of_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("cli.send.time.sleep", slept.append)
    monkeypatch.setattr("cli.send.time.monotonic", lambda: sum(slept))
    monkeypatch.setattr("cli.send.LOOK_SECONDS", LOOK_SECONDS)
    pending = a_message("pending", "pending")
    assert watched(pending) is pending
    assert set(slept) == {0.25}
    assert sum(slept) == 60.25
    slept.clear()
    later = a_message("pending", "pending", send_at=datetime.now(UTC) + timedelta(hours=1))
    assert watched(later) is later
    assert slept[0] == 60, "nobody looks often while nothing can happen"
    assert 3600 + 59 <= sum(slept) <= 3600 + 180


def test_waiting_shows_the_timeline_and_fails_unless_it_was_sent(run: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = (Moment(NOW, "planned", "Accepted for sending."), Moment(NOW, "accepted", "Accepted by WhatsApp."))
    ends = {
        ("done", "sent", None): (0, ""),
        ("dead", "failed", None): (1, "Error: It was not sent; the timeline is above."),
        ("done", "failed", None): (1, "Error: It was not sent; the timeline is above."),
        ("dropped", "cancelled", None): (1, "Error: It was not sent; the timeline is above."),
        ("pending", "pending", "waiting"): (1, "Error: No final answer within 60 s; the timeline is above."),
    }
    for (state, shown, why), (code, said) in ends.items():
        end = a_message(state, shown, why=why, timeline=timeline)
        monkeypatch.setattr("cli.send.watch", lambda *_, end=end: end)
        result = run(TEXT, *TO, "--wait")
        assert (result.exit_code, result.stderr.strip()) == (code, said)
        assert result.stdout.splitlines() == [
            f"Message 1: {shown}",
            "  2026-03-01 (times are UTC)",
            "  12:00:00.000  Accepted for sending.",
            "  12:00:00.000  Accepted by WhatsApp.",
            f"  Message is {shown}{' (waiting)' if why else ''}: {TEXT}",
        ]
        as_json = run(TEXT, *TO, "--wait", "--json")
        assert as_json.exit_code == code
        assert (f"Message 1: {shown}" in as_json.stderr) == bool(code)
        document = json.loads(as_json.stdout)
        assert (document["shown"], document.get("why")) == (shown, why)
        assert document["timeline"][1] == {
            "at": "2026-03-01T12:00:00.000Z",
            "what": "accepted",
            "sentence": "Accepted by WhatsApp.",
        }


def test_wait_needs_a_key_that_may_read(run: Send, served_api: ServedApi) -> None:
    key = served_api.service.key(DEFAULT_TENANT, Scope.SEND)
    code, said = refused(run(TEXT, *TO, "--wait", POMBO_API_KEY=key))
    assert code == 1
    assert re.fullmatch(r"The API key lacks the scope read\. Message [0-9a-f]{40} is stored, and will be sent\.", said)
    assert len(served_api.service.made) == 1


def test_message_of_another_type_is_shown_by_its_type() -> None:
    shown = command.as_text(Message("1", "outbound", "done", "sent", "t", "s", "c", "template", "cc", NOW, content={}))
    assert shown.splitlines()[-1] == "  Message is sent: template"
