"""The pages on adding a provider or a store: what they tell a newcomer to write is what the ports ask for."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest

from services import task_responses
from shared.bootstrap.channels import reading
from shared.bootstrap.internal import build_internal
from shared.bootstrap.webhook import build_webhook
from shared.domain.delivery.answers import TaskResult
from shared.domain.limits import Backoff, Waits
from shared.domain.marks import is_outage
from shared.domain.record import Kind
from shared.domain.send_errors import (
    AccessDenied,
    AnswerLost,
    LimitReached,
    ProviderUnavailable,
    SenderBlocked,
    SendError,
    SendRefused,
    TryLater,
)
from shared.domain.verdicts import BlockScope, LimitScope, Refused, Released, SendVerdict
from shared.pipeline import intake, log_fields, ports
from tests.support.builders import pending

ROOT = Path(__file__).parents[2]
PROVIDER = (ROOT / "docs" / "adding-a-provider.md").read_text()
STORE = (ROOT / "docs" / "adding-a-store.md").read_text()


def methods_of(port: type) -> set[str]:
    return {name for name, value in vars(port).items() if callable(value) and not name.startswith("_")}


def test_every_method_of_a_channel_is_on_the_page_of_providers() -> None:
    section = PROVIDER.split("\n## Methods\n")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.M)
    receiving = methods_of(intake.IntakeChannel)
    assert methods_of(ports.Channel) | receiving == set(named)
    assert set(named[: len(receiving)]) == receiving
    properties = {name for name, value in vars(intake.IntakeChannel).items() if isinstance(value, property)}
    assert properties == set(re.findall(r"`(\w+)`,", PROVIDER.split("Three properties")[1].split("\n\n")[0]))
    assert len(named) == len(set(named))


ERRORS = PROVIDER.split("\n## Errors and verdicts\n")[1].split("\n## ")[0]
RAISED = dict(re.findall(r"\| `(\w+)[^|]*` \| `(\w+)` \|$", ERRORS, re.M))
"""The verdict that the page gives each error."""


def errors_of_a_send(base: type[SendError] = SendError) -> Iterator[type[SendError]]:
    for error in base.__subclasses__():
        yield error
        yield from errors_of_a_send(error)


def test_every_verdict_of_a_send_is_on_the_page_of_providers() -> None:
    named = re.findall(r"\| `(\w+)` \|$", ERRORS, re.M)
    assert set(named) == {verdict.__name__ for verdict in get_args(SendVerdict)} - {Released.__name__}


def test_every_error_of_a_send_is_on_the_page_with_the_verdict_that_it_carries() -> None:
    assert {error.__name__: type(error().verdict).__name__ for error in errors_of_a_send()} == RAISED


def test_page_names_the_right_status_for_each_send_error() -> None:
    assert [error(7, status=400).answered for error in errors_of_a_send()] == [True] * len(RAISED)
    assert [error(7).answered for error in errors_of_a_send()] == [False] * len(RAISED)
    assert is_outage(AnswerLost().verdict)
    assert not is_outage(AnswerLost(status=400).verdict)
    for status, answered in ((None, 400), (400, 400), (503, 502)):
        verdict = SendRefused(7, status=status).verdict
        assert isinstance(verdict, Refused)
        refused = TaskResult.REFUSED_ON_FAULT if verdict.on_fault else TaskResult.REFUSED
        assert task_responses.STATUS[refused] == answered


def test_page_names_the_errors_whose_answer_can_request_a_wait() -> None:
    wait = timedelta(seconds=77)
    waits = {
        error.__name__
        for error in errors_of_a_send()
        if getattr(error(7, retry_after=wait).verdict, "retry_after", None) == wait
    }
    documented = {
        error.__name__
        for error in (TryLater, LimitReached, ProviderUnavailable, AccessDenied)
        if getattr(error(7, minutes=5).verdict, "minutes", None) == 5
    }
    named = [set(re.findall(r"`([A-Z]\w+)`", item)) for item in re.split(r"\n- ", ERRORS)]
    assert [names for names in named if "ProviderUnavailable" in names][-1] == waits
    assert documented in named


def test_page_names_the_wait_of_each_limit_scope() -> None:
    rows = re.findall(r"^\| (`\w+Scope\.[^|]*) \|[^|]*\| ([^|]*) \|$", ERRORS, re.M)
    said = {scope: wait for scopes, wait in rows for scope in re.findall(r"`(\w+\.\w+)`", scopes)}
    waits = Waits()
    expected: dict[str, str] = {
        "LimitScope.RATE": f"{_growing(waits.throughput)}; up to twice as long by chance",
        "LimitScope.CONTACT": _growing(waits.pair),
        "LimitScope.MAINTENANCE": _between(waits.maintenance),
        "LimitScope.ACCOUNT": _growing(waits.account),
    } | {f"BlockScope.{scope.name}": _growing(waits.block) for scope in BlockScope}
    assert said == expected
    assert {f"LimitScope.{scope.name}" for scope in LimitScope} <= set(said)
    assert (LimitReached().limit, SenderBlocked().block) == (LimitScope.ACCOUNT, BlockScope.SENDER)


def _between(wait: timedelta) -> str:
    return f"{wait.total_seconds():g} to {2 * wait.total_seconds():g} s"


def _growing(wait: Backoff) -> str:
    first, longest = wait.first.total_seconds(), wait.longest.total_seconds()
    return f"{first:g} s, times {wait.factor} each, at most {longest:g} s"


def test_every_call_that_the_page_of_stores_promises_is_one_of_the_port() -> None:
    table = [line for line in STORE.splitlines() if line.startswith("| ")]
    named = {name for line in table for name in re.findall(r"`([a-z]+(?:_[a-z]+)?)`", line.split("|")[1])}
    assert named - methods_of(ports.Store) <= {"decide", "expire_at"}
    assert {"create", "change", "purge"} <= named


PLACES = re.findall(
    r"^\| `([^`]+/[^`]+)` \| (.*) \|$", PROVIDER.split("\n## Registration\n")[1].split("\n## ")[0], re.M
)
SETTINGS_OF_META = ("META_APP_SECRET", "WHATSAPP_ACCESS_TOKEN", "WHATSAPP_PHONE_NUMBER_ID", "WHATSAPP_API_VERSION")
"""To verify, to send, its sender, and its interface."""
NOT_WIRING = {
    "infra/release/deploy.py",
    "examples/requests/send.py",
    "shared/channels/meta/onboarding_answers.py",
}
"""They name a setting of the first provider in their help, or use it themselves."""


@pytest.mark.parametrize(("place", "what"), PLACES)
def test_each_place_that_wires_a_provider_has_the_names_on_the_page(place: str, what: str) -> None:
    text = (ROOT / place).read_text()
    names = re.findall(r"`([A-Za-z]\w+)`", what)
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_the_page_names_every_file_that_has_a_setting_of_a_provider() -> None:
    """What Meta's needs, the next one's needs too."""
    files = [
        path
        for folder in ("shared", "services", "infra", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".tf", ".env") and ".terraform" not in path.parts
    ]
    found = {
        str(path.relative_to(ROOT)) for path in files if any(name in path.read_text() for name in SETTINGS_OF_META)
    }
    assert found - NOT_WIRING == {place for place, _ in PLACES}


def test_command_line_and_both_services_have_the_same_providers(tmp_path: Path) -> None:
    given = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "HANDLER": "handlers.echo:handle"}
    internal, webhook = build_internal(given), build_webhook(given)
    assert reading().keys() == internal.process_outbound.channels.keys() == webhook.channels.keys()
    assert {
        sender.provider for sender in internal.senders.tenants.senders_of_environment()
    } == internal.senders.channels.keys()


def test_payload_key_on_the_page_separates_a_stored_message_from_news() -> None:
    rule = PROVIDER.split("\n- The `payload` of a `MessageReceived`")[1].split("\n- ")[0]
    (key,) = re.findall(r"`(\w+)`", rule)
    news = {"field": "account_update", "value": {}}
    assert log_fields.type_of(pending(Kind.INBOUND, payload=news | {key: {}})) == log_fields.MESSAGE
    assert log_fields.type_of(pending(Kind.INBOUND, payload=news)) != log_fields.MESSAGE


def test_event_rules_on_the_page_name_each_logged_field() -> None:
    rule = PROVIDER.split("\n- These words are logged:")[1].split("\n- ")[0]
    assert {"field", "code", "Parsed.ignored"} <= set(re.findall(r"`([\w.]+)`", rule))


def test_the_page_leads_to_a_whole_second_provider_and_to_the_outbound_language() -> None:
    for linked in ("tests/support/second_channel.py", "tests/services/test_second_channel.py"):
        assert f"`{linked}`" in PROVIDER
        assert (ROOT / linked).is_file()
    assert "(decisions/0068-the-outbound-language.md)" in PROVIDER
    assert "`DEDUPE_TTL_DAYS`" in PROVIDER
    assert "(guarantees.md)" in PROVIDER


def test_the_pages_name_the_files_that_register_an_adapter() -> None:
    for builder, place in (("build_store", "backends.py"), ("build_intake_store", "intake_store.py")):
        assert f"`{builder}` of `shared/bootstrap/{place}`" in " ".join(STORE.split())
        assert f"def {builder}(" in (ROOT / "shared" / "bootstrap" / place).read_text()
    assert "`BACKENDS`" in STORE
    assert "BACKENDS:" in (ROOT / "tests" / "contract" / "conftest.py").read_text()
