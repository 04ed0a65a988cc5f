variable "project" {
  type = string
}

variable "environment" {
  type = string
}

variable "services" {
  description = "The services' names in Cloud Run, by what they are among ours: webhook, internal."
  type        = map(string)
}

variable "queues" {
  description = "The names of the queues inbound and outbound. A tenant's own is not among them: a tenant changes nothing here."
  type        = map(string)
}

variable "sweep_job" {
  description = "The scheduler's job that calls the sweep."
  type        = string
}

variable "webhook_host" {
  type = string
}

variable "alert_emails" {
  type = list(string)
}

variable "runbook" {
  description = "Where docs/runbook.md is read."
  type        = string
}

variable "alert_thresholds" {
  type = map(number)
  validation {
    condition     = length(setsubtract(keys(var.alert_thresholds), local.threshold_names)) == 0
    error_message = "alert_thresholds has names that are none: ${join(", ", setsubtract(keys(var.alert_thresholds), local.threshold_names))}. There are ${join(", ", local.threshold_names)}."
  }
}
