"""What becomes of a deployment that is there: a change destroys nothing, and a destroy is stopped."""

import copy
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from infra.release.services import SERVICES
from tests.infra.code_side import Code
from tests.infra.offline.workspace import TERRAFORM, TerraformFailed, Workspace
from tests.infra.plans import Plan
from tests.infra.rules_stores import a_redis_keeps_what_it_is_given
from tests.infra.variants import BOOTSTRAP, BOOTSTRAPPED, EVERYTHING, KMS_KEY, PROD, given


@pytest.fixture(scope="module")
def deployed(make_workspace: Callable[[], Workspace]) -> Workspace:
    """Everything, applied; the stand-in invents what an API would answer."""
    workspace = make_workspace()
    workspace.apply(PROD, *given(EVERYTHING))
    return workspace


@pytest.fixture(scope="module")
def planned_again(deployed: Workspace) -> dict[str, Any]:
    """The plan with the same variables, after the apply."""
    return deployed.plan(PROD, *given(EVERYTHING))


def _changed(workspace: Workspace, **variables: Any) -> dict[str, list[str]]:
    """What an apply would do with other variables: resource → actions."""
    return _changes_of(workspace.plan(PROD, *given({**EVERYTHING, **variables})))


def _changes_of(plan: dict[str, Any]) -> dict[str, list[str]]:
    actions = {it["address"]: it["change"]["actions"] for it in plan["resource_changes"]}
    return {address: done for address, done in actions.items() if done not in (["no-op"], ["read"])}


def test_a_second_apply_changes_nothing(planned_again: dict[str, Any]) -> None:
    assert _changes_of(planned_again) == {}


GCLOUD_LEAVES = {
    "build_config": [
        {
            "base_image": "",
            "enable_automatic_updates": False,
            "environment_variables": {},
            "function_target": "",
            "image_uri": "europe-west1-docker.pkg.dev/my-project-1/pombo/pombo-webhook",
            "name": "projects/1/locations/europe-west1/builds/2",
            "service_account": "projects/my-project-1/serviceAccounts/pombo-build@my-project-1.iam.gserviceaccount.com",
            "source_location": "gs://run-sources-my-project-1-europe-west1/services/pombo-webhook/1.zip#1",
            "worker_pool": "",
        }
    ],
    "client": "gcloud",
    "client_version": "528.0.0",
    "traffic": [{"type": "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST", "percent": 100, "revision": "", "tag": ""}],
}
"""Of a service that `gcloud run deploy --source` has deployed, as the provider reads it from the API."""


def test_changes_that_gcloud_leaves_on_a_service_change_no_plan(
    deployed: Workspace, make_workspace: Callable[[], Workspace]
) -> None:
    workspace = make_workspace()
    path = workspace.folder / PROD / "terraform.tfstate"
    state = json.loads((deployed.folder / PROD / "terraform.tfstate").read_text())
    services = [it for it in state["resources"] if it["type"] == "google_cloud_run_v2_service"]
    for instance in (it for service in services for it in service["instances"]):
        assert set(GCLOUD_LEAVES) <= set(instance["attributes"])
        instance["attributes"] |= GCLOUD_LEAVES
        instance["attributes"]["template"][0]["labels"] = {"client.knative.dev/nonce": "abc"}
        instance["attributes"]["template"][0]["containers"][0]["image"] = "example.com/webhook@sha256:2"
    state["serial"] += 1
    path.write_text(json.dumps(state))
    assert services
    assert _changed(workspace) == {}


MONITORING = "module.pombo.module.monitoring"
TASKS, IAM = (
    "module.pombo.module.tasks.google_cloud_tasks_queue",
    "module.pombo.module.iam.google_cloud_tasks_queue_iam",
)


def test_more_pairs_bring_their_own_resources_and_tell_the_services(deployed: Workspace) -> None:
    changes = _changed(deployed, tenant_queues=5)
    keys = [f"{kind}-t{number:03d}" for kind in ("inbound", "outbound") for number in (3, 4)]
    created = {address for address, actions in changes.items() if actions == ["create"]}
    places = (f"{TASKS}.queue", f"{IAM}_binding.enqueue_numbered")
    assert created == {f'{place}["{key}"]' for key in keys for place in places}
    told = {f'module.pombo.module.run["{name}"].google_cloud_run_v2_service.this' for name in SERVICES}
    others = {address: actions for address, actions in changes.items() if address not in created}
    assert others == {address: ["update"] for address in told}


def test_a_tenant_needs_no_apply(planned_again: dict[str, Any]) -> None:
    """A root names no tenant: a new one gets the number of a pair that is there."""
    assert not [name for name in Plan(planned_again).root_variables if "tenants" in name]


ONLY_OF_THE_WEBHOOK = {
    ("google_monitoring_uptime_check_config", "this"): "webhook",
    ("google_monitoring_alert_policy", "down"): "webhook_down",
}
"""What a version without the API had once, and its name there."""

OLD_KEYS = ["inbound", "outbound", "outbound-clinic", "outbound-shop"]
OLD_GRANTS = ["webhook.inbound", *(f"internal.{key}" for key in OLD_KEYS)]


def _renamed(resource: dict[str, Any], name: str, like: Mapping[str, str]) -> dict[str, Any]:
    """A resource of a state under another name, with an instance for each key of `like`, made from another one's."""
    instances = {it["index_key"]: it for it in resource["instances"]}
    made = []
    for key, other in like.items():
        instance = copy.deepcopy(instances[other])
        instance["index_key"] = key
        if key not in instances:
            instance["attributes"] |= {"name": f"{key.rpartition('.')[2]}-2", "id": f"id-of-{key}"}
        made.append(instance)
    return {**resource, "name": name, "instances": made}


def _without_key(resource: dict[str, Any], name: str, key: str) -> dict[str, Any]:
    """A resource of a state under another name, with the instance of this key alone, which has none there."""
    (instance,) = (it for it in resource["instances"] if it["index_key"] == key)
    return {**resource, "name": name, "instances": [{k: v for k, v in instance.items() if k != "index_key"}]}


@pytest.fixture
def of_an_earlier_version(deployed: Workspace, make_workspace: Callable[[], Workspace]) -> Workspace:
    """A state with the queues of two tenants that were named in `tenants`, and without numbered ones. Monitoring and
    grants of tasks know no API.
    """
    workspace = make_workspace()
    path = workspace.folder / PROD / "terraform.tfstate"
    state = json.loads((deployed.folder / PROD / "terraform.tfstate").read_text())
    kept = []
    for it in state["resources"]:
        match it["type"], it["name"]:
            case "google_cloud_tasks_queue", "queue":
                like = {key: key if key in ("inbound", "outbound") else "outbound" for key in OLD_KEYS}
                kept.append(_renamed(it, "this", like))
            case "google_cloud_tasks_queue_iam_member", "enqueue_shared":
                like = {key: key if "-" not in key else "internal.outbound" for key in OLD_GRANTS}
                kept.append(_renamed(it, "enqueue", like))
            case "google_cloud_tasks_queue_iam_binding", _:
                pass
            case type_, name if (type_, name) in ONLY_OF_THE_WEBHOOK:
                kept.append(_without_key(it, ONLY_OF_THE_WEBHOOK[type_, name], "webhook"))
            case _:
                kept.append(it)
    assert {it["name"] for it in kept if "tasks_queue" in it["type"]} == {"this", "enqueue", "look"}
    path.write_text(json.dumps({**state, "serial": state["serial"] + 1, "resources": kept}))
    return workspace


def test_queues_of_earlier_tenants_leave_without_a_destroy(of_an_earlier_version: Workspace) -> None:
    changes = _changed(of_an_earlier_version)
    by_action: dict[str, set[str]] = {}
    for address, actions in changes.items():
        by_action.setdefault("/".join(actions), set()).add(address)
    numbered = [f"{kind}-t{number:03d}" for kind in ("inbound", "outbound") for number in range(3)]
    assert by_action == {
        "forget": {
            *(f'{TASKS}.this["outbound-{tenant}"]' for tenant in ("clinic", "shop")),
            *(f'{IAM}_member.enqueue["internal.outbound-{tenant}"]' for tenant in ("clinic", "shop")),
        },
        "create": {
            *(f'{TASKS}.queue["{key}"]' for key in ("drain", *numbered)),
            *(f'{IAM}_binding.enqueue_numbered["{key}"]' for key in numbered),
            f'{IAM}_member.enqueue_shared["internal.drain"]',
            *(f'{IAM}_member.enqueue_shared["api.{queue}"]' for queue in ("inbound", "outbound", "drain")),
            *(f'{MONITORING}.{type_}.{name}["api"]' for type_, name in ONLY_OF_THE_WEBHOOK),
        },
    }


def test_the_state_of_an_earlier_version_settles_after_one_apply(of_an_earlier_version: Workspace) -> None:
    of_an_earlier_version.apply(PROD, *given(EVERYTHING))
    assert _changed(of_an_earlier_version) == {}


USERS_CHANGE: dict[str, Any] = {
    "whatsapp_phone_number_id": "100000000000002",
    "meta_app_id": "900000000000010",
    "handler": "handlers.menu:handle",
    "handler_url": None,
    "handler_variables": {"CLINIC_NAME": "Clinic"},
    "handler_secrets": ["CLINIC_KEY", "CLINIC_PIN"],
    "scheduler_region": "us-central1",
    "images": {"webhook": "example.com/webhook@sha256:2", "internal": "example.com/internal@sha256:2"},
    "tenant_queues": 5,
    "settings": {
        "handler_timeout": 90,
        "threads": 20,
        "webhook_concurrency": 100,
        "max_attempts": 5,
        "in_doubt_policy": "hold",
    },
    "secret_versions": {"META_APP_SECRET": 3, "INTERNAL_TASK_TOKEN": 2},
    "min_instances": {"webhook": 2, "internal": 1},
    "max_instances": {"webhook": 5, "internal": 30},
    "memory": {"webhook": "1Gi"},
    "queue_log_sampling": 0.1,
    "store": "firestore",
    "redis_auth": False,
    "alert_emails": ["oncall@example.com", "second@example.com"],
    "alert_thresholds": {"queue_depth_critical": 500, "disconnected_warning": 5, "provider_down_critical": 60},
    "runbook": "https://example.com/elsewhere/docs/runbook.md",
    "outbound_rate": 5,
    "tenant_queue_per_second": 90,
    "max_concurrency_per_tenant": 1,
    "inbound_tenant_queue_per_second": 90,
    "inbound_max_concurrency_per_tenant": 2,
    "critical_channels": [],
    "warning_channels": ["projects/my-project-1/notificationChannels/4"],
    "audited_apis": ["storage.googleapis.com"],
    "firestore_backups": {"daily": 14},
    "budget": {"billing_account": "012345-6789AB-CDEF01", "amount": 500},
}
GUARDED: dict[str, Any] = {
    "project": "my-project-2",
    "region": "europe-west1",
    "firestore_location": "eur3",
    "queue_suffix": "-3",
    "tenant_queues": 2,
    "redis": False,
    "media_bucket": False,
    "log_location": "us-east1",
    "kms_key": KMS_KEY.format("us-central1"),
}
ALIKE = {"region", "media_bucket", "log_location", "kms_key"}
"""Guarded as the others are: slow."""

RECREATED = "module.pombo.module.scheduler.google_cloud_scheduler_job.sweep"
"""Of the sweep's region: the job holds nothing, and is made anew elsewhere."""

NOT_ASKED_FOR = {
    'module.pombo.module.firestore.google_firestore_backup_schedule.this["weekly"]',
    'module.pombo.module.logs.google_project_iam_audit_config.this["datastore.googleapis.com"]',
    'module.pombo.module.logs.google_project_iam_audit_config.this["secretmanager.googleapis.com"]',
}
"""Settings that a variable no longer names. What was backed up and logged by them stays."""

WRITTEN_ANEW = "module.pombo.module.redis[0].google_secret_manager_secret_version.url"
"""Of redis_auth: the address without the password, or with it, is another version; the new one is made first."""


def test_every_variable_is_either_safe_to_change_or_guarded(plan_of: Callable[[str], Plan]) -> None:
    assert set(USERS_CHANGE) | set(GUARDED) == set(
        plan_of("everything").document["configuration"]["root_module"]["variables"]
    )


def test_changes_by_users_destroy_nothing(deployed: Workspace) -> None:
    changes = _changed(deployed, **USERS_CHANGE)
    destroyed = {address for address, actions in changes.items() if "delete" in actions}
    # A binding is taken away where its edge is: Redis and the handler's address are no longer used.
    bindings = {address for address in destroyed if "_iam_member." in address}
    assert destroyed - bindings == {RECREATED, WRITTEN_ANEW, *NOT_ASKED_FOR}
    assert all(re.search(r'read\["\w+\.(REDIS_URL|HANDLER_URL_SECRET)"\]', address) for address in bindings)
    assert {'module.pombo.module.run["webhook"].google_cloud_run_v2_service.this'} <= set(changes), "it is told"


@pytest.fixture(scope="module")
def with_other_images_and_addresses(deployed: Workspace) -> dict[str, list[str]]:
    """One plan for two variables, of which each changes other resources."""
    images = {"webhook": "example.com/other", "internal": "example.com/other"}
    return _changed(deployed, images=images, alert_emails=["second@example.com"])


def test_another_image_changes_no_service(with_other_images_and_addresses: dict[str, list[str]]) -> None:
    assert not [address for address in with_other_images_and_addresses if "cloud_run" in address]


def test_another_address_of_alerts_leaves_the_rest_alone(with_other_images_and_addresses: dict[str, list[str]]) -> None:
    changes = with_other_images_and_addresses
    assert changes
    assert not [address for address in changes if "monitoring" not in address and "budget" not in address]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else []) for name in GUARDED]
)
def test_change_that_would_destroy_data_is_stopped(deployed: Workspace, name: str) -> None:
    # A key is refused before it is planned where the database is elsewhere.
    more = {"redis": {"store": "firestore"}, "kms_key": {"firestore_location": None}}.get(name, {})
    with pytest.raises(TerraformFailed, match="Instance cannot be destroyed"):
        _changed(deployed, **{name: GUARDED[name]}, **more)


def test_a_destroy_is_stopped(deployed: Workspace) -> None:
    with pytest.raises(TerraformFailed, match="Instance cannot be destroyed"):
        deployed.run(PROD, "plan", "-destroy", "-no-color", *given(EVERYTHING))


def test_a_destroy_of_bootstrap_is_stopped(make_workspace: Callable[[], Workspace]) -> None:
    workspace = make_workspace()
    workspace.apply(BOOTSTRAP, *given(BOOTSTRAPPED))
    with pytest.raises(TerraformFailed, match="Instance cannot be destroyed"):
        workspace.run(BOOTSTRAP, "plan", "-destroy", "-no-color", *given(BOOTSTRAPPED))


KEEPS_SOMETHING = {
    "google_artifact_registry_repository": {"images"},
    "google_cloud_tasks_queue": {"queue"},
    "google_firestore_database": {"this"},
    "google_logging_project_bucket_config": {"regional"},
    "google_redis_instance": {"this"},
    "google_secret_manager_secret": {"this"},
    "google_storage_bucket": {"state", "this"},  # not source, where uploads for a build lie
}


@pytest.mark.parametrize("kind", KEEPS_SOMETHING)
def test_every_resource_with_data_has_its_own_guard(kind: str) -> None:
    """A destroy stops at the first guard, so that the others are seen in the text alone."""
    files = "".join(path.read_text() for path in TERRAFORM.rglob("*.tf"))
    blocks = dict(re.findall(rf'^resource "{kind}" "(\w+)" \{{\n(.*?)^\}}', files, re.S | re.M))
    assert {name for name, body in blocks.items() if "prevent_destroy = true" in body} == KEEPS_SOMETHING[kind]


def test_no_secret_value_lies_in_the_state(deployed: Workspace) -> None:
    state = (deployed.folder / PROD / "terraform.tfstate").read_text()
    assert '"secret_data_wo": null' in state
    assert "rediss://" not in state, "what the secret's version was written with"


@pytest.mark.parametrize("auth", [True, False])
def test_a_redis_asks_for_a_password_unless_redis_auth_is_false(
    auth: bool, workspace: Workspace, plan_of: Callable[[str], Plan]
) -> None:
    assert EVERYTHING["redis_auth"]
    plan = plan_of("everything") if auth else Plan(workspace.plan(PROD, *given({**EVERYTHING, "redis_auth": False})))
    assert plan.one("google_redis_instance")["auth_enabled"] is auth
    assert list(a_redis_keeps_what_it_is_given(plan, Code())) == []


def test_the_services_read_the_address_of_redis_that_terraform_wrote(planned_again: dict[str, Any]) -> None:
    plan = Plan(planned_again)
    written = plan.one("google_secret_manager_secret_version")["version"]
    assert written
    assert {it.secrets["REDIS_URL"]["version"] for it in plan.services} == {written}


def test_services_get_the_certificate_authority_of_the_redis(planned_again: dict[str, Any]) -> None:
    plan = Plan(planned_again)
    told = {it.env["REDIS_CA_CERTS"] for it in plan.services}
    assert told == {"\n".join(it["cert"] for it in plan.one("google_redis_instance")["server_ca_certs"])}


SERVICE, JOB = "google_cloud_run_v2_service", "google_cloud_scheduler_job"
COMES_BEHIND = [
    (SERVICE, "google_secret_manager_secret_iam_member"),
    (SERVICE, "google_project_iam_member"),
    (SERVICE, "google_cloud_tasks_queue_iam_member"),
    (SERVICE, "google_cloud_tasks_queue_iam_binding"),
    (SERVICE, "google_service_account_iam_member"),
    (SERVICE, "google_service_account"),
    (SERVICE, "google_firestore_index.sixth"),
    (SERVICE, "google_firestore_field"),
    (SERVICE, "google_secret_manager_secret_version"),
    ("google_project_iam_audit_config", "google_service_account"),
    (JOB, SERVICE),
    (JOB, "google_cloud_run_v2_service_iam_member"),
    ("google_artifact_registry_repository_iam_member", SERVICE),
    ("google_firestore_index.sixth", "google_firestore_index.fifth"),
    ("google_firestore_index.fifth", "google_firestore_index.fourth"),
    ("google_firestore_index.fourth", "google_firestore_index.third"),
    ("google_firestore_index.third", "google_firestore_index.second"),
    ("google_firestore_index.second", "google_firestore_index.this"),
    ("google_firestore_index.this", "google_firestore_field.indexed_sixth"),
    ("google_firestore_field.indexed_sixth", "google_firestore_field.indexed_fifth"),
    ("google_firestore_field.indexed_fifth", "google_firestore_field.indexed_fourth"),
    ("google_firestore_field.indexed_fourth", "google_firestore_field.indexed_third"),
    ("google_firestore_field.indexed_third", "google_firestore_field.indexed_second"),
    ("google_firestore_field.indexed_second", "google_firestore_field.indexed"),
    ("google_firestore_field.indexed", "google_firestore_field.expiring"),
    ("google_firestore_field.expiring", "google_firestore_field.exempt"),
    ("google_firestore_field.exempt", "google_firestore_database"),
    ("google_cloud_tasks_queue", "google_service_account"),
    ("google_cloud_tasks_queue_iam_member", "google_project_iam_custom_role"),
    ("google_cloud_tasks_queue_iam_binding", "google_project_iam_custom_role"),
    ("google_cloud_tasks_queue_iam_binding", "google_cloud_tasks_queue"),
    ("google_project_iam_member", "google_project_iam_custom_role"),
    ("google_project_iam_member", "google_service_account"),
    ("google_storage_bucket_iam_member", "google_service_account"),
]


@pytest.mark.parametrize(("later", "earlier"), COMES_BEHIND, ids=lambda it: it)
def test_a_first_apply_goes_in_order(later: str, earlier: str, graph: dict[str, set[str]]) -> None:
    _is_behind(later, earlier, graph)


def test_every_change_of_firestore_has_its_place_in_the_order(plan_of: Callable[[str], Plan]) -> None:
    """A change beside another of the same collection is refused, and not every refusal is tried again."""
    ordered = {name for pair in COMES_BEHIND for name in pair}
    for it in plan_of("bare").of("google_firestore_field", "google_firestore_index"):
        assert it.address.partition("[")[0].removeprefix("module.pombo.module.firestore.") in ordered, it.address


BOOTSTRAP_ORDER = ("google_storage_bucket", "google_secret_manager_secret", "google_artifact_registry_repository")


@pytest.mark.parametrize("later", [*BOOTSTRAP_ORDER, "google_service_account", "google_project_iam_custom_role"])
def test_bootstrap_turns_its_apis_on_first(later: str, graph_of_bootstrap: dict[str, set[str]]) -> None:
    _is_behind(later, "google_project_service", graph_of_bootstrap)


@pytest.fixture(scope="module")
def graph_of_bootstrap(workspace: Workspace) -> dict[str, set[str]]:
    workspace.init(BOOTSTRAP)
    return _edges(workspace.run(BOOTSTRAP, "graph"))


@pytest.fixture(scope="module")
def graph(workspace: Workspace) -> dict[str, set[str]]:
    """Each resource of an environment, and what it waits for."""
    workspace.init(PROD)
    return _edges(workspace.run(PROD, "graph"))


def _edges(dot: str) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for later, earlier in re.findall(r'^\s*"([^"]+)" -> "([^"]+)"', dot, re.M):
        edges.setdefault(later, set()).add(earlier)
        edges.setdefault(earlier, set())
    return edges


def _is_behind(later: str, earlier: str, edges: dict[str, set[str]]) -> None:
    def named(name: str) -> set[str]:
        return {node for node in edges if re.search(rf"(^|\.){re.escape(name)}(\.|$)", node)}

    assert named(later)
    assert named(earlier)
    for node in named(later):
        seen, waiting = set[str](), {node}
        while waiting:
            seen |= waiting
            waiting = {it for at in waiting for it in edges[at]} - seen
        assert named(earlier) <= seen, f"{node} does not wait for {earlier}"
