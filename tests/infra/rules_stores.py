"""Rules for stored data: the database, secrets, Redis, buckets."""

from collections import Counter
from collections.abc import Iterable, Iterator

from shared.domain.limits import Limits
from tests.infra.code_side import Code
from tests.infra.plans import Plan, Resource

FIRESTORE_TF = "infra/terraform/modules/firestore/main.tf"
SCHEMA_PY = "shared/stores/firestore/schema.py"


def _differ(what: str, made: Iterable[tuple[str, object]], wanted: Iterable[tuple[str, object]]) -> Iterator[str]:
    made, wanted = set(made), set(wanted)
    for collection, it in sorted(wanted - made, key=str):
        yield f"{collection}.{it} {what} by {SCHEMA_PY} and not by {FIRESTORE_TF}."
    for collection, it in sorted(made - wanted, key=str):
        yield f"{collection}.{it} {what} by {FIRESTORE_TF} and not by {SCHEMA_PY}."


def _fields(plan: Plan) -> list[Resource]:
    return plan.of("google_firestore_field")


def the_services_find_the_database(plan: Plan, code: Code) -> Iterator[str]:
    database = plan.one("google_firestore_database")
    for service in plan.services:
        named = service.env.get("FIRESTORE_DATABASE")
        if named != database["name"]:
            yield f"FIRESTORE_DATABASE of {service.key} is {named}; the database is {database['name']}."
    for it in (*_fields(plan), *plan.of("google_firestore_index")):
        if it["database"] != database["name"]:
            yield f"{it.address} is of the database {it['database']}, which is not ours."


def what_expires_in_the_code_expires(plan: Plan, code: Code) -> Iterator[str]:
    made = {(it["collection"], it["field"]) for it in _fields(plan) if it.get("ttl_config")}
    yield from _differ("expires", made, code.expiring)
    for it in _fields(plan):
        if it.get("ttl_config") and it.block("ttl_config").get("expiration_offset"):
            yield f"{it.address} expires later than the code says."
        if it.get("ttl_config") and (not it.get("index_config") or it.block("index_config").get("indexes")):
            yield f"{it.address} is indexed: a time in an index takes about 500 writes a second."


_SIGNS = {"ASCENDING": "", "DESCENDING": "-"}


def what_the_code_asks_for_is_indexed_and_nothing_else(plan: Plan, code: Code) -> Iterator[str]:
    made = set()
    for it in _fields(plan):
        for index in it.block("index_config").get("indexes") or []:
            if index["query_scope"] != "COLLECTION":
                yield f"{it.address} is not an index of one collection."
            made.add((it["collection"], f"{_SIGNS[index['order']]}{it['field']}"))
        if not it.get("index_config"):
            yield f"{it.address} leaves the field's own indexes: index_config must be there, if empty."
    yield from _differ("is indexed", made, code.indexed)
    composite = set()
    for it in plan.of("google_firestore_index"):
        if it["query_scope"] != "COLLECTION":
            yield f"{it.address} is not an index of one collection."
        composite.add((it["collection"], tuple(f"{_SIGNS[one['order']]}{one['field_path']}" for one in it["fields"])))
    yield from _differ("is indexed together", composite, code.composite)
    exempt = {(it["collection"], "*") for it in _fields(plan) if it["field"] == "*"}
    yield from _differ("is exempt", exempt, {(it.name, "*") for it in code.collections})


def a_collection_has_one_change_at_a_time(plan: Plan, code: Code) -> Iterator[str]:
    """One resource's changes run at once; test_changes.py checks the order of the resources."""
    changes = Counter(
        (it.address.partition("[")[0], it["collection"])
        for it in plan.of("google_firestore_field", "google_firestore_index")
    )
    for (address, collection), times in changes.items():
        if times > 1:
            yield f"{address} changes {collection} {times} times at once, and Firestore refuses all but one."


def the_database_is_ours_and_guarded(plan: Plan, code: Code) -> Iterator[str]:
    database = plan.one("google_firestore_database")
    wanted = {
        "type": "FIRESTORE_NATIVE",
        "database_edition": "STANDARD",
        "point_in_time_recovery_enablement": "POINT_IN_TIME_RECOVERY_ENABLED",
        "delete_protection_state": "DELETE_PROTECTION_ENABLED",
        "deletion_policy": "DELETE",
    }
    for name, value in wanted.items():
        if database.get(name) != value:
            yield f"The database's {name} is {database.get(name)}, not {value}."


def what_must_not_go_is_protected(plan: Plan, code: Code) -> Iterator[str]:
    for it in plan.of("google_cloud_run_v2_service", "google_secret_manager_secret", "google_redis_instance"):
        if it.get("deletion_protection") is not True:
            yield f"{it.address} is not protected from deletion."
    for it in plan.of("google_project_service"):
        if it.get("disable_on_destroy") is not False:
            yield f"{it.address} turns an API off that others may use."


def buckets_are_private(plan: Plan, code: Code) -> Iterator[str]:
    for it in plan.of("google_storage_bucket"):
        if it.get("public_access_prevention") != "enforced" or it.get("uniform_bucket_level_access") is not True:
            yield f"{it.address} may be made public."


PEOPLES_FILES_DAYS = Limits().outbound_retention.days
"""A file is deleted with the longest record of a message."""


def what_people_sent_goes_for_good(plan: Plan, code: Code) -> Iterator[str]:
    for it in plan.of("google_storage_bucket"):
        if not str(it["name"]).endswith("-media"):
            continue
        if it.block("soft_delete_policy").get("retention_duration_seconds") != 0:
            yield f"{it.address} keeps what was deleted, which is personal data."
        ages = [
            rule["condition"][0]["age"]
            for rule in it.get("lifecycle_rule") or []
            if rule["action"][0]["type"] == "Delete"
        ]
        if ages != [PEOPLES_FILES_DAYS]:
            yield f"{it.address} deletes files after {ages} days, and not after {PEOPLES_FILES_DAYS}."


def a_redis_keeps_what_it_is_given(plan: Plan, code: Code) -> Iterator[str]:
    for it in plan.of("google_redis_instance"):
        if it["tier"] != "STANDARD_HA":
            yield "A Redis without a replica loses its data on maintenance."
        if (it.get("redis_configs") or {}).get("maxmemory-policy") != "noeviction":
            yield "The store refuses a Redis that evicts records: maxmemory-policy must be noeviction."
        if it.get("auth_enabled") is not plan.given("redis_auth"):
            yield "The Redis asks for a password where redis_auth is false, or for none where it is true."
        if it.get("transit_encryption_mode") != "SERVER_AUTHENTICATION":
            yield "Customers' messages go to the Redis unencrypted."
        if not it.get("persistence_config") or it.block("persistence_config")["persistence_mode"] != "RDB":
            yield "The Redis keeps nothing on a disk."
        elif it.block("persistence_config").get("rdb_snapshot_period") != "ONE_HOUR":
            yield "The Redis loses more than the last hour: its snapshots are hourly."
    redis = bool(plan.of("google_redis_instance"))
    for service in plan.services:
        if service.env.get("STORE") == "redis" and not (redis and service.block("template", "vpc_access")):
            yield f"{service.key} keeps its records in a Redis that it does not reach."


def data_is_encrypted_with_the_teams_key_if_there_is_one(plan: Plan, code: Code) -> Iterator[str]:
    key = plan.given("kms_key")
    for it, path in keyed(plan):
        found = it.block(*path[:-1]).get(path[-1]) if len(path) > 1 else it.get(path[0])
        if found != key:
            yield f"{it.address} is encrypted with {found or 'a key of Google'}, and kms_key is {key}."


KEYED = (
    ("google_firestore_database", ("cmek_config", "kms_key_name")),
    ("google_storage_bucket", ("encryption", "default_kms_key_name")),
    ("google_redis_instance", ("customer_managed_key",)),
    ("google_artifact_registry_repository", ("kms_key_name",)),
)
"""The resources that keep data, and where each names its key. A secret names its key for each of its locations."""


def keyed(plan: Plan) -> Iterator[tuple[Resource, tuple[str, ...]]]:
    for kind, path in KEYED:
        for it in plan.of(kind):
            yield it, path


def the_database_is_backed_up_as_it_is_asked(plan: Plan, code: Code) -> Iterator[str]:
    wanted = {name: f"{days * 86400}s" for name, days in (plan.given("firestore_backups") or {}).items()}
    made = {}
    for it in plan.of("google_firestore_backup_schedule"):
        kinds = [kind for kind in ("daily", "weekly") if it.get(f"{kind}_recurrence")]
        if it["database"] != plan.one("google_firestore_database")["name"] or len(kinds) != 1:
            yield f"{it.address} backs up {it['database']} {' and '.join(kinds) or 'never'}."
            continue
        made[kinds[0]] = it["retention"]
    if made != wanted:
        yield f"firestore_backups asks for {wanted}, and there is {made}."


RULES = (
    data_is_encrypted_with_the_teams_key_if_there_is_one,
    the_database_is_backed_up_as_it_is_asked,
    the_services_find_the_database,
    what_expires_in_the_code_expires,
    what_the_code_asks_for_is_indexed_and_nothing_else,
    a_collection_has_one_change_at_a_time,
    the_database_is_ours_and_guarded,
    what_must_not_go_is_protected,
    buckets_are_private,
    what_people_sent_goes_for_good,
    a_redis_keeps_what_it_is_given,
)
