"""Bootstrap keeps its rules, and each rule finds a plan with one thing wrong."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.infra import rules_bootstrap
from tests.infra.mutations import Mutation, put
from tests.infra.plans import Plan
from tests.infra.rules_bootstrap import RULES, api_of, commands

REPOSITORY, BUCKET, API = "google_artifact_registry_repository", "google_storage_bucket", "google_project_service"


def faults(plan: Plan) -> list[str]:
    return [fault for rule in RULES for fault in rule(plan)]


@pytest.mark.parametrize("variant", ["bootstrap", "bootstrap-bare", "bootstrap-keyed"])
@pytest.mark.parametrize("rule", RULES, ids=lambda it: it.__name__)
def test_bootstrap_keeps_the_rule(rule: Callable[[Plan], Any], variant: str, plan_of: Callable[[str], Plan]) -> None:
    assert list(rule(plan_of(variant))) == []


def test_every_command_of_gcloud_is_of_a_known_api() -> None:
    found = set(commands())
    assert {command for command in found if api_of(command) is None} == set()
    assert {api_of(command) for command in found} >= {
        "cloudbuild",
        "run",
        "ondemandscanning",
        "secretmanager",
        "logging",
    }


def cleanup(*policies: Mapping[str, Any]) -> Callable[[dict[str, Any]], None]:
    return put(list(policies), "cleanup_policies")


def policy(action: str, **what: Any) -> Mapping[str, Any]:
    return {"id": action, "action": action, "condition": [], "most_recent_versions": [], **what}


KEEP = policy("KEEP", most_recent_versions=[{"keep_count": 20}])
DELETE = policy("DELETE", condition=[{"older_than": "7776000s"}])

MUTATIONS = (
    Mutation(
        "the newest deleted",
        REPOSITORY,
        "images",
        cleanup(policy("DELETE", most_recent_versions=[{"keep_count": 20}])),
        "deletes the image number 0",
    ),
    Mutation(
        "what is young deleted",
        REPOSITORY,
        "images",
        cleanup(KEEP, policy("DELETE", condition=[{"newer_than": "7776000s"}])),
        "of 30 days",
    ),
    Mutation(
        "a day kept",
        REPOSITORY,
        "images",
        cleanup(KEEP, policy("DELETE", condition=[{"older_than": "86400s"}])),
        "of 30 days",
    ),
    Mutation(
        "one kept",
        REPOSITORY,
        "images",
        cleanup(policy("KEEP", most_recent_versions=[{"keep_count": 1}]), DELETE),
        "deletes the image number 1",
    ),
    Mutation("old ones not kept", REPOSITORY, "images", cleanup(DELETE), "deletes the image number 0 of 91 days"),
    Mutation(
        "untagged ones deleted",
        REPOSITORY,
        "images",
        cleanup(policy("DELETE", condition=[{"tag_state": "UNTAGGED"}]), DELETE, KEEP),
        "deletes the image number",
    ),
    Mutation("nothing deleted", REPOSITORY, "images", cleanup(KEEP), "keeps every image"),
    Mutation(
        "a cleanup that only says so", REPOSITORY, "images", put(True, "cleanup_policy_dry_run"), "keeps every image"
    ),
    Mutation("a state without versions", BUCKET, "state", put(False, "versioning", "enabled"), "no older versions"),
    Mutation("a state that says nothing of versions", BUCKET, "state", put([], "versioning"), "no older versions"),
    Mutation("a state that may be destroyed", BUCKET, "state", put(True, "force_destroy"), "may be destroyed"),
    Mutation("another bucket than the backend's", BUCKET, "state", put("my-project-1-states", "name"), "is not made"),
    Mutation(
        "a state that is deleted by its age",
        BUCKET,
        "state",
        put([{"action": [{"type": "Delete"}], "condition": [{"age": 30}]}], "lifecycle_rule"),
        "deletes the state itself",
    ),
    Mutation(
        "a state of three versions",
        BUCKET,
        "state",
        put(
            [{"action": [{"type": "Delete"}], "condition": [{"num_newer_versions": 3, "with_state": "ARCHIVED"}]}],
            "lifecycle_rule",
        ),
        "the last ten versions",
    ),
    *(
        Mutation(
            f"{name} gone before its build",
            BUCKET,
            name,
            lambda values: values["lifecycle_rule"][0]["condition"][0].update(age=0),
            "after [0] days",
        )
        for name in (".source", "run_sources")
    ),
    Mutation("sources for ever", BUCKET, ".source", put([], "lifecycle_rule"), "after [] days"),
    Mutation(
        "a secret that is gone at once",
        "google_secret_manager_secret",
        "META_APP_SECRET",
        put(None, "version_destroy_ttl"),
        "META_APP_SECRET that is destroyed by mistake",
    ),
    *(
        Mutation(f"{api} off", API, f'["{api}"]', None, f"calls {api}, which bootstrap leaves off")
        for api in (
            "artifactregistry",
            "cloudbuild",
            "cloudresourcemanager",
            "cloudscheduler",
            "cloudtasks",
            "firestore",
            "iamcredentials",
            "logging",
            "monitoring",
            "ondemandscanning",
            "run",
            "secretmanager",
            "serviceusage",
        )
    ),
)


SECRET = "google_secret_manager_secret"
REPLICAS = ("replication", "user_managed", "replicas")
OF_KEYS = (
    Mutation("a secret elsewhere", SECRET, "META_APP_SECRET", put("us-central1", *REPLICAS, "location"), "lies in"),
    Mutation("a secret anywhere", SECRET, "META_APP_SECRET", put([], "replication", "user_managed"), "any place"),
    Mutation(
        "a secret's key",
        SECRET,
        "META_APP_SECRET",
        put([], *REPLICAS, "customer_managed_encryption"),
        "a key of Google",
    ),
    Mutation(
        "a state without the key", BUCKET, "state", put([], "encryption"), "state is encrypted with a key of Google"
    ),
    Mutation(
        "sources without the key", BUCKET, ".source", put([], "encryption"), "source is encrypted with a key of Google"
    ),
    Mutation(
        "sources of services without the key",
        BUCKET,
        "run_sources",
        put([], "encryption"),
        "run_sources is encrypted with a key of Google",
    ),
    Mutation("tools without the key", REPOSITORY, "tools", put(None, "kms_key_name"), "tools is encrypted with"),
    Mutation("images without the key", REPOSITORY, "images", put(None, "kms_key_name"), "images is encrypted with"),
)


@pytest.mark.parametrize("mutation", OF_KEYS, ids=lambda it: it.name.replace(" ", "-"))
def test_wrong_place_or_key_of_bootstrap_is_reported(mutation: Mutation, plan_of: Callable[[str], Plan]) -> None:
    assert any(mutation.fault in fault for fault in faults(mutation.of(plan_of("bootstrap-keyed"))))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda it: it.name.replace(" ", "-"))
def test_wrong_bootstrap_plan_is_reported(mutation: Mutation, plan_of: Callable[[str], Plan]) -> None:
    assert any(mutation.fault in fault for fault in faults(mutation.of(plan_of("bootstrap"))))


def test_every_rule_of_bootstrap_notices_something(plan_of: Callable[[str], Plan]) -> None:
    wrong = [mutation.of(plan_of("bootstrap")) for mutation in MUTATIONS]
    wrong += [mutation.of(plan_of("bootstrap-keyed")) for mutation in OF_KEYS]
    assert all(any(list(rule(plan)) for plan in wrong) for rule in rules_bootstrap.RULES)
