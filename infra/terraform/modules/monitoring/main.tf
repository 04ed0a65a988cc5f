# Metrics out of the services' own log lines, and what tells a person. docs/runbook.md has a section for each alert.
#
# A metric made of logs is a count of lines, or a distribution of a number in them; there are no gauges. What the sweep
# reports once a minute (how much waits, how old the oldest is) is therefore a distribution of one value a minute, and the
# mean of a distribution is exact: sum over count, whatever its buckets. A percentile would be a guess within a bucket.
# https://cloud.google.com/logging/docs/logs-based-metrics
#
# A filter has only field = value (or one of several values), comparisons and AND. Tests hold each to the lines of a run, and
# know no other syntax.

terraform {
  required_providers {
    google = {
      source = "hashicorp/google"
    }
  }
}

locals {
  # Either service: both write through shared/logs.py, and the project is ours alone.
  ours = "resource.type=\"cloud_run_revision\""
  # What has come to its good end: an event that was handled, a message that the provider has. An attempt that came too
  # late may find the same state, and is a warning.
  done = "${local.ours} AND severity=\"INFO\" AND jsonPayload.state=\"done\""

  # value: the field whose number is taken; a metric without one counts lines. labels: label => field. A label is never
  # anything with as many values as there are messages, and never anything private.
  metrics = {
    whatsapp_queue_depth = {
      says   = "Events and messages that wait for an attempt, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "pending"
    }
    whatsapp_in_doubt = {
      says   = "Messages of which the provider may or may not have a copy, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "in_doubt"
    }
    whatsapp_dead_letters = {
      says   = "Dead letters that no person has replayed or discarded yet, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "dead"
    }
    whatsapp_receipts_failed = {
      says   = "Messages that a receipt reports as failed and that no operator has replayed yet, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "receipts_failed"
    }
    # Only of sweeps that find one: their share of all sweeps is how long it lasted, whether one sender was down or ten.
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
      says   = "How long the oldest that waits has been here, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "oldest_pending_seconds"
      unit   = "s"
    }
    whatsapp_oldest_dead_seconds = {
      says   = "How long ago the oldest dead letter was received, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
      value  = "oldest_dead_seconds"
      unit   = "s"
    }
    whatsapp_sweeps_total = {
      says   = "Sweeps that came to their end."
      filter = "${local.ours} AND jsonPayload.event=\"swept\""
    }
    # For every channel. The name is that of the gateway's, whose connection is the least sure.
    whatsapp_evolution_connected = {
      says   = "1 where a sender is connected, 0 where its credential is refused or the provider has blocked it, at each sweep."
      filter = "${local.ours} AND jsonPayload.event=\"sender_checked\""
      value  = "connected"
      labels = { phone_number_id = "phone_number_id", tenant = "tenant", reason = "reason" }
    }
    # An extractor takes a label out of a line and cannot translate it, so the line says the status. The two values are named
    # here as well: a handler may print a field of this name with any value.
    whatsapp_messages_processed_total = {
      says   = "success: events handled (stage inbound), messages accepted by the provider (stage outbound). failed: dead letters, and accepted messages that a receipt reports as failed."
      filter = "${local.ours} AND jsonPayload.status=(\"success\" OR \"failed\")"
      labels = { stage = "stage", status = "status" }
    }
    whatsapp_message_latency_seconds = {
      says   = "From the webhook to the handler's end (stage inbound), from there to the provider (stage outbound)."
      filter = "${local.done} AND jsonPayload.latency_seconds>=0"
      value  = "latency_seconds"
      unit   = "s"
      labels = { stage = "stage" }
    }
    whatsapp_unknown_sender_total = {
      says   = "Events for a number that is nobody's here: stored, and handled by nobody."
      filter = "${local.ours} AND jsonPayload.event=\"inbound_new\" AND jsonPayload.reason=\"unknown_sender\""
      labels = { phone_number_id = "phone_number_id" }
    }
    whatsapp_dead_lettered_total = {
      says   = "Deliveries that died, by what they died of."
      filter = "${local.ours} AND jsonPayload.event=\"dead_lettered\""
      labels = { stage = "stage", reason = "reason", code = "code" }
    }
    whatsapp_receipt_failed_total = {
      says   = "Receipts by which the provider reports an accepted message as failed, by its error code."
      filter = "${local.ours} AND jsonPayload.event=\"receipt_failed\""
      labels = { code = "code" }
    }
    whatsapp_needs_reauth_total = {
      says   = "Sends for which the provider refused the credential."
      filter = "${local.ours} AND jsonPayload.event=\"tenant_needs_reauth\""
      labels = { tenant = "tenant", code = "code" }
    }
    whatsapp_sender_blocked_total = {
      says   = "Sends for which the provider said that the sender is blocked."
      filter = "${local.ours} AND jsonPayload.event=\"sender_blocked\""
      labels = { phone_number_id = "phone_number_id", code = "code" }
    }
    whatsapp_webhooks_refused_total = {
      says   = "Webhooks without a right signature, with a wrong verify token, or too large."
      filter = "${local.ours} AND jsonPayload.event=\"webhook_refused\""
      labels = { reason = "reason" }
    }
  }
}

# It counts from when it is there; what was logged before is not counted.
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
  # From a tenth to 200,000: seconds of a latency, or messages of a backlog. For the dashboard's percentiles alone.
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
  # An address that is taken out of the list is still named by the policies at that moment, and the API would refuse.
  force_delete = true
}

# The store and the queue behind it are asked too. Five minutes: each call may start an instance. Not /readyz, from outside:
# some paths that end in z are Google's own (https://cloud.google.com/run/docs/known-issues).
resource "google_monitoring_uptime_check_config" "webhook" {
  project      = var.project
  display_name = "Pombo ${var.environment}: webhook"
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
      host       = var.webhook_host
    }
  }
}
