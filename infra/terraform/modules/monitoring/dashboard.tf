# The dashboard. Its rows: queue depth, throughput, dead letters, failed receipts and rejected sends, outages, webhook,
# API. Written as Google's API returns it (a zero is left out), so that a plan shows no change.

locals {
  # The mean of the last five sweeps; 0 if no sweep found one.
  down_count = {
    for what in ["provider", "backend"] : what =>
    "(sum(increase(${local.series["whatsapp_${what}_down"]}_sum${local.from}[5m])) or vector(0)) / ${local.sweeps_of_5m}"
  }
  charts = [
    {
      title  = "Queue depth: waiting events and messages"
      lines  = [{ legend = "waiting", query = local.mean["whatsapp_queue_depth"] }]
      limits = [local.above["queue_depth_warning"], local.above["queue_depth_critical"]]
    },
    {
      title  = "Age of the oldest waiting event or message, in seconds"
      lines  = [{ legend = "oldest", query = local.mean["whatsapp_oldest_pending_seconds"] }]
      limits = [local.above["oldest_pending"] * 60]
    },
    {
      title = "Tasks in the queues"
      lines = [
        for kind, queue in var.queues : { legend = kind, query = "sum(cloudtasks_googleapis_com:queue_depth{monitored_resource=\"cloud_tasks_queue\",queue_id=~\"${queue}\"})" }
      ]
      limits = []
    },
    {
      title  = "Processed per second"
      lines  = [{ query = "sum by (stage, status) (rate(${local.ended}${local.from}[5m]))" }]
      limits = []
    },
    {
      title = "Latency in seconds: median and 95th percentile"
      lines = [
        for share in [0.5, 0.95] : { query = "histogram_quantile(${share}, sum by (le, stage) (rate(${local.series["whatsapp_message_latency_seconds"]}_bucket${local.from}[5m])))" }
      ]
      limits = []
    },
    {
      title  = "Sweeps in 5 minutes"
      lines  = [{ legend = "sweeps", query = local.sweeps_of_5m }]
      limits = []
    },
    {
      title = "Dead letters and messages in doubt"
      lines = [
        { legend = "dead", query = local.mean["whatsapp_dead_letters"] },
        { legend = "in doubt", query = local.mean["whatsapp_in_doubt"] },
      ]
      limits = [local.above["dead_letters_warning"], local.above["dead_letters_critical"]]
    },
    {
      title  = "Age of the oldest dead letter, in seconds"
      lines  = [{ legend = "oldest", query = local.mean["whatsapp_oldest_dead_seconds"] }]
      limits = [local.above["oldest_dead"] * 86400]
    },
    {
      title  = "New dead letters, by reason and code"
      lines  = [{ query = "sum by (stage, reason, code) (increase(${local.series["whatsapp_dead_lettered_total"]}${local.from}[5m]))" }]
      limits = []
    },
    {
      title  = "Failed receipts not yet replayed"
      lines  = [{ legend = "waiting", query = local.mean["whatsapp_receipts_failed"] }]
      limits = []
    },
    {
      title  = "Failed receipts in 5 minutes, by code"
      lines  = [{ query = "sum by (code) (increase(${local.series["whatsapp_receipt_failed_total"]}${local.from}[5m]))" }]
      limits = []
    },
    {
      title  = "Failed receipts in 15 minutes, in % of the accepted messages"
      lines  = [{ legend = "failed", query = "100 * ${local.failed_receipts} / ${local.accepted}" }]
      limits = [local.above["failed_receipts_percent"]]
    },
    {
      title = "Sends rejected: credential or blocked sender"
      lines = [
        { query = "sum by (tenant, code) (increase(${local.series["whatsapp_needs_reauth_total"]}${local.from}[5m]))" },
        { query = "sum by (phone_number_id, code) (increase(${local.series["whatsapp_sender_blocked_total"]}${local.from}[5m]))" },
      ]
      limits = []
    },
    {
      title  = "Connected senders (1), disconnected (0)"
      lines  = [{ query = local.connected_share }]
      limits = []
    },
    {
      title  = "Providers down"
      lines  = [{ legend = "senders", query = local.down_count["provider"] }]
      limits = []
    },
    {
      title  = "Backends down"
      lines  = [{ legend = "backends", query = local.down_count["backend"] }]
      limits = []
    },
    {
      title = "Webhook: responses and rejections per second"
      lines = [
        { query = "sum by (response_code_class) (rate(${local.requests}{${local.webhook}}[5m]))" },
        { query = "sum by (reason) (rate(${local.series["whatsapp_webhooks_refused_total"]}${local.from}[5m]))" },
      ]
      limits = []
    },
    {
      title  = "Webhook: 95th percentile of latency, in ms"
      lines  = [{ legend = "95th percentile", query = local.p95["webhook"] }]
      limits = [local.above["webhook_p95"]]
    },
    {
      title  = "API: responses per second"
      lines  = [{ query = "sum by (response_code_class) (rate(${local.requests}{${local.api}}[5m]))" }]
      limits = []
    },
    {
      title  = "API: 95th percentile of latency, in ms"
      lines  = [{ legend = "95th percentile", query = local.p95["api"] }]
      limits = [local.above["api_p95"]]
    },
    {
      title  = "API: answers 401 (no valid key) and 429 (above a key's rate) in 5 minutes"
      lines  = [{ query = local.api_refusals }]
      limits = [local.above["api_refused"]]
    },
  ]
  tiles = [
    for at, chart in local.charts : merge(
      {
        width  = 16
        height = 16
        widget = {
          title = chart.title
          xyChart = merge({
            dataSets = [
              for line in chart.lines : merge({
                plotType        = "LINE"
                targetAxis      = "Y1"
                timeSeriesQuery = { prometheusQuery = line.query }
              }, can(line.legend) ? { legendTemplate = line.legend } : {})
            ]
          }, length(chart.limits) == 0 ? {} : { thresholds = [for limit in chart.limits : { value = limit, targetAxis = "Y1" }] })
        }
      },
      at % 3 == 0 ? {} : { xPos = at % 3 * 16 },
      at < 3 ? {} : { yPos = floor(at / 3) * 16 },
    )
  ]
  errors = {
    width  = 48
    height = 16
    yPos   = ceil(length(local.charts) / 3) * 16
    widget = {
      title = "Errors"
      logsPanel = {
        filter        = "${local.ours} AND severity>=\"ERROR\""
        resourceNames = ["projects/${var.project}"]
      }
    }
  }
}

resource "google_monitoring_dashboard" "this" {
  project = var.project
  dashboard_json = jsonencode({
    displayName  = "Pombo ${var.environment}"
    mosaicLayout = { columns = 48, tiles = concat(local.tiles, [local.errors]) }
  })
}
