"""pombo doctor: every check can turn false, for its own reason, in its own words, and none hides another."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
from google.api_core.exceptions import PermissionDenied, ServiceUnavailable

from cli.doctor import api_check, checks
from cli.doctor.command import as_text, examine
from cli.doctor.settings import Check, check_all, faults
from cli.running import Described, describe
from shared import config
from shared.bootstrap.adapters import crash_points
from shared.bootstrap.backends import build_queue
from shared.bootstrap.channels import CHANNELS
from shared.channels.meta.channel import MetaChannel
from shared.config import SETTINGS
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.errors import QueueUnavailable, StoreUnavailable, TaskInvalid
from shared.domain.identity import DOCTOR_KEY
from shared.domain.limits import Limits
from shared.domain.record import Kind, State, Task
from shared.domain.tasks import parse_task, task_body
from shared.pipeline.clock import SystemClock
from shared.stores.sqlite.store import SqliteStore
from tests.support.stack import OLD_TASK_TOKEN, TASK_TOKEN, Stack, clean_environment, cli

PARTS = ("store", "task", "token", "drain", "clock", "registry", "senders")
SHORT = 0.5
"""Seconds that a task which will not come back is waited for."""


def described(stack: Stack, **changes: str) -> Described:
    """The running stack as a command finds it, with other settings."""
    environ: Mapping[str, str] = json.loads((stack.data_dir / "stack.json").read_text())["environment"]
    known = {"INTERNAL_TASK_TOKEN": TASK_TOKEN, "META_APP_SECRET": "a-secret-of-a-test"}
    return Described({**environ, **known, **changes}, stack.data_dir / "logs.jsonl", is_local=True)


def examined(found: Described, patience: float = SHORT) -> dict[str, Check]:
    return {check.check: check for check in examine(found, patience)}


def wrong(checks: Mapping[str, Check]) -> list[str]:
    return [name for name, check in checks.items() if not check.ok]


# ---- all is well


def test_every_check_passes_on_a_healthy_stack(stack: Stack) -> None:
    environ = clean_environment(INTERNAL_TASK_TOKEN=TASK_TOKEN)
    result = cli("doctor", "--json", "--data-dir", str(stack.data_dir), env=environ)

    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert [check["check"] for check in found] == [*PARTS, "handler", "api", *(setting.name for setting in SETTINGS)]
    assert {tuple(check) for check in found} == {("check", "ok", "sentence")}
    assert all(check["ok"] for check in found)
    assert TASK_TOKEN not in result.stdout, "a secret is not shown"


def test_doctor_prints_one_line_for_each_check(stack: Stack) -> None:
    environ = clean_environment(INTERNAL_TASK_TOKEN=TASK_TOKEN)
    result = cli("doctor", "--settings", "--data-dir", str(stack.data_dir), env=environ)

    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert len(lines) == len(SETTINGS) + len(PARTS) + 2
    assert all(line.startswith("ok  ") for line in lines)
    assert "\x1b[" not in result.stdout, "no colours into a pipe"


def test_failed_checks_are_marked_and_exit_with_1(stack: Stack) -> None:
    environ = clean_environment(INTERNAL_TASK_TOKEN=TASK_TOKEN, STORE="sqlite", SQLITE_PATH=str(stack.data_dir))
    environ |= {"INTERNAL_TASK_BASE_URL": stack.described["internal"], "CLOUD_TASKS_EMULATOR_HOST": "127.0.0.1:9"}
    result = cli("doctor", env=environ)

    assert result.returncode == 1
    assert any(line.startswith("NO  store") for line in result.stdout.splitlines())
    assert any(line.startswith("ok  token") for line in result.stdout.splitlines())
    (line,) = result.stderr.splitlines()
    assert line == f"pombo: 6 of {len(SETTINGS) + len(PARTS)} checks failed."


def test_marks_have_colours_on_a_terminal() -> None:
    text = as_text([Check("store", True, "Well."), Check("task", False, "Unwell.")], all_settings=True)
    assert "\x1b[" in text
    assert click.unstyle(text).splitlines() == ["ok  store  Well.", "NO  task   Unwell."]


def test_doctor_without_a_stack_reports_it_in_one_line(tmp_path: Path) -> None:
    result = cli("doctor", "--data-dir", str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "")
    assert "No Pombo is running" in result.stderr


def test_api_that_is_away_or_refuses_its_key_is_reported(stack: Stack, tmp_path: Path) -> None:
    right, wrong = stack.data_dir / "api-key", tmp_path / "api-key"
    wrong.write_text(f"pombo_{'0' * 16}_{'0' * 64}")
    assert api_check.api(stack.described["api"], right).endswith(f"and takes the key in {right}.")
    for url, path, sentence in (
        ("http://127.0.0.1:9", right, "does not answer at http://127.0.0.1:9"),
        (stack.described["api"], wrong, "refuses the key"),
        (stack.described["api"], tmp_path / "none", "cannot be read"),
        (stack.described["webhook"], right, "answered 4"),
    ):
        with pytest.raises(checks.Wrong, match=sentence):
            api_check.api(url, path)


# ---- doctor's own event


def test_doctor_event_calls_no_handler_and_leaves_no_dead_letter(stack: Stack) -> None:
    before = stack.store.backlog()
    calls = len(stack.handler_calls())
    for _ in range(2):
        assert wrong(examined(described(stack), patience=60)) == []

    record = stack.store.get(DOCTOR_KEY)
    assert record is not None
    assert (record.kind, record.state, record.plan_size) == (Kind.INBOUND, State.DONE, 0)
    assert record.expire_at is not None
    assert record.expire_at - datetime.now(UTC) > timedelta(hours=1), "it goes by itself, like any event"
    assert stack.store.by_correlation(record.correlation_id) == [record]
    assert len(stack.handler_calls()) == calls
    assert stack.store.backlog().counts[State.DEAD] == before.counts[State.DEAD]
    assert stack.logs("dead_lettered", delivery=DOCTOR_KEY) == []


def test_doctor_generation_grows_after_a_store_reset(stack: Stack, tmp_path: Path) -> None:
    """The name of a task is used once; the record's generation grows with time, not from 0."""
    assert wrong(examined(described(stack), patience=60)) == []
    first = stack.store.get(DOCTOR_KEY)
    empty = SqliteStore(tmp_path / "empty.sqlite", Limits(), SystemClock().now)
    checks.store(empty, Limits(), Later())
    anew = empty.get(DOCTOR_KEY)
    empty.close()

    assert first is not None
    assert anew is not None
    assert anew.generation > first.generation > 0


class Later(SystemClock):
    """Longer after than doctor has been run times: each run counts one, as does each second."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(hours=1)


def test_doctor_key_is_valid_for_an_event_only() -> None:
    body = task_body(Task(DOCTOR_KEY, Kind.INBOUND, "correlation-1", generation=1))
    assert parse_task(Kind.INBOUND, body).key == DOCTOR_KEY
    with pytest.raises(TaskInvalid):
        parse_task(Kind.OUTBOUND, {**body, "outbound_key": DOCTOR_KEY})


# ---- the settings


def test_iam_trust_of_a_deployed_service_is_not_a_fault_for_doctor() -> None:
    trusting = {"TRUST_CLOUD_RUN_IAM": "true"}
    assert "TRUST_CLOUD_RUN_IAM" not in faults({"APP_ENV": "prod", **trusting})
    assert "TRUST_CLOUD_RUN_IAM" in faults({"APP_ENV": "local", **trusting})


@pytest.mark.parametrize(
    ("changes", "name", "said"),
    [
        ({"MAX_ATTEMPTS": "many"}, "MAX_ATTEMPTS", "must be a whole number from 1 to 50"),
        ({"META_APP_SECRET": ","}, "META_APP_SECRET", "is empty"),
        ({"HANDLER": "a:b", "HANDLER_URL": "http://127.0.0.1:9"}, "HANDLER", "set exactly one of them"),
        (
            {"HANDLER": "", "HANDLER_URL": "http://127.0.0.1:9"},
            "HANDLER_URL_SECRET",
            "Set it here as for pombo up",
        ),
        ({"IN_DOUBT_SECONDS": "5"}, "IN_DOUBT_SECONDS", "must be a duration"),
    ],
    ids=str,
)
def test_wrong_setting_is_named_and_hides_no_other_check(
    stack: Stack, changes: dict[str, str], name: str, said: str
) -> None:
    found = examined(described(stack, **changes), patience=60)

    assert set(wrong(found)) - {"backend"} == {name}
    assert said in found[name].sentence


@pytest.mark.parametrize("setting", [setting.name for setting in SETTINGS])
def test_every_fault_of_the_configuration_belongs_to_a_setting(setting: str) -> None:
    """Each setting at its worst, in production, where nothing has a default."""
    known = {one.name for one in SETTINGS}
    for value in ("", "\x07", "http://x y", "-1", "sqlite"):
        found = faults({"APP_ENV": "prod", "STORE": "firestore", setting: value})
        assert found.keys() <= known


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("STORE", "paper", {"store", "task", "clock", "registry", "senders"}),
        ("WHATSAPP_PHONE_NUMBER_ID", "+15550100", {"senders"}),
        ("CLOUD_TASKS_LOCATION", "no region", {"task", "token", "drain"}),
        ("OUTBOUND_TASK_QUEUE_NAME", "inbound", {"task", "token", "drain"}),
        ("HANDLER_TIMEOUT", "soon", {"task", "token", "drain"}),
        ("APP_ENV", "moon", set(PARTS)),
    ],
)
def test_check_that_depends_on_a_wrong_setting_names_it(stack: Stack, name: str, value: str, hidden: set[str]) -> None:
    found = examined(described(stack, **{name: value}), patience=60)

    for part in hidden:
        assert re.fullmatch(
            rf"Cannot be checked until ([A-Z_, ]+, )?{name}(, [A-Z_, ]+)? is correct\.", found[part].sentence
        )
    assert set(wrong(found)) & set(PARTS) == hidden


def test_misspelt_environment_is_the_only_checked_setting() -> None:
    """What the others default to depends on it."""
    environ = {"APP_ENV": "prd", "STORE": "sqlite"}
    (check,) = check_all(environ, faults(environ), is_local=False)
    assert (check.check, check.ok) == ("APP_ENV", False)
    assert check.sentence == 'APP_ENV must be one of local, test, staging, prod; it is "prd".'


def test_a_missing_setting_of_one_service_does_not_hide_what_the_other_has() -> None:
    """In production, on a laptop that has what the internal service needs, and not Meta's secrets."""
    environ = {
        "APP_ENV": "prod",
        "STORE": "redis",
        "REDIS_URL": "rediss://127.0.0.1:9",
        "GOOGLE_CLOUD_PROJECT": "my-project",
        "CLOUD_TASKS_LOCATION": "europe-west1",
        "INBOUND_TASK_QUEUE_NAME": "inbound",
        "OUTBOUND_TASK_QUEUE_NAME": "outbound",
        "INTERNAL_TASK_BASE_URL": "https://127.0.0.1:9",
        "INTERNAL_TASK_TOKEN": "a-token-of-a-test",
        "WHATSAPP_PHONE_NUMBER_ID": "100000000000001",
    }
    found = examined(Described(environ, Path("logs.jsonl")))

    assert {"META_APP_SECRET", "META_VERIFY_TOKEN", "WHATSAPP_ACCESS_TOKEN", "HANDLER"} <= set(wrong(found))
    assert "127.0.0.1:9" in found["token"].sentence, "it was tried"
    assert "a-token-of-a-test" not in str(found)


def test_values_are_shown_and_secrets_are_not(stack: Stack) -> None:
    environ = {
        "HANDLER": "",
        "HANDLER_URL": "http://127.0.0.1:9/hook",
        "HANDLER_URL_SECRET": "whsec_" + "A" * 32,
    }
    found = examined(described(stack, **environ), patience=60)

    assert found["IN_DOUBT_POLICY"].sentence == "Not set; the default is resend."
    assert found["MAX_ATTEMPTS"].sentence == "Set to 3."
    assert found["META_APP_SECRET"].sentence == "Set (a secret, not shown)."
    assert found["META_VERIFY_TOKEN"].sentence.endswith("the public default secret for a local Pombo applies.")
    assert found["HANDLER_URL"].sentence == "Set to http://127.0.0.1:9/hook."
    assert found["HANDLER"].sentence == "Not set: HANDLER_URL takes its place."
    assert not re.search("a-secret-of-a-test|AAAAAA", str(found))


def test_stack_json_holds_the_settings_and_no_secret(stack: Stack) -> None:
    text = (stack.data_dir / "stack.json").read_text()

    assert {"TIME_SCALE", "MAX_ATTEMPTS", "HANDLER", "INTERNAL_TASK_BASE_URL"} <= json.loads(text)["environment"].keys()
    for secret in (TASK_TOKEN, OLD_TASK_TOKEN, "test_app_secret", "local-verify-token"):
        assert secret not in text


# ---- the store


class Broken:
    """A store of which one method does something else."""

    def __init__(self, store: Any, **methods: Callable[..., Any]) -> None:
        self._store, self._methods = store, methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._store, name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "pombo.sqlite", Limits(), SystemClock().now)
    yield store
    store.close()


def test_unreachable_store_is_reported_and_the_token_still_checked(stack: Stack, tmp_path: Path) -> None:
    found = examined(described(stack, SQLITE_PATH=str(tmp_path)))

    assert wrong(found) == ["store", "task", "clock", "registry", "senders"]
    assert found["store"].sentence.startswith("The store cannot be reached")
    assert found["task"].sentence.startswith("Cannot be checked without the store: The store cannot be reached")
    assert found["token"].sentence == "The internal service accepts the token."


def test_damaged_store_is_reported(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "pombo.sqlite").write_bytes(b"this is no database, and never was one\n" * 200)
    found = examined(described(stack, SQLITE_PATH=str(tmp_path / "pombo.sqlite")))

    assert "damaged or not a database" in found["store"].sentence
    assert wrong(found) == ["store", "task", "clock", "registry", "senders"]


def test_store_that_reads_back_another_record_is_reported(store: SqliteStore) -> None:
    with pytest.raises(checks.Wrong, match="is not the one that was written"):
        checks.store(Broken(store, get=lambda _: None), Limits(), SystemClock())
    before = store.get(DOCTOR_KEY)
    with pytest.raises(checks.Wrong, match="is not the one that was written"):
        checks.store(Broken(store, get=lambda _: before), Limits(), SystemClock())
    assert checks.store(store, Limits(), SystemClock()).startswith("Wrote a record and read it back in ")


def test_the_event_of_doctor_is_of_a_provider_that_the_services_have(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The services leave a record of a provider without a channel alone, and the task would never come back."""

    class Other(MetaChannel):
        provider = "another"

    makers = tuple(replace(maker, reading=Other) for maker in CHANNELS)
    monkeypatch.setattr(checks, "CHANNELS", makers)
    checks.store(store, Limits(), SystemClock())
    record = store.get(DOCTOR_KEY)
    assert record is not None
    assert record.provider == "another"


def test_store_that_fails_the_read_is_reported(store: SqliteStore) -> None:
    def unavailable(_: str) -> None:
        raise StoreUnavailable from TimeoutError()

    with pytest.raises(checks.Wrong, match=r"The store cannot be reached \(TimeoutError\)\."):
        checks.store(Broken(store, get=unavailable), Limits(), SystemClock())


# ---- the task


def test_unreachable_queue_is_reported(stack: Stack) -> None:
    found = examined(described(stack, CLOUD_TASKS_EMULATOR_HOST="127.0.0.1:9"))

    assert wrong(found) == ["task", "drain"]
    assert found["task"].sentence.startswith("Cannot create a task: The task queue cannot be reached")


def test_missing_queue_is_reported(stack: Stack) -> None:
    found = examined(described(stack, INBOUND_TASK_QUEUE_NAME="nowhere"))

    assert wrong(found) == ["task"]
    assert "the queue does not exist" in found["task"].sentence


def test_task_that_does_not_complete_is_reported(stack: Stack, store: SqliteStore) -> None:
    class Silent:
        def ensure(self, *_: Any) -> None:
            pass

        def ping(self) -> None:
            pass

    with pytest.raises(checks.Wrong, match=r"did not complete within 0\.5 s\. Check that the internal service is up"):
        checks.task(store, Silent(), Limits(), SystemClock(), SHORT)


def test_task_that_ends_late_or_in_another_state_is_reported(store: SqliteStore) -> None:
    class Meddling:
        def __init__(self, **changes: Any) -> None:
            self.changes = changes

        def ensure(self, *_: Any) -> None:
            def decide(record: Any) -> Step:
                return Step(Answer(TaskResult.ACK, ""), write=replace(record, **self.changes))

            store.change(DOCTOR_KEY, decide)

        def ping(self) -> None:
            pass

    until = datetime.now(UTC) + timedelta(seconds=60)
    held = Meddling(state=State.LEASED, lease_until=until)
    with pytest.raises(checks.Wrong, match="started the task and did not complete it"):
        checks.task(store, held, Limits(), SystemClock(), SHORT)
    with pytest.raises(checks.Wrong, match="its event is dead instead of done"):
        checks.task(store, Meddling(state=State.DEAD), Limits(), SystemClock(), SHORT)


def test_page_has_a_row_for_each_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page.split("## The configuration check")[1], re.M)
    assert {*PARTS, "handler", "backend", "api"} <= {name for row in rows for name in re.findall(r"`([a-z]+)`", row)}


# ---- the queue of drains


def test_missing_queue_of_drains_is_reported_with_what_to_do(stack: Stack) -> None:
    """Nothing else is wrong: only reconnects and resumes use it."""
    found = examined(described(stack, DRAIN_TASK_QUEUE_NAME="no-such-queue"), patience=60)

    assert wrong(found) == ["drain"]
    assert found["drain"].sentence.startswith("The queue no-such-queue does not exist, so after a reconnect")
    assert "terraform apply makes the queue" in found["drain"].sentence


def test_account_that_may_not_see_queues_is_no_fault_of_the_queue() -> None:
    def refused() -> None:
        raise QueueUnavailable from PermissionDenied("cloudtasks.queues.get")

    assert checks.drain(refused, "drain") == (
        "The queue drain was not looked for: this account may not see queues (roles/cloudtasks.viewer)."
    )


def test_queue_of_drains_that_does_not_answer_is_reported() -> None:
    def away() -> None:
        raise QueueUnavailable from ServiceUnavailable("away")

    with pytest.raises(checks.Wrong, match=r"^The queue drain cannot be looked for: The task queue cannot be reached"):
        checks.drain(away, "drain")


# ---- the token


def test_rejected_token_is_reported_and_the_task_does_not_complete(stack: Stack) -> None:
    found = examined(described(stack, INTERNAL_TASK_TOKEN="another-token"))

    assert wrong(found) == ["task", "token"]
    assert "INTERNAL_TASK_TOKEN must be one that the service accepts" in found["token"].sentence
    assert "did not complete" in found["task"].sentence
    assert "another-token" not in str(found)


def test_service_that_does_not_answer_is_reported(stack: Stack) -> None:
    """A task of doctor's goes where its queue leads, whatever doctor takes the address to be."""
    found = examined(described(stack, INTERNAL_TASK_BASE_URL="http://127.0.0.1:9"))

    assert wrong(found) == ["token"]
    assert found["token"].sentence == (
        "The internal service does not answer at http://127.0.0.1:9: check INTERNAL_TASK_BASE_URL."
    )


def test_address_of_another_service_is_reported(stack: Stack) -> None:
    found = examined(described(stack, INTERNAL_TASK_BASE_URL=stack.described["webhook"]))

    assert "is not the address of the internal service" in found["token"].sentence


@contextmanager
def front(status: int, body: bytes) -> Iterator[str]:
    """What stands before a private service of Cloud Run, or the service itself."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


HTML = b"<html><title>403 Forbidden</title></html>"
OURS = b'{"error":"forbidden"}'


@pytest.mark.parametrize(
    ("status", "body", "account"), [(401, HTML, ""), (403, HTML, ""), (403, OURS, "tasks@p.iam.gserviceaccount.com")]
)
def test_token_of_a_private_service_is_checked_by_the_task(status: int, body: bytes, account: str) -> None:
    with front(status, body) as url:
        environ = {"INTERNAL_TASK_BASE_URL": url, "TASKS_SERVICE_ACCOUNT": account}
        settings = config.load(environ, config.INTERNAL)
        assert "the completed task" in checks.token(settings, True)
        with pytest.raises(checks.Wrong, match="only a task can check the token"):
            checks.token(settings, False)


@pytest.mark.parametrize(
    ("status", "body"), [(400, HTML), (400, b'"task_invalid"'), (200, b"{}"), (404, b""), (500, OURS)]
)
def test_foreign_answer_is_not_proof_of_the_token(status: int, body: bytes) -> None:
    with front(status, body) as url:
        settings = config.load({"INTERNAL_TASK_BASE_URL": url}, config.INTERNAL)
        with pytest.raises(checks.Wrong, match=f"answered {status}"):
            checks.token(settings, True)


# ---- the clock


@pytest.mark.parametrize(
    ("seconds", "said"), [(-9, r"[89]\.\d s ahead of the store's"), (9, r"[89]\.\d s behind the store's")]
)
def test_clock_that_is_off_is_reported(store: SqliteStore, seconds: float, said: str) -> None:
    shifted = Broken(store, time=lambda: store.time() + timedelta(seconds=seconds))

    with pytest.raises(checks.Wrong, match=said):
        checks.clock(shifted, SystemClock())


def test_clock_that_is_slightly_off_passes(store: SqliteStore) -> None:
    shifted = Broken(store, time=lambda: store.time() + timedelta(seconds=1))

    assert checks.clock(shifted, SystemClock()).startswith("The clock differs from the store's by ")


def test_the_clock_s_tolerance_is_half_of_what_a_lease_has_to_spare() -> None:
    limits = Limits()
    spare = limits.outbound_lease - limits.begin_within - limits.post.longest
    assert spare >= 2 * checks.CLOCK_TOLERANCE


# ---- how it is found


def test_store_in_the_environment_goes_before_a_stack(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in config.LOCAL_SECRETS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STORE", "sqlite")
    monkeypatch.setenv("SQLITE_PATH", str(tmp_path / "another.sqlite"))

    found = describe(stack.data_dir)

    assert (found.is_local, found.environ["SQLITE_PATH"]) == (False, str(tmp_path / "another.sqlite"))


def test_the_queue_can_be_built_from_each_services_settings(tmp_path: Path) -> None:
    environ = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite")}
    for service in config.SERVICES:
        assert build_queue(config.load(environ, service)) is not None


def test_doctor_help_has_examples() -> None:
    result = cli("doctor", "--help")
    assert result.returncode == 0
    assert "Examples:" in result.stdout


def test_points_are_listed_one_a_line() -> None:
    result = cli("doctor", "--points")
    assert result.returncode == 0
    assert result.stdout.splitlines() == list(crash_points())
