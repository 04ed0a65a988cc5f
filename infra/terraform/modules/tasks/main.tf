# The queues. Their tasks are references to records, so losing a queue loses no message; but the name of a deleted queue
# cannot be reused for 7 days.  Each queue decides where its tasks go and whose identity they carry, whatever a task
# says. So an account that creates tasks does not need permission to act as that account, and cannot have Google's token
# sent to another address.

#
# Queues are only added. A tenant gets the number of a pair when it is registered, so a new tenant changes nothing here.

locals {
  # Rates: how many a second, and how many at once.
  shared = {
    inbound = { per_second = 100, at_once = 80 }
    # A send normally takes half a second: half as many at once as a second are enough for the rate.
    outbound = { per_second = var.outbound_rate, at_once = max(5, ceil(var.outbound_rate / 2)) }
    # Wakes 200 waiting messages a second after a reconnect.
    drain = { per_second = 1, at_once = 1 }
  }
  numbered = {
    inbound  = { per_second = var.inbound_tenant_queue_per_second, at_once = var.inbound_max_concurrency_per_tenant }
    outbound = { per_second = var.tenant_queue_per_second, at_once = var.max_concurrency_per_tenant }
  }
  # The only path that each queue serves.
  paths = {
    inbound  = "/internal/process_inbound"
    outbound = "/internal/process_outbound"
    drain    = "/internal/drain"
  }
  # By the queue that it stands beside.
  pairs = {
    for kind in keys(local.numbered) : kind => [for number in range(var.tenant_queues) : format("%s-t%03d", kind, number)]
  }
  queues = merge(
    { for kind, it in local.shared : kind => merge(it, { path = local.paths[kind] }) },
    [for kind, keys in local.pairs : { for key in keys : key => merge(local.numbered[kind], { path = local.paths[kind] }) }]...
  )
}

resource "google_cloud_tasks_queue" "queue" {
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
        path = each.value.path
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

# An earlier version had `this`, with a queue outbound-<tenant> for each name in a variable `tenants`. The code never used
# those, and they may hold nothing; they stay in the project, and only leave the state.
moved {
  from = google_cloud_tasks_queue.this["inbound"]
  to   = google_cloud_tasks_queue.queue["inbound"]
}

moved {
  from = google_cloud_tasks_queue.this["outbound"]
  to   = google_cloud_tasks_queue.queue["outbound"]
}

removed {
  from = google_cloud_tasks_queue.this
  lifecycle {
    destroy = false
  }
}
