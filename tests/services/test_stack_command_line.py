"""The pombo command against a stack with nothing but defaults."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from cli.commands import run
from local.services import SERVICES
from tests.support.stack import ROOT, Stack, clean_environment, cli, command, fails, processes_of, wait_until

linux_only = pytest.mark.skipif(not Path("/proc").is_dir(), reason="only Linux ends a child with its parent")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """As `pombo up` is without a setting: real time, the echo handler, the sweep."""
    with Stack(tmp_path_factory.mktemp("plain") / "data", options=()) as stack:
        yield stack


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command in this process. Other tests start one for it; what an argument leads to needs none."""

    def cli_here(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["pombo", *arguments])
        said, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        code = 0
        with redirect_stdout(said), redirect_stderr(errors):
            try:
                run()
            except SystemExit as end:
                code = int(end.code or 0)
        texts = []
        for stream in (said, errors):
            stream.flush()
            stream.seek(0)
            texts.append(stream.read())
        return subprocess.CompletedProcess(arguments, code, *texts)

    return cli_here


# ---- up


def test_up_describes_itself_in_one_line(plain: Stack) -> None:
    described = plain.described

    assert described.keys() == {*SERVICES, "tasks", "whatsapp", "control", "store", "data_dir", "api_key_file", "pids"}
    assert described["store"] == "sqlite"
    assert described["data_dir"] == str(plain.data_dir)
    assert described["pids"].keys() == {*SERVICES, "tasks", "whatsapp", "store"}
    assert described["pids"]["store"] is None
    for name in (*SERVICES, "whatsapp", "control"):
        assert described[name].startswith("http://127.0.0.1:")
    assert described["tasks"].startswith("127.0.0.1:")
    assert plain.pids() == {name: pid for name, pid in described["pids"].items() if pid is not None}


def test_up_stopped_while_starting_exits_with_0(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    up = subprocess.Popen(
        command("up", "--ports", "0", "--data-dir", str(data_dir)),
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(processes_of(data_dir)) > 1, "a process was started")
    up.send_signal(signal.SIGINT)
    _, said = up.communicate(timeout=30)
    assert (up.returncode, said) == (0, "")
    assert processes_of(data_dir) == []


@pytest.mark.parametrize("moment", [0.1, 0.2, 0.4], ids="{}s".format)
def test_ctrl_c_while_up_is_still_being_imported_ends_it_with_exit_0(tmp_path: Path, moment: float) -> None:
    """The moments are tried, not waited for: whichever part of the start they meet, the end is the same."""
    script = "import sys; sys.argv[0] = 'pombo'; import cli.main as m; print('begun', flush=True); m.main()"
    up = subprocess.Popen(
        [sys.executable, "-c", script, "up", "--json", "--ports", "0", "--data-dir", str(tmp_path / "data")],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stdout is not None
    up.stdout.readline()
    time.sleep(moment)
    up.send_signal(signal.SIGINT)
    _, said = up.communicate(timeout=30)
    assert (up.returncode, said) == (0, "")


def test_up_reports_a_damaged_store_at_once(tmp_path: Path) -> None:
    (tmp_path / "pombo.sqlite").write_bytes(b"this is no database, and never was one\n" * 200)
    line = fails(cli("up", "--ports", "0", "--data-dir", str(tmp_path)), only_error=True)
    assert "damaged or not a database" in line


def test_a_proxy_of_the_environment_is_not_asked_about_this_machine(tmp_path: Path) -> None:
    proxies = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    with Stack(tmp_path / "data", options=(), settings=proxies, is_forked=True) as stack:
        assert stack.cli("say", "hello", "--wait").returncode == 0


# ---- say


def test_say_waits_for_the_reply_and_prints_it(plain: Stack) -> None:
    result = plain.cli("say", "Olá, tudo bem? 👋", "--wait", "--json")

    assert (result.returncode, result.stderr) == (0, "")
    (line,) = result.stdout.splitlines()
    said = json.loads(line)
    assert said.keys() == {"message_id", "inbound_event_id", "correlation_id", "replies"}
    (reply,) = said["replies"]
    assert reply | {"key": ""} == {"key": "", "type": "text", "text": "Olá, tudo bem? 👋", "shown": "sent"}
    assert plain.event_key(said["message_id"]) == said["inbound_event_id"]
    (entry,) = [one for one in plain.ledger("15550002222") if one["key"] == reply["key"]]
    assert entry["echo"] == f"pombo1.{reply['key']}.0.{said['correlation_id']}"


def test_say_without_waiting_ends_once_the_message_is_stored(plain: Stack) -> None:
    result = plain.cli("say", "hello", "--from", "15550003333", "--json")

    assert (result.returncode, result.stderr) == (0, "")
    said = json.loads(result.stdout)
    assert plain.event(said["message_id"]) is not None
    plain.wait_texts("15550003333", ["hello"])


def test_say_prints_a_readable_timeline(plain: Stack) -> None:
    result = plain.cli("say", "hello", "--wait")

    assert (result.returncode, result.stderr) == (0, "")
    assert "Received and stored (signature valid, first delivery)." in result.stdout
    assert "Accepted by WhatsApp." in result.stdout
    assert "Reply 1 is sent: hello" in result.stdout
    assert "\x1b[" not in result.stdout, "no colours into a pipe"


def test_a_customer_with_a_user_id_and_no_number_is_answered_as_a_recipient(plain: Stack) -> None:
    result = plain.cli("say", "hello", "--user-id", "US.13491208655302741918", "--wait", "--json")

    assert result.returncode == 0
    (entry,) = plain.ledger("US.13491208655302741918")
    assert (entry["recipient"], entry["to"]) == ("US.13491208655302741918", None)


@pytest.mark.slow
def test_say_without_an_answer_ends_with_the_timeline_so_far(plain: Stack) -> None:
    """It waits for a minute, whatever the machine."""
    plain.fault("send", "error", code=190, times=0, match={"to": "15550004444"})
    try:
        result = plain.cli("say", "hello", "--from", "15550004444", "--wait", "--json")
    finally:
        plain.control("DELETE", "faults")
        plain.put_marks(refused=None)

    assert result.returncode == 1
    said = json.loads(result.stdout)
    assert said["replies"][0]["shown"] == "pending"
    assert said["replies"][0]["why"] == "WHATSAPP_REAUTH_REQUIRED"
    *timeline, last = result.stderr.splitlines()
    assert any("reconnect the number" in line for line in timeline)
    assert last.startswith("pombo: No final answer within 60 s")


# ---- trace


def test_trace_finds_a_message_by_every_id_it_has(plain: Stack) -> None:
    said = json.loads(plain.cli("say", "hello", "--wait", "--json").stdout)
    key = said["replies"][0]["key"]
    (entry,) = [one for one in plain.ledger("15550002222") if one["key"] == key]
    plain.wait_until(lambda: "receipt_read" in plain.what(said["message_id"]), "it was read")
    ids = [said["correlation_id"], said["inbound_event_id"], key, said["message_id"], entry["wamid"]]

    traces = [json.loads(plain.cli("trace", one, "--json").stdout) for one in ids]

    assert all(one == traces[0] for one in traces)
    timeline: dict[str, Any] = traces[0]
    assert timeline.keys() == {"correlation_id", "tenant", "sender", "events", "shown", "message", "replies"}
    assert timeline["shown"] == "processed"
    whats = [moment["what"] for moment in timeline["events"]]
    assert {"received", "replied", "done", "planned", "accepted", "receipt_sent", "receipt_read"} <= set(whats)
    for moment in timeline["events"]:
        assert moment.keys() == {"at", "what", "sentence", "delivery"}
        assert moment["at"].endswith("Z")
        assert moment["delivery"] in (said["inbound_event_id"], key)
    times = [moment["at"] for moment in timeline["events"]]
    assert times == sorted(times)


@pytest.mark.parametrize("given", ["unknown", "0" * 40, "wamid.unknown", "x" * 5000, "%", "é", "' OR 1=1 --"])
def test_unknown_id_is_reported_in_one_line(plain: Stack, here: Any, given: str) -> None:
    assert "No record has this id" in fails(here("trace", given, "--data-dir", str(plain.data_dir)))


@pytest.mark.parametrize("arguments", [("trace",), ("say",), ("say", "hello", "--from"), ("say", "hello", "--user-id")])
def test_invalid_utf8_argument_is_reported_in_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = subprocess.run(
        [*command(*arguments), b"\xff\xfe", "--data-dir", str(tmp_path)],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )

    assert "An argument is not valid UTF-8." in fails(result, code=2)


@pytest.mark.parametrize(
    "number",
    [
        "abc",
        "",
        " ",
        "+",
        "1555",
        "1" * 16,
        "+1 555 000 2222",
        "1-555-0002222",
        "١٥٥٥٠٠٠",
        "++15550002222",
        "15550002222\n",
    ],
)
def test_say_from_an_invalid_number_is_refused_in_one_line(tmp_path: Path, here: Any, number: str) -> None:
    line = fails(here("say", "hello", "--from", number, "--data-dir", str(tmp_path)), code=2)
    assert "--from" in line
    assert "give a phone number: 5 to 15 digits, with or without a leading +." in line
    assert len(number) < 4 or number not in line


@pytest.mark.parametrize("number", ["15550002222", "+15550002222", "12345", "1" * 15])
def test_say_from_a_valid_number_looks_for_a_stack(tmp_path: Path, here: Any, number: str) -> None:
    assert "No Pombo is running" in fails(here("say", "hello", "--from", number, "--data-dir", str(tmp_path)))


@pytest.mark.parametrize("user_id", ["", " "])
def test_say_with_an_empty_user_id_is_refused_in_one_line(tmp_path: Path, here: Any, user_id: str) -> None:
    line = fails(here("say", "hello", "--user-id", user_id, "--data-dir", str(tmp_path)), code=2)
    assert "the user id is empty; omit the option for a customer with a phone number." in line


# ---- what goes wrong


@pytest.mark.parametrize(
    "arguments",
    [
        ("say", "hello"),
        ("trace", "wamid.x"),
        pytest.param(("say", "hello", "--wait", "--json"), marks=pytest.mark.slow),
    ],
)
def test_command_without_a_stack_reports_it_in_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert "No Pombo is running" in fails(cli(*arguments, "--data-dir", str(tmp_path)))


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "--port", "0"),
        ("up", "--ports", "many"),
        ("up", "--ports", "70000"),
        ("up", "--ports", "-1"),
        ("up", "--store", "paper"),
        ("up", "more"),
        ("say",),
        ("say", "hello", "more"),
        ("ledger", "more"),
        ("ledger", "--limit", "0"),
        ("trace",),
        ("trace", "x", "--jason"),
        ("fly",),
        ("--fly",),
    ],
)
def test_wrong_call_is_reported_in_one_line_with_exit_code_2(here: Any, arguments: tuple[str, ...]) -> None:
    fails(here(*arguments), code=2)


@pytest.mark.parametrize("arguments", [(), ("up",), ("say",), ("ledger",), ("trace",)])
def test_every_command_has_help_with_examples(here: Any, arguments: tuple[str, ...]) -> None:
    result = here(*arguments, "--help")

    assert (result.returncode, result.stderr) == (0, "")
    assert "Examples:" in result.stdout


def test_up_on_a_used_port_reports_it_in_one_line(plain: Stack, tmp_path: Path) -> None:
    port = plain.described["webhook"].rpartition(":")[2]

    assert f"Port {port} is in use" in fails(cli("up", "--json", "--ports", port, "--data-dir", str(tmp_path)))
    assert processes_of(tmp_path) == []


def test_up_on_a_used_data_directory_reports_it_and_disturbs_no_stack(plain: Stack) -> None:
    assert "A Pombo is already running (process " in fails(
        cli("up", "--json", "--ports", "0", "--data-dir", str(plain.data_dir))
    )

    assert plain.cli("say", "still there?", "--wait").returncode == 0


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"HANDLER": "nowhere:handle"}, "nowhere"),
        pytest.param({"HANDLER": "handlers.echo:nothing"}, "nothing", marks=pytest.mark.slow),
        ({"MAX_ATTEMPTS": "many"}, "MAX_ATTEMPTS"),
        ({"TIME_SCALE": "100"}, "TIME_SCALE"),
        pytest.param({"TIME_SCALE": "fast"}, "TIME_SCALE", marks=pytest.mark.slow),
        ({"INTERNAL_TASK_TOKEN": ","}, "INTERNAL_TASK_TOKEN"),
    ],
    ids=str,
)
def test_up_with_a_wrong_setting_names_it_in_one_line(tmp_path: Path, settings: dict[str, str], what: str) -> None:
    result = cli("up", "--json", "--ports", "0", "--data-dir", str(tmp_path), env=clean_environment(**settings))

    assert what in fails(result)
    assert processes_of(tmp_path) == []


def test_up_without_a_writable_directory_reports_it_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    fails(cli("up", "--json", "--ports", "0", "--data-dir", str(tmp_path / "file")))
    fails(cli("up", "--json", "--ports", "0", "--data-dir", str(tmp_path / "file" / "below")))


def test_broken_stack_description_is_reported_in_one_line(tmp_path: Path, here: Any) -> None:
    for text in ("", "{", "[]", "{}", "\x00", '{"environment": 5}', '{"environment": {}}'):
        (tmp_path / "stack.json").write_text(text)
        fails(here("trace", "x", "--data-dir", str(tmp_path)))


# ---- its processes


def test_a_killed_process_is_back_at_once_and_takes_its_workers_along(plain: Stack) -> None:
    for name in (*SERVICES, "tasks", "whatsapp"):
        workers = children_of(plain.pids()[name])
        killed = plain.kill(name)
        wait_until(lambda of=name, old=killed: plain.pids()[of] != old[of], f"pids.json names another {name}", 4)
        wait_until(lambda old=workers: not any(map(is_running, old)), f"the workers of {name} are gone", 4)
        plain.wait_back(killed)
        assert bool(workers) == (name in ("api", "internal")), "gunicorn's worker; the webhook service is one process"
    assert plain.cli("say", "hello", "--wait").returncode == 0


def children_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_ends_up_with_exit_0_and_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    stack = Stack(tmp_path / "data", is_forked=number is signal.SIGTERM)
    stack.start()
    stack.http.close()

    assert stack.end(number) == 0

    assert processes_of(stack.data_dir) == []
    assert "No record has this id" in fails(cli("trace", "x", "--data-dir", str(stack.data_dir)))
    assert not (stack.data_dir / "stack.json").exists()


@linux_only
def test_up_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "data")
    stack.start()
    stack.http.close()
    assert len(processes_of(stack.data_dir)) >= 5

    assert stack.end(signal.SIGKILL) == -signal.SIGKILL

    wait_until(lambda: processes_of(stack.data_dir) == [], "all of it is gone")
    assert (stack.data_dir / "stack.json").exists()
    assert f"up --data-dir {stack.data_dir}" in fails(cli("say", "hello", "--data-dir", str(stack.data_dir)))
    assert "No record has this id" in fails(cli("trace", "x", "--data-dir", str(stack.data_dir)))


def test_up_can_be_stopped_while_it_starts(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    process = subprocess.Popen(
        command("up", "--json", "--ports", "0", "--data-dir", str(data_dir)),
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: processes_of(data_dir), "its first process")

    os.kill(process.pid, signal.SIGTERM)

    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert len(out.splitlines()) <= 1
    assert processes_of(data_dir) == []


# ---- what a customer or a handler says


def test_say_exits_with_1_when_the_reply_was_refused(plain: Stack) -> None:
    plain.fault("send", "error", code=131026, match={"to": "15550009001"})
    result = plain.cli("say", "hello", "--wait", "--from", "15550009001")
    assert result.returncode == 1
    assert "Reply 1 is failed" in result.stdout
    assert result.stderr == "pombo: A reply was not sent; the timeline is above.\n"


def test_a_customers_text_cannot_steer_the_terminal_nor_forge_a_line(plain: Stack) -> None:
    text = "\x1b]0;title\x07\x1b[2J\n  09:00:00.000  reply 1  It was read."
    result = plain.cli("say", text, "--wait")
    assert result.returncode == 0
    assert not set(result.stdout) & {"\x1b", "\x07"}
    assert "Reply 1 is sent: \\x1b]0;title\\x07\\x1b[2J\\n  09:00:00.000  reply 1  It was read." in result.stdout


def test_an_answer_that_cannot_be_written_is_one_line(plain: Stack) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            command("say", "hello", "--data-dir", str(plain.data_dir)),
            env=clean_environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == "pombo: Cannot write the output: No space left on device.\n"
