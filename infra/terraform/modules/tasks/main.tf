# The queues. Their tasks are references to records, so losing a queue loses no message; but the name of a deleted queue
# cannot be reused for 7 days.  Each queue decides where its tasks go and whose identity they carry, whatever a task
# says. So an account that creates tasks does not need permission to act as that account, and cannot have Google's token
# sent to another address.

locals {
  # Rates: how many a second, and how many at once.
  shared = {
    inbound = { per_second = 100, at_once = 80 }
    # A send normally takes half a second: half as many at once as a second are enough for the rate.
    outbound = { per_second = var.outbound_rate, at_once = max(5, ceil(var.outbound_rate / 2)) }
  }
  # The only path that each queue serves.
  paths = {
    for name in keys(local.queues) : name => name == "inbound" ? "/internal/process_inbound" : "/internal/process_outbound"
  }
  queues = merge(local.shared, {
    for tenant in var.tenants : "outbound-${tenant}" => { per_second = var.tenant_rate, at_once = var.tenant_at_once }
  })
}

resource "google_cloud_tasks_queue" "this" {
  for_each = local.queues

  project  = var.project
  location = var.region
  name     = "${each.key}${var.suffix}"
  # In addition to prevent_destroy, which works only while this block exists.
  deletion_policy = "PREVENT"

  rate_limits {
    max_dispatches_per_second = each.value.per_second
    max_concurrent_dispatches = each.value.at_once
  }
  retry_config {
    # Above every limit in the code, which therefore decides. A task that reaches it is deleted silently, and the sweep
    # makes another.
    max_attempts = 100
    # A task is given up only when both limits are reached: 0s leaves the attempts as the only limit.
    max_retry_duration = "0s"
    min_backoff        = "5s"
    max_backoff        = "600s"
    max_doublings      = 5
  }
  http_target {
    http_method = "POST"

    # Only the port and the query remain of the task's own address, and neither leads away from this host.
    uri_override {
      scheme = "HTTPS"
      host   = var.internal_host
      path_override {
        path = local.paths[each.key]
      }
      uri_override_enforce_mode = "ALWAYS"
    }
    oidc_token {
      service_account_email = var.service_account
      # The service's address, for which internal checks tokens. A queue requires it.
      audience = "https://${var.internal_host}"
    }
  }
  # The API omits a ratio of 0 in its answer, and a block that it omits shows as a change in every plan.
  dynamic "stackdriver_logging_config" {
    for_each = var.log_sampling > 0 ? [var.log_sampling] : []
    content {
      sampling_ratio = stackdriver_logging_config.value
    }
  }
  lifecycle {
    prevent_destroy = true
  }
}
