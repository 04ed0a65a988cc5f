# Log-based metrics, notification channels and the uptime check. docs/runbook.md has a section for each alert.
#
# A log-based metric counts lines or is a distribution of a number in them; there are no gauges. What the sweep reports once
# a minute (queue depth, age of the oldest) is therefore a distribution of one value a minute. The mean of a distribution is
# exact (sum over count), whatever its buckets. A percentile would be an estimate within a bucket.
# https://cloud.google.com/logging/docs/logs-based-metrics
#
# A filter uses only field = value (or one of several values), comparisons and AND: the tests that run each filter on real
# lines know no other syntax.

terraform {
  required_providers {
    google = {
      source = "hashicorp/google"
    }
  }
}

locals {
  # All services: they write through shared/logs.py, and nothing else runs in the project.
  ours = "resource.type=\"cloud_run_revision\""
  # Success: an event that was handled, or a message that the provider accepted. An attempt that lost its lease may find the
  # same state, but logs a warning.
  done = "${local.ours} AND severity=\"INFO\" AND jsonPayload.state=\"done\""

  # value: the numeric field of the distribution; a metric without one counts lines. labels: label => field. A label must
  # not be private and must have few values, never one for each message.
  metrics = {
    whatsapp_queue_depth = {
      says   = "Events and messages that wait for an attempt, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "pending"
    }
    whatsapp_in_doubt = {
      says   = "Messages that the provider may or may not have accepted (in doubt), at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "in_doubt"
    }
    whatsapp_dead_letters = {
      says   = "Dead letters that no operator has replayed or discarded yet, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "dead"
    }
    whatsapp_receipts_failed = {
      says   = "Messages that a receipt reports as failed and no operator has replayed yet, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "receipts_failed"
    }
    # Counts only sweeps that find one: their share of all sweeps gives the outage's duration, for one sender or for ten.
    whatsapp_provider_down = {
      says   = "Senders whose provider is down, at each sweep that finds one."
      filter = "${local.ours} AND jsonPayload.event=\"swept\" AND jsonPayload.provider_down>0"
      value  = "provider_down"
    }
    whatsapp_backend_down = {
      says   = "Backends that are down, at each sweep that finds one."
      filter = "${local.ours} AND jsonPayload.event=\"swept\" AND jsonPayload.backend_down>0"
      value  = "backend_down"
    }
    whatsapp_oldest_pending_seconds = {
      says   = "Age of the oldest waiting event or message, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "oldest_pending_seconds"
      unit   = "s"
    }
    whatsapp_oldest_dead_seconds = {
      says   = "Age of the oldest dead letter since it was received, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "oldest_dead_seconds"
      unit   = "s"
    }
    whatsapp_sweeps_total = {
      says   = "Completed sweeps."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
    }
    # For every channel. It is named after the gateway, whose connection is the least reliable.
    whatsapp_evolution_connected = {
      says   = "1 if a sender is connected, 0 if the provider rejects its credential or has blocked it, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"sender_checked\""
      value  = "connected"
      labels = { phone_number_id = "phone_number_id", tenant = "tenant", reason = "reason" }
    }
    # An extractor copies a label from a line and cannot translate it, so the line itself has the status. The filter names both
    # values, because a handler may print a field of this name with any value.
    whatsapp_messages_processed_total = {
      says   = "success: events handled (stage inbound), messages accepted by the provider (stage outbound). failed: dead letters, and accepted messages that a receipt reports as failed."
      filter = "${local.ours} AND jsonPayload.status=(\"success\" OR \"failed\")"
      labels = { stage = "stage", status = "status" }
    }
    whatsapp_message_latency_seconds = {
      says   = "Time from the webhook to the handler's end (stage inbound), and from there to the provider (stage outbound)."
      filter = "${local.done} AND jsonPayload.latency_seconds>=0"
      value  = "latency_seconds"
      unit   = "s"
      labels = { stage = "stage" }
    }
    whatsapp_unknown_sender_total = {
      says   = "Events for a phone number ID that no tenant owns: stored, but not processed."
      filter = "${local.ours} AND jsonPayload.event=\"inbound_new\" AND jsonPayload.reason=\"unknown_sender\""
      labels = { phone_number_id = "phone_number_id" }
    }
    whatsapp_dead_lettered_total = {
      says   = "Deliveries that became dead letters, by reason and code."
      filter = "${local.ours} AND jsonPayload.event=\"dead_lettered\""
      labels = { stage = "stage", reason = "reason", code = "code" }
    }
    whatsapp_receipt_failed_total = {
      says   = "Receipts that report an accepted message as failed, by error code."
      filter = "${local.ours} AND jsonPayload.event=\"receipt_failed\""
      labels = { code = "code" }
    }
    whatsapp_needs_reauth_total = {
      says   = "Sends whose credential the provider rejected."
      filter = "${local.ours} AND jsonPayload.event=\"tenant_needs_reauth\""
      labels = { tenant = "tenant", code = "code" }
    }
    whatsapp_sender_blocked_total = {
      says   = "Sends that the provider rejected because it has blocked the sender."
      filter = "${local.ours} AND jsonPayload.event=\"sender_blocked\""
      labels = { phone_number_id = "phone_number_id", code = "code" }
    }
    whatsapp_webhooks_refused_total = {
      says   = "Webhook requests rejected for a missing or wrong signature, a wrong verify token, or their size."
      filter = "${local.ours} AND jsonPayload.event=\"webhook_refused\""
      labels = { reason = "reason" }
    }
  }
}

# A metric counts from its creation; it does not count earlier lines.
resource "google_logging_metric" "this" {
  for_each = local.metrics

  project         = var.project
  name            = each.key
  description     = each.value.says
  filter          = each.value.filter
  value_extractor = can(each.value.value) ? "EXTRACT(jsonPayload.${each.value.value})" : null
  label_extractors = {
    for label, field in try(each.value.labels, {}) : label => "EXTRACT(jsonPayload.${field})"
  }

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = can(each.value.value) ? "DISTRIBUTION" : "INT64"
    unit        = try(each.value.unit, "1")

    dynamic "labels" {
      for_each = try(each.value.labels, {})
      content {
        key        = labels.key
        value_type = "STRING"
      }
    }
  }
  # From 0.1 to 200,000: seconds of latency, or messages of a backlog. Only the dashboard's percentiles use the buckets.
  dynamic "bucket_options" {
    for_each = can(each.value.value) ? [true] : []
    content {
      exponential_buckets {
        scale              = 0.1
        growth_factor      = 2
        num_finite_buckets = 21
      }
    }
  }
}

resource "google_monitoring_notification_channel" "email" {
  for_each = toset(var.alert_emails)

  project      = var.project
  display_name = each.key
  type         = "email"
  labels       = { email_address = each.key }
  # When an address leaves the list, the policies still name its channel, and the API would refuse to delete it.
  force_delete = true
}

# A check also covers the store and the queue. It runs every five minutes, because each call may start an instance. It does
# not use /readyz: from outside, some paths that end in z are Google's own (https://cloud.google.com/run/docs/known-issues).
resource "google_monitoring_uptime_check_config" "this" {
  for_each = local.down

  project      = var.project
  display_name = "Pombo ${var.environment}: ${each.key}"
  timeout      = "10s"
  period       = "300s"

  http_check {
    request_method = "GET"
    path           = "/health"
    port           = 443
    use_ssl        = true
    validate_ssl   = true
  }
  content_matchers {
    content = "\"ok\""
    matcher = "MATCHES_JSON_PATH"
    json_path_matcher {
      json_path    = "$.status"
      json_matcher = "EXACT_MATCH"
    }
  }
  monitored_resource {
    type = "uptime_url"
    labels = {
      project_id = var.project
      host       = var.hosts[each.key]
    }
  }
}

moved {
  from = google_monitoring_uptime_check_config.webhook
  to   = google_monitoring_uptime_check_config.this["webhook"]
}
