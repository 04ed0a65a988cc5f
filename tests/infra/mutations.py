"""Mutations: a plan with one thing wrong."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.infra.plans import Plan

Values = dict[str, Any]
Change = Callable[[Values], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is wrong, where, and part of the sentence that must report it."""

    name: str
    type: str
    address: str
    """Part of the resource's address; the first match is meant."""
    change: Change | None
    """None removes the resource."""
    fault: str

    def of(self, plan: Plan) -> Plan:
        resources = list(plan.document["resource_changes"])
        for index, it in enumerate(resources):
            if it["type"] == self.type and self.address in it["address"]:
                after = None
                if self.change is not None:
                    after = copy.deepcopy(it["change"]["after"])
                    self.change(after)
                resources[index] = {**it, "change": {**it["change"], "after": after}}
                return Plan({**plan.document, "resource_changes": resources})
        raise LookupError(f"{self.name}: no {self.type} of {self.address}")


def put(value: Any, *path: str) -> Change:
    """Set an argument, by the path of its blocks."""

    def change(values: Values) -> None:
        for name in path[:-1]:
            values[name] = values.get(name) or [{}]
            values = values[name][0]
        values[path[-1]] = value

    return change


def _env(values: Values) -> list[Values]:
    found: list[Values] = values["template"][0]["containers"][0]["env"]
    return found


def plain(name: str, value: str) -> Change:
    """Set a variable of a service to a plain value."""

    def change(values: Values) -> None:
        unset(name)(values)
        _env(values).append({"name": name, "value": value, "value_source": []})

    return change


def secret(name: str, of: str, version: str) -> Change:
    """Set a variable of a service to a secret."""

    def change(values: Values) -> None:
        unset(name)(values)
        reference = [{"secret_key_ref": [{"secret": of, "version": version}]}]
        _env(values).append({"name": name, "value": None, "value_source": reference})

    return change


def unset(name: str) -> Change:
    """Remove a variable of a service."""

    def change(values: Values) -> None:
        _env(values)[:] = [it for it in _env(values) if it["name"] != name]

    return change


def memory(amount: str) -> Change:
    """Give a service a different amount of memory."""

    def change(values: Values) -> None:
        values["template"][0]["containers"][0]["resources"][0]["limits"]["memory"] = amount

    return change


def member(**arguments: Any) -> Change:
    """Change a binding's arguments."""

    def change(values: Values) -> None:
        values.update(arguments)

    return change


def without_chart(title: str) -> Change:
    """Remove a chart from the dashboard."""

    def change(values: Values) -> None:
        document = json.loads(values["dashboard_json"])
        tiles = document["mosaicLayout"]["tiles"]
        kept = [tile for tile in tiles if tile["widget"]["title"] != title]
        if len(kept) == len(tiles):
            raise LookupError(f"There is no chart {title}.")
        document["mosaicLayout"]["tiles"] = kept
        values["dashboard_json"] = json.dumps(document)

    return change


def asked(old: str, new: str) -> Change:
    """Change a text of an alert's query."""

    def change(values: Values) -> None:
        rule = values["conditions"][0]["condition_prometheus_query_language"][0]
        if old not in rule["query"]:
            raise LookupError(f"{old} is not in {rule['query']}")
        rule["query"] = rule["query"].replace(old, new)

    return change


def without_label(name: str, where: str = "both") -> Change:
    """Remove a label of a metric: its extractor, its descriptor, or both."""

    def change(values: Values) -> None:
        if where in ("extractors", "both"):
            del values["label_extractors"][name]
        if where in ("descriptor", "both"):
            about = values["metric_descriptor"][0]
            about["labels"] = [it for it in about["labels"] if it["key"] != name]

    return change


def charting(title: str, old: str, new: str) -> Change:
    """Change a text of a chart's queries."""

    def change(values: Values) -> None:
        document = json.loads(values["dashboard_json"])
        (tile,) = [it for it in document["mosaicLayout"]["tiles"] if it["widget"]["title"] == title]
        for line in tile["widget"]["xyChart"]["dataSets"]:
            query = line["timeSeriesQuery"]["prometheusQuery"]
            if old not in query:
                raise LookupError(f"{old} is not in {query}")
            line["timeSeriesQuery"]["prometheusQuery"] = query.replace(old, new)
        values["dashboard_json"] = json.dumps(document)

    return change


SERVICE, QUEUE, JOB = "google_cloud_run_v2_service", "google_cloud_tasks_queue", "google_cloud_scheduler_job"
FIELD, INDEX, DATABASE = "google_firestore_field", "google_firestore_index", "google_firestore_database"
METRIC, POLICY, DASHBOARD = "google_logging_metric", "google_monitoring_alert_policy", "google_monitoring_dashboard"
CHANNEL, UPTIME = "google_monitoring_notification_channel", "google_monitoring_uptime_check_config"
REDIS, BUCKET = "google_redis_instance", "google_storage_bucket"
INVOKE, ENQUEUE = "google_cloud_run_v2_service_iam_member", "google_cloud_tasks_queue_iam_member"
BOTH = ("internal", "webhook")
MAKERS = "google_cloud_tasks_queue_iam_binding"
ACT_AS, READ = "google_service_account_iam_member", "google_secret_manager_secret_iam_member"
ROLE = "google_project_iam_custom_role"
PROJECT, PULL = "google_project_iam_member", "google_artifact_registry_repository_iam_member"
ASKED = ("conditions", "condition_prometheus_query_language")
STEP: Mapping[str, Any] = {"path": "/", "http_headers": []}

METRICS_CHANGED = (
    "messages_processed_total",
    "receipt_failed_total",
    "receipts_failed",
    "provider_down",
    "backend_down",
)
CHARTS = (
    "Processed per second",
    "Failed receipts not yet replayed",
    "Failed receipts in 5 minutes, by code",
    "Failed receipts in 15 minutes, in % of the accepted messages",
    "Providers down",
    "Backends down",
)
OUTAGES = tuple(f"{whose}_down_{severity}" for whose in ("provider", "backend") for severity in ("warning", "critical"))

OF_OUTAGES_AND_RECEIPTS = (
    *(Mutation(f"no metric {name}", METRIC, f'"whatsapp_{name}"', None, "is not there") for name in METRICS_CHANGED),
    *(
        Mutation(
            f"{name} by another name", METRIC, f'"whatsapp_{name}"', put("whatsapp_other", "name"), "whatsapp_other"
        )
        for name in METRICS_CHANGED
    ),
    *(
        Mutation(
            f"a {name} that is a count",
            METRIC,
            f'"whatsapp_{name}"',
            put("INT64", "metric_descriptor", "value_type"),
            "DELTA DISTRIBUTION",
        )
        for name in ("receipts_failed", "provider_down", "backend_down")
    ),
    Mutation(
        "no status", METRIC, "messages_processed", without_label("status"), "looks at status, which no metric in it has"
    ),
    Mutation(
        "a status that is not declared",
        METRIC,
        "messages_processed",
        without_label("status", "descriptor"),
        "takes others out of a line",
    ),
    Mutation(
        "a status that is not extracted",
        METRIC,
        "messages_processed",
        without_label("status", "extractors"),
        "takes others out of a line",
    ),
    Mutation(
        "failed receipts without their code",
        METRIC,
        "receipt_failed_total",
        without_label("code"),
        "looks at code, which no metric in it has",
    ),
    *(
        Mutation(
            f"no alert {name}",
            POLICY,
            f'["{name}"]',
            None,
            f"describes {name.rpartition('_')[0].replace('_', '-')} ({name.rpartition('_')[2]}), but no alert exists",
        )
        for name in OUTAGES
    ),
    *(
        Mutation(
            f"{name} after another time",
            POLICY,
            f'["{name}"]',
            put("0s", *ASKED, "duration"),
            f"does not go by {name}",
        )
        for name in OUTAGES
    ),
    *(
        Mutation(
            f"{name} of another severity",
            POLICY,
            f'["{name}"]',
            put("ERROR", "severity"),
            "(error), and docs/runbook.md has no such section",
        )
        for name in OUTAGES
    ),
    Mutation(
        "an outage without a runbook section",
        POLICY,
        '["provider_down_warning"]',
        put("Look.", "documentation", "content"),
        "leads to no section",
    ),
    Mutation(
        "no alert on failed receipts",
        POLICY,
        '["failed_receipts"]',
        None,
        "describes failed-receipts (warning), but no alert exists",
    ),
    Mutation(
        "another share of failed receipts",
        POLICY,
        '["failed_receipts"]',
        asked("> 10 *", "> 20 *"),
        "does not go by failed_receipts_percent",
    ),
    Mutation(
        "another least number of failed receipts",
        POLICY,
        '["failed_receipts"]',
        asked(">= 5", ">= 0"),
        "does not go by failed_receipts_least",
    ),
    Mutation(
        "failed receipts by a status that is none",
        POLICY,
        '["failed_receipts"]',
        asked('status="success"', 'state="success"'),
        "looks at state, which no metric in it has",
    ),
    Mutation(
        "an outage within one sweep",
        POLICY,
        '["backend_down_warning"]',
        asked("[5m]", "[1m]"),
        "in which there may be no sweep",
    ),
    *(
        Mutation(f"no chart {title}", DASHBOARD, "this", without_chart(title), f"{title!r}, which is not")
        for title in CHARTS
    ),
    Mutation(
        "backends shown as providers",
        DASHBOARD,
        "this",
        charting("Providers down", "provider_down", "backend_down"),
        "The chart 'Providers down' shows",
    ),
    Mutation(
        "dead letters shown as failed receipts",
        DASHBOARD,
        "this",
        charting("Failed receipts not yet replayed", "receipts_failed", "dead_letters"),
        "The chart 'Failed receipts not yet replayed' shows",
    ),
    *(
        Mutation(
            f"a chart of {which} queues", DASHBOARD, "this", charting("Tasks in the queues", *change), "watches the"
        )
        for which, change in {"the shared": ("(-t[0-9]+)?", ""), "missing": ("-2", "")}.items()
    ),
    Mutation(
        "a chart that no page describes",
        DASHBOARD,
        "this",
        lambda values: values.update(dashboard_json=values["dashboard_json"].replace("Providers down", "Providers")),
        "does not describe it",
    ),
    *(
        Mutation(
            f"no MESSAGE_MAX_AGE for {service}",
            SERVICE,
            f'["{service}"]',
            unset("MESSAGE_MAX_AGE"),
            f"MESSAGE_MAX_AGE is read by the {service} service",
        )
        for service in ("webhook", "internal")
    ),
    Mutation("marks are not exempt", FIELD, 'exempt["marks"]', None, "marks.* is exempt by shared/stores"),
)
"""Metrics, labels, alerts, thresholds and charts of outages and failed receipts."""

OF_IDENTITIES = (
    Mutation(
        "what IAM has verified is refused",
        SERVICE,
        '["internal"]',
        unset("TRUST_CLOUD_RUN_IAM"),
        "internal refuses what",
    ),
    Mutation(
        "what IAM has verified is not believed",
        SERVICE,
        '["internal"]',
        plain("TRUST_CLOUD_RUN_IAM", "false"),
        "internal refuses what",
    ),
    Mutation(
        "the public service believes unsigned tokens",
        SERVICE,
        '["webhook"]',
        plain("TRUST_CLOUD_RUN_IAM", "true"),
        "webhook believes an unverified token",
    ),
    Mutation(
        "unsigned tokens without IAM",
        SERVICE,
        '["internal"]',
        put(True, "invoker_iam_disabled"),
        "internal believes an unverified token",
    ),
    Mutation(
        "unsigned tokens where nothing says whether IAM asks",
        SERVICE,
        '["internal"]',
        put(None, "invoker_iam_disabled"),
        "internal believes an unverified token",
    ),
    Mutation(
        "unsigned tokens while IAM admits everybody",
        INVOKE,
        'invoke["tasks"]',
        member(member="allUsers"),
        "internal believes an unverified token",
    ),
    Mutation(
        "unsigned tokens while IAM admits everybody with an account",
        INVOKE,
        'invoke["tasks"]',
        member(member="allAuthenticatedUsers"),
        "internal believes an unverified token",
    ),
    Mutation(
        "the webhook is given TASKS_SERVICE_ACCOUNT",
        SERVICE,
        '["webhook"]',
        plain("TASKS_SERVICE_ACCOUNT", "pombo-tasks@my-project-1.iam.gserviceaccount.com"),
        "TASKS_SERVICE_ACCOUNT is set for the webhook",
    ),
    Mutation("a queue leads where its tasks say", QUEUE, '["inbound"]', put([], "http_target"), "inbound-2 leads to"),
    Mutation("tasks carry what they bring", QUEUE, '["outbound"]', put([], "http_target"), "carry no identity"),
    Mutation(
        "a queue leads elsewhere",
        QUEUE,
        '["inbound"]',
        put("evil.example.com", "http_target", "uri_override", "host"),
        "leads to https://evil.example.com",
    ),
    Mutation(
        "a queue leads without TLS",
        QUEUE,
        '["outbound"]',
        put("HTTP", "http_target", "uri_override", "scheme"),
        "leads to http://",
    ),
    Mutation(
        "a queue leads to another path",
        QUEUE,
        '["inbound"]',
        put("/internal/process_outbound", "http_target", "uri_override", "path_override", "path"),
        "inbound-2 leads to",
    ),
    Mutation(
        "a tenant's queue leads to another path",
        QUEUE,
        "outbound-t001",
        put("/internal/process_inbound", "http_target", "uri_override", "path_override", "path"),
        "outbound-t001-2 leads to",
    ),
    Mutation(
        "any path that a task says",
        QUEUE,
        '["inbound"]',
        put([], "http_target", "uri_override", "path_override"),
        "inbound-2 leads to",
    ),
    Mutation(
        "an address of the task's goes first",
        QUEUE,
        '["inbound"]',
        put("IF_NOT_EXISTS", "http_target", "uri_override", "uri_override_enforce_mode"),
        "may go to another address",
    ),
    Mutation(
        "any method that a task says",
        QUEUE,
        '["inbound"]',
        put(None, "http_target", "http_method"),
        "internal answers POST",
    ),
    Mutation(
        "a secret in a queue's header",
        QUEUE,
        '["inbound"]',
        put([{"header": [{"key": "X-Internal-Token", "value": "x1"}]}], "http_target", "header_overrides"),
        "lie in the state",
    ),
    Mutation(
        "a queue without an identity", QUEUE, '["outbound"]', put([], "http_target", "oidc_token"), "carry no identity"
    ),
    Mutation(
        "a queue calls as another account",
        QUEUE,
        "outbound-t002",
        put("a@b.c", "http_target", "oidc_token", "service_account_email"),
        "outbound-t002-2 calls as a@b.c",
    ),
    Mutation(
        "a queue's token is for another address",
        QUEUE,
        '["inbound"]',
        put("https://x", "http_target", "oidc_token", "audience"),
        "is for https://x",
    ),
)
"""Identities that the services believe."""

RECORDS_OF = (("pomboRecords", "webhook"), ("pomboRecordsAndLists", "internal"))


def _but(*permissions: str) -> Change:
    """Remove permissions from a role."""

    def change(values: Values) -> None:
        kept = [it for it in values["permissions"] if it not in permissions]
        if len(kept) + len(permissions) != len(values["permissions"]):
            raise LookupError(f"Not all of {permissions} are in the role.")
        values["permissions"] = kept

    return change


def _and(permission: str) -> Change:
    """Add a permission to a role."""

    def change(values: Values) -> None:
        values["permissions"] = [*values["permissions"], permission]

    return change


OF_PERMISSIONS = (
    *(
        Mutation(
            f"{who} may not {word}",
            ROLE,
            f'"{role}"',
            _but(f"datastore.entities.{word}"),
            f"{who}, on records, may not datastore.entities.{word}",
        )
        for role, who in RECORDS_OF
        for word in ("get", "create", "update")
    ),
    Mutation(
        "the sweep may not list",
        ROLE,
        '"pomboRecordsAndLists"',
        _but("datastore.entities.list"),
        "internal, on records, may not datastore.entities.list",
    ),
    *(
        Mutation(
            f"{who} may delete records",
            ROLE,
            f'"{role}"',
            _and("datastore.entities.delete"),
            f"{who}, on records, may datastore.entities.delete",
        )
        for role, who in RECORDS_OF
    ),
    Mutation(
        "the webhook may list records",
        ROLE,
        '"pomboRecords"',
        _and("datastore.entities.list"),
        "webhook, on records, may datastore.entities.list",
    ),
    Mutation(
        "the webhook has the internal service's role",
        PROJECT,
        'store["webhook"]',
        member(role="projects/my-project-1/roles/pomboRecordsAndLists"),
        "webhook, on records, may datastore.entities.list",
    ),
    Mutation(
        "a role of another project",
        PROJECT,
        'store["webhook"]',
        member(role="projects/other/roles/pomboRecords"),
        "webhook, on records, may not datastore.entities.get",
    ),
    Mutation(
        "a role of Google's that lists tasks",
        ENQUEUE,
        'look["webhook.inbound"]',
        member(role="roles/cloudtasks.viewer"),
        "webhook has cloudtasks.viewer",
    ),
    Mutation(
        "who makes tasks may delete them", ROLE, '"pomboTaskMaker"', _and("cloudtasks.tasks.delete"), "tasks.delete"
    ),
    Mutation(
        "who makes tasks may not", ROLE, '"pomboTaskMaker"', put(["x.y.z"], "permissions"), "may not cloudtasks.tasks"
    ),
    Mutation(
        "who looks at queues may purge them",
        ROLE,
        '"pomboQueueReader"',
        _and("cloudtasks.queues.purge"),
        "queues.purge",
    ),
    *(
        Mutation(
            f"who reads tenants' secrets may {word}",
            ROLE,
            '"pomboSecretReader"',
            _and(f"secretmanager.{word}"),
            f"internal, on tenants' secrets, may secretmanager.{word}",
        )
        for word in ("versions.add", "secrets.delete", "secrets.setIamPolicy")
    ),
    Mutation(
        "who reads tenants' secrets may not list versions",
        ROLE,
        '"pomboSecretReader"',
        _but("secretmanager.versions.list"),
        "internal, on tenants' secrets, may not secretmanager.versions.list",
    ),
    Mutation(
        "all secrets of the project are tenants' secrets",
        PROJECT,
        'tenant_secrets["internal"]',
        member(condition=[]),
        "internal may read secrets of any name",
    ),
    Mutation(
        "tenants' secrets begin with less",
        PROJECT,
        'tenant_secrets["internal"]',
        put('resource.name.startsWith("projects/123456789012/secrets/pombo-")', "condition", "expression"),
        "internal may read secrets if resource.name.startsWith",
    ),
    Mutation(
        "tenants' secrets by a role of Google's",
        PROJECT,
        'tenant_secrets["internal"]',
        member(role="roles/secretmanager.secretAccessor"),
        "internal has secretmanager.secretAccessor on the project's secrets",
    ),
    Mutation(
        "the webhook reads tenants' secrets",
        PROJECT,
        'tenant_secrets["internal"]',
        member(member="serviceAccount:pombo-webhook@my-project-1.iam.gserviceaccount.com"),
        "webhook may read secrets if",
    ),
    Mutation("nobody reads tenants' secrets", PROJECT, "tenant_secrets[", None, "internal needs pomboSecretReader"),
    Mutation("a role that is not made", ROLE, '"pomboQueueReader"', None, "may not cloudtasks.queues.get"),
    Mutation(
        "a role that is turned off", ROLE, '"pomboRecords"', put("DISABLED", "stage"), "may not datastore.entities"
    ),
    Mutation(
        "a role without an account",
        ROLE,
        '"pomboRecords"',
        put("pomboOther", "role_id"),
        "No account has the role pomboOther",
    ),
)
"""Permissions of the accounts."""

MUTATIONS = (
    # Access
    Mutation(
        "internal is open to the internet",
        SERVICE,
        '["internal"]',
        put("INGRESS_TRAFFIC_ALL", "ingress"),
        "own callers",
    ),
    Mutation("internal without IAM", SERVICE, '["internal"]', put(True, "invoker_iam_disabled"), "own callers"),
    Mutation(
        "webhook asks Meta for an account",
        SERVICE,
        '["webhook"]',
        put(False, "invoker_iam_disabled"),
        "open to everyone",
    ),
    Mutation(
        "webhook is closed",
        SERVICE,
        '["webhook"]',
        put("INGRESS_TRAFFIC_INTERNAL_ONLY", "ingress"),
        "open to everyone",
    ),
    Mutation("internal has no run.app address", SERVICE, '["internal"]', put(True, "default_uri_disabled"), "run.app"),
    Mutation("everybody may invoke internal", INVOKE, 'invoke["tasks"]', member(member="allUsers"), "allUsers"),
    Mutation(
        "a service is the project's default account",
        SERVICE,
        '["webhook"]',
        put(None, "template", "service_account"),
        "not as an account of its own",
    ),
    Mutation(
        "both services are one account",
        SERVICE,
        '["webhook"]',
        put("pombo-internal@my-project-1.iam.gserviceaccount.com", "template", "service_account"),
        "not as an account of its own",
    ),
    Mutation(
        "an account is not made", "google_service_account", 'this["webhook"]', None, "which the plan does not create"
    ),
    # Environment variables
    Mutation("a token in plain sight", SERVICE, '["internal"]', plain("INTERNAL_TASK_TOKEN", "x1"), "in plain sight"),
    Mutation(
        "a secret's latest version",
        SERVICE,
        '["webhook"]',
        secret("META_APP_SECRET", "META_APP_SECRET", "latest"),
        "latest",
    ),
    Mutation(
        "another secret's value",
        SERVICE,
        '["webhook"]',
        secret("META_APP_SECRET", "META_VERIFY_TOKEN", "1"),
        "comes from",
    ),
    Mutation("a plain value as a secret", SERVICE, '["webhook"]', secret("STORE", "STORE", "1"), "is not a secret"),
    Mutation(
        "a missing variable",
        SERVICE,
        '["internal"]',
        unset("SWEEP_AFTER"),
        "SWEEP_AFTER is read by the internal service",
    ),
    Mutation(
        "an unused variable",
        SERVICE,
        '["webhook"]',
        plain("MAX_ATTEMPTS", "8"),
        "MAX_ATTEMPTS is set for the webhook",
    ),
    Mutation(
        "a handler's variable is lost", SERVICE, '["internal"]', unset("CLINIC_URL"), "CLINIC_URL of handler_variables"
    ),
    Mutation(
        "a handler's secret is lost", SERVICE, '["internal"]', unset("CLINIC_KEY"), "CLINIC_KEY of handler_secrets"
    ),
    Mutation(
        "a handler's variable at the webhook",
        SERVICE,
        '["webhook"]',
        plain("CLINIC_URL", "https://clinic.example.com"),
        "CLINIC_URL is set for the webhook",
    ),
    Mutation("an unknown environment", SERVICE, '["internal"]', plain("APP_ENV", "locale"), "APP_ENV must be staging"),
    Mutation("a local environment", SERVICE, '["webhook"]', plain("APP_ENV", "local"), "APP_ENV must be staging"),
    Mutation("a store for one machine", SERVICE, '["internal"]', plain("STORE", "sqlite"), "STORE must not be sqlite"),
    Mutation("a scaled clock", SERVICE, '["internal"]', plain("TIME_SCALE", "2"), "TIME_SCALE is for one machine only"),
    Mutation(
        "a value that is none",
        SERVICE,
        '["internal"]',
        plain("MAX_ATTEMPTS", "many"),
        "MAX_ATTEMPTS must be a whole number",
    ),
    Mutation(
        "tasks go out unencrypted", SERVICE, '["webhook"]', plain("INTERNAL_TASK_BASE_URL", "http://x"), "must be https"
    ),
    Mutation(
        "tasks go elsewhere",
        SERVICE,
        '["webhook"]',
        plain("INTERNAL_TASK_BASE_URL", "https://x.run.app"),
        "another INTERNAL_TASK_BASE_URL",
    ),
    Mutation(
        "queues in another region",
        SERVICE,
        '["webhook"]',
        plain("CLOUD_TASKS_LOCATION", "europe-west9"),
        "where there are none",
    ),
    Mutation("another project", SERVICE, '["webhook"]', plain("GOOGLE_CLOUD_PROJECT", "other"), "a project other"),
    Mutation(
        "another database",
        SERVICE,
        '["webhook"]',
        plain("FIRESTORE_DATABASE", "(default)"),
        "FIRESTORE_DATABASE of webhook",
    ),
    Mutation(
        "a wrong queue's name", SERVICE, '["webhook"]', plain("INBOUND_TASK_QUEUE_NAME", "in"), "makes no such queue"
    ),
    *(
        Mutation(
            f"{whose} calls as an account that may not",
            SERVICE,
            '["internal"]',
            plain(f"{whose}_SERVICE_ACCOUNT", "pombo-webhook@my-project-1.iam.gserviceaccount.com"),
            f"{whose}_SERVICE_ACCOUNT of internal is pombo-webhook",
        )
        for whose in ("TASKS", "SCHEDULER")
    ),
    Mutation(
        "tokens for another address", SERVICE, '["internal"]', put([], "custom_audiences"), "does not take tokens"
    ),
    # Limits and timeouts
    Mutation(
        "more requests than threads",
        SERVICE,
        '["internal"]',
        put(80, "template", "max_instance_request_concurrency"),
        "internal is sent 80 requests at once for THREADS",
    ),
    Mutation(
        "fewer requests than the webhook service works on",
        SERVICE,
        '["webhook"]',
        put(16, "template", "max_instance_request_concurrency"),
        "webhook is sent 16 requests at once for WEBHOOK_CONCURRENCY",
    ),
    Mutation(
        "another concurrency than the webhook service is sent",
        SERVICE,
        '["webhook"]',
        plain("WEBHOOK_CONCURRENCY", "16"),
        "requests at once for WEBHOOK_CONCURRENCY=16",
    ),
    Mutation(
        "fewer instances than tasks",
        SERVICE,
        '["internal"]',
        put(3, "template", "scaling", "max_instance_count"),
        "slows the whole",
    ),
    Mutation(
        "a request cut before its lease",
        SERVICE,
        '["internal"]',
        put("60s", "template", "timeout"),
        "The inbound lease ends after",
    ),
    Mutation(
        "a request that outlives its task",
        SERVICE,
        '["internal"]',
        put("900s", "template", "timeout"),
        "dispatch deadline after",
    ),
    Mutation(
        "tasks that do not wait for the handler",
        SERVICE,
        '["webhook"]',
        plain("HANDLER_TIMEOUT", "60s"),
        "another dispatch deadline",
    ),
    Mutation(
        "a body without time to arrive", SERVICE, '["webhook"]', put("5s", "template", "timeout"), "webhook's timeout"
    ),
    Mutation(
        "ended while it works",
        SERVICE,
        '["internal"]',
        put(1, "template", "containers", "liveness_probe", "failure_threshold"),
        "is ended as dead",
    ),
    Mutation(
        "started by any answer",
        SERVICE,
        '["webhook"]',
        put([STEP], "template", "containers", "startup_probe", "http_get"),
        "not when /startz does",
    ),
    Mutation(
        "not started while the queues are away",
        SERVICE,
        '["internal"]',
        put([{"path": "/readyz"}], "template", "containers", "startup_probe", "http_get"),
        "not when /startz does",
    ),
    Mutation(
        "ended by a store's outage",
        SERVICE,
        '["webhook"]',
        put([{"path": "/readyz"}], "template", "containers", "liveness_probe", "http_get"),
        "not by /livez",
    ),
    Mutation(
        "a probe on another port",
        SERVICE,
        '["webhook"]',
        put([{"path": "/startz", "port": 9090}], "template", "containers", "startup_probe", "http_get"),
        "asks on another port",
    ),
    Mutation(
        "a probe that overlaps itself",
        SERVICE,
        '["webhook"]',
        put(30, "template", "containers", "startup_probe", "timeout_seconds"),
        "waits longer",
    ),
    Mutation(
        "a CPU all day",
        SERVICE,
        '["webhook"]',
        put(False, "template", "containers", "resources", "cpu_idle"),
        "all day",
    ),
    Mutation("unrequested instances", SERVICE, '["internal"]', put(2, "scaling", "min_instance_count"), "other than 0"),
    # Queues
    Mutation(
        "attempts below the code's", QUEUE, '["inbound"]', put(5, "retry_config", "max_attempts"), "MAX_ATTEMPTS may be"
    ),
    Mutation("a backoff of 1 s", QUEUE, '["inbound"]', put("1s", "retry_config", "min_backoff"), "at least 5 s"),
    Mutation(
        "a backoff of an hour", QUEUE, '["outbound"]', put("3600s", "retry_config", "max_backoff"), "at most 600 s"
    ),
    Mutation("an end in time", QUEUE, '["outbound"]', put("3600s", "retry_config", "max_retry_duration"), "must be 0s"),
    Mutation("other doublings", QUEUE, '["outbound"]', put(16, "retry_config", "max_doublings"), "local/queues.py"),
    Mutation(
        "a slow inbound queue",
        QUEUE,
        '["inbound"]',
        put(5, "rate_limits", "max_dispatches_per_second"),
        "local/queues.py",
    ),
    Mutation(
        "a greedy tenant", QUEUE, "outbound-t001", put(50, "rate_limits", "max_concurrent_dispatches"), "was asked for"
    ),
    Mutation("a tenant without a queue", QUEUE, "outbound-t002", None, "TENANT_QUEUE_PATTERN of internal names"),
    Mutation(
        "a tenant without an inbound queue", QUEUE, "inbound-t000", None, "INBOUND_TENANT_QUEUE_PATTERN of webhook"
    ),
    Mutation(
        "a tenant whose handler holds all",
        QUEUE,
        "inbound-t001",
        put(80, "rate_limits", "max_concurrent_dispatches"),
        "was asked for",
    ),
    Mutation(
        "a fast drain", QUEUE, '["drain"]', put(5, "rate_limits", "max_dispatches_per_second"), "DRAIN_TASK_QUEUE_NAME"
    ),
    Mutation("more pairs than queues", SERVICE, '["internal"]', plain("TENANT_QUEUES", "4"), "names outbound-t003-2"),
    Mutation("fewer pairs than queues", SERVICE, '["webhook"]', plain("TENANT_QUEUES", "2"), "webhook puts tasks in"),
    Mutation(
        "names without the suffix",
        SERVICE,
        '["webhook"]',
        plain("INBOUND_TENANT_QUEUE_PATTERN", "inbound-t{n:03d}"),
        "INBOUND_TENANT_QUEUE_PATTERN of webhook names inbound-t000;",
    ),
    Mutation("a queue that may be deleted", QUEUE, '["inbound"]', put("DELETE", "deletion_policy"), "dead for 7 days"),
    # The sweep
    Mutation(
        "a sweep by another account",
        JOB,
        "sweep",
        put("a@b.c", "http_target", "oidc_token", "service_account_email"),
        "SCHEDULER_SERVICE_ACCOUNT is another",
    ),
    Mutation(
        "a token for the whole path",
        JOB,
        "sweep",
        put("https://x/y", "http_target", "oidc_token", "audience"),
        "token is for",
    ),
    Mutation(
        "a token in a header",
        JOB,
        "sweep",
        put({"X-Internal-Token": "x1"}, "http_target", "headers"),
        "lies in the state",
    ),
    Mutation(
        "a sweep to an unknown path", JOB, "sweep", put("https://x/sweep", "http_target", "uri"), "the sweep is POST"
    ),
    Mutation("a sweep by GET", JOB, "sweep", put("GET", "http_target", "http_method"), "the sweep is POST"),
    Mutation("a sweep a day", JOB, "sweep", put("0 3 * * *", "schedule"), "too seldom"),
    Mutation("a sweep in too little time", JOB, "sweep", put("30s", "attempt_deadline"), "waits 30s"),
    Mutation("a paused sweep", JOB, "sweep", put(True, "paused"), "is paused"),
    # Stored data
    Mutation(
        "receipts never expire", FIELD, 'expiring["receipts"]', None, "receipts.expire_at expires by shared/stores"
    ),
    Mutation("marks expire", FIELD, 'exempt["marks"]', put([{}], "ttl_config"), "expires by infra/terraform"),
    Mutation(
        "another field expires",
        FIELD,
        'expiring["records"]',
        put("received_at", "field"),
        "records.received_at expires by infra",
    ),
    Mutation(
        "records expire late",
        FIELD,
        'expiring["records"]',
        put("86400s", "ttl_config", "expiration_offset"),
        "later than the code",
    ),
    Mutation(
        "an expiring time in an index",
        FIELD,
        'expiring["records"]',
        put([], "index_config"),
        "about 500 writes a second",
    ),
    Mutation("no index for the sweep", FIELD, "sweep_at", None, "records.sweep_at is indexed by shared/stores"),
    Mutation(
        "an index that goes down",
        FIELD,
        "sweep_at",
        put([{"order": "DESCENDING", "query_scope": "COLLECTION"}], "index_config", "indexes"),
        "records.sweep_at is indexed by shared/stores",
    ),
    Mutation(
        "two changes of a collection at once",
        FIELD,
        'indexed["receipts.mark"]',
        put("records", "collection"),
        "changes records 2 times at once",
    ),
    Mutation("no index for the counts", INDEX, "state.tenant", None, "is indexed together by shared/stores"),
    Mutation("unneeded indexes", FIELD, 'exempt["records"]', None, "records.* is exempt by shared/stores"),
    Mutation(
        "fields of another database", FIELD, 'exempt["records"]', put("(default)", "database"), "which is not ours"
    ),
    Mutation(
        "no way back in time",
        DATABASE,
        "this",
        put("POINT_IN_TIME_RECOVERY_DISABLED", "point_in_time_recovery_enablement"),
        "point_in",
    ),
    Mutation(
        "a database left behind", DATABASE, "this", put("ABANDON", "deletion_policy"), "deletion_policy is ABANDON"
    ),
    Mutation(
        "an unprotected database",
        DATABASE,
        "this",
        put("DELETE_PROTECTION_DISABLED", "delete_protection_state"),
        "delete_pro",
    ),
    Mutation("a database of the other mode", DATABASE, "this", put("DATASTORE_MODE", "type"), "type is DATASTORE_MODE"),
    Mutation(
        "an unprotected service",
        SERVICE,
        '["webhook"]',
        put(False, "deletion_protection"),
        "not protected from deletion",
    ),
    Mutation("a public bucket", BUCKET, "media", put("inherited", "public_access_prevention"), "may be made public"),
    Mutation("a Redis that forgets", REDIS, "this", put("BASIC", "tier"), "loses its data"),
    Mutation("a Redis that throws away", REDIS, "this", put({}, "redis_configs"), "noeviction"),
    Mutation("a Redis without a password", REDIS, "this", put(False, "auth_enabled"), "for none where it is true"),
    Mutation("a Redis without TLS", REDIS, "this", put("DISABLED", "transit_encryption_mode"), "unencrypted"),
    Mutation(
        "a Redis whose authority is not told",
        SERVICE,
        '["internal"]',
        unset("REDIS_CA_CERTS"),
        "REDIS_CA_CERTS is read",
    ),
    Mutation("a Redis out of reach", SERVICE, '["webhook"]', put([], "template", "vpc_access"), "does not reach"),
    Mutation(
        "a secret in the state",
        "google_secret_manager_secret_version",
        "url",
        put("redis://x", "secret_data"),
        "has its value in the state",
    ),
    # Bindings
    Mutation("webhook may not enqueue", ENQUEUE, '_shared["webhook.inbound"]', None, "webhook needs pomboTaskMaker"),
    Mutation("internal may not drain", ENQUEUE, '_shared["internal.drain"]', None, "on queue drain-2"),
    Mutation("internal may not enqueue for a tenant", MAKERS, "outbound-t001", None, "on queue outbound-t001-2"),
    Mutation(
        "webhook may not enqueue for a tenant",
        MAKERS,
        "inbound-t001",
        put(["serviceAccount:pombo-internal@my-project-1.iam.gserviceaccount.com"], "members"),
        "webhook needs pomboTaskMaker on queue inbound-t001-2",
    ),
    Mutation(
        "webhook may enqueue a tenant's messages",
        MAKERS,
        "outbound-t001",
        put(
            [f"serviceAccount:pombo-{name}@my-project-1.iam.gserviceaccount.com" for name in ("internal", "webhook")],
            "members",
        ),
        "webhook has pomboTaskMaker on queue outbound-t001-2",
    ),
    Mutation("webhook is never ready", ENQUEUE, 'look["webhook.outbound"]', None, "webhook needs pomboQueueReader"),
    Mutation(
        "webhook may act as tasks",
        ACT_AS,
        'deploy_acts_as["webhook"]',
        member(
            member="serviceAccount:pombo-webhook@my-project-1.iam.gserviceaccount.com",
            service_account_id="projects/my-project-1/serviceAccounts/pombo-tasks@my-project-1.iam.gserviceaccount.com",
        ),
        "webhook has iam.serviceAccountUser on account tasks",
    ),
    Mutation("tasks may not call", INVOKE, 'invoke["tasks"]', None, "tasks needs run.invoker"),
    Mutation("the scheduler may not call", INVOKE, 'invoke["scheduler"]', None, "scheduler needs run.invoker"),
    Mutation(
        "a secret out of reach", READ, "webhook.META_APP_SECRET", None, "webhook needs secretmanager.secretAccessor"
    ),
    Mutation("the store out of reach", PROJECT, 'store["internal"]', None, "internal needs pomboRecordsAndLists"),
    Mutation(
        "every database in reach",
        PROJECT,
        'store["internal"]',
        member(condition=[]),
        "has pomboRecordsAndLists on project",
    ),
    Mutation("another role", PROJECT, 'store["internal"]', member(role="roles/datastore.owner"), "has datastore.owner"),
    Mutation("a basic role", PROJECT, 'store["webhook"]', member(role="roles/editor"), "gives roles/editor"),
    Mutation(
        "the token of another service",
        READ,
        "webhook.META_APP_SECRET",
        member(secret_id="WHATSAPP_ACCESS_TOKEN"),
        "webhook has secretmanager.secretAccessor on secret WHATSAPP_ACCESS_TOKEN",
    ),
    Mutation(
        "the deployment may not deploy",
        INVOKE,
        '["internal"].google_cloud_run_v2_service_iam_member.deploy',
        None,
        "run.developer",
    ),
    Mutation(
        "the deployment may not act", ACT_AS, 'deploy_acts_as["webhook"]', None, "deploy needs iam.serviceAccountUser"
    ),
    Mutation(
        "the build may deploy",
        INVOKE,
        '["internal"].google_cloud_run_v2_service_iam_member.deploy',
        member(member="serviceAccount:pombo-build@my-project-1.iam.gserviceaccount.com"),
        "build has run.developer on service internal",
    ),
    Mutation(
        "the build may act as a service",
        ACT_AS,
        'deploy_acts_as["webhook"]',
        member(member="serviceAccount:pombo-build@my-project-1.iam.gserviceaccount.com"),
        "build has iam.serviceAccountUser on account webhook",
    ),
    # Monitoring
    Mutation(
        "a lost alert", POLICY, '["sweep_silent"]', None, "describes sweep-silent (critical), but no alert exists"
    ),
    Mutation(
        "an alert of another severity", POLICY, '["needs_reauth"]', put("CRITICAL", "severity"), "no such section"
    ),
    Mutation(
        "an alert without documentation", POLICY, 'down["webhook"]', put("", "documentation", "content"), "no section"
    ),
    Mutation("an alert that is off", POLICY, '["oldest_pending"]', put(False, "enabled"), "is turned off"),
    Mutation(
        "an alert without channels", POLICY, 'down["webhook"]', put([], "notification_channels"), "notifies 0 of 3"
    ),
    Mutation("an address without a channel", CHANNEL, "email", None, "have a channel"),
    Mutation(
        "an alert that waits for its metric",
        POLICY,
        '["queue_depth_warning"]',
        put(False, *ASKED, "disable_metric_validation"),
        "refused at the first apply",
    ),
    Mutation(
        "an alert on a metric that is none",
        POLICY,
        '["queue_depth_warning"]',
        put('sum(increase(logging_googleapis_com:user_depth{monitored_resource="x"}[3m])) > 1', *ASKED, "query"),
        "user_depth, which is not there",
    ),
    Mutation(
        "the mean of a count",
        POLICY,
        '["sweep_silent"]',
        put('whatsapp_sweeps_total_sum{monitored_resource="x"} < 1', *ASKED, "query"),
        "is not there",
    ),
    Mutation(
        "an alert on a label that is none",
        POLICY,
        '["needs_reauth"]',
        put(
            "sum by (contact) (increase(logging_googleapis_com:user_whatsapp_evolution_connected_count"
            '{monitored_resource="x"}[3m])) > 0',
            *ASKED,
            "query",
        ),
        "looks at contact",
    ),
    Mutation(
        "a metric of any resource",
        POLICY,
        '["sweep_silent"]',
        put("logging_googleapis_com:user_whatsapp_sweeps_total < 1", *ASKED, "query"),
        "does not name the resource",
    ),
    Mutation(
        "a query that breaks off", POLICY, '["webhook_slow"]', put("sum(rate(x[5m]) > 1", *ASKED, "query"), "not PromQL"
    ),
    Mutation(
        "an alert that looks at less than two sweeps",
        POLICY,
        '["queue_depth_critical"]',
        put(
            'increase(logging_googleapis_com:user_whatsapp_queue_depth_sum{monitored_resource="x"}[1m]) > 1',
            *ASKED,
            "query",
        ),
        "in which there may be no sweep",
    ),
    Mutation(
        "a filter with OR", METRIC, "queue_depth", put('severity="INFO" OR trace="x"', "filter"), "only AND joins"
    ),
    Mutation(
        "a filter by a pattern",
        METRIC,
        "sweeps_total",
        put('jsonPayload.event=~"swe.*"', "filter"),
        "not supported here",
    ),
    Mutation(
        "a value by a pattern",
        METRIC,
        "in_doubt",
        put("REGEXP_EXTRACT(jsonPayload.in_doubt, x)", "value_extractor"),
        "only EXTRACT",
    ),
    Mutation(
        "a depth that is a count", METRIC, "queue_depth", put("INT64", "metric_descriptor", "value_type"), "DELTA"
    ),
    Mutation("a label from nowhere", METRIC, "dead_lettered", put({}, "label_extractors"), "takes others out"),
    Mutation("an unused metric", METRIC, "queue_depth", put("depth_of_queues", "name"), "on no chart"),
    Mutation(
        "an unknown severity", POLICY, 'down["webhook"]', put("URGENT", "severity"), "is not a google_monitoring_alert"
    ),
    Mutation(
        "an invalid period of the check", UPTIME, "webhook", put("soon", "period"), "is not a google_monitoring_uptime"
    ),
    Mutation(
        "a dashboard that comes back otherwise",
        DASHBOARD,
        "this",
        lambda values: values.update(
            dashboard_json=values["dashboard_json"].replace('"height":16', '"xPos":0,"height":16', 1)
        ),
        "in another form",
    ),
    Mutation("images out of reach", PULL, "run_pulls", None, "artifactregistry.reader on repository pombo"),
    *OF_OUTAGES_AND_RECEIPTS,
    *OF_IDENTITIES,
    *OF_PERMISSIONS,
)
