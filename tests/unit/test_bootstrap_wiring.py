"""Bootstrap: what each part is given, which no test of the parts alone can see."""

from datetime import timedelta
from pathlib import Path

import pytest

from shared import bootstrap
from shared.domain.marks import backend_id
from shared.domain.messages import DEFAULT_KINDS, KINDS

URL = "http://127.0.0.1:9/handle"
SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"


@pytest.fixture
def internal(tmp_path: Path) -> bootstrap.Internal:
    environment = {
        "SQLITE_PATH": str(tmp_path / "pombo.sqlite"),
        "HANDLER_URL": URL,
        "HANDLER_URL_SECRET": SECRET,
        "TIME_SCALE": "20",
        "MESSAGE_MAX_AGE": "2h",
    }
    return bootstrap.build_internal(environment)


def test_the_backend_of_the_configuration_has_marks_and_is_watched(internal: bootstrap.Internal) -> None:
    assert internal.handler.backend == backend_id(URL)
    assert internal.senders.backend == backend_id(URL)
    assert internal.sweep.senders is internal.senders
    assert internal.process_inbound.backend._id == backend_id(URL)
    assert internal.process_inbound.backend._limits == internal.config.limits


def behind_an_address(tmp_path: Path, **more: str) -> bootstrap.Internal:
    given = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "HANDLER_URL": URL, "HANDLER_URL_SECRET": SECRET}
    return bootstrap.build_internal(given | more)


def test_the_backend_is_asked_for_the_kinds_of_the_configuration(tmp_path: Path) -> None:
    default = behind_an_address(tmp_path).handler
    assert {kind for kind in KINDS if default.handles(kind)} == DEFAULT_KINDS
    some = behind_an_address(tmp_path, HANDLER_KINDS="text,unsupported").handler
    assert {kind for kind in KINDS if some.handles(kind)} == {"text", "unsupported"}
    every = behind_an_address(tmp_path, HANDLER_KINDS="*").handler
    assert all(every.handles(kind) for kind in (*KINDS, "a kind of tomorrow"))


def test_a_handler_in_the_process_has_no_backend(tmp_path: Path) -> None:
    internal = bootstrap.build_internal({"SQLITE_PATH": str(tmp_path / "pombo.sqlite")})
    assert (internal.senders.backend, internal.process_inbound.backend._id) == (None, None)


def test_least_waits_of_meta_are_scaled_with_ours(internal: bootstrap.Internal) -> None:
    assert internal.process_outbound.channel._minute == timedelta(seconds=3)  # type: ignore[attr-defined]


def test_the_senders_watched_are_those_of_the_registry(internal: bootstrap.Internal) -> None:
    (sender,) = internal.senders.tenants.senders()
    assert (sender.tenant, sender.provider, sender.id) == ("default", "meta", "100000000000001")


def test_both_services_give_up_after_the_same_age(internal: bootstrap.Internal, tmp_path: Path) -> None:
    environment = {"SQLITE_PATH": str(tmp_path / "webhook.sqlite"), "TIME_SCALE": "20", "MESSAGE_MAX_AGE": "2h"}
    webhook = bootstrap.build_webhook(environment)
    assert webhook.accept.limits.message_max_age == internal.config.limits.message_max_age == timedelta(minutes=6)


CODE = {"in the process": {"HANDLER": "handlers.echo:handle"}, "behind an address": {"HANDLER_URL": URL}}


@pytest.mark.parametrize(("setting", "is_set"), [({}, False), ({"PLAN_ALL_OR_NOTHING": "true"}, True)])
@pytest.mark.parametrize("code", CODE)
def test_the_handler_is_told_whether_a_plan_is_all_or_nothing(
    code: str, setting: dict[str, str], is_set: bool, tmp_path: Path
) -> None:
    environment = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "HANDLER_URL_SECRET": SECRET, **CODE[code], **setting}
    if code == "in the process":
        del environment["HANDLER_URL_SECRET"]
    assert bootstrap.build_internal(environment).handler._all_or_nothing is is_set
