"""Rules for identities: what the services believe of a caller, and who stands in front of them."""

from collections.abc import Iterator

from code_side import Code
from plans import Plan, Service

RUN_TF = "infra/terraform/modules/run/main.tf"


def an_unsigned_identity_is_believed_exactly_behind_iam(plan: Plan, code: Code) -> Iterator[str]:
    """Without IAM in front anybody could write such a token; with it, Cloud Run may send no other."""
    for service in plan.services:
        trusts = service.env.get("TRUST_CLOUD_RUN_IAM") == "true"
        if trusts and not _is_guarded(plan, service):
            yield f"{service.key} believes a token that nobody has verified: it trusts IAM without IAM ({RUN_TF})."
        if _is_guarded(plan, service) and not trusts:
            yield f"{service.key} refuses what IAM has verified: {RUN_TF} does not set TRUST_CLOUD_RUN_IAM to true."


def _is_guarded(plan: Plan, service: Service) -> bool:
    """Whether IAM asks each caller of the service who he is."""
    everybody = {
        member["name"]
        for member in plan.of("google_cloud_run_v2_service_iam_member")
        if str(member["member"]).startswith("all")
    }
    return service["invoker_iam_disabled"] is False and service["name"] not in everybody


RULES = (an_unsigned_identity_is_believed_exactly_behind_iam,)
