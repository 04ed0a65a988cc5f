variable "project" {
  description = "The project's ID."
  type        = string
}

variable "whatsapp_phone_number_id" {
  description = "The sender of tenant default: the ID that Meta shows beside the number."
  type        = string
}

variable "handler" {
  description = "The team's code, module:function. Exactly one of this and handler_url."
  type        = string
  default     = null
}

variable "handler_url" {
  description = "The team's code behind an https address; then the secret HANDLER_URL_SECRET is read."
  type        = string
  default     = null
}

variable "handler_variables" {
  description = "The handler's own environment variables, for the internal service. No secrets."
  type        = map(string)
  default     = {}
}

variable "handler_secrets" {
  description = "The handler's own secrets, by the names of their variables. bootstrap makes them, of the same names."
  type        = set(string)
  default     = []
}

variable "region" {
  description = "The region of everything, the same as bootstrap's. It cannot be changed later."
  type        = string
}

variable "firestore_location" {
  description = "A region, or a multi-region like eur3; the region if null. It cannot be changed once the database is there."
  type        = string
  default     = null
}

variable "scheduler_region" {
  description = "For a region of Cloud Run's in which Cloud Scheduler is not; the region if null."
  type        = string
  default     = null
}

variable "images" {
  description = "The images of the first apply, by service; a placeholder if none. Later the deployment names them."
  type        = map(string)
  default     = {}
}

variable "tenants" {
  description = "Tenants with an outbound queue of their own."
  type        = set(string)
  default     = []
}

variable "settings" {
  description = "Tuning of the services: environment variables by their names in lower case; times in seconds."
  type        = map(string)
  default     = {}
}

variable "secret_versions" {
  description = "The version of each secret by its name; 1 if not here."
  type        = map(number)
  default     = {}
}

variable "min_instances" {
  description = "Instances kept ready, by service; 0 if not here."
  type        = map(number)
  default     = {}
}

variable "max_instances" {
  description = "Instances at most, by service; 10 if not here, and of internal as many as the queues need."
  type        = map(number)
  default     = {}
}

variable "memory" {
  description = "Of an instance, by service; 512Mi if not here."
  type        = map(string)
  default     = {}
}

variable "queue_suffix" {
  description = "Behind each queue's name, where a queue of that name was deleted within the last 7 days."
  type        = string
  default     = ""
}

variable "queue_log_sampling" {
  description = "The part of the queues' operations that Cloud Logging keeps, 0 to 1. About six lines a message."
  type        = number
  default     = 0
}

variable "store" {
  description = "Where records live: firestore or redis."
  type        = string
  default     = "firestore"
}

variable "redis" {
  description = "Whether there is a Memorystore and its network, which store = \"redis\" needs."
  type        = bool
  default     = false
}

variable "redis_auth" {
  description = "Whether that Memorystore asks for a password, which then lies in the state."
  type        = bool
  default     = true
}

variable "media_bucket" {
  description = "Whether there is a bucket for media."
  type        = bool
  default     = false
}

variable "alert_emails" {
  description = "Whom the alerts tell."
  type        = list(string)
  default     = []
}

variable "runbook" {
  description = "Where docs/runbook.md is read: the alerts lead there."
  type        = string
  default     = "docs/runbook.md"
}

variable "alert_thresholds" {
  description = "Over the defaults of modules/monitoring."
  type        = map(number)
  default     = {}
}

variable "outbound_rate" {
  description = "Messages a second that the queue outbound sends at most, from 1 to 500."
  type        = number
  default     = 20
}

variable "tenant_rate" {
  description = "Messages a second of each tenant's own queue at most, from 1 to 500; two of them at once."
  type        = number
  default     = 20
}

variable "critical_channels" {
  description = "Notification channels that are there already and that critical alerts tell too, by their full names."
  type        = list(string)
  default     = []
}

variable "warning_channels" {
  description = "The same for the warnings."
  type        = list(string)
  default     = []
}

variable "log_location" {
  description = "The region in which logs are kept; where Google keeps them if null. It cannot be changed once it is set."
  type        = string
  default     = null
}

variable "audited_apis" {
  description = "APIs whose every read and write of data is logged, but those of the services themselves."
  type        = set(string)
  default     = []
}

variable "kms_key" {
  description = "A key of yours in the region for the database, the media and the Redis. It cannot be changed later."
  type        = string
  default     = null
}

variable "firestore_backups" {
  description = "For how many days daily and weekly backups are kept; of those that are not named there are none."
  type        = map(number)
  default     = {}
}

variable "budget" {
  description = "An amount a month, in whole units of the billing account's currency, at which somebody is told."
  type        = object({ billing_account = string, amount = number })
  default     = null
}
