# The queues. Their tasks are references to records, so a queue can be lost without a message being lost; but the name of
# a deleted queue cannot be used again for 7 days.
#
# Each queue says itself where its tasks go and whose identity they carry, whatever a task says. So nobody who makes tasks
# needs to be allowed to act as that account, and none can have a token of Google's sent to an address of his own.

locals {
  # Rates: how many a second, and how many at once.
  shared = {
    inbound = { per_second = 100, at_once = 80 }
    # A send takes half a second where all is well: half as many at once as a second are what the rate needs.
    outbound = { per_second = var.outbound_rate, at_once = max(5, ceil(var.outbound_rate / 2)) }
  }
  # The one path that each queue serves.
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
  # Beside prevent_destroy, which stands only as long as this block does.
  deletion_policy = "PREVENT"

  rate_limits {
    max_dispatches_per_second = each.value.per_second
    max_concurrent_dispatches = each.value.at_once
  }
  retry_config {
    # Above every limit of the code's own, which therefore has the last word. A task that runs out is deleted silently;
    # the sweep makes another.
    max_attempts = 100
    # A task is given up only when both limits are reached: 0s leaves the attempts as the one limit.
    max_retry_duration = "0s"
    min_backoff        = "5s"
    max_backoff        = "600s"
    max_doublings      = 5
  }
  http_target {
    http_method = "POST"

    # Of the task's own address only the port and the query are left, and neither leads away from this host.
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
      # The service's address, for which internal checks tokens. At a queue it must be named.
      audience = "https://${var.internal_host}"
    }
  }
  # The API does not answer a ratio of 0, and a block that it does not answer is a change in every plan.
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
