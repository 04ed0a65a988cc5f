"""The log lines of a deployment: read from a server that speaks the Logging API's entries:list over HTTP."""

import ast
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import logging

from cli import ids, running, trace
from cli.cloud_logs import LINES_AT_MOST, PAGE_SIZE, CloudLogs
from shared.logs import EVENTS
from shared.operations.timeline.logs import READ
from tests.support.payloads import of_texts, text
from tests.support.stack import ROOT, SENDER, Stack, clean_environment, cli

NOW = datetime.now(UTC)
KEY, CORRELATION = "0e" * 20, "correlation-1"


def lifted(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as Cloud Run's agent hands it to Cloud Logging: some fields become the entry's own.

    https://cloud.google.com/logging/docs/structured-logging (seen November 2026)
    """
    rest = dict(line)
    entry = {
        "timestamp": rest.pop("time"),
        "severity": rest.pop("severity", "DEFAULT"),
        "labels": rest.pop("logging.googleapis.com/labels", {}),
        "logName": "projects/my-project/logs/run.googleapis.com%2Fstdout",
        "resource": {"type": "cloud_run_revision", "labels": {}},
        "insertId": "1",
    }
    return {**entry, "jsonPayload": {name: _as_double(value) for name, value in rest.items()}}


def _as_double(value: Any) -> Any:
    """A Struct of protobuf knows no whole numbers."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@dataclass
class LoggingApi:
    """entries:list over these entries: the part of the query language that is used, in pages."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    refusal: tuple[int, str] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    page: int = 1000

    def client(self) -> Any:
        return logging.Client(
            project="my-project",
            credentials=AnonymousCredentials(),
            _use_grpc=False,
            client_options={"api_endpoint": self.url},
        )

    def logs(self) -> CloudLogs:
        return CloudLogs("my-project", self.client())

    def __call__(self, path: str, query: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append(query)
        if self.refusal:
            status, message = self.refusal
            return status, {"error": {"code": status, "message": message}}
        assert path.partition("?")[0] == "/v2/entries:list"
        assert query["resourceNames"] == ["projects/my-project"]
        assert query["orderBy"] == "timestamp asc"
        found = sorted(filter(selects(query["filter"]), self.entries), key=lambda entry: str(entry["timestamp"]))
        start = int(query.get("pageToken") or 0)
        end = start + min(self.page, query["pageSize"])
        more = {"nextPageToken": str(end)} if end < len(found) else {}
        return 200, {"entries": found[start:end], **more}


def selects(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """The filter as a function. What it does not know it refuses, as the real one does."""
    match = re.fullmatch(
        r'timestamp>="(?P<start>[^"]+)" AND timestamp<="(?P<end>[^"]+)" AND \((?P<about>[^)]*\)(?: OR [^)]*\))*)\) '
        r"AND jsonPayload\.event=\((?P<events>[^)]*)\)",
        text,
    )
    assert match, text
    start, end = (datetime.fromisoformat(match[name]) for name in ("start", "end"))
    events = re.findall(r'"([^"]*)"', match["events"])
    about = [
        (name, set(re.findall(r'"([^"]*)"', ids)))
        for name, ids in re.findall(r"labels\.(\w+)=\(([^)]*)\)", match["about"])
    ]

    def select(entry: Mapping[str, Any]) -> bool:
        at = datetime.fromisoformat(entry["timestamp"])
        is_about = any(entry["labels"].get(name) in ids for name, ids in about)
        return start <= at <= end and is_about and entry.get("jsonPayload", {}).get("event") in events

    return select


@contextmanager
def served(api: LoggingApi) -> Iterator[LoggingApi]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            status, answer = api(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        api.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield api
        server.shutdown()
        thread.join()


@pytest.fixture
def api() -> Iterator[LoggingApi]:
    with served(LoggingApi()) as api:
        yield api


def stamp(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def duplicate(seconds: float, key: str = KEY) -> dict[str, Any]:
    at = NOW + timedelta(seconds=seconds)
    line = {"time": stamp(at), "severity": "INFO", "message": "…", "event": "inbound_duplicate"}
    return lifted({**line, "inbound_event_id": key, "logging.googleapis.com/labels": {"inbound_event_id": key}})


# ---- what is read


def test_cloud_logs_give_the_same_timeline_as_local_logs(stack: Stack, contact: str, api: LoggingApi) -> None:
    stack.fault("send", "error", code=131056, times=3, match={"to": contact})
    body = of_texts(text(contact, f"wamid.{contact}", "!list 2"))
    assert stack.post(body).status_code == 200
    stack.wait_settled([f"wamid.{contact}"], 90)
    assert stack.post(body).status_code == 200
    stack.wait_logs("inbound_duplicate", inbound_event_id=stack.event_key(f"wamid.{contact}"))
    stack.wait_until(lambda: "receipt_read" in stack.what(f"wamid.{contact}"), "all of it is read")
    api.entries = [lifted(line) for line in stack.logs()]
    found = running.Running(stack.store, SENDER, None, stack.data_dir / "logs.jsonl")
    known = ids.find(found, f"wamid.{contact}")
    assert known is not None
    records = known.records

    here = trace.timeline_of(found, records)
    there = trace.timeline_of(found, records, partial(api.logs().log_lines, since=records[0].received_at))

    assert there == here
    assert {"duplicate", "waiting"} <= {moment.what for moment in there.events}


def test_pages_are_read_to_their_end(api: LoggingApi) -> None:
    api.page = 2
    api.entries = [duplicate(-number) for number in range(5)]

    lines = list(api.logs().log_lines(READ, {KEY}))

    assert len(lines) == 5
    assert [query.get("pageToken") for query in api.asked] == [None, "2", "4"]
    assert {query["pageSize"] for query in api.asked} == {PAGE_SIZE}
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)


def test_a_flood_is_read_up_to_a_bound(api: LoggingApi) -> None:
    api.entries = [duplicate(-number / 1000) for number in range(LINES_AT_MOST + 2000)]

    assert len(list(api.logs().log_lines(READ, {KEY}))) == LINES_AT_MOST


def test_only_a_bounded_time_is_asked_for(api: LoggingApi) -> None:
    api.entries = [duplicate(-seconds) for seconds in (3600, 0)]

    lines = list(api.logs().log_lines(READ, {KEY}, since=NOW - timedelta(seconds=60)))
    everything = list(api.logs().log_lines(READ, {KEY}))

    assert [len(lines), len(everything)] == [1, 2]
    for query in api.asked:
        assert 'timestamp>="' in query["filter"]
        assert 'timestamp<="' in query["filter"]


def test_entries_about_other_records_are_skipped(api: LoggingApi) -> None:
    api.entries = [duplicate(0, key="0a" * 20), {**duplicate(0), "jsonPayload": {"event": "webhook_received"}}]

    assert list(api.logs().log_lines(READ, {KEY, CORRELATION})) == []


def test_foreign_log_entry_is_skipped() -> None:
    """The filter would not select it; a server may."""
    plain = {"timestamp": stamp(NOW), "textPayload": "Container called exit(1).", "logName": "projects/p/logs/x"}
    with served(Lax([plain, duplicate(0)])) as lax:
        assert len(list(lax.logs().log_lines(READ, {KEY}))) == 1


class Lax(LoggingApi):
    """Gives all it has, whatever was asked."""

    def __call__(self, *_: Any) -> tuple[int, dict[str, Any]]:
        return 200, {"entries": self.entries}


def test_wamid_is_not_sent_to_google(api: LoggingApi) -> None:
    """It holds the customer's number, and a project's audit logs may keep what was asked."""
    list(api.logs().log_lines(EVENTS.keys(), {"wamid.HBgLMTU1NTAwMDIyMjI=", KEY, 'x" OR "y'}))

    (query,) = api.asked
    assert KEY in query["filter"]
    assert "wamid" not in query["filter"]
    assert 'x"' not in query["filter"]


def test_query_without_a_usable_id_is_not_sent(api: LoggingApi) -> None:
    assert list(api.logs().log_lines(READ, {"wamid.x"})) == []
    assert api.asked == []


# ---- what goes wrong


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ((403, "Permission denied"), "may not read the logs of my-project: they need the role roles/logging.viewer"),
        ((401, "Unauthenticated"), "This machine has no valid Google credentials"),
        ((404, "Project does not exist"), "The project my-project does not exist"),
        ((429, "Quota exceeded"), "read limit is reached"),
        ((500, "Internal"), "The call to Cloud Logging failed (InternalServerError)"),
        ((400, "Unparseable filter"), "The call to Cloud Logging failed (BadRequest)"),
    ],
)
def test_a_refusal_is_one_sentence(api: LoggingApi, refusal: tuple[int, str], said: str) -> None:
    api.refusal = refusal

    with pytest.raises(click.ClickException) as caught:
        list(api.logs().log_lines(READ, {KEY}))

    assert said in caught.value.message
    assert caught.value.message.count("\n") == 0


def test_a_service_that_cannot_be_reached_is_one_sentence() -> None:
    with served(LoggingApi()) as api:
        logs = api.logs()

    with pytest.raises(click.ClickException, match="Cannot reach Cloud Logging"):
        list(logs.log_lines(READ, {KEY}))


def fails(result: subprocess.CompletedProcess[str]) -> str:
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    return line


def test_trace_without_credentials_explains_the_login(stack: Stack, contact: str, tmp_path: Path) -> None:
    message_id = stack.say(contact, "hello")
    stack.wait_settled([message_id])
    environ = clean_environment(GOOGLE_APPLICATION_CREDENTIALS=str(tmp_path / "none.json"))

    result = cli("trace", message_id, "--cloud", "my-project", "--data-dir", str(stack.data_dir), env=environ)

    assert "gcloud auth application-default login" in fails(result)


def test_trace_without_the_extra_explains_what_to_install(stack: Stack, contact: str) -> None:
    message_id = stack.say(contact, "hello")
    stack.wait_settled([message_id])
    blocked = "import sys; sys.modules['google.cloud.logging'] = None; from cli.main import main; main()"
    arguments = ["trace", message_id, "--cloud", "my-project", "--data-dir", str(stack.data_dir)]

    result = subprocess.run(
        [sys.executable, "-c", blocked, *arguments],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert fails(result) == (
        "pombo: --cloud needs google-cloud-logging. Install it in the clone with: .venv/bin/pip install -e '.[cloud]'."
    )


def test_trace_without_a_store_reports_it(tmp_path: Path) -> None:
    assert "No Pombo is running" in fails(cli("trace", KEY, "--cloud", "my-project", "--data-dir", str(tmp_path)))


# ---- who imports it


def test_only_the_command_line_imports_the_client_library() -> None:
    importers = [
        path.relative_to(ROOT).as_posix()
        for tree in ("services", "shared", "handlers", "local", "cli")
        for path in (ROOT / tree).rglob("*.py")
        if imports_cloud_logging(path.read_text())
    ]
    assert importers == ["cli/cloud_logs.py"]


def imports_cloud_logging(source: str) -> bool:
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return any(name.startswith("google.cloud.logging") for name in names)


def test_a_command_that_does_not_read_the_cloud_does_not_import_it() -> None:
    seen = "import sys, cli.trace; sys.exit('google.cloud.logging' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", seen], cwd=ROOT, timeout=60).returncode == 0
