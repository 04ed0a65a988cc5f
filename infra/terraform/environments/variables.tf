variable "project" {
  description = "The project's ID."
  type        = string
}

variable "whatsapp_phone_number_id" {
  description = "The phone number ID of tenant default's sender, which Meta shows beside the number."
  type        = string
}

variable "meta_app_id" {
  description = "The ID of the Meta app. With it the API asks Meta what a new access token may do before it keeps it."
  type        = string
  default     = null
}

variable "handler" {
  description = "The team's code, as module:function. Set exactly one of handler and handler_url."
  type        = string
  default     = null
}

variable "handler_url" {
  description = "The https URL of the team's backend. The service then reads the secret HANDLER_URL_SECRET."
  type        = string
  default     = null
}

variable "handler_variables" {
  description = "The handler's own environment variables, for the internal service. They must not hold secrets."
  type        = map(string)
  default     = {}
}

variable "handler_secrets" {
  description = "The handler's own secrets, by the names of their variables. bootstrap creates secrets of the same names."
  type        = set(string)
  default     = []
}

variable "region" {
  description = "The region of all resources, the same as in bootstrap. It cannot be changed later."
  type        = string
}

variable "firestore_location" {
  description = "The database's region, or a multi-region like eur3; the value of region if null. It cannot be changed once the database exists."
  type        = string
  default     = null
}

variable "scheduler_region" {
  description = "The region of Cloud Scheduler, if it does not exist in region; the value of region if null."
  type        = string
  default     = null
}

variable "images" {
  description = "The images of the first apply, by service; a placeholder if empty. Later the deployment sets them."
  type        = map(string)
  default     = {}
}

variable "tenant_queues" {
  description = "Pairs of queues for tenants, from 0 to 480: a larger number only adds. A tenant gets one when it is registered."
  type        = number
  default     = 20
}

variable "settings" {
  description = "Settings of the services: environment variables by their lower-case names, with durations in seconds."
  type        = map(string)
  default     = {}
}

variable "secret_versions" {
  description = "The version of each secret, by name; 1 by default."
  type        = map(number)
  default     = {}
}

variable "min_instances" {
  description = "The minimum number of instances, by service; 0 by default."
  type        = map(number)
  default     = {}
}

variable "max_instances" {
  description = "The maximum number of instances, by service; 10 by default, and for internal as many as the queues need."
  type        = map(number)
  default     = {}
}

variable "memory" {
  description = "The memory of an instance, by service; 512Mi by default."
  type        = map(string)
  default     = {}
}

variable "queue_suffix" {
  description = "A suffix for each queue's name, needed if a queue of that name was deleted within the last 7 days."
  type        = string
  default     = ""
}

variable "queue_log_sampling" {
  description = "The share of the queues' operations that Cloud Logging keeps, 0 to 1. A message has about six lines."
  type        = number
  default     = 0
}

variable "store" {
  description = "The store of the records: firestore or redis."
  type        = string
  default     = "firestore"
}

variable "redis" {
  description = "Whether to create a Memorystore and its network, which store = \"redis\" needs."
  type        = bool
  default     = false
}

variable "redis_auth" {
  description = "Whether the Memorystore requires a password, which is then stored in the state."
  type        = bool
  default     = true
}

variable "media_bucket" {
  description = "Whether to create a bucket for media."
  type        = bool
  default     = false
}

variable "alert_emails" {
  description = "The e-mail addresses that receive every alert."
  type        = list(string)
  default     = []
}

variable "runbook" {
  description = "The address of docs/runbook.md, which each alert links to."
  type        = string
  default     = "docs/runbook.md"
}

variable "alert_thresholds" {
  description = "Thresholds that replace the defaults of modules/monitoring."
  type        = map(number)
  default     = {}
}

variable "outbound_rate" {
  description = "The maximum rate of the queue outbound, in messages a second, from 1 to 500."
  type        = number
  default     = 20
}

variable "tenant_queue_per_second" {
  description = "The maximum rate of each tenant's outbound queue, in messages a second, from 1 to 500."
  type        = number
  default     = 80
}

variable "max_concurrency_per_tenant" {
  description = "The maximum number of a tenant's messages that are sent at once, from 1 to 100."
  type        = number
  default     = 2
}

variable "inbound_tenant_queue_per_second" {
  description = "The maximum rate of each tenant's inbound queue, in events a second, from 1 to 500."
  type        = number
  default     = 80
}

variable "inbound_max_concurrency_per_tenant" {
  description = "The maximum number of a tenant's events that are handled at once, from 1 to 100."
  type        = number
  default     = 4
}

variable "critical_channels" {
  description = "Existing notification channels that also receive critical alerts, by their full names."
  type        = list(string)
  default     = []
}

variable "warning_channels" {
  description = "Existing notification channels that also receive warnings, by their full names."
  type        = list(string)
  default     = []
}

variable "log_location" {
  description = "The region that stores the logs; Google chooses if null. It cannot be changed once it is set."
  type        = string
  default     = null
}

variable "audited_apis" {
  description = "APIs whose data reads and writes are audited, except those by the services themselves."
  type        = set(string)
  default     = []
}

variable "kms_key" {
  description = "Your own key in the region for the database, the media and the Redis. It cannot be changed later."
  type        = string
  default     = null
}

variable "firestore_backups" {
  description = "For how many days daily and weekly backups are kept. Without an entry there is no such backup."
  type        = map(number)
  default     = {}
}

variable "budget" {
  description = "A monthly amount, in whole units of the billing account's currency, that triggers a notification."
  type        = object({ billing_account = string, amount = number })
  default     = null
}
