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
  validation {
    condition     = alltrue([for number in values(var.alert_thresholds) : number >= 0])
    error_message = "alert_thresholds are numbers from 0."
  }
  validation {
    condition     = lookup(var.alert_thresholds, "failed_receipts_percent", 0) <= 100
    error_message = "failed_receipts_percent is a number from 0 to 100."
  }
  validation {
    condition     = lookup(var.alert_thresholds, "failed_receipts_least", 1) >= 1
    error_message = "failed_receipts_least is at least 1: without a failed receipt there is nothing to tell."
  }
  validation {
    condition = alltrue([
      for name, minutes in var.alert_thresholds : minutes == floor(minutes) if can(regex("_down_", name))
    ])
    error_message = "provider_down_* and backend_down_* are whole minutes."
  }
  validation {
    condition = alltrue([
      for name in local.warnings : lookup(var.alert_thresholds, name, local.default_thresholds[name]) <= lookup(
        var.alert_thresholds, replace(name, "_warning", "_critical"), local.default_thresholds[replace(name, "_warning", "_critical")]
      )
    ])
    error_message = "A *_warning of alert_thresholds is above its *_critical; what is not given has its default."
  }
}

variable "critical_channels" {
  description = "Channels that are there already and that critical alerts tell."
  type        = list(string)
}

variable "warning_channels" {
  description = "Channels that are there already and that warnings tell."
  type        = list(string)
}
