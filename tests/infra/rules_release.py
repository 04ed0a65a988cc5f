"""Rules for the release resources of bootstrap: three accounts, each for its own work, and a registry that keeps the
images that a rollback deploys.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.infra.code_side import Code
from tests.infra.plans import Plan
from tests.infra.rules_edges import BUILD, DEPLOY, Edge, edges_of

TOOLS = "tools"
KEPT_TAGS = ("serving", "previous")
"""As in infra/release/registry.py."""

PERMISSIONS: Mapping[str, frozenset[str]] = {
    "pomboDeploy": frozenset({"cloudbuild.builds.get", "monitoring.timeSeries.list"}),
    "pomboTagImages": frozenset({"artifactregistry.tags.create", "artifactregistry.tags.update"}),
}
"""Permissions of the deployment's commands beyond its predefined roles: gcloud builds describe, the metrics, and gcloud
artifacts tags create and update.
"""


def wanted(project: str, region: str) -> set[Edge]:
    """The bindings that bootstrap gives each account. Each environment adds those for deploying its services."""
    source, repository, tools = f"bucket {project}-build-source", "repository pombo", "repository tools"
    return {
        Edge(BUILD, "artifactregistry.writer", repository),
        Edge(BUILD, "artifactregistry.reader", tools),
        Edge(BUILD, "storage.objectViewer", source),
        Edge(BUILD, "storage.objectViewer", f"bucket run-sources-{project}-{region}"),
        Edge(BUILD, "logging.logWriter", "project"),
        Edge(BUILD, "ondemandscanning.admin", "project"),
        Edge(DEPLOY, "artifactregistry.reader", repository),
        Edge(DEPLOY, "artifactregistry.reader", tools),
        Edge(DEPLOY, "pomboTagImages", repository),
        Edge(DEPLOY, "pomboDeploy", "project"),
        Edge(DEPLOY, "storage.objectViewer", source),
        Edge(DEPLOY, "logging.logWriter", "project"),
        Edge(TOOLS, "artifactregistry.writer", tools),
        Edge(TOOLS, "storage.objectViewer", source),
        Edge(TOOLS, "logging.logWriter", "project"),
    }


def each_account_of_a_release_does_its_own_work(plan: Plan, code: Code) -> Iterator[str]:
    there, needed = edges_of(plan), wanted(str(plan.variables["project"]), str(plan.variables["region"]))
    for edge in sorted(needed - there):
        yield f"{edge.who} needs {edge.role} on {edge.what}, but does not have it."
    for edge in sorted(there - needed):
        yield f"{edge.who} has {edge.role} on {edge.what}, and nothing needs it."


def a_role_of_ours_allows_what_is_called_and_no_more(plan: Plan, code: Code) -> Iterator[str]:
    made = {str(it["role_id"]): frozenset(it["permissions"]) for it in plan.of("google_project_iam_custom_role")}
    for name, permissions in PERMISSIONS.items():
        for one in sorted(permissions - made.get(name, frozenset())):
            yield f"{name} does not allow {one}."
    for name, permissions in made.items():
        for one in sorted(permissions - PERMISSIONS.get(name, frozenset())):
            yield f"{name} allows {one}, which nothing calls."


def the_build_writes_no_image_that_another_account_runs(plan: Plan, code: Code) -> Iterator[str]:
    """The build's steps and those of the deployment run in images of pombo-tools."""
    for edge in edges_of(plan):
        if edge.who != TOOLS and edge.what == "repository tools" and edge.role != "artifactregistry.reader":
            yield f"{edge.who} may change what runs as {DEPLOY}."


# ---- kept images

DAY = 86400


@dataclass(frozen=True, slots=True)
class Image:
    """A version of one image in the registry. `place` 0 is the newest."""

    place: int
    days: int
    tags: tuple[str, ...] = ()


def stays(image: Image, policies: list[Mapping[str, Any]]) -> bool:
    """Whether cleanup leaves it: what a KEEP policy names is kept, whatever a DELETE policy says.
    https://cloud.google.com/artifact-registry/docs/repositories/cleanup-policy
    """
    acted = {policy["action"] for policy in policies if _names(image, policy)}
    return "KEEP" in acted or "DELETE" not in acted


def _names(image: Image, policy: Mapping[str, Any]) -> bool:
    recent = (policy.get("most_recent_versions") or [None])[0]
    if recent:
        return bool(image.place < int(recent["keep_count"]))
    condition = (policy.get("condition") or [{}])[0]
    state, prefixes = condition.get("tag_state") or "ANY", condition.get("tag_prefixes") or []
    older, newer = condition.get("older_than"), condition.get("newer_than")
    return (
        (state == "ANY" or (state == "TAGGED") is bool(image.tags))
        and (not prefixes or any(tag.startswith(prefix) for tag in image.tags for prefix in prefixes))
        and (not older or image.days * DAY > int(older.removesuffix("s")))
        and (not newer or image.days * DAY < int(newer.removesuffix("s")))
    )


def the_registry_keeps_what_is_deployed_again_and_not_everything(plan: Plan, code: Code) -> Iterator[str]:
    (repository,) = [it for it in plan.of("google_artifact_registry_repository") if it["repository_id"] == "pombo"]
    policies = repository.get("cleanup_policies") or []
    for tag in KEPT_TAGS:
        if not stays(Image(500, 2000, ("00000001-0000-4000-8000-000000000000", tag)), policies):
            yield f"The image tagged {tag} is deleted once it is old: a rollback or the end of a deployment deploys it."
    for image in (Image(0, 400), Image(19, 400, ("a",)), Image(300, 60, ("a",))):
        if not stays(image, policies):
            yield f"An image of the newest 20 or of the last 90 days is deleted: {image}."
    if stays(Image(300, 400, ("a",)), policies) or stays(Image(300, 400), policies):
        yield "Images are kept for ever, and paid for."
    if repository.get("cleanup_policy_dry_run") is not False:
        yield "The cleanup is only a dry run."


RULES = (
    each_account_of_a_release_does_its_own_work,
    a_role_of_ours_allows_what_is_called_and_no_more,
    the_build_writes_no_image_that_another_account_runs,
    the_registry_keeps_what_is_deployed_again_and_not_everything,
)
