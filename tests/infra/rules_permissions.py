"""Rules for custom roles: each holds exactly the permissions of the calls that the code makes."""

from collections.abc import Iterator

from tests.infra.code_side import Code
from tests.infra.plans import Plan
from tests.support.permissions import MAKE_TASKS, SEE_QUEUES, STORE

IAM_TF = "infra/terraform/modules/iam/main.tf"
OF_QUEUES = {"enqueue": {MAKE_TASKS}, "look": {SEE_QUEUES}}


def _permissions(plan: Plan, role: str) -> set[str]:
    """A role's permissions; none if it is not a custom role."""
    return {
        permission
        for it in plan.of("google_project_iam_custom_role")
        if role == f"projects/{it['project']}/roles/{it['role_id']}" and it.get("stage") != "DISABLED"
        for permission in it["permissions"]
    }


def each_account_may_do_with_records_what_its_service_does(plan: Plan, code: Code) -> Iterator[str]:
    for member in plan.of("google_project_iam_member"):
        who = str(member["member"]).removeprefix("serviceAccount:pombo-").split("@")[0]
        if who in STORE:
            yield from _differences(f"{who}, on records,", _permissions(plan, member["role"]), set(STORE[who]))


def each_account_may_do_with_queues_what_its_service_does(plan: Plan, code: Code) -> Iterator[str]:
    for member in plan.of("google_cloud_tasks_queue_iam_member"):
        for kind, needed in OF_QUEUES.items():
            if f".{kind}[" in member.address:
                yield from _differences(member.address, _permissions(plan, member["role"]), needed)


def _differences(who: str, allowed: set[str], needed: set[str]) -> Iterator[str]:
    for permission in sorted(needed - allowed):
        yield f"{who} may not {permission}, which the code calls for ({IAM_TF}, tests/support/permissions.py)."
    for permission in sorted(allowed - needed):
        yield f"{who} may {permission}, for which the code has no call ({IAM_TF}, tests/support/permissions.py)."


def no_role_of_our_own_is_idle(plan: Plan, code: Code) -> Iterator[str]:
    used = {member["role"] for member in plan.members}
    for role in plan.of("google_project_iam_custom_role"):
        if f"projects/{role['project']}/roles/{role['role_id']}" not in used:
            yield f"No account has the role {role['role_id']} ({IAM_TF})."


RULES = (
    each_account_may_do_with_records_what_its_service_does,
    each_account_may_do_with_queues_what_its_service_does,
    no_role_of_our_own_is_idle,
)
