"""Rules for custom roles: each holds exactly the permissions of the calls that the code makes."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.infra.code_side import Code
from tests.infra.offline.behaviour import PROJECT_NUMBER
from tests.infra.plans import Plan
from tests.support.permissions import (
    ADD_VERSION,
    CREATE_SECRET,
    MAKE_TASKS,
    SECRET_CALLS,
    SEE_QUEUES,
    STORE,
    TENANT_SECRETS,
    TENANT_SECRETS_ADDED,
)

IAM_TF = "infra/terraform/modules/iam/main.tf"
OF_SECRETS = "secretmanager."
MAKER = "pomboSecretMaker"


class TenantSecretRole(NamedTuple):
    """A role on tenants' secrets: what it is for, what it allows, and which service has it for which prefixes."""

    verb: str
    permissions: frozenset[str]
    prefixes: Mapping[str, tuple[str, ...]]


TENANT_SECRET_ROLES: Mapping[str, TenantSecretRole] = {
    "pomboSecretReader": TenantSecretRole("read", frozenset().union(*SECRET_CALLS.values()), TENANT_SECRETS),
    "pomboSecretWriter": TenantSecretRole("add to", frozenset({ADD_VERSION}), TENANT_SECRETS_ADDED),
}
OF_QUEUES = {"enqueue_shared": {MAKE_TASKS}, "enqueue_numbered": {MAKE_TASKS}, "look": {SEE_QUEUES}}


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
        if who in STORE and not _is_of_secrets(plan, member["role"]):
            yield from _differences(f"{who}, on records,", _permissions(plan, member["role"]), set(STORE[who]))


def each_account_may_do_with_queues_what_its_service_does(plan: Plan, code: Code) -> Iterator[str]:
    for member in plan.of("google_cloud_tasks_queue_iam_member", "google_cloud_tasks_queue_iam_binding"):
        for kind, needed in OF_QUEUES.items():
            if f".{kind}[" in member.address:
                yield from _differences(member.address, _permissions(plan, member["role"]), needed)


def each_account_uses_only_the_tenants_secrets_that_its_service_uses(plan: Plan, code: Code) -> Iterator[str]:
    for member in plan.of("google_project_iam_member"):
        if not _is_of_secrets(plan, member["role"]):
            continue
        who = str(member["member"]).removeprefix("serviceAccount:pombo-").split("@")[0]
        name, allowed = str(member["role"]).rpartition("/")[2], member.block("condition").get("expression", "")
        made = _permissions(plan, member["role"])
        if name == MAKER:
            yield from _differences(f"{who}, on secrets of any name,", made, {CREATE_SECRET})
        elif role := TENANT_SECRET_ROLES.get(name):
            yield from _differences(f"{who}, on tenants' secrets,", made, set(role.permissions))
            if allowed != secrets_condition(name, who):
                yield f"{who} may {role.verb} secrets {f'if {allowed}' if allowed else 'of any name'} ({IAM_TF})."
        else:
            yield f"{who} has {name} on the project's secrets, which is none of our roles for them ({IAM_TF})."


def secrets_condition(role: str, who: str) -> str:
    """The condition of the secrets that an account may use by this role; one that nothing meets for another account."""
    named = f"projects/{PROJECT_NUMBER}/secrets/"
    prefixes = TENANT_SECRET_ROLES[role].prefixes.get(who, ())
    return " || ".join(f'resource.name.startsWith("{named}{prefix}")' for prefix in prefixes) or "false"


def _is_of_secrets(plan: Plan, role: str) -> bool:
    names = _permissions(plan, role) or {str(role).removeprefix("roles/")}
    return any(name.startswith(OF_SECRETS) for name in names)


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
    each_account_uses_only_the_tenants_secrets_that_its_service_uses,
    no_role_of_our_own_is_idle,
)
