# The alerts. They use PromQL for three reasons. A policy can be created before its metric has a point, or even exists
# (disable_metric_validation), so the first apply succeeds without waiting. PromQL can compute the mean of a distribution.
# "vector(0)" gives a value where there is none, so the alert notices a sweep that never ran as well as one that stopped.
# (An absence condition starts counting at the first point: https://cloud.google.com/monitoring/alerts/metric-absence.)
# A metric's name in PromQL: https://cloud.google.com/monitoring/promql/promql-mapping.

locals {
  # Numbers that alert_thresholds may replace. Depth and dead letters are counts; minutes where it says so.
  default_thresholds = {
    queue_depth_warning     = 100
    queue_depth_critical    = 1000
    dead_letters_warning    = 10
    dead_letters_critical   = 50
    disconnected_warning    = 2  # minutes
    disconnected_critical   = 10 # minutes
    provider_down_warning   = 5  # minutes
    provider_down_critical  = 30 # minutes
    backend_down_warning    = 5  # minutes
    backend_down_critical   = 30 # minutes
    failed_receipts_percent = 20 # of the messages that the provider accepted, in 15 minutes
    failed_receipts_least   = 5  # in 15 minutes: one failed message of two at night is no alert
    sweep_silent            = 15 # minutes; a count may arrive 10 minutes late, and no record is overdue before 10 (SWEEP_AFTER)
    processed_per_second    = 0.5
    waiting                 = 30   # one minute's work at that rate: with a shorter queue, a low rate is harmless
    oldest_pending          = 30   # minutes; the backoff of all eight attempts together is 15
    oldest_dead             = 90   # days
    unknown_sender          = 0    # events in 10 minutes
    webhook_errors          = 5    # in 5 minutes
    webhook_p95             = 200  # milliseconds
    webhook_p95_of_at_least = 100  # requests in 10 minutes: with fewer, a cold start alone would fire it
    api_errors_percent      = 5    # of the responses in 5 minutes
    api_errors_least        = 5    # in 5 minutes: one failed request of two at night is no alert
    api_p95                 = 1000 # milliseconds
    api_p95_of_at_least     = 100  # requests in 10 minutes
    api_refused             = 300  # in 5 minutes, of 401 or of 429: one a second
  }
  threshold_names = keys(local.default_thresholds)
  warnings        = [for name in local.threshold_names : name if endswith(name, "_warning")]
  above           = merge(local.default_thresholds, var.alert_thresholds)

  from   = "{monitored_resource=\"cloud_run_revision\"}"
  series = { for name in keys(local.metrics) : name => "logging_googleapis_com:user_${name}" }
  # The mean of the last five sweeps: Google counts lines some minutes late (at worst ten), and a gap would restart a
  # condition's duration.
  mean = {
    for name, it in local.metrics : name =>
    "sum(increase(${local.series[name]}_sum${local.from}[5m])) / sum(increase(${local.series[name]}_count${local.from}[5m]))"
    if can(it.value)
  }
  connected = local.series["whatsapp_evolution_connected"]
  connected_share = join(" / ", [
    for part in ["sum", "count"] : "sum by (phone_number_id) (increase(${local.connected}_${part}${local.from}[5m]))"
  ])
  sweeps       = "sum(increase(${local.series["whatsapp_sweeps_total"]}${local.from}[${local.above["sweep_silent"]}m]))"
  sweeps_of_5m = "sum(increase(${local.series["whatsapp_sweeps_total"]}${local.from}[5m]))"
  # The share of the last five sweeps that found the provider or the backend down. It has no value without a sweep or before
  # the first outage. It rises above a half, and falls below it, about three minutes after the outage begins and ends.
  down_share = {
    for what in ["provider", "backend"] : what =>
    "sum(increase(${local.series["whatsapp_${what}_down"]}_count${local.from}[5m])) / ${local.sweeps_of_5m}"
  }
  ended     = local.series["whatsapp_messages_processed_total"]
  processed = "sum(rate(${local.ended}{monitored_resource=\"cloud_run_revision\",status=\"success\"}[5m]))"
  accepted  = "sum(increase(${local.ended}{monitored_resource=\"cloud_run_revision\",stage=\"outbound\",status=\"success\"}[15m]))"
  # A message that a receipt reports as failed was accepted before, so it counts in both.
  failed_receipts = "sum(increase(${local.series["whatsapp_receipt_failed_total"]}${local.from}[15m]))"

  # Cloud Run's own metrics: they also count requests that never reached our code.
  webhook  = "monitored_resource=\"cloud_run_revision\",service_name=\"${var.services["webhook"]}\""
  api      = "monitored_resource=\"cloud_run_revision\",service_name=\"${var.services["api"]}\""
  requests = "run_googleapis_com:request_count"
  p95 = {
    for name, service in { webhook = local.webhook, api = local.api } : name =>
    "histogram_quantile(0.95, sum by (le) (rate(run_googleapis_com:request_latencies_bucket{${service}}[10m])))"
  }
  api_errors = "sum(increase(${local.requests}{${local.api},response_code_class=\"5xx\"}[5m]))"
  # The API answers 401 without a valid key, and 429 above a key's rate.
  api_refusals = "sum by (response_code) (increase(${local.requests}{${local.api},response_code=~\"401|429\"}[5m]))"

  # alert_emails receive every alert; each severity also has its own channels.
  emails = [for channel in google_monitoring_notification_channel.email : channel.name]
  channels = {
    CRITICAL = concat(local.emails, var.critical_channels)
    WARNING  = concat(local.emails, var.warning_channels)
  }

  in_an_outage = "No event or message is lost: they wait in the store and spend no attempts, while Pombo probes with backoff. One that waits longer than MESSAGE_MAX_AGE becomes a dead letter (waited)."

  # query: the alert's condition holds while this has a value. lasts: for how many minutes it must hold before the alert
  # fires. meanwhile: what Pombo does about it by itself.
  alerts = {
    queue_depth_critical = {
      severity = "CRITICAL", section = "queue-depth", lasts = 5
      says     = "More than ${local.above["queue_depth_critical"]} events and messages wait"
      query    = "${local.mean["whatsapp_queue_depth"]} > ${local.above["queue_depth_critical"]}"
    }
    queue_depth_warning = {
      severity = "WARNING", section = "queue-depth", lasts = 5
      says     = "More than ${local.above["queue_depth_warning"]} events and messages wait"
      query    = "${local.mean["whatsapp_queue_depth"]} > ${local.above["queue_depth_warning"]}"
    }
    dead_letters_critical = {
      severity = "CRITICAL", section = "dead-letters", lasts = 0
      says     = "More than ${local.above["dead_letters_critical"]} dead letters"
      query    = "${local.mean["whatsapp_dead_letters"]} > ${local.above["dead_letters_critical"]}"
    }
    dead_letters_warning = {
      severity = "WARNING", section = "dead-letters", lasts = 0
      says     = "More than ${local.above["dead_letters_warning"]} dead letters"
      query    = "${local.mean["whatsapp_dead_letters"]} > ${local.above["dead_letters_warning"]}"
    }
    sender_disconnected_critical = {
      severity = "CRITICAL", section = "sender-disconnected", lasts = local.above["disconnected_critical"]
      says     = "A sender has been disconnected for ${local.above["disconnected_critical"]} minutes"
      query    = "${local.connected_share} < 0.5"
    }
    sender_disconnected_warning = {
      severity = "WARNING", section = "sender-disconnected", lasts = local.above["disconnected_warning"]
      says     = "A sender has been disconnected for ${local.above["disconnected_warning"]} minutes"
      query    = "${local.connected_share} < 0.5"
    }
    provider_down_critical = {
      severity = "CRITICAL", section = "provider-down", lasts = local.above["provider_down_critical"]
      says     = "The provider has not taken a sender's messages for ${local.above["provider_down_critical"]} minutes"
      query    = "${local.down_share["provider"]} > 0.5", meanwhile = local.in_an_outage
    }
    provider_down_warning = {
      severity = "WARNING", section = "provider-down", lasts = local.above["provider_down_warning"]
      says     = "The provider has not taken a sender's messages for ${local.above["provider_down_warning"]} minutes"
      query    = "${local.down_share["provider"]} > 0.5", meanwhile = local.in_an_outage
    }
    backend_down_critical = {
      severity = "CRITICAL", section = "backend-down", lasts = local.above["backend_down_critical"]
      says     = "The handler's backend has not answered for ${local.above["backend_down_critical"]} minutes"
      query    = "${local.down_share["backend"]} > 0.5", meanwhile = local.in_an_outage
    }
    backend_down_warning = {
      severity = "WARNING", section = "backend-down", lasts = local.above["backend_down_warning"]
      says     = "The handler's backend has not answered for ${local.above["backend_down_warning"]} minutes"
      query    = "${local.down_share["backend"]} > 0.5", meanwhile = local.in_an_outage
    }
    failed_receipts = {
      severity  = "WARNING", section = "failed-receipts", lasts = 0
      says      = "More than ${local.above["failed_receipts_percent"]} % of the accepted messages failed within 15 minutes"
      query     = "100 * ${local.failed_receipts} > ${local.above["failed_receipts_percent"]} * (${local.accepted} or vector(0)) and ${local.failed_receipts} >= ${local.above["failed_receipts_least"]}"
      meanwhile = "The provider accepted these messages and then reported that it could not deliver them. Pombo keeps each message and does not resend it by itself; an operator can replay it."
    }
    sweep_silent = {
      severity = "CRITICAL", section = "sweep-silent", lasts = 0
      says     = "No sweep (job ${var.sweep_job}) for ${local.above["sweep_silent"]} minutes"
      query    = "(${local.sweeps} or vector(0)) < 1"
    }
    processing_slow = {
      severity = "WARNING", section = "processing-slow", lasts = 2
      says     = "Fewer than ${local.above["processed_per_second"]} events and messages a second are processed while more than ${local.above["waiting"]} wait"
      query    = "${local.mean["whatsapp_queue_depth"]} > ${local.above["waiting"]} and (${local.processed} or vector(0)) < ${local.above["processed_per_second"]}"
    }
    oldest_pending = {
      severity = "WARNING", section = "oldest-pending", lasts = 0
      says     = "An event or message has waited for more than ${local.above["oldest_pending"]} minutes"
      query    = "${local.mean["whatsapp_oldest_pending_seconds"]} > ${local.above["oldest_pending"] * 60}"
    }
    oldest_dead = {
      severity = "WARNING", section = "oldest-dead", lasts = 0
      says     = "A dead letter is older than ${local.above["oldest_dead"]} days"
      query    = "${local.mean["whatsapp_oldest_dead_seconds"]} > ${local.above["oldest_dead"] * 86400}"
    }
    needs_reauth = {
      severity = "WARNING", section = "needs-reauth", lasts = 0
      says     = "The provider rejects a sender's credential"
      query    = "sum by (phone_number_id) (increase(${local.connected}_count{monitored_resource=\"cloud_run_revision\",reason=\"needs_reauth\"}[5m])) > 0"
    }
    unknown_sender = {
      severity = "WARNING", section = "unknown-sender", lasts = 0
      says     = "Events arrive for a phone number ID that no tenant owns"
      query    = "sum by (phone_number_id) (increase(${local.series["whatsapp_unknown_sender_total"]}${local.from}[10m])) > ${local.above["unknown_sender"]}"
    }
    webhook_errors = {
      severity = "WARNING", section = "webhook-errors", lasts = 0
      says     = "The webhook answered 5xx ${local.above["webhook_errors"]} times or more in 5 minutes"
      query    = "sum(increase(${local.requests}{${local.webhook},response_code_class=\"5xx\"}[5m])) >= ${local.above["webhook_errors"]}"
    }
    webhook_slow = {
      severity = "WARNING", section = "webhook-slow", lasts = 5
      says     = "The 95th percentile of webhook latency is above ${local.above["webhook_p95"]} ms"
      query    = "${local.p95["webhook"]} > ${local.above["webhook_p95"]} and sum(increase(${local.requests}{${local.webhook}}[10m])) > ${local.above["webhook_p95_of_at_least"]}"
    }
    api_errors = {
      severity  = "WARNING", section = "api-errors", lasts = 0
      says      = "The API answered 5xx to more than ${local.above["api_errors_percent"]} % of its requests within 5 minutes"
      query     = "100 * ${local.api_errors} > ${local.above["api_errors_percent"]} * sum(increase(${local.requests}{${local.api}}[5m])) and ${local.api_errors} >= ${local.above["api_errors_least"]}"
      meanwhile = "A message that the API answered 202 is stored and will be sent. A caller that repeats a failed request with the same Idempotency-Key sends the message once."
    }
    api_slow = {
      severity = "WARNING", section = "api-slow", lasts = 5
      says     = "The 95th percentile of API latency is above ${local.above["api_p95"]} ms"
      query    = "${local.p95["api"]} > ${local.above["api_p95"]} and sum(increase(${local.requests}{${local.api}}[10m])) > ${local.above["api_p95_of_at_least"]}"
    }
    api_refused = {
      severity  = "WARNING", section = "api-refused", lasts = 0
      says      = "The API answered 401 or 429 more than ${local.above["api_refused"]} times within 5 minutes"
      query     = "${local.api_refusals} > ${local.above["api_refused"]}"
      meanwhile = "For information: the other callers are served as before."
    }
  }
}

resource "google_monitoring_alert_policy" "this" {
  for_each = local.alerts

  project               = var.project
  display_name          = "Pombo ${var.environment}: ${each.value.says}"
  severity              = each.value.severity
  combiner              = "OR"
  notification_channels = local.channels[each.value.severity]

  conditions {
    display_name = each.value.says

    condition_prometheus_query_language {
      query                     = each.value.query
      duration                  = "${each.value.lasts * 60}s"
      evaluation_interval       = "60s" # as often as the sweep reports
      disable_metric_validation = true
    }
  }
  documentation {
    subject   = "Pombo ${var.environment}: ${each.value.says}"
    content   = "${each.value.says}. ${can(each.value.meanwhile) ? "${each.value.meanwhile} " : ""}Runbook: ${var.runbook}#${each.value.section}"
    mime_type = "text/markdown"
  }
  # Closes the alert when its metric is no longer reported.
  alert_strategy {
    auto_close           = "1800s"
    notification_prompts = ["OPENED", "CLOSED"]
  }
  depends_on = [google_logging_metric.this]
}

locals {
  # The public services: what each failing uptime check means.
  down = {
    webhook = {
      says    = "The webhook, its store or its queue is down"
      details = "The webhook does not answer /health, or its status is not ok. Meta redelivers webhooks for 7 days."
    }
    api = {
      says    = "The API, its store or its queue is down"
      details = "The API does not answer /health, or its status is not ok. Messages that it answered 202 are stored and will be sent."
    }
  }
}

# As the console creates it for an uptime check: it fires if the check fails from two locations at once. It selects the check
# by host, because the check's id is known only after it is created.
resource "google_monitoring_alert_policy" "down" {
  for_each = local.down

  project               = var.project
  display_name          = "Pombo ${var.environment}: ${each.value.says}"
  severity              = "CRITICAL"
  combiner              = "OR"
  notification_channels = local.channels["CRITICAL"]

  conditions {
    display_name = "The uptime check fails"

    condition_threshold {
      filter          = "resource.type=\"uptime_url\" AND metric.type=\"monitoring.googleapis.com/uptime_check/check_passed\" AND resource.labels.host=\"${var.hosts[each.key]}\""
      comparison      = "COMPARISON_GT"
      threshold_value = 1
      duration        = "60s"

      # The last result of each location within 20 minutes; locations that report false are counted.
      aggregations {
        alignment_period     = "1200s"
        per_series_aligner   = "ALIGN_NEXT_OLDER"
        cross_series_reducer = "REDUCE_COUNT_FALSE"
        group_by_fields      = ["resource.label.host"]
      }
      trigger {
        count = 1
      }
    }
  }
  documentation {
    subject   = "Pombo ${var.environment}: ${each.value.says}"
    content   = "${each.value.details} Runbook: ${var.runbook}#${each.key}-down"
    mime_type = "text/markdown"
  }
  alert_strategy {
    auto_close           = "1800s"
    notification_prompts = ["OPENED", "CLOSED"]
  }
  depends_on = [google_monitoring_uptime_check_config.this]
}

# In an earlier version the webhook was the only public service.
moved {
  from = google_monitoring_alert_policy.webhook_down
  to   = google_monitoring_alert_policy.down["webhook"]
}
