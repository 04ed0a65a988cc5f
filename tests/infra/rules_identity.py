"""Rules for identities: what the services believe about a caller, and who checks callers in front of them."""

from collections.abc import Iterator

from tests.infra.code_side import Code
from tests.infra.plans import Plan, Service

RUN_TF = "infra/terraform/modules/run/main.tf"
TASKS_TF = "infra/terraform/modules/tasks/main.tf"


def an_unsigned_identity_is_believed_exactly_behind_iam(plan: Plan, code: Code) -> Iterator[str]:
    """Without IAM in front anyone could write such a token; behind IAM, Cloud Run may send no other."""
    for service in plan.services:
        trusts = service.env.get("TRUST_CLOUD_RUN_IAM") == "true"
        if trusts and not _is_guarded(plan, service):
            yield f"{service.key} believes an unverified token: it trusts IAM without IAM ({RUN_TF})."
        if _is_guarded(plan, service) and not trusts:
            yield f"{service.key} refuses what IAM has verified: {RUN_TF} does not set TRUST_CLOUD_RUN_IAM to true."


def _is_guarded(plan: Plan, service: Service) -> bool:
    """Whether IAM authenticates each caller of the service."""
    everybody = {
        member["name"]
        for member in plan.of("google_cloud_run_v2_service_iam_member")
        if str(member["member"]).startswith("all")
    }
    return service["invoker_iam_disabled"] is False and service["name"] not in everybody


def each_queue_says_where_its_tasks_go(plan: Plan, code: Code) -> Iterator[str]:
    """Whatever a task says, it goes to the one path that the queue serves, at the internal service."""
    internal = plan.service("internal")
    url = internal.env.get("INTERNAL_TASK_BASE_URL")
    paths = {name: path for variable, path in code.paths.items() for name in code.queue_names(variable, internal.env)}
    for name, queue in plan.queues.items():
        path = paths.get(name)
        uri = queue.block("http_target", "uri_override")
        led = (f"{str(uri.get('scheme')).lower()}://{uri.get('host')}", queue.block(*_PATH).get("path"))
        if led != (url, path):
            yield f"{name} leads to {''.join(map(str, led))}; its tasks are for {url}{path} ({TASKS_TF})."
        if uri.get("uri_override_enforce_mode") != "ALWAYS":
            yield f"A task of {name} may go to another address: uri_override_enforce_mode is not ALWAYS ({TASKS_TF})."
        target = queue.block("http_target")
        if target.get("http_method") != "POST":
            yield f"{name} calls by {target.get('http_method')}; internal answers POST ({TASKS_TF})."
        if target.get("header_overrides"):
            yield f"{name} sends headers of its own, which lie in the state ({TASKS_TF})."


def each_queue_says_whose_identity_its_tasks_carry(plan: Plan, code: Code) -> Iterator[str]:
    internal = plan.service("internal")
    for name, queue in plan.queues.items():
        token = queue.block("http_target", "oidc_token")
        if not token:
            yield f"The tasks of {name} carry no identity, or one that they bring themselves ({TASKS_TF})."
            continue
        if token.get("service_account_email") != internal.env.get("TASKS_SERVICE_ACCOUNT"):
            yield f"{name} calls as {token.get('service_account_email')}, and TASKS_SERVICE_ACCOUNT is another."
        if token.get("audience") != internal.env.get("INTERNAL_TASK_BASE_URL"):
            yield f"The token of {name} is for {token.get('audience')}; internal checks INTERNAL_TASK_BASE_URL."


_PATH = ("http_target", "uri_override", "path_override")

RULES = (
    an_unsigned_identity_is_believed_exactly_behind_iam,
    each_queue_says_where_its_tasks_go,
    each_queue_says_whose_identity_its_tasks_carry,
)
