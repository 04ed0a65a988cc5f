"""bootstrap is right the first time: it waits for the APIs that it turns on, and its state is in its bucket at once."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.infra.offline.workspace import TERRAFORM, Workspace
from tests.infra.plans import Plan
from tests.infra.variants import BOOTSTRAP, BOOTSTRAPPED, given

PROGRAM = TERRAFORM.parent / "release" / "wait_for_apis.py"
NOTHING_TO_READ = {"iamcredentials", "ondemandscanning"}
"""APIs that only do something: none of their resources is there to be read."""

DISABLED = json.dumps(
    {
        "error": {
            "code": 403,
            "message": "Cloud Run Admin API has not been used in project 1 before or it is disabled.",
            "details": [{"reason": "SERVICE_DISABLED", "domain": "googleapis.com"}],
        }
    }
)
FORBIDDEN = json.dumps({"error": {"code": 403, "message": "Permission 'run.services.list' denied on resource"}})


# ---- in Terraform


def test_each_api_is_waited_for_where_it_is_turned_on_and_only_then(
    make_workspace: Callable[[], Workspace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, notes = make_workspace(), tmp_path / "notes"
    monkeypatch.setenv("POMBO_TEST_NOTES", str(notes))
    workspace.apply(BOOTSTRAP, *given(BOOTSTRAPPED))
    on = Plan(workspace.plan(BOOTSTRAP, *given(BOOTSTRAPPED))).of("google_project_service")
    asked = [re.fullmatch(r"(\S+) --project=(\S+) --region=(\S+) (\w+)", it) for it in notes.read_text().splitlines()]
    assert all(asked)
    assert {it.groups()[1:3] for it in asked if it} == {("my-project-1", "europe-west1")}
    (program,) = {it[1] for it in asked if it}
    assert (TERRAFORM / BOOTSTRAP / program).resolve() == PROGRAM, "found from where the root is"
    assert sorted(f"{it[4]}.googleapis.com" for it in asked if it) == sorted(it["service"] for it in on)

    notes.unlink()
    workspace.apply(BOOTSTRAP, *given(BOOTSTRAPPED))
    assert not notes.exists()


def test_an_api_that_does_not_answer_stops_the_apply_before_what_needs_it(
    make_workspace: Callable[[], Workspace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = make_workspace()
    failing = tmp_path / "python3"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    workspace.init(BOOTSTRAP)
    environment = workspace.environment() | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["terraform", "apply", "-input=false", "-no-color", "-auto-approve", *given(BOOTSTRAPPED)],
        cwd=workspace.folder / BOOTSTRAP,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "local-exec provisioner error" in done.stderr
    made = workspace.run(BOOTSTRAP, "state", "list").split()
    assert {it.partition("[")[0] for it in made} <= {"google_project_service.this", "google_storage_bucket.state"}


def test_the_state_bucket_is_the_one_that_gcloud_made(plan_of: Callable[[str], Plan]) -> None:
    """Without it the first apply would have no bucket for its own state, or make one whose name is taken."""
    changes = {it["address"]: it["change"] for it in plan_of("bootstrap").document["resource_changes"]}
    imported = {name: change["importing"]["id"] for name, change in changes.items() if "importing" in change}
    assert imported == {"google_storage_bucket.state": "my-project-1/my-project-1-terraform-state"}
    assert changes["google_storage_bucket.state"]["actions"] == ["update"], (
        "what gcloud made is completed, not replaced"
    )


# ---- the program


class Api:
    """An API on this machine: what it answers, one after the other, and the last of it for ever."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str]] = []
        self.asked: list[tuple[str, str | None, str | None]] = []


@pytest.fixture
def api() -> Iterator[tuple[Api, str]]:
    state = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = state.answers[min(len(state.asked), len(state.answers) - 1)]
            state.asked.append((self.path, self.headers["Authorization"], self.headers["X-Goog-User-Project"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield state, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def wait(at: str, *apis: str, longest: float = 5, **environment: str) -> subprocess.CompletedProcess[str]:
    place = ("--project=my-project", "--region=europe-west1", f"--at={at}", f"--longest={longest}", "--pause=0.01")
    return subprocess.run(
        [sys.executable, PROGRAM, *place, *apis],
        env={"PATH": "/nowhere", "GOOGLE_OAUTH_ACCESS_TOKEN": "a-token", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([(200, "{}")], 3),
        ([(403, DISABLED), (403, DISABLED), (200, "{}")], 5),
        ([(200, "{}"), (200, "{}"), (403, DISABLED), (200, "{}")], 6),
        ([(403, FORBIDDEN)], 3),
        ([(404, "{}")], 3),
        ([(403, '{"reason": "SERVICE_DISABLED"}'), (200, "{}")], 4),
        ([(403, '{"reason": "accessNotConfigured"}'), (200, "{}")], 4),
        ([(403, "It has not been used in project 1 before"), (200, "{}")], 4),
        ([(503, "{}"), (200, "{}")], 4),
        ([(429, "{}"), (200, "{}")], 4),
    ],
    ids=[
        "on",
        "off at first",
        "not on everywhere yet",
        "forbidden",
        "not there",
        "by its reason",
        "by its old reason",
        "by its sentence",
        "unwell",
        "too often",
    ],
)
def test_it_waits_until_the_api_has_answered_three_times_in_a_row(
    api: tuple[Api, str], answers: list[tuple[int, str]], asked: int
) -> None:
    state, at = api
    state.answers = answers
    assert (wait(at, "run").returncode, len(state.asked)) == (0, asked)


def test_it_asks_as_the_caller_for_something_of_the_project(api: tuple[Api, str]) -> None:
    state, at = api
    state.answers = [(200, "{}")]
    wait(at, "run", "storage")
    assert set(state.asked) == {
        ("/v2/projects/my-project/locations/europe-west1/services", "Bearer a-token", "my-project"),
        ("/storage/v1/b?project=my-project&maxResults=1", "Bearer a-token", "my-project"),
    }


def test_an_api_that_stays_off_is_named_in_one_sentence(api: tuple[Api, str]) -> None:
    state, at = api
    state.answers = [(403, DISABLED)]
    done = wait(at, "run", longest=0.1)
    assert done.returncode == 1
    assert done.stderr == (
        "pombo: run.googleapis.com was turned on and still does not answer after 0 s. "
        "Run the same command again: it continues from here.\n"
    )
    assert wait("http://127.0.0.1:9", "run", longest=0.1).returncode == 1


def test_an_api_of_which_nothing_can_be_read_is_not_waited_for() -> None:
    assert wait("http://127.0.0.1:9", *NOTHING_TO_READ).returncode == 0


def test_missing_login_is_reported_in_one_sentence() -> None:
    done = wait("http://127.0.0.1:9", "run", GOOGLE_OAUTH_ACCESS_TOKEN="")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "gcloud auth application-default login" in done.stderr


def test_token_belongs_to_the_logged_in_account(api: tuple[Api, str], tmp_path: Path) -> None:
    state, at = api
    state.answers = [(200, "{}")]
    gcloud = tmp_path / "gcloud"
    gcloud.write_text('#!/bin/sh\n[ "$2" = application-default ] && exit 1\necho token-of-gcloud\n')
    gcloud.chmod(0o755)
    assert wait(at, "iam", GOOGLE_OAUTH_ACCESS_TOKEN="", PATH=f"{tmp_path}:{os.environ['PATH']}").returncode == 0
    assert {authorization for _, authorization, _ in state.asked} == {"Bearer token-of-gcloud"}


def test_every_api_that_is_turned_on_is_asked(plan_of: Callable[[str], Plan]) -> None:
    on = {it["service"].removesuffix(".googleapis.com") for it in plan_of("bootstrap").of("google_project_service")}
    asked = set(re.findall(r'^    "(\w+)": "', PROGRAM.read_text(), re.M))
    assert on - asked == NOTHING_TO_READ
    assert asked <= on
