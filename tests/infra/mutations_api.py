"""Mutations of the API service: a plan with one thing wrong."""

from tests.infra.mutations import (
    ACT_AS,
    ASKED,
    DASHBOARD,
    ENQUEUE,
    INDEX,
    INVOKE,
    MAKERS,
    POLICY,
    PROJECT,
    READ,
    ROLE,
    SERVICE,
    UPTIME,
    Mutation,
    asked,
    charting,
    member,
    plain,
    put,
    secret,
    unset,
    without_chart,
)

API = "serviceAccount:pombo-api@my-project-1.iam.gserviceaccount.com"
NAMED = "projects/123456789012/secrets/"


def starting(*prefixes: str) -> str:
    """A condition of secrets whose names begin so."""
    return " || ".join(f'resource.name.startsWith("{NAMED}{prefix}")' for prefix in prefixes)


OF_THE_SERVICE = (
    Mutation("an API for accounts of the project", SERVICE, '["api"]', put(False, "invoker_iam_disabled"), "API keys"),
    Mutation(
        "an API inside the project",
        SERVICE,
        '["api"]',
        put("INGRESS_TRAFFIC_INTERNAL_ONLY", "ingress"),
        "The api service must be open to everyone",
    ),
    Mutation(
        "the API is the internal service's account",
        SERVICE,
        '["api"]',
        put("pombo-internal@my-project-1.iam.gserviceaccount.com", "template", "service_account"),
        "api service runs as pombo-internal@",
    ),
    Mutation("an API without its account", "google_service_account", 'this["api"]', None, "which the plan does not"),
    Mutation(
        "the API believes unsigned tokens",
        SERVICE,
        '["api"]',
        plain("TRUST_CLOUD_RUN_IAM", "true"),
        "api believes an unverified token",
    ),
    Mutation(
        "more requests than threads of the API",
        SERVICE,
        '["api"]',
        put(80, "template", "max_instance_request_concurrency"),
        "api is sent 80 requests at once for THREADS",
    ),
    Mutation("a batch is cut off", SERVICE, '["api"]', put("10s", "template", "timeout"), "api's timeout is 10 s"),
    Mutation("an API request of an hour", SERVICE, '["api"]', put("3600s", "template", "timeout"), "from 30 to 300"),
    Mutation(
        "tasks of the API with another deadline",
        SERVICE,
        '["api"]',
        plain("HANDLER_TIMEOUT", "30s"),
        "The API's tasks have another dispatch deadline",
    ),
    Mutation(
        "tasks of the API go elsewhere",
        SERVICE,
        '["api"]',
        plain("INTERNAL_TASK_BASE_URL", "https://x.run.app"),
        "api sends tasks to another",
    ),
    Mutation("an app without its ID", SERVICE, '["api"]', unset("META_APP_ID"), "META_APP_ID is read by the api"),
    Mutation(
        "an app without its secret", SERVICE, '["api"]', unset("META_APP_SECRET"), "META_APP_SECRET is read by the"
    ),
    Mutation(
        "the API has the access token",
        SERVICE,
        '["api"]',
        secret("WHATSAPP_ACCESS_TOKEN", "WHATSAPP_ACCESS_TOKEN", "1"),
        "WHATSAPP_ACCESS_TOKEN is set for the api service",
    ),
    Mutation(
        "the webhook is given the app's ID",
        SERVICE,
        '["webhook"]',
        plain("META_APP_ID", "900000000000009"),
        "META_APP_ID is set for the webhook",
    ),
)
"""The service itself."""

OF_ITS_ACCOUNT = (
    Mutation("the API may not list", PROJECT, 'store["api"]', None, "api needs pomboRecordsListsAndDeletes"),
    Mutation(
        "the API has the webhook's role",
        PROJECT,
        'store["api"]',
        member(role="projects/my-project-1/roles/pomboRecords"),
        "api, on records, may not datastore.entities.list",
    ),
    Mutation(
        "the API removes no tenant",
        PROJECT,
        'store["api"]',
        member(role="projects/my-project-1/roles/pomboRecordsAndLists"),
        "api, on records, may not datastore.entities.delete",
    ),
    Mutation(
        "the internal service may delete messages",
        PROJECT,
        'store["internal"]',
        member(role="projects/my-project-1/roles/pomboRecordsListsAndDeletes"),
        "internal, on records, may datastore.entities.delete",
    ),
    *(
        Mutation(
            f"the API may not {word}",
            ROLE,
            '"pomboRecordsListsAndDeletes"',
            lambda values, word=word: values["permissions"].remove(f"datastore.entities.{word}"),
            f"api, on records, may not datastore.entities.{word}",
        )
        for word in ("get", "list", "create", "update", "delete")
    ),
    Mutation(
        "the API reaches every database",
        PROJECT,
        'store["api"]',
        member(condition=[]),
        "api has pomboRecordsListsAndDeletes on project",
    ),
    *(
        Mutation(
            f"the API makes no task in {queue}",
            ENQUEUE,
            f'_shared["api.{queue}"]',
            None,
            f"api needs pomboTaskMaker on queue {queue}-2",
        )
        for queue in ("inbound", "outbound", "drain")
    ),
    Mutation(
        "the API sends nothing of a tenant",
        MAKERS,
        "outbound-t001",
        put(["serviceAccount:pombo-internal@my-project-1.iam.gserviceaccount.com"], "members"),
        "api needs pomboTaskMaker on queue outbound-t001-2",
    ),
    Mutation("the API is never ready", ENQUEUE, 'look["api.inbound"]', None, "api needs pomboQueueReader"),
    Mutation(
        "the API may purge queues",
        ENQUEUE,
        '_shared["api.outbound"]',
        member(role="roles/cloudtasks.queueAdmin"),
        "api has cloudtasks.queueAdmin",
    ),
    Mutation(
        "the API may act as tasks",
        ACT_AS,
        'deploy_acts_as["api"]',
        member(
            member=API,
            service_account_id="projects/my-project-1/serviceAccounts/pombo-tasks@my-project-1.iam.gserviceaccount.com",
        ),
        "api has iam.serviceAccountUser on account tasks",
    ),
    Mutation(
        "the API may call the internal service",
        INVOKE,
        'invoke["tasks"]',
        member(member=API),
        "api has run.invoker on service internal",
    ),
    Mutation("the API cannot ask Meta", READ, "api.META_APP_SECRET", None, "api needs secretmanager.secretAccessor"),
    Mutation(
        "the API may read the access token",
        READ,
        "api.META_APP_SECRET",
        member(secret_id="WHATSAPP_ACCESS_TOKEN"),
        "api has secretmanager.secretAccessor on secret WHATSAPP_ACCESS_TOKEN",
    ),
    Mutation("nobody deploys the API", INVOKE, '["api"].google_cloud_run_v2_service_iam_member.deploy', None, "deploy"),
)
"""Its account."""

ADDED, MADE = "tenant_secrets_added", "tenant_secrets_made"
OF_TENANTS_SECRETS = (
    Mutation("nobody adds tenants' secrets", PROJECT, ADDED, None, "api needs pomboSecretWriter"),
    Mutation("nobody makes tenants' secrets", PROJECT, MADE, None, "api needs pomboSecretMaker"),
    Mutation("the API adds to any secret", PROJECT, ADDED, member(condition=[]), "api may add to secrets of any name"),
    *(
        Mutation(
            f"the API adds to {what}",
            PROJECT,
            ADDED,
            put(starting(*prefixes), "condition", "expression"),
            "api may add to secrets if resource.name.startsWith",
        )
        for what, prefixes in {
            "all that begins with pombo": ("pombo-",),
            "handlers' secrets": ("pombo-credential-", "pombo-handler-"),
        }.items()
    ),
    Mutation(
        "the API reads tenants' secrets",
        PROJECT,
        'tenant_secrets["internal"]',
        member(member=API),
        "api may read secrets if",
    ),
    Mutation(
        "the webhook adds tenants' secrets",
        PROJECT,
        ADDED,
        member(member="serviceAccount:pombo-webhook@my-project-1.iam.gserviceaccount.com"),
        "webhook may add to secrets if",
    ),
    Mutation(
        "the API creates secrets that have their name already",
        PROJECT,
        MADE,
        put(starting("pombo-credential-"), "condition", "expression"),
        "api needs pomboSecretMaker on project",
    ),
    Mutation(
        "tenants' secrets by Google's admin",
        PROJECT,
        MADE,
        member(role="roles/secretmanager.admin"),
        "api has secretmanager.admin on the project's secrets",
    ),
    *(
        Mutation(
            f"who {verb} tenants' secrets may {word}",
            ROLE,
            f'"{role}"',
            lambda values, word=word: values.update(permissions=[*values["permissions"], f"secretmanager.{word}"]),
            f"may secretmanager.{word}",
        )
        for role, verb in (("pomboSecretWriter", "adds"), ("pomboSecretMaker", "makes"))
        for word in ("versions.access", "secrets.delete", "secrets.setIamPolicy", "versions.disable")
    ),
)
"""Secrets of tenants."""

ALERTS = ("api_errors", "api_slow", "api_refused")
OF_ITS_MONITORING = (
    *(
        Mutation(
            f"no alert {name}",
            POLICY,
            f'["{name}"]',
            None,
            f"describes {name.replace('_', '-')} (warning), but no alert exists",
        )
        for name in ALERTS
    ),
    Mutation("no alert that the API is down", POLICY, 'down["api"]', None, "looks at the uptime check of api"),
    Mutation("the API is never asked", UPTIME, 'this["api"]', None, "No uptime check asks api"),
    Mutation(
        "the webhook is asked in place of the API",
        UPTIME,
        'this["api"]',
        lambda values: values["monitored_resource"][0]["labels"].update(
            host="pombo-webhook-123456789012.us-central1.run.app"
        ),
        "No uptime check asks api",
    ),
    Mutation(
        "the API is down when the webhook is",
        POLICY,
        'down["api"]',
        lambda values: values["conditions"][0]["condition_threshold"][0].update(
            filter=values["conditions"][0]["condition_threshold"][0]["filter"].replace("pombo-api", "pombo-webhook")
        ),
        "does not fire",
    ),
    Mutation(
        "API errors of the webhook", POLICY, '["api_errors"]', asked("pombo-api", "pombo-webhook"), "asks pombo-webhook"
    ),
    *(
        Mutation(f"{name} by another number", POLICY, f'["{name}"]', asked(*change), f"does not go by {threshold}")
        for name, change, threshold in (
            ("api_errors", ("> 10 *", "> 50 *"), "api_errors_percent"),
            ("api_errors", (">= 5", ">= 0"), "api_errors_least"),
            ("api_slow", ("> 1000", "> 2000"), "api_p95"),
            ("api_slow", ("> 100", "> 0"), "api_p95_of_at_least"),
            ("api_refused", ("> 300", "> 3"), "api_refused"),
        )
    ),
    Mutation(
        "an API alert without a page",
        POLICY,
        '["api_refused"]',
        put("Look.", "documentation", "content"),
        "leads to no section",
    ),
    Mutation(
        "an API alert that waits for its metric",
        POLICY,
        '["api_slow"]',
        put(False, *ASKED, "disable_metric_validation"),
        "refused at the first apply",
    ),
    *(
        Mutation(f"no chart {title}", DASHBOARD, "this", without_chart(title), f"{title!r}, which is not")
        for title in (
            "API: responses per second",
            "API: 95th percentile of latency, in ms",
            "API: answers 401 (no valid key) and 429 (above a key's rate) in 5 minutes",
        )
    ),
    Mutation(
        "the API's latency shown as its responses",
        DASHBOARD,
        "this",
        charting("API: responses per second", "request_count", "request_latencies"),
        "The chart 'API: responses per second' shows",
    ),
)
"""Its alerts, its uptime check and its charts."""

RECENT = "tenant.received_at"
OF_ITS_INDEX = (
    Mutation("no index for the list of messages", INDEX, RECENT, None, "'-received_at') is indexed together by shared"),
    Mutation(
        "the oldest messages first",
        INDEX,
        RECENT,
        lambda values: values["fields"][1].update(order="ASCENDING"),
        "'-received_at') is indexed together by shared",
    ),
    Mutation(
        "messages of all collections", INDEX, RECENT, put("COLLECTION_GROUP", "query_scope"), "index of one collection"
    ),
)
"""The index of the list of messages."""

MUTATIONS = (*OF_THE_SERVICE, *OF_ITS_ACCOUNT, *OF_TENANTS_SECRETS, *OF_ITS_MONITORING, *OF_ITS_INDEX)
