variable "environment" {
  type = string
  validation {
    condition     = contains(["staging", "prod"], var.environment)
    error_message = "environment must be staging or prod."
  }
}

variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "firestore_location" {
  type = string
}

variable "scheduler_region" {
  type = string
}

variable "whatsapp_phone_number_id" {
  type = string
  validation {
    condition     = can(regex("^[0-9]{1,32}$", var.whatsapp_phone_number_id))
    error_message = "whatsapp_phone_number_id must be the ID that Meta shows beside the number: digits only."
  }
}

variable "meta_app_id" {
  type = string
  validation {
    condition     = var.meta_app_id == null ? true : can(regex("^[0-9]{1,32}$", var.meta_app_id))
    error_message = "meta_app_id must be the ID that Meta shows in the app's settings: digits only."
  }
}

variable "handler" {
  type = string
  validation {
    condition     = (var.handler == null) != (var.handler_url == null)
    error_message = "Set exactly one of handler (module:function) and handler_url."
  }
  validation {
    condition     = var.handler == null || !contains(keys(var.settings), "handler_kinds")
    error_message = "settings has handler_kinds, which needs handler_url; a Python handler declares its kinds with @handles."
  }
}

variable "handler_url" {
  type = string
  validation {
    condition     = var.handler_url == null ? true : startswith(var.handler_url, "https://")
    error_message = "handler_url must be https."
  }
}

variable "handler_variables" {
  type = map(string)
  validation {
    condition     = alltrue([for name in keys(var.handler_variables) : can(regex("^[A-Z][A-Z0-9_]*$", name))])
    error_message = "A name in handler_variables may have only capital letters, digits and underscores."
  }
  validation {
    condition     = length(setintersection(keys(var.handler_variables), setunion(local.own_names, var.handler_secrets))) == 0
    error_message = "handler_variables has names of Pombo's own or of handler_secrets: ${join(", ", setintersection(keys(var.handler_variables), setunion(local.own_names, var.handler_secrets)))}."
  }
}

variable "handler_secrets" {
  type = set(string)
  validation {
    condition     = alltrue([for name in var.handler_secrets : can(regex("^[A-Z][A-Z0-9_]*$", name))])
    error_message = "A name in handler_secrets may have only capital letters, digits and underscores."
  }
  validation {
    condition     = length(setintersection(var.handler_secrets, local.own_names)) == 0
    error_message = "handler_secrets has names of Pombo's own: ${join(", ", setintersection(var.handler_secrets, local.own_names))}."
  }
}

variable "images" {
  type = map(string)
}

variable "tenant_queues" {
  type = number
  validation {
    # Cloud Tasks allows 1,000 queues in a region: https://cloud.google.com/tasks/docs/quotas
    condition     = var.tenant_queues >= 0 && var.tenant_queues <= 480 && var.tenant_queues == floor(var.tenant_queues)
    error_message = "tenant_queues must be a whole number of pairs from 0 to 480."
  }
}

variable "settings" {
  type = map(string)
  validation {
    condition     = length(setsubtract(keys(var.settings), local.settings)) == 0
    error_message = "settings has unknown names: ${join(", ", setsubtract(keys(var.settings), local.settings))}. Known names: ${join(", ", local.settings)}."
  }
  validation {
    condition = alltrue([
      for name in ["handler_timeout", "in_doubt_seconds", "threads", "dedupe_ttl_days", "max_attempts", "webhook_concurrency", "webhook_max_bytes"] :
      can(regex("^[0-9]{1,9}$", lookup(var.settings, name, "1")))
    ])
    error_message = "handler_timeout and in_doubt_seconds must be whole seconds; threads, dedupe_ttl_days, max_attempts, webhook_concurrency and webhook_max_bytes must be whole numbers."
  }
  validation {
    condition = alltrue([
      for name, range in local.ranges :
      try(tonumber(var.settings[name]) >= range[0] && tonumber(var.settings[name]) <= range[1], true)
    ])
    error_message = join(" ", [
      for name, range in local.ranges : "${name} must be from ${range[0]} to ${range[1]}."
      if try(tonumber(var.settings[name]) < range[0] || tonumber(var.settings[name]) > range[1], false)
    ])
  }
  validation {
    condition     = contains(["DEBUG", "INFO"], lookup(var.settings, "log_level", "INFO"))
    error_message = "log_level must be DEBUG or INFO: metrics and alerts use log lines of severity INFO."
  }
}

variable "secret_versions" {
  type = map(number)
  validation {
    condition     = length(setsubtract(keys(var.secret_versions), local.secrets)) == 0
    error_message = "secret_versions names secrets that no service reads: ${join(", ", setsubtract(keys(var.secret_versions), local.secrets))}."
  }
}

variable "min_instances" {
  type = map(number)
}

variable "max_instances" {
  type = map(number)
}

variable "memory" {
  type = map(string)
}

variable "queue_suffix" {
  type = string
  validation {
    condition     = can(regex("^[A-Za-z0-9-]{0,20}$", var.queue_suffix))
    error_message = "queue_suffix may have only letters, digits and hyphens, 20 at most."
  }
}

variable "queue_log_sampling" {
  type = number
}

variable "store" {
  type = string
  validation {
    condition     = contains(["firestore", "redis"], var.store)
    error_message = "store must be firestore or redis."
  }
  validation {
    condition     = var.store != "redis" || var.redis
    error_message = "store = \"redis\" needs redis = true, which creates a Memorystore."
  }
}

variable "redis" {
  type = bool
}

variable "redis_auth" {
  type = bool
}

variable "media_bucket" {
  type = bool
}

variable "alert_emails" {
  type = list(string)
}

variable "runbook" {
  type = string
}

variable "alert_thresholds" {
  type = map(number)
}

variable "outbound_rate" {
  type = number
  validation {
    condition     = var.outbound_rate >= 1 && var.outbound_rate <= 500
    error_message = "outbound_rate must be a number of messages a second from 1 to 500."
  }
}

variable "tenant_queue_per_second" {
  type = number
  validation {
    condition     = var.tenant_queue_per_second >= 1 && var.tenant_queue_per_second <= 500
    error_message = "tenant_queue_per_second must be a number of messages a second from 1 to 500."
  }
}

variable "max_concurrency_per_tenant" {
  type = number
  validation {
    condition = (
      var.max_concurrency_per_tenant >= 1 && var.max_concurrency_per_tenant <= 100 &&
      var.max_concurrency_per_tenant == floor(var.max_concurrency_per_tenant)
    )
    error_message = "max_concurrency_per_tenant must be a whole number from 1 to 100."
  }
}

variable "inbound_tenant_queue_per_second" {
  type = number
  validation {
    condition     = var.inbound_tenant_queue_per_second >= 1 && var.inbound_tenant_queue_per_second <= 500
    error_message = "inbound_tenant_queue_per_second must be a number of events a second from 1 to 500."
  }
}

variable "inbound_max_concurrency_per_tenant" {
  type = number
  validation {
    condition = (
      var.inbound_max_concurrency_per_tenant >= 1 && var.inbound_max_concurrency_per_tenant <= 100 &&
      var.inbound_max_concurrency_per_tenant == floor(var.inbound_max_concurrency_per_tenant)
    )
    error_message = "inbound_max_concurrency_per_tenant must be a whole number from 1 to 100."
  }
}

variable "critical_channels" {
  type = list(string)
  validation {
    condition     = alltrue([for name in var.critical_channels : can(regex("^projects/[^/]+/notificationChannels/[0-9]+$", name))])
    error_message = "A channel in critical_channels must have a name like projects/my-project/notificationChannels/123456."
  }
}

variable "warning_channels" {
  type = list(string)
  validation {
    condition     = alltrue([for name in var.warning_channels : can(regex("^projects/[^/]+/notificationChannels/[0-9]+$", name))])
    error_message = "A channel in warning_channels must have a name like projects/my-project/notificationChannels/123456."
  }
}

variable "log_location" {
  type = string
  validation {
    condition     = var.log_location == null ? true : can(regex("^[a-z]+-[a-z]+[0-9]+$|^eu$|^us$", var.log_location))
    error_message = "log_location must be a region like europe-west1, or eu or us."
  }
}

variable "audited_apis" {
  type = set(string)
  validation {
    condition     = alltrue([for name in var.audited_apis : can(regex("^[a-z]+[.]googleapis[.]com$|^allServices$", name))])
    error_message = "An API in audited_apis must have a name like secretmanager.googleapis.com."
  }
}

variable "kms_key" {
  type = string
  validation {
    condition     = var.kms_key == null ? true : can(regex("^projects/[^/]+/locations/${var.region}/keyRings/[^/]+/cryptoKeys/[^/]+$", var.kms_key))
    error_message = "kms_key must be the full name of a key in ${var.region}: projects/…/locations/${var.region}/keyRings/…/cryptoKeys/…"
  }
  validation {
    condition     = var.kms_key == null || coalesce(var.firestore_location, var.region) == var.region
    error_message = "With a kms_key, firestore_location must be the region: a database needs a key in its own region."
  }
}

variable "firestore_backups" {
  type = map(number)
  validation {
    condition     = length(setsubtract(keys(var.firestore_backups), ["daily", "weekly"])) == 0
    error_message = "firestore_backups may have only the names daily and weekly."
  }
  validation {
    condition     = alltrue([for days in values(var.firestore_backups) : days >= 1 && days <= 98 && days == floor(days)])
    error_message = "firestore_backups must be whole days from 1 to 98: Firestore keeps no backup for longer than 14 weeks."
  }
}

variable "budget" {
  type = object({ billing_account = string, amount = number })
  validation {
    condition     = var.budget == null ? true : can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", var.budget.billing_account))
    error_message = "billing_account of the budget must be like 012345-6789AB-CDEF01."
  }
  validation {
    condition     = var.budget == null ? true : var.budget.amount >= 1 && var.budget.amount == floor(var.budget.amount)
    error_message = "amount of the budget must be a whole number from 1."
  }
}
