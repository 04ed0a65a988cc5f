# The services, one entry each, with their environment. If the code reads a variable that is not here, or the reverse, a
# test fails and names both (tests/infra/test_rules.py).

locals {
  # Answers 200 on every path, so every probe passes.
  placeholder = "us-docker.pkg.dev/cloudrun/container/hello"

  # Tuning, with the code's own defaults. handler_timeout and in_doubt_seconds are numbers of seconds; handler_kinds
  # works only with a handler_url.
  defaults = {
    log_level             = "INFO"
    threads               = "16" # requests at once of an instance of internal, and of api
    webhook_concurrency   = "80" # of webhook, which waits in one thread for the store and the queue
    webhook_max_bytes     = "3211264"
    whatsapp_api_base_url = "https://graph.facebook.com"
    whatsapp_api_version  = "v25.0"
    oidc_certs_url        = "https://www.googleapis.com/oauth2/v1/certs"
    handler_kinds         = "text,media,location,contacts,interactive,button,order"
    handler_timeout       = "60"
    handler_traceback     = "false"
    max_attempts          = "8"
    plan_all_or_nothing   = "false"
    in_doubt_seconds      = "300"
    in_doubt_policy       = "resend"
    message_max_age       = "24h"
    dedupe_ttl_days       = "8"
    sweep_after           = "600s"
    turns                 = "contact"
  }
  settings = keys(local.defaults)

  # The code's own bounds: otherwise the service refuses to start, after the apply. (handler_timeout is bounded because
  # a task may be dispatched for 1800 s at most.)
  ranges = {
    dedupe_ttl_days     = [1, 365]
    handler_timeout     = [1, 1700]
    in_doubt_seconds    = [120, 86400]
    max_attempts        = [1, 50]
    threads             = [1, 1000]
    webhook_concurrency = [1, 1000]
    webhook_max_bytes   = [1024, 67108864]
  }

  # Every variable of shared/config/settings.py: the handler's own names must not be among them.
  own_names = [
    "APP_ENV",
    "CLOUD_TASKS_EMULATOR_HOST",
    "CLOUD_TASKS_LOCATION",
    "CRASH_AT",
    "DEDUPE_TTL_DAYS",
    "DRAIN_TASK_QUEUE_NAME",
    "FIRESTORE_DATABASE",
    "FIRESTORE_EMULATOR_HOST",
    "GOOGLE_CLOUD_PROJECT",
    "HANDLER",
    "HANDLER_KINDS",
    "HANDLER_TIMEOUT",
    "HANDLER_TRACEBACK",
    "HANDLER_URL",
    "HANDLER_URL_SECRET",
    "ID_KEY",
    "INBOUND_TASK_QUEUE_NAME",
    "INBOUND_TENANT_QUEUE_PATTERN",
    "INTERNAL_TASK_BASE_URL",
    "INTERNAL_TASK_TOKEN",
    "IN_DOUBT_POLICY",
    "IN_DOUBT_SECONDS",
    "LOG_LEVEL",
    "MAX_ATTEMPTS",
    "MESSAGE_MAX_AGE",
    "META_APP_ID",
    "META_APP_SECRET",
    "META_VERIFY_TOKEN",
    "OIDC_CERTS_URL",
    "OUTBOUND_TASK_QUEUE_NAME",
    "PLAN_ALL_OR_NOTHING",
    "PORT",
    "REDIS_CA_CERTS",
    "REDIS_URL",
    "SCHEDULER_SERVICE_ACCOUNT",
    "SECRET_MANAGER_EMULATOR_HOST",
    "SQLITE_PATH",
    "STORE",
    "SWEEP_AFTER",
    "TASKS_SERVICE_ACCOUNT",
    "TENANT_QUEUES",
    "TENANT_QUEUE_PATTERN",
    "THREADS",
    "TIME_SCALE",
    "TRUST_CLOUD_RUN_IAM",
    "TURNS",
    "WEBHOOK_CONCURRENCY",
    "WEBHOOK_MAX_BYTES",
    "WHATSAPP_ACCESS_TOKEN",
    "WHATSAPP_API_BASE_URL",
    "WHATSAPP_API_VERSION",
    "WHATSAPP_PHONE_NUMBER_ID",
  ]
  tuning = merge(local.defaults, var.settings)

  threads         = tonumber(local.tuning["threads"])
  handler_timeout = tonumber(local.tuning["handler_timeout"])
  # The longest lease, or process_outbound's own 90 s, plus 30 s: the request never ends before the code's own timeout
  # (Limits.request_timeout in shared/domain/limits.py).
  internal_timeout = max(local.handler_timeout + 30, 90) + 30

  # Each task that the queues may run at once finds a thread, with a fifth to spare (modules/run).
  max_instances = {
    for name, it in local.services : name => max(10, contains(it.invokers, "tasks") ? ceil(module.tasks.at_once / (0.8 * local.threads)) : 0)
  }

  # Deterministic addresses, known before the services exist.
  # https://cloud.google.com/run/docs/triggering/https-request#deterministic
  hosts = {
    for name in keys(local.services) : name => "pombo-${name}-${data.google_project.this.number}.${var.region}.run.app"
  }
  urls = { for name, host in local.hosts : name => "https://${host}" }
  # The same for the accounts: those that call, and those of the services. What needs an account comes after
  # modules/iam.
  callers = {
    for name in ["tasks", "scheduler", "deploy"] : name => "pombo-${name}@${var.project}.iam.gserviceaccount.com"
  }
  accounts = merge(local.callers, {
    for name in keys(local.services) : name => "pombo-${name}@${var.project}.iam.gserviceaccount.com"
  })

  common_env = {
    APP_ENV                      = var.environment
    LOG_LEVEL                    = local.tuning["log_level"]
    WHATSAPP_PHONE_NUMBER_ID     = var.whatsapp_phone_number_id
    STORE                        = var.store
    GOOGLE_CLOUD_PROJECT         = var.project
    FIRESTORE_DATABASE           = module.firestore.name
    CLOUD_TASKS_LOCATION         = var.region
    INBOUND_TASK_QUEUE_NAME      = module.tasks.names["inbound"]
    OUTBOUND_TASK_QUEUE_NAME     = module.tasks.names["outbound"]
    DRAIN_TASK_QUEUE_NAME        = module.tasks.names["drain"]
    TENANT_QUEUES                = tostring(var.tenant_queues)
    INBOUND_TENANT_QUEUE_PATTERN = module.tasks.patterns["inbound"]
    TENANT_QUEUE_PATTERN         = module.tasks.patterns["outbound"]
    INTERNAL_TASK_BASE_URL       = local.urls["internal"]
    HANDLER_TIMEOUT              = "${local.handler_timeout}s" # sets the dispatch deadline of the webhook's tasks
    MESSAGE_MAX_AGE              = local.tuning["message_max_age"]
    DEDUPE_TTL_DAYS              = local.tuning["dedupe_ttl_days"]
    SWEEP_AFTER                  = local.tuning["sweep_after"]
  }
  handler_env = var.handler_url == null ? { HANDLER = var.handler } : {
    HANDLER_URL   = var.handler_url
    HANDLER_KINDS = local.tuning["handler_kinds"]
  }

  # With these the API asks Meta what a new access token may do (debug_token). The app secret also signs webhooks, so the
  # API gets it only for that.
  meta_app_env     = var.meta_app_id == null ? {} : { META_APP_ID = var.meta_app_id }
  meta_app_secrets = var.meta_app_id == null ? [] : ["META_APP_SECRET"]

  # Not a secret: checking a signature needs none.
  store_env       = var.store == "redis" ? { REDIS_CA_CERTS = module.redis[0].ca_certs } : {}
  store_secrets   = var.store == "redis" ? ["REDIS_URL"] : []
  handler_secrets = concat(var.handler_url == null ? [] : ["HANDLER_URL_SECRET"], tolist(var.handler_secrets))

  # An operator writes every other secret.
  secret_versions = merge(
    var.redis ? { REDIS_URL = module.redis[0].url_version } : {},
    { for name, version in var.secret_versions : name => tostring(version) },
  )

  # The names of all secrets that the services receive.
  secrets = distinct(flatten([for it in local.services : it.secrets]))

  services = {
    webhook = {
      public      = true
      timeout     = 60 # a body arrives within 10 s and is answered within 10 more
      concurrency = tonumber(local.tuning["webhook_concurrency"])
      env = {
        TURNS               = local.tuning["turns"]
        WEBHOOK_CONCURRENCY = local.tuning["webhook_concurrency"]
        WEBHOOK_MAX_BYTES   = local.tuning["webhook_max_bytes"]
      }
      secrets  = concat(["META_APP_SECRET", "META_VERIFY_TOKEN", "INTERNAL_TASK_TOKEN", "ID_KEY"], local.store_secrets)
      enqueues = ["inbound"] # and in the numbered queues beside it
      looks_at = ["inbound", "outbound"]
      lists    = false # it has the key of each record that it reads or changes
      # No account in particular: everyone may call.
      invokers = []
    }
    api = {
      public      = true # its callers have API keys
      timeout     = 60   # a batch of a hundred messages
      concurrency = local.threads
      env = merge(local.meta_app_env, {
        THREADS               = local.tuning["threads"]
        TURNS                 = local.tuning["turns"]
        WHATSAPP_API_BASE_URL = local.tuning["whatsapp_api_base_url"]
        WHATSAPP_API_VERSION  = local.tuning["whatsapp_api_version"]
      })
      secrets  = concat(["INTERNAL_TASK_TOKEN", "ID_KEY"], local.meta_app_secrets, local.store_secrets)
      adds     = ["pombo-credential-"] # the access tokens of senders that are connected by the API; it reads none
      enqueues = ["inbound", "outbound", "drain"]
      looks_at = ["inbound", "outbound"]
      lists    = true
      deletes  = true # the entries of a tenant that is removed
      invokers = []
    }
    internal = {
      public      = false
      timeout     = local.internal_timeout
      concurrency = local.threads
      # The team's own variables first: they never replace one of ours.
      env = merge(var.handler_variables, local.handler_env, {
        THREADS                   = local.tuning["threads"]
        TURNS                     = local.tuning["turns"]
        WHATSAPP_API_BASE_URL     = local.tuning["whatsapp_api_base_url"]
        WHATSAPP_API_VERSION      = local.tuning["whatsapp_api_version"]
        TASKS_SERVICE_ACCOUNT     = local.callers["tasks"]
        SCHEDULER_SERVICE_ACCOUNT = local.callers["scheduler"]
        OIDC_CERTS_URL            = local.tuning["oidc_certs_url"]
        HANDLER_TRACEBACK         = local.tuning["handler_traceback"]
        MAX_ATTEMPTS              = local.tuning["max_attempts"]
        PLAN_ALL_OR_NOTHING       = local.tuning["plan_all_or_nothing"]
        IN_DOUBT_SECONDS          = local.tuning["in_doubt_seconds"]
        IN_DOUBT_POLICY           = local.tuning["in_doubt_policy"]
      })
      secrets  = concat(["WHATSAPP_ACCESS_TOKEN", "INTERNAL_TASK_TOKEN", "ID_KEY"], local.handler_secrets, local.store_secrets)
      prefixes = ["pombo-credential-", "pombo-handler-"] # senders' access tokens, signing keys of tenants' handlers
      enqueues = ["inbound", "outbound", "drain"]
      looks_at = ["inbound", "outbound"]
      lists    = true # the sweep
      invokers = ["tasks", "scheduler"]
    }
  }
}
