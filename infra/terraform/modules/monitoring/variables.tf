variable "project" {
  type = string
}

variable "environment" {
  type = string
}

variable "services" {
  description = "The names of the Cloud Run services, by role: webhook, api, internal."
  type        = map(string)
}

variable "queues" {
  description = "Regular expressions for the names of all inbound and of all outbound queues, so that more queues change nothing here."
  type        = map(string)
}

variable "sweep_job" {
  description = "The Cloud Scheduler job that calls the sweep."
  type        = string
}

variable "hosts" {
  description = "The hosts of the services, by role. Those of the public ones are checked from outside."
  type        = map(string)
}

variable "alert_emails" {
  type = list(string)
}

variable "runbook" {
  description = "The address of docs/runbook.md, which each alert links to."
  type        = string
}

variable "alert_thresholds" {
  type = map(number)
  validation {
    condition     = length(setsubtract(keys(var.alert_thresholds), local.threshold_names)) == 0
    error_message = "alert_thresholds has unknown names: ${join(", ", setsubtract(keys(var.alert_thresholds), local.threshold_names))}. Known names: ${join(", ", local.threshold_names)}."
  }
  validation {
    condition     = alltrue([for number in values(var.alert_thresholds) : number >= 0])
    error_message = "alert_thresholds must be 0 or greater."
  }
  validation {
    condition = alltrue([
      for name in ["failed_receipts_percent", "api_errors_percent"] : lookup(var.alert_thresholds, name, 0) <= 100
    ])
    error_message = "failed_receipts_percent and api_errors_percent must be from 0 to 100."
  }
  validation {
    condition = alltrue([
      for name in ["failed_receipts_least", "api_errors_least"] : lookup(var.alert_thresholds, name, 1) >= 1
    ])
    error_message = "failed_receipts_least and api_errors_least must be at least 1: without a failure there is nothing to report."
  }
  validation {
    condition = alltrue([
      for name, minutes in var.alert_thresholds : minutes == floor(minutes) if can(regex("_down_", name))
    ])
    error_message = "provider_down_* and backend_down_* must be whole minutes."
  }
  validation {
    condition = alltrue([
      for name in local.warnings : lookup(var.alert_thresholds, name, local.default_thresholds[name]) <= lookup(
        var.alert_thresholds, replace(name, "_warning", "_critical"), local.default_thresholds[replace(name, "_warning", "_critical")]
      )
    ])
    error_message = "A *_warning in alert_thresholds is above its *_critical. A threshold that is not set has its default."
  }
}

variable "critical_channels" {
  description = "Existing notification channels that receive critical alerts."
  type        = list(string)
}

variable "warning_channels" {
  description = "Existing notification channels that receive warnings."
  type        = list(string)
}
