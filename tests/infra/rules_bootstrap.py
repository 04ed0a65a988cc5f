"""Rules for bootstrap: the storage of images and the state, and the APIs that everything after it needs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.infra.code_side import Code
from tests.infra.plans import Plan, Resource
from tests.infra.rules_stores import data_is_encrypted_with_the_teams_key_if_there_is_one
from tests.support.gcloud_lines import commands_in, shell_of_page

ROOT = Path(__file__).parents[2]
DAY = 86_400

# ---- images


@dataclass(frozen=True, slots=True)
class Version:
    """An image in the repository."""

    age: int
    """In days."""
    newness: int
    """0 for the newest of its package."""
    tagged: bool = True
    """With its build's number as the tag, not as the serving or previous image: rules_release.py covers those."""


def deletes(policies: Iterable[Mapping[str, Any]], version: Version) -> bool:
    """Whether the cleanup deletes a version: a policy to delete matches it, and none to keep does.

    https://cloud.google.com/artifact-registry/docs/repositories/cleanup-policy-overview.
    """
    actions = {policy["action"] for policy in policies if _applies(policy, version)}
    return "DELETE" in actions and "KEEP" not in actions


def _applies(policy: Mapping[str, Any], version: Version) -> bool:
    for most_recent in policy.get("most_recent_versions") or []:
        return version.newness < (most_recent.get("keep_count") or 0)
    for condition in policy.get("condition") or []:
        tag_state = condition.get("tag_state") or "ANY"
        return (
            tag_state in ("ANY", "TAGGED" if version.tagged else "UNTAGGED")
            and not condition.get("tag_prefixes")
            and version.age > _days(condition.get("older_than"), 0)
            and version.age < _days(condition.get("newer_than"), 100_000)
        )
    return False


def _days(length: str | None, default: int) -> float:
    return float(length.removesuffix("s")) / DAY if length else default


KEPT = (
    *(Version(age, newness, tagged) for age in (0, 1, 30, 89) for newness in (0, 50, 500) for tagged in (True, False)),
    *(Version(age, newness) for age in (91, 400) for newness in (0, 1, 9)),
)
"""Versions that a rollback or an audit may need: all of the last 89 days, and the ten newest at any age."""

GONE = (Version(120, 400), Version(120, 400, tagged=False))


def the_registry_keeps_the_newest_images(plan: Plan) -> Iterator[str]:
    (repository,) = [it for it in plan.of("google_artifact_registry_repository") if it["repository_id"] == "pombo"]
    policies = repository.get("cleanup_policies") or []
    for version in KEPT:
        if deletes(policies, version):
            yield f"The registry deletes the image number {version.newness} of {version.age} days: a rollback needs it."
    if repository.get("cleanup_policy_dry_run") or not all(deletes(policies, version) for version in GONE):
        yield "The registry keeps every image for good."


# ---- the state


def the_state_can_be_brought_back(plan: Plan) -> Iterator[str]:
    bucket = _state(plan)
    if bucket is None:
        yield "The bucket of the state is not made."
        return
    if bucket.block("versioning").get("enabled") is not True:
        yield f"{bucket['name']} keeps no older versions of the state."
    if bucket.get("force_destroy") is not False:
        yield f"{bucket['name']} may be destroyed with the state in it."
    for rule in bucket.get("lifecycle_rule") or []:
        (action,), (condition,) = rule["action"], rule["condition"]
        if action["type"] == "Delete" and not _spares(condition):
            yield f"{bucket['name']} deletes the state itself, or the last ten versions of it."


def _state(plan: Plan) -> Resource | None:
    wanted = plan.outputs["state_bucket"]
    return next((it for it in plan.of("google_storage_bucket") if it["name"] == wanted), None)


def _spares(condition: Mapping[str, Any]) -> bool:
    """Whether it concerns only noncurrent versions, and spares the newest ten or a month of those."""
    of_old = condition.get("with_state") == "ARCHIVED" or condition.get("num_newer_versions")
    return bool(of_old) and (
        (condition.get("num_newer_versions") or 0) >= 10 or (condition.get("days_since_noncurrent_time") or 0) >= 30
    )


UPLOADED_DAYS = (1, 90)
"""A deployment reads an upload within hours, and nothing reads it later."""


def what_is_uploaded_for_a_build_stays_until_it_ends(plan: Plan) -> Iterator[str]:
    for bucket in plan.of("google_storage_bucket"):
        if "source" not in str(bucket["name"]):
            continue
        ages = [rule["condition"][0]["age"] for rule in bucket.get("lifecycle_rule") or []]
        if not ages or not all(UPLOADED_DAYS[0] <= age <= UPLOADED_DAYS[1] for age in ages):
            yield f"{bucket['name']} deletes what was uploaded after {ages} days: only the build reads it."


def a_secret_s_version_can_be_brought_back_for_a_day(plan: Plan) -> Iterator[str]:
    for it in plan.of("google_secret_manager_secret"):
        if _seconds(it.get("version_destroy_ttl")) < DAY:
            yield f"A version of {it['secret_id']} that is destroyed by mistake is gone at once."


def _seconds(length: str | None) -> float:
    return float(length.removesuffix("s")) if length else 0


# ---- places and keys


def secrets_lie_where_it_is_asked(plan: Plan) -> Iterator[str]:
    locations, key = plan.given("secret_locations") or [], plan.given("kms_key")
    for it in plan.of("google_secret_manager_secret"):
        replicas = it.block("replication", "user_managed").get("replicas") or []
        places = [one["location"] for one in replicas]
        if places != locations:
            yield f"{it.address} lies in {places or 'any place'}, and not in {locations}."
        keys = {encryption["kms_key_name"] for one in replicas for encryption in one["customer_managed_encryption"]}
        if keys != ({key} if key else set()):
            yield f"{it.address} is encrypted with {sorted(keys) or 'a key of Google'}, and kms_key is {key}."


def what_is_kept_is_encrypted_with_the_teams_key(plan: Plan) -> Iterator[str]:
    yield from data_is_encrypted_with_the_teams_key_if_there_is_one(plan, Code())


# ---- APIs

API_OF_COMMAND: Mapping[str, str] = {
    "artifacts docker images scan": "ondemandscanning",
    "artifacts docker images list-vulnerabilities": "ondemandscanning",
    "artifacts docker": "artifactregistry",
    "artifacts tags": "artifactregistry",
    "auth": "",
    "billing": "",
    "builds": "cloudbuild",
    "components": "",
    "config": "",
    "domains": "",
    "firestore": "firestore",
    "iam": "iam",
    "kms": "cloudkms",
    "logging": "logging",
    "meta": "",
    "monitoring": "monitoring",
    "projects": "cloudresourcemanager",
    "redis": "redis",
    "run": "run",
    "scheduler": "cloudscheduler",
    "secrets": "secretmanager",
    "services": "serviceusage",
    "storage": "storage",
    "tasks": "cloudtasks",
    "version": "",
}
"""The project's API that a gcloud command calls, "" for none. The longest name counts."""

WITHOUT_A_COMMAND = {
    "artifactregistry",  # docker push, and Cloud Run's own agent
    "cloudtasks",
    "firestore",
    "iamcredentials",  # the identities of tasks and of the scheduler's call
    "logging",
    "monitoring",
    "run",
    "secretmanager",
}
"""Called by the services, by the build, or by Google on their behalf."""

_OF_A_PROGRAM = re.compile(r"\bgcloud\(\s*((?:\"[a-z-]+\",\s*)+)")
_PAGES = (ROOT / "README.md", ROOT / "infra/terraform/README.md", *(ROOT / "docs").glob("*.md"))


def commands() -> Iterator[str]:
    """The gcloud commands of the pages, the build and its programs: their first words."""
    scripts = [shell_of_page(path.read_text()) for path in _PAGES]
    scripts += [step["script"] for step in yaml.safe_load((ROOT / "cloudbuild.yaml").read_text())["steps"]]
    scripts.append((ROOT / "Makefile").read_text())
    for script in scripts:
        for command in commands_in(script):
            yield re.sub(r"^(alpha|beta) ", "", command.removeprefix("gcloud "))
    for path in (ROOT / "infra" / "release").glob("*.py"):
        for quoted in _OF_A_PROGRAM.findall(path.read_text()):
            yield " ".join(re.findall(r'"([a-z-]+)"', quoted))


def api_of(command: str) -> str | None:
    """The API that a command calls, "" for none of the project's; None for an unknown command."""
    known = [name for name in API_OF_COMMAND if f"{command} ".startswith(f"{name} ")]
    return API_OF_COMMAND[max(known, key=len)] if known else None


def apis_that_are_on(plan: Plan) -> set[str]:
    """The short names of the APIs that a plan enables."""
    return {str(it["service"]).removesuffix(".googleapis.com") for it in plan.of("google_project_service")}


def every_api_that_is_called_is_on(plan: Plan) -> Iterator[str]:
    on = apis_that_are_on(plan)
    optional = set() if plan.variables.get("redis") else {"redis", "compute"}
    for command in sorted(set(commands())):
        api = api_of(command)
        if api and api not in on | optional:
            yield f"gcloud {command.strip()} calls {api}, which bootstrap leaves off."
    for api in sorted(WITHOUT_A_COMMAND - on):
        yield f"What runs calls {api}, which bootstrap leaves off."


RULES: Sequence[Any] = (
    the_registry_keeps_the_newest_images,
    the_state_can_be_brought_back,
    what_is_uploaded_for_a_build_stays_until_it_ends,
    a_secret_s_version_can_be_brought_back_for_a_day,
    secrets_lie_where_it_is_asked,
    what_is_kept_is_encrypted_with_the_teams_key,
    every_api_that_is_called_is_on,
)
