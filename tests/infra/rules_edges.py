"""Rules for access: the binding that each call in README.md's picture needs, and no other."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.infra.code_side import Code
from tests.infra.plans import Plan, Resource
from tests.infra.rules_permissions import TENANT_SECRET_ROLES, secrets_condition
from tests.support.permissions import DELETE, LIST, STORE


class Edge(NamedTuple):
    """Who may do what with what. Accounts and services by their short names."""

    who: str
    role: str
    what: str


_OBJECTS = {
    "google_artifact_registry_repository_iam_member": ("repository", "repository"),
    "google_cloud_run_v2_service_iam_member": ("service", "name"),
    "google_cloud_tasks_queue_iam_binding": ("queue", "name"),
    "google_cloud_tasks_queue_iam_member": ("queue", "name"),
    "google_secret_manager_secret_iam_member": ("secret", "secret_id"),
    "google_service_account_iam_member": ("account", "service_account_id"),
    "google_storage_bucket_iam_member": ("bucket", "bucket"),
}
RUN_AGENT = "the agent of Cloud Run"
_AGENT = "@serverless-robot-prod.iam.gserviceaccount.com"
BUILD, DEPLOY = "build", "deploy"
RECORD_ROLES = {
    (False, False): "pomboRecords",
    (False, True): "pomboRecordsAndLists",
    (True, True): "pomboRecordsListsAndDeletes",
}
"""The role of an account that deletes, and lists, records."""


def edge_of(member: Resource) -> Edge:
    """A binding as an edge. Custom roles go by their names; rules_permissions.py checks their contents."""
    who = str(member["member"]).removeprefix("serviceAccount:")
    who = RUN_AGENT if who.endswith(_AGENT) else who.split("@")[0].removeprefix("pombo-")
    role = str(member["role"]).rpartition("roles/")[2]
    if member.type == "google_project_iam_member":
        condition = member.block("condition").get("expression", "")
        return Edge(who, role, f"project if {condition}" if condition else "project")
    kind, name = _OBJECTS[member.type]
    what = str(member[name]).split("/")[-1].split("@")[0].removeprefix("pombo-")
    return Edge(who, role, f"{kind} {what}")


def edges_of(plan: Plan) -> set[Edge]:
    """All bindings of a plan."""
    return {edge_of(member) for member in plan.members}


def wanted(plan: Plan) -> set[Edge]:
    """The edges that an environment needs.

    webhook stores and enqueues in every inbound queue; api and internal store and enqueue in every queue (new messages,
    replays and drains; the sweep); api adds tenants' secrets, and internal reads them; each reads its own secrets and
    checks the state of both shared queues (/readyz); a queue gives its tasks the identity of tasks, the sweep's call
    carries that of scheduler, and no service acts as one of them; the deployment deploys each service and must be
    allowed to act as it, and the build deploys none; Cloud Run's agent pulls images.
    """
    inbound, outbound = (plan.service("internal").env[f"{kind}_TASK_QUEUE_NAME"] for kind in ("INBOUND", "OUTBOUND"))
    database = plan.one("google_firestore_database")
    store = f'project if resource.name == "projects/{database["project"]}/databases/{database["name"]}"'
    edges = {
        Edge("tasks", "run.invoker", "service internal"),
        Edge("scheduler", "run.invoker", "service internal"),
        *(Edge("webhook", "pomboTaskMaker", f"queue {name}") for name in plan.queues if name.startswith("inbound")),
        *(Edge(key, "pomboTaskMaker", f"queue {name}") for key in ("api", "internal") for name in plan.queues),
        Edge("api", "pomboSecretMaker", "project"),
        *(
            Edge(key, name, f"project if {secrets_condition(name, key)}")
            for name, role in TENANT_SECRET_ROLES.items()
            for key in role.prefixes
        ),
        Edge(RUN_AGENT, "artifactregistry.reader", "repository pombo"),
    }
    for service in plan.services:
        key = service.key
        edges |= {
            Edge(key, RECORD_ROLES[DELETE in STORE[key], LIST in STORE[key]], store),
            Edge(key, "pomboQueueReader", f"queue {inbound}"),
            Edge(key, "pomboQueueReader", f"queue {outbound}"),
            *(Edge(key, "secretmanager.secretAccessor", f"secret {name}") for name in service.secrets),
            Edge(DEPLOY, "run.developer", f"service {key}"),
            Edge(DEPLOY, "iam.serviceAccountUser", f"account {key}"),
        }
    if plan.of("google_storage_bucket"):
        edges.add(Edge("internal", "storage.objectUser", f"bucket {plan.one('google_storage_bucket')['name']}"))
    return edges


def each_call_has_its_binding_and_no_other_is_there(plan: Plan, code: Code) -> Iterator[str]:
    there, needed = edges_of(plan), wanted(plan)
    for edge in sorted(needed - there):
        yield f"{edge.who} needs {edge.role} on {edge.what}, but does not have it."
    for edge in sorted(there - needed):
        yield f"{edge.who} has {edge.role} on {edge.what}, and nothing needs it."


def nobody_has_a_basic_role(plan: Plan, code: Code) -> Iterator[str]:
    for member in plan.members:
        if member["role"] in ("roles/owner", "roles/editor", "roles/viewer"):
            yield f"{member.address} gives {member['role']}."


def the_services_know_who_calls(plan: Plan, code: Code) -> Iterator[str]:
    invokers = {edge.who for edge in edges_of(plan) if edge.role == "run.invoker"}
    for name in ("TASKS_SERVICE_ACCOUNT", "SCHEDULER_SERVICE_ACCOUNT"):
        account = plan.service("internal").env.get(name) or ""
        if account.split("@")[0].removeprefix("pombo-") not in invokers:
            yield f"{name} of internal is {account}, which may not call internal."


RULES = (each_call_has_its_binding_and_no_other_is_there, nobody_has_a_basic_role, the_services_know_who_calls)
