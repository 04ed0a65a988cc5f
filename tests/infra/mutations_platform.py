"""Mutations of the platform (storage, cost, network): a plan with one thing wrong."""

from tests.infra.mutations import (
    ASKED,
    BUCKET,
    JOB,
    METRIC,
    POLICY,
    REDIS,
    SERVICE,
    UPTIME,
    Mutation,
    memory,
    put,
    secret,
)
from tests.infra.rules_logging import EXCLUSION

OF_LOGS = (
    Mutation("handshakes are logged", EXCLUSION, "handshake", None, "keeps the verify token"),
    Mutation("an exclusion that is off", EXCLUSION, "handshake", put(True, "disabled"), "keeps the verify token"),
    Mutation(
        "an exclusion of the plain spelling",
        EXCLUSION,
        "handshake",
        put('httpRequest.requestUrl=~"hub.verify_token"', "filter"),
        "keeps the verify token",
    ),
    Mutation(
        "an exclusion of two encoded characters",
        EXCLUSION,
        "handshake",
        put('httpRequest.requestUrl=~"(?i)hub([.]|%2e)verify(_|%5f)token"', "filter"),
        "keeps the verify token",
    ),
    Mutation(
        "an exclusion of Cloud Run alone",
        EXCLUSION,
        "handshake",
        lambda values: values.update(filter=f'resource.type="cloud_run_revision" AND {values["filter"]}'),
        "keeps the verify token",
    ),
    Mutation(
        "an exclusion of every request with a query",
        EXCLUSION,
        "handshake",
        put('httpRequest.requestUrl=~"hub"', "filter"),
        "loses GET",
    ),
    Mutation(
        "an exclusion of every request",
        EXCLUSION,
        "handshake",
        put('resource.type="cloud_run_revision"', "filter"),
        "loses POST",
    ),
    Mutation(
        "an unreadable exclusion",
        EXCLUSION,
        "handshake",
        put('httpRequest.requestUrl=~"hub.*?token"', "filter"),
        "not supported here",
    ),
)
"""Kept log entries."""

UPTIME_CONDITION = ("conditions", "condition_threshold")
UPTIME_SUM = (*UPTIME_CONDITION, "aggregations")

OF_METRICS = (
    *(
        Mutation(
            f"{metric} out of {field}",
            METRIC,
            f'"whatsapp_{metric}"',
            put(f"EXTRACT(jsonPayload.{field})", "value_extractor"),
            f"takes {field} where",
        )
        for metric, field in (
            ("queue_depth", "dead"),
            ("queue_depth", "leased"),
            ("dead_letters", "pending"),
            ("in_doubt", "dead"),
            ("receipts_failed", "in_doubt"),
            ("oldest_pending_seconds", "pending"),
            ("provider_down", "backend_down"),
            ("backend_down", "provider_down"),
            ("evolution_connected", "phone_number_id"),
            ("message_latency_seconds", "duration_ms"),
        )
    ),
    Mutation(
        "a label out of another field",
        METRIC,
        '"whatsapp_dead_lettered_total"',
        lambda values: values["label_extractors"].update(reason="EXTRACT(jsonPayload.cause)"),
        "takes cause where reason",
    ),
    Mutation(
        "an event that is none",
        METRIC,
        '"whatsapp_sweeps_total"',
        put('jsonPayload.event="sweep"', "filter"),
        "shared/log_events.py does not know",
    ),
    Mutation(
        "a field that another event has",
        METRIC,
        '"whatsapp_queue_depth"',
        put('jsonPayload.event="sender_checked"', "filter"),
        "which no line of it has",
    ),
)
"""Fields that feed a metric."""

OF_ALERTS = (
    Mutation(
        "down when it is well",
        POLICY,
        'down["webhook"]',
        put("COMPARISON_LT", *UPTIME_CONDITION, "comparison"),
        "fires",
    ),
    Mutation(
        "down from seven places",
        POLICY,
        'down["webhook"]',
        put(6, *UPTIME_CONDITION, "threshold_value"),
        "does not fire",
    ),
    Mutation(
        "down from three places", POLICY, 'down["webhook"]', put(2, *UPTIME_CONDITION, "threshold_value"), "two places"
    ),
    Mutation(
        "down from one place", POLICY, 'down["webhook"]', put(0, *UPTIME_CONDITION, "threshold_value"), "one place"
    ),
    Mutation(
        "down after an hour", POLICY, 'down["webhook"]', put("3600s", *UPTIME_CONDITION, "duration"), "does not fire"
    ),
    Mutation(
        "down by another metric",
        POLICY,
        'down["webhook"]',
        lambda values: values["conditions"][0]["condition_threshold"][0].update(
            filter=values["conditions"][0]["condition_threshold"][0]["filter"].replace("check_passed", "time_until_ssl")
        ),
        "does not fire",
    ),
    Mutation(
        "another host down",
        POLICY,
        'down["webhook"]',
        lambda values: values["conditions"][0]["condition_threshold"][0].update(
            filter=values["conditions"][0]["condition_threshold"][0]["filter"].replace("pombo-webhook", "pombo-api")
        ),
        "does not fire at minute",
    ),
    Mutation(
        "any host down",
        POLICY,
        'down["webhook"]',
        put(
            'resource.type="uptime_url" AND metric.type="monitoring.googleapis.com/uptime_check/check_passed"',
            *UPTIME_CONDITION,
            "filter",
        ),
        "another host is down",
    ),
    Mutation(
        "places that are well counted",
        POLICY,
        'down["webhook"]',
        put("REDUCE_COUNT_TRUE", *UPTIME_SUM, "cross_series_reducer"),
        "fires",
    ),
    Mutation(
        "each place by itself",
        POLICY,
        'down["webhook"]',
        put(["metric.label.checker_location"], *UPTIME_SUM, "group_by_fields"),
        "does not fire",
    ),
    Mutation(
        "a mean of places",
        POLICY,
        'down["webhook"]',
        put("REDUCE_MEAN", *UPTIME_SUM, "cross_series_reducer"),
        "not known here",
    ),
    Mutation(
        "answers of the last minute alone",
        POLICY,
        'down["webhook"]',
        put("60s", *UPTIME_SUM, "alignment_period"),
        "does not fire",
    ),
    Mutation("no uptime alert", POLICY, 'down["webhook"]', None, "No alert looks at the uptime check"),
    Mutation(
        "an evaluation an hour",
        POLICY,
        '["queue_depth_warning"]',
        put("3600s", *ASKED, "evaluation_interval"),
        "is evaluated every 3600 s",
    ),
    Mutation(
        "an evaluation every 45 seconds",
        POLICY,
        '["oldest_pending"]',
        put("45s", *ASKED, "evaluation_interval"),
        "is evaluated every 45 s",
    ),
    Mutation(
        "an incident of a week",
        POLICY,
        '["sweep_silent"]',
        put("604800s", "alert_strategy", "auto_close"),
        "closes 604800 s after",
    ),
    Mutation(
        "an incident without an end",
        POLICY,
        'down["webhook"]',
        put(None, "alert_strategy", "auto_close"),
        "a day at most",
    ),
    Mutation(
        "an incident of a minute",
        POLICY,
        '["needs_reauth"]',
        put("60s", "alert_strategy", "auto_close"),
        "closes 60 s after",
    ),
    Mutation(
        "an alert that notifies only of its end",
        POLICY,
        'down["webhook"]',
        put(["CLOSED"], "alert_strategy", "notification_prompts"),
        "when it begins",
    ),
    Mutation("a check without TLS", UPTIME, "webhook", put(False, "http_check", "use_ssl"), "by TLS on port 443"),
    Mutation("a check of any certificate", UPTIME, "webhook", put(False, "http_check", "validate_ssl"), "by TLS"),
    Mutation("a check every 15 minutes", UPTIME, "webhook", put("900s", "period"), "asks every 900s"),
)
"""The uptime alert's condition, its check, and the times of all alerts."""

PROBE = ("template", "containers")
OF_THE_GROUND = (
    Mutation(
        "a subnet of 60 addresses", "google_compute_subnetwork", "this", put("10.80.0.0/26", "ip_cidr_range"), "need 4"
    ),
    Mutation(
        "a subnet of 12", "google_compute_subnetwork", "this", put("10.80.0.0/28", "ip_cidr_range"), "and /26 at least"
    ),
    Mutation("no subnet", "google_compute_subnetwork", "this", None, "which the plan does not create"),
    Mutation(
        "a subnet without Google's APIs",
        "google_compute_subnetwork",
        "this",
        put(False, "private_ip_google_access"),
        "Google's APIs are not reached",
    ),
    Mutation(
        "more instances than addresses",
        SERVICE,
        '["internal"]',
        put(2000, "template", "scaling", "max_instance_count"),
        "instances need 4 each",
    ),
    *(
        Mutation(
            f"all traffic of {service} into the network",
            SERVICE,
            f'["{service}"]',
            put("ALL_TRAFFIC", "template", "vpc_access", "egress"),
            f"{service} sends all its traffic into the network",
        )
        for service in ("webhook", "internal")
    ),
    Mutation(
        "a Redis in a network of Google's",
        REDIS,
        "this",
        put("PRIVATE_SERVICE_ACCESS", "connect_mode"),
        "no such connection",
    ),
    Mutation(
        "a secret's version zero",
        SERVICE,
        '["internal"]',
        secret("WHATSAPP_ACCESS_TOKEN", "WHATSAPP_ACCESS_TOKEN", "0"),
        "is version 0, but version 1 exists",
    ),
    Mutation(
        "a secret's second version first",
        SERVICE,
        '["internal"]',
        secret("INTERNAL_TASK_TOKEN", "INTERNAL_TASK_TOKEN", "2"),
        "is version 2, but version 1 exists",
    ),
    Mutation(
        "a version that was not asked for",
        SERVICE,
        '["webhook"]',
        secret("META_APP_SECRET", "META_APP_SECRET", "1"),
        "is version 1, but version 2 exists",
    ),
    Mutation(
        "ten seconds to start",
        SERVICE,
        '["webhook"]',
        put(5, *PROBE, "startup_probe", "failure_threshold"),
        "given 10 s to start",
    ),
    Mutation(
        "an hour to start",
        SERVICE,
        '["webhook"]',
        put(1800, *PROBE, "startup_probe", "failure_threshold"),
        "given 3600 s",
    ),
    Mutation(
        "a start that is found late",
        SERVICE,
        '["internal"]',
        put(60, *PROBE, "startup_probe", "period_seconds"),
        "60 s late",
    ),
    Mutation(
        "a startup probe that begins late",
        SERVICE,
        '["internal"]',
        put(100, *PROBE, "startup_probe", "initial_delay_seconds"),
        "requests wait for each start",
    ),
    Mutation(
        "dead for an hour",
        SERVICE,
        '["webhook"]',
        put(60, *PROBE, "liveness_probe", "failure_threshold"),
        "is ended 3600 s after",
    ),
    Mutation(
        "a liveness probe of a second",
        SERVICE,
        '["internal"]',
        put(1, *PROBE, "liveness_probe", "timeout_seconds"),
        "too little time",
    ),
    Mutation("a service without the memory that it is given", SERVICE, '["internal"]', memory("512Mi"), "has 512Mi"),
    Mutation("a service of other memory", SERVICE, '["webhook"]', memory("256Mi"), "has 256Mi"),
    Mutation("a sweep that hangs for half an hour", JOB, "sweep", put("1800s", "attempt_deadline"), "waits 1800 s"),
)
"""Addresses, egress, Redis, first versions, probes and the scheduler."""

SINK, LOGS, AUDIT = (
    "google_logging_project_sink",
    "google_logging_project_bucket_config",
    "google_project_iam_audit_config",
)
BACKUP, BUDGET = "google_firestore_backup_schedule", "google_billing_budget"

OF_RESIDENCE = (
    Mutation("logs elsewhere", LOGS, "regional", put("global", "location"), "logs are kept in ['global']"),
    Mutation("no bucket of logs", LOGS, "regional", None, "logs are kept in []"),
    Mutation("no sink", SINK, "default", None, "by the sink _Default alone, and not by []"),
    Mutation("a second sink", SINK, "default", put("regional", "name"), "not by ['regional']"),
    Mutation("a sink that is off", SINK, "default", put(True, "disabled"), "the sink is off"),
    Mutation("a sink of errors", SINK, "default", put('severity>="ERROR"', "filter"), "leaves out other logs"),
    Mutation("a sink of no filter", SINK, "default", put(None, "filter"), "leaves out other logs"),
    Mutation("logs of a day", LOGS, "regional", put(1, "retention_days"), "for other than 30 days"),
    Mutation(
        "a sink of audits too",
        SINK,
        "default",
        put('NOT LOG_ID("cloudaudit.googleapis.com/activity")', "filter"),
        "leaves out other logs",
    ),
    Mutation("a sink with the handshakes", SINK, "default", put([], "exclusions"), "take each other's away"),
    Mutation(
        "an exclusion that is off in the sink", SINK, "default", put(True, "exclusions", "disabled"), "each other's"
    ),
    Mutation("an API that is not audited", AUDIT, "secretmanager", None, "are logged"),
    Mutation(
        "an audit of the services",
        AUDIT,
        "datastore",
        put([], "audit_log_config", "exempted_members"),
        "exempts others",
    ),
    Mutation(
        "an audit of writes alone",
        AUDIT,
        "datastore",
        lambda values: values.update(audit_log_config=values["audit_log_config"][:1]),
        "is logged",
    ),
    Mutation(
        "personal files that can be brought back",
        BUCKET,
        "media",
        put(604800, "soft_delete_policy", "retention_duration_seconds"),
        "keeps what was deleted",
    ),
    Mutation(
        "personal files of ten years",
        BUCKET,
        "media",
        lambda values: values["lifecycle_rule"][0]["condition"][0].update(age=3650),
        "after [3650] days",
    ),
    Mutation(
        "a Redis that loses a day",
        REDIS,
        "this",
        put("TWENTY_FOUR_HOURS", "persistence_config", "rdb_snapshot_period"),
        "more than the last hour",
    ),
    Mutation("no backup", BACKUP, '["weekly"]', None, "firestore_backups asks for"),
    Mutation("a backup of a day", BACKUP, '["daily"]', put("86400s", "retention"), "firestore_backups asks for"),
    Mutation("a backup of another database", BACKUP, '["daily"]', put("(default)", "database"), "backs up (default)"),
    Mutation("a backup that never runs", BACKUP, '["weekly"]', put([], "weekly_recurrence"), "never"),
    Mutation("no budget", BUDGET, "this", None, "or none where one is"),
    Mutation(
        "another amount",
        BUDGET,
        "this",
        put("2000", "amount", "specified_amount", "units"),
        "differs from the requested one",
    ),
    Mutation("a budget of every project", BUDGET, "this", put([], "budget_filter"), "of the whole billing account"),
    Mutation(
        "a budget of another project",
        BUDGET,
        "this",
        put(["projects/1"], "budget_filter", "projects"),
        "of other projects",
    ),
    Mutation(
        "a budget that notifies too late",
        BUDGET,
        "this",
        lambda values: values.update(threshold_rules=values["threshold_rules"][:2]),
        "does not tell when",
    ),
    Mutation(
        "a budget that notifies at fifty times its amount",
        BUDGET,
        "this",
        lambda values: values["threshold_rules"][0].update(threshold_percent=50),
        "when half of it is spent",
    ),
    Mutation("a budget without channels", BUDGET, "this", put([], "all_updates_rule"), "The budget notifies 0 of 2"),
    Mutation(
        "a critical alert that notifies the warnings' channel",
        POLICY,
        '["sweep_silent"]',
        put(
            [
                None,
                "projects/my-project-1/notificationChannels/1",
                "projects/my-project-1/notificationChannels/3",
            ],
            "notification_channels",
        ),
        "notifies channels of another severity",
    ),
    Mutation(
        "a warning that notifies only the e-mails",
        POLICY,
        '["oldest_pending"]',
        put([None], "notification_channels"),
        "notifies 1 of 2",
    ),
    Mutation(
        "a rate that was not asked for",
        "google_cloud_tasks_queue",
        '["outbound"]',
        put(20, "rate_limits", "max_dispatches_per_second"),
        "for OUTBOUND_TASK_QUEUE_NAME in local/queues.py",
    ),
    Mutation(
        "a tenant's rate that was not asked for",
        "google_cloud_tasks_queue",
        "outbound-t002",
        put(20, "rate_limits", "max_dispatches_per_second"),
        "was asked for",
    ),
)
"""Log storage, backups, audits, the budget, channels and rates."""

OF_KEYS = (
    Mutation(
        "a database of Google's key", "google_firestore_database", "this", put([], "cmek_config"), "kms_key is projects"
    ),
    Mutation("a Redis of Google's key", REDIS, "this", put(None, "customer_managed_key"), "kms_key is projects"),
    Mutation("media of Google's key", "google_storage_bucket", "media", put([], "encryption"), "kms_key is projects"),
    Mutation(
        "a database of another key",
        "google_firestore_database",
        "this",
        put("projects/p/locations/us-central1/keyRings/r/cryptoKeys/other", "cmek_config", "kms_key_name"),
        "kms_key is projects",
    ),
)
"""A plan with a key of the team's own."""

OF_NO_KEY = (
    Mutation(
        "a key that was not asked for",
        REDIS,
        "this",
        put("projects/p/locations/us-central1/keyRings/r/cryptoKeys/other", "customer_managed_key"),
        "kms_key is None",
    ),
)

MUTATIONS = (*OF_RESIDENCE, *OF_NO_KEY, *OF_LOGS, *OF_METRICS, *OF_ALERTS, *OF_THE_GROUND)
