"""make try: every sample webhook through a Pombo that it starts for itself, or through the one that runs."""

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.stack import ROOT, clean_environment, command

SAMPLES = sorted(path.name for path in (ROOT / "examples" / "requests").glob("*.json"))


def try_it(directory: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """As in another clone: what runs in this one's .pombo is none of a test's business."""
    environment = clean_environment(PYTHONPATH=str(ROOT), **settings)
    command = [sys.executable, "-m", "cli.tour", "samples", *arguments]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=150)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What was said of each sample."""
    ended = try_it(tmp_path_factory.mktemp("clone"), "--store", "sqlite", STORE="sqlite")  # as make try STORE=sqlite
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert f"All {len(SAMPLES)} samples passed." in ended.stdout
    lines = [line.split(maxsplit=2) for line in ended.stdout.splitlines() if line.startswith("  ")]
    assert [name for name, _, _ in lines] == SAMPLES
    assert {status for _, status, _ in lines} == {"200"}
    return {name.removesuffix(".json"): sentence for name, _, sentence in lines}


def test_customer_messages_are_answered_by_the_menu(tried: dict[str, str]) -> None:
    for name in ("text", "text_of_username", "image", "voice", "location", "contacts", "order", "button", "flow_reply"):
        assert tried[name] == "processed: typing sent, interactive sent", name


def test_news_is_accepted_without_a_reply(tried: dict[str, str]) -> None:
    for name in ("account_update", "message_template_status_update", "history", "smb_message_echoes", "own_message"):
        assert tried[name] == "processed, no reply", name
    for name in ("receipt_read", "unknown_field"):
        assert tried[name] == "Accepted: a receipt, or nothing for Pombo to handle.", name


@contextmanager
def running_in(directory: Path, **settings: str) -> Iterator[None]:
    """A `pombo up` with its data where another clone in this directory would have it."""
    environment = clean_environment(PYTHONPATH=str(ROOT), **settings)
    up = subprocess.Popen(
        command("up", "--json", "--ports", "0"), cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert up.stdout is not None
        assert up.stdout.readline()
        yield
    finally:
        up.terminate()
        up.communicate(timeout=60)


def test_running_pombo_is_used_for_the_samples(tmp_path: Path) -> None:
    with running_in(tmp_path, HANDLER="handlers.echo:handle"):
        ended = try_it(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Starting" not in ended.stdout
    assert "processed: text sent" in ended.stdout, "the echo answers, not the menu"


def test_refused_sample_is_reported_with_exit_code_1(tmp_path: Path) -> None:
    """Signed with a secret that is not the webhook's."""
    with running_in(tmp_path, META_APP_SECRET="another"):
        ended = try_it(tmp_path)
    assert ended.returncode == 1
    assert "Pombo answered with status 403." in ended.stdout
    assert ended.stderr == f"pombo: {len(SAMPLES)} of {len(SAMPLES)} samples failed; they are red above.\n"


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """As a stack does whose process lives."""
    with (directory / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_stopped_pombo_is_reported_in_one_sentence(tmp_path: Path) -> None:
    directory = tmp_path / ".pombo"
    directory.mkdir()
    (directory / "stack.json").write_text('{"webhook": "http://127.0.0.1:9"}')
    with held(directory):
        ended = try_it(tmp_path, STORE="sqlite", SQLITE_PATH=str(directory / "pombo.sqlite"))
    assert ended.returncode == 1
    assert ended.stderr.startswith("pombo: send.py: nothing answers at http://127.0.0.1:9/webhooks/whatsapp")
    assert "Traceback" not in ended.stderr
    assert os.listdir(directory)


class Taker(BaseHTTPRequestHandler):
    """A webhook that takes everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_unavailable_store_is_reported_in_one_sentence(tmp_path: Path) -> None:
    directory = tmp_path / ".pombo"
    directory.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), Taker) as webhook:
        threading.Thread(target=webhook.serve_forever, daemon=True).start()
        (directory / "stack.json").write_text(json.dumps({"webhook": f"http://127.0.0.1:{webhook.server_port}"}))
        with held(directory):
            ended = try_it(tmp_path, STORE="redis", REDIS_URL="redis://127.0.0.1:9")
        webhook.shutdown()
    assert (ended.returncode, ended.stderr) == (1, "pombo: Redis cannot be reached.\n")


def test_wrong_call_is_exit_2_and_one_line(tmp_path: Path) -> None:
    ended = try_it(tmp_path, "--nothing")
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
    assert "No such option" in ended.stderr
