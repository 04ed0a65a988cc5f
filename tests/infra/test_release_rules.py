"""What bootstrap makes for releases keeps its rules, and a plan with one thing wrong breaks one."""

from collections.abc import Callable
from typing import Any

import pytest

from infra.release.registry import PREVIOUS, SERVING
from tests.infra.code_side import Code
from tests.infra.mutations import Mutation, member, put
from tests.infra.plans import Plan
from tests.infra.rules_release import KEPT_TAGS, RULES, Image, stays

MEMBER, PROJECT = "google_artifact_registry_repository_iam_member", "google_project_iam_member"
ROLE, REPOSITORY = "google_project_iam_custom_role", "google_artifact_registry_repository"


def faults(plan: Plan) -> list[str]:
    return [fault for rule in RULES for fault in rule(plan, Code())]


def test_bootstrap_keeps_the_rules_of_releases(plan_of: Callable[[str], Plan]) -> None:
    assert faults(plan_of("bootstrap")) == []


def test_the_rules_keep_the_tags_that_the_code_gives() -> None:
    assert set(KEPT_TAGS) == {SERVING, PREVIOUS}


def policy(name: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    """Change a cleanup policy, or its condition."""

    def change(values: dict[str, Any]) -> None:
        (one,) = [it for it in values["cleanup_policies"] if it["id"] == name]
        for key, value in changes.items():
            (one if key in one else one["condition"][0])[key] = value

    return change


MUTATIONS = (
    Mutation("the build may deploy", PROJECT, "deploy_reads", member(role="roles/run.developer"), "run.developer"),
    Mutation(
        "the build may act as anybody", PROJECT, "build_logs", member(role="roles/iam.serviceAccountUser"), "needs it"
    ),
    Mutation("the build may not push", MEMBER, "build_pushes", None, "build needs artifactregistry.writer"),
    Mutation("the deployment may push", MEMBER, "deploy_pulls", member(role="roles/artifactregistry.writer"), "writer"),
    Mutation("the deployment may not tag", MEMBER, "deploy_tags", None, "deploy needs pomboTagImages"),
    Mutation(
        "the deployment reads no builds", PROJECT, "deploy_reads", None, "pomboDeploy on project, but does not have it"
    ),
    Mutation("the deployment says nothing", PROJECT, "deploy_logs", None, "deploy needs logging.logWriter"),
    Mutation(
        "the build writes what the deployment runs",
        MEMBER,
        'tools_pulled["build"]',
        member(role="roles/artifactregistry.writer"),
        "build may change what runs as deploy",
    ),
    Mutation("the deployment cannot start", MEMBER, 'tools_pulled["deploy"]', None, "deploy needs artifactregistry"),
    Mutation(
        "no metrics", ROLE, ".deploy", put(["cloudbuild.builds.get"], "permissions"), "not allow monitoring.timeSeries"
    ),
    Mutation(
        "tags may be deleted",
        ROLE,
        "tag_images",
        lambda values: values["permissions"].append("artifactregistry.tags.delete"),
        "allows artifactregistry.tags.delete, which nothing calls",
    ),
    Mutation(
        "no role for tags", ROLE, "tag_images", None, "pomboTagImages does not allow artifactregistry.tags.create"
    ),
    Mutation(
        "what serves is deleted",
        REPOSITORY,
        ".images",
        policy("keep-deployed", tag_prefixes=["previous"]),
        "tagged serving",
    ),
    Mutation(
        "what served is deleted",
        REPOSITORY,
        ".images",
        policy("keep-deployed", tag_prefixes=["serving"]),
        "tagged previous",
    ),
    Mutation(
        "untagged is kept",
        REPOSITORY,
        ".images",
        policy("keep-deployed", tag_state="UNTAGGED"),
        "tagged serving is deleted",
    ),
    Mutation(
        "what is deployed is deleted",
        REPOSITORY,
        ".images",
        policy("keep-deployed", action="DELETE"),
        "tagged previous",
    ),
    Mutation(
        "the newest are deleted", REPOSITORY, ".images", policy("keep-recent", action="DELETE"), "of the newest 20"
    ),
    Mutation(
        "fewer are kept",
        REPOSITORY,
        ".images",
        policy("keep-recent", most_recent_versions=[{"keep_count": 2}]),
        "newest 20",
    ),
    Mutation(
        "what is young is deleted", REPOSITORY, ".images", policy("delete-old", older_than="86400s"), "last 90 days"
    ),
    Mutation("only a dry run", REPOSITORY, ".images", put(True, "cleanup_policy_dry_run"), "dry run"),
    Mutation("all is kept", REPOSITORY, ".images", policy("delete-old", action="KEEP"), "kept for ever"),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda it: it.name.replace(" ", "-"))
def test_wrong_bootstrap_plan_is_reported(mutation: Mutation, plan_of: Callable[[str], Plan]) -> None:
    found = faults(mutation.of(plan_of("bootstrap")))
    assert any(mutation.fault in fault for fault in found), found


def test_every_rule_notices_something(plan_of: Callable[[str], Plan]) -> None:
    wrong = [mutation.of(plan_of("bootstrap")) for mutation in MUTATIONS]
    assert {rule for rule in RULES if any(list(rule(plan, Code())) for plan in wrong)} == set(RULES)


@pytest.mark.parametrize(
    ("image", "is_kept"),
    [(Image(0, 1), True), (Image(9, 1), False), (Image(9, 1, ("x",)), False), (Image(9, 1, ("keep-me",)), True)],
)
def test_cleanup_is_read_as_google_documents_it(image: Image, is_kept: bool) -> None:
    policies: list[Any] = [
        {"action": "DELETE", "condition": [{"tag_state": "ANY"}]},
        {"action": "KEEP", "condition": [{"tag_state": "TAGGED", "tag_prefixes": ["keep"]}]},
        {"action": "KEEP", "most_recent_versions": [{"keep_count": 5}]},
    ]
    assert stays(image, policies) is is_kept
