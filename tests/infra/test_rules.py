"""Every plan keeps every rule, and the code and the infrastructure say the same."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.release.public_checks import REFUSED
from services import health
from services.api.main import Api
from services.api.main import create_app as create_api
from services.internal.main import create_app
from services.webhook.__main__ import make_app
from shared.bootstrap.api import build_api
from shared.bootstrap.internal import build_internal
from shared.bootstrap.webhook import build_webhook
from shared.config import SETTINGS
from shared.domain.limits import Limits
from shared.domain.record import Kind
from shared.domain.retention import retention
from shared.stores.firestore.schema import COUNTERS, RECEIPTS, RECORDS
from tests.infra.code_side import Code
from tests.infra.offline.workspace import TERRAFORM, Workspace
from tests.infra.plans import Plan
from tests.infra.rules import RULES, Rule
from tests.infra.rules_services import SERVICES_TF, times_outlast_one_another
from tests.infra.rules_stores import RULES as STORE_RULES
from tests.infra.variants import BARE, ENVIRONMENTS, STAGING, given
from tests.support.asgi_client import AsgiClient

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("variant", ENVIRONMENTS)
def test_every_environment_keeps_the_rule(variant: str, rule: Rule, plan_of: Callable[[str], Plan]) -> None:
    assert list(rule(plan_of(variant), Code())) == []


@pytest.mark.parametrize("name", ["what_must_not_go_is_protected", "buckets_are_private"])
def test_bootstrap_keeps_the_rules_that_are_its(name: str, plan_of: Callable[[str], Plan]) -> None:
    (rule,) = [it for it in STORE_RULES if it.__name__ == name]
    assert list(rule(plan_of("bootstrap"), Code())) == []


def test_bootstrap_makes_a_secret_for_each_that_the_code_reads(plan_of: Callable[[str], Plan]) -> None:
    made = {it["secret_id"] for it in plan_of("bootstrap").of("google_secret_manager_secret")}
    assert made == Code().secrets | {"CLINIC_KEY"}, (
        f"shared/config/settings.py and {TERRAFORM.name}/bootstrap/main.tf name different secrets"
    )
    assert not plan_of("bootstrap").of("google_secret_manager_secret_version"), "a person adds the values"


def test_terraform_refuses_every_setting_name_as_a_handlers_own_variable() -> None:
    services = (TERRAFORM / "modules" / "pombo" / "services.tf").read_text()
    (listed,) = re.findall(r"own_names = \[\n(.*?)\n  \]", services, re.S)
    assert re.findall(r'"(\w+)"', listed) == sorted(setting.name for setting in SETTINGS)


def test_terraform_accepts_the_same_number_ranges_as_the_code() -> None:
    services = (TERRAFORM / "modules" / "pombo" / "services.tf").read_text()
    (listed,) = re.findall(r"ranges = \{\n(.*?)\n  \}", services, re.S)
    ranges = {name: (int(least), int(most)) for name, least, most in re.findall(r"(\w+) += \[(\d+), (\d+)\]", listed)}
    numbers = re.search(
        r"for name in \[([^]]*)\] :\n +can\(regex", (TERRAFORM / "modules" / "pombo" / "variables.tf").read_text()
    )
    assert numbers
    assert sorted(ranges) == sorted(re.findall(r'"(\w+)"', numbers[1]))
    for name, (least, most) in ranges.items():
        (setting,) = [it for it in SETTINGS if it.name == name.upper()]
        for value in (least, most):
            setting.parse(str(value))
        for value in (least - 1, most + 1):
            with pytest.raises(Exception, match=rf"\bfrom\b|\bat least\b|{least}"):
                setting.parse(str(value))


API_OF = {
    "google_artifact_registry_repository": "artifactregistry",
    "google_billing_budget": "billingbudgets",
    "google_cloud_run_v2_service": "run",
    "google_cloud_scheduler_job": "cloudscheduler",
    "google_cloud_tasks_queue": "cloudtasks",
    "google_compute": "compute",
    "google_firestore": "firestore",
    "google_logging": "logging",
    "google_monitoring": "monitoring",
    "google_project_iam_custom_role": "iam",
    "google_project_iam_audit_config": "cloudresourcemanager",
    "google_project_iam_member": "cloudresourcemanager",
    "google_project_service": "serviceusage",
    "google_redis": "redis",
    "google_secret_manager": "secretmanager",
    "google_service_account": "iam",
    "google_storage_bucket": "storage",
}


@pytest.mark.parametrize("variant", ENVIRONMENTS)
def test_the_api_of_each_resource_is_turned_on_before_it(variant: str, plan_of: Callable[[str], Plan]) -> None:
    plan = plan_of(variant)
    on = {it["service"] for name in (variant, "bootstrap") for it in plan_of(name).of("google_project_service")}
    for resource in (it for it in plan.resources if it.type.startswith("google_")):
        (api,) = {api for prefix, api in API_OF.items() if resource.type.startswith(prefix)} or {None}
        assert f"{api}.googleapis.com" in on, f"{resource.address} needs an API that neither root turns on"


ONLY_IN_A_PROJECT = {"FIRESTORE_DATABASE", "TRUST_CLOUD_RUN_IAM"}
"""Settings whose default is not what Terraform makes of them."""


def test_a_bare_deployment_is_tuned_as_the_code_is(plan_of: Callable[[str], Plan]) -> None:
    for service in plan_of("bare").services:
        for setting in Code().settings:
            if setting.name in service.env and setting.always and setting.name not in ONLY_IN_A_PROJECT:
                said = service.env[setting.name]
                assert setting.parse(said or "") == setting.parse(setting.always), (
                    f"{setting.name} is {setting.always} in shared/config/settings.py and {said} in {SERVICES_TF}"
                )


def test_a_backend_is_asked_for_the_kinds_that_the_code_has_for_it(plan_of: Callable[[str], Plan]) -> None:
    (setting,) = [it for it in Code().settings if it.name == "HANDLER_KINDS"]
    said = plan_of("everything").service("internal").env["HANDLER_KINDS"]
    assert setting.parse(said or "") == setting.parse(setting.always or "")
    assert "HANDLER_KINDS" not in plan_of("bare").service("internal").env


def test_a_bare_deployment_scales_to_nothing(plan_of: Callable[[str], Plan]) -> None:
    assert {it.block("scaling")["min_instance_count"] for it in plan_of("bare").services} == {0}
    assert not plan_of("bare").of("google_redis_instance", "google_storage_bucket", "google_compute_network")


@pytest.mark.parametrize(
    ("handler", "request_timeout"),
    [
        (1, 120),
        pytest.param(30, 120, marks=pytest.mark.slow),
        pytest.param(60, 120, marks=pytest.mark.slow),
        (61, 121),
        pytest.param(600, 660, marks=pytest.mark.slow),
        (1700, 1760),
    ],
)
def test_every_time_outlasts_the_ones_inside_it_with_any_handler_timeout(
    handler: int, request_timeout: int, workspace: Workspace
) -> None:
    """Of both services, as they compute it from what the plan gives them, and of what surrounds them."""
    plan = Plan(workspace.plan(STAGING, *given({**BARE, "settings": {"handler_timeout": handler}})))
    assert list(times_outlast_one_another(plan, Code())) == []
    assert {it.env["HANDLER_TIMEOUT"] for it in plan.services} == {f"{handler}s"}
    assert plan.service("internal").timeout == request_timeout


def test_finished_records_expire_as_in_the_retention_table(plan_of: Callable[[str], Plan]) -> None:
    limits = Limits()
    kept = {RECORDS.name: [retention(kind, limits) for kind in Kind], RECEIPTS.name: [limits.receipt_retention]}
    assert all(length.days >= 8 for lengths in kept.values() for length in lengths)
    expiring = {it["collection"] for it in plan_of("bare").of("google_firestore_field") if it.get("ttl_config")}
    assert expiring == {*kept, COUNTERS.name}, "marks, senders, keys and conversations never expire"


NOBODY = "127.0.0.1:9"
"""Where no queue is."""


def _path_of(url: str) -> str:
    return "/" + url.removeprefix("https://").partition("/")[2]


def test_the_internal_service_answers_each_path_that_is_named(plan_of: Callable[[str], Plan], tmp_path: Path) -> None:
    environ = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "CLOUD_TASKS_EMULATOR_HOST": NOBODY}
    app = create_app(build_internal(environ))
    client, plan = app.test_client(), plan_of("bare")
    target = plan.one("google_cloud_scheduler_job").block("http_target")
    assert client.open(_path_of(target["uri"]), method=target["http_method"]).status_code == 403, "it asks who calls"
    for probe in ("startup_probe", "liveness_probe"):
        path = plan.service("internal").container[probe][0]["http_get"][0]["path"]
        assert client.get(path).status_code == 200, f"{probe} asks for {path}, and the queues are away"


class Answers:
    """A store or a queue that is well."""

    def ping(self) -> None:
        pass


def test_the_webhook_service_answers_each_path_that_is_named(plan_of: Callable[[str], Plan], tmp_path: Path) -> None:
    settings = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "CLOUD_TASKS_EMULATOR_HOST": NOBODY}
    client, plan = AsgiClient(make_app(build_webhook(settings))), plan_of("bare")
    assert client.post(_path_of(plan.outputs["webhook_url"])).status_code == 403, "it asks for the signature"
    for probe in ("startup_probe", "liveness_probe"):
        path = plan.service("webhook").container[probe][0]["http_get"][0]["path"]
        assert client.get(path).status_code == 200, f"{probe} asks for {path}, and the queues are away"
    (check,) = [it for it in plan.of("google_monitoring_uptime_check_config") if '"webhook"' in it.address]
    (match,), said = check["content_matchers"], client.get(check.block("http_check")["path"])
    (path,) = {it["json_path"] for it in match["json_path_matcher"]}
    assert said.status_code == 200, "the queue is away, and that is told by the body"
    well, _ = health.readyz(Answers(), Answers())
    assert (path, json.loads(match["content"])) == ("$.status", well["status"])
    assert said.json["status"] != well["status"]


def test_the_api_service_answers_each_path_that_is_named(plan_of: Callable[[str], Plan], tmp_path: Path) -> None:
    environ = {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "CLOUD_TASKS_EMULATOR_HOST": NOBODY}
    client, plan = create_api(Api.of(build_api(environ))).test_client(), plan_of("bare")
    for probe in ("startup_probe", "liveness_probe"):
        path = plan.service("api").container[probe][0]["http_get"][0]["path"]
        assert client.get(path).status_code == 200, f"{probe} asks for {path}, and the queues are away"
    (check,) = [it for it in plan.of("google_monitoring_uptime_check_config") if '"api"' in it.address]
    said = client.get(check.block("http_check")["path"])
    assert (said.status_code, said.json["status"]) == (200, "degraded"), "the queue is away, and the body says so"
    for one in REFUSED["api"]:
        answered = client.get(one.path) if one.body is None else client.post(one.path, data=one.body)
        assert answered.status_code == one.status, f"a deployment's check: {one.what}"
