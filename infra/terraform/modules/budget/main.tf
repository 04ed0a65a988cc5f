# A monthly budget that notifies. It stops nothing.

resource "google_billing_budget" "this" {
  billing_account = var.billing_account
  display_name    = "Pombo ${var.environment}"

  budget_filter {
    projects = ["projects/${var.project_number}"]
  }
  amount {
    specified_amount {
      units = tostring(var.amount)
    }
  }
  threshold_rules {
    threshold_percent = 0.5
  }
  threshold_rules {
    threshold_percent = 1
  }
  # Before it is spent: Google's forecast for the month.
  threshold_rules {
    threshold_percent = 1
    spend_basis       = "FORECASTED_SPEND"
  }
  # In addition to the billing account's administrators. The API allows five at most.
  dynamic "all_updates_rule" {
    for_each = length(var.channels) == 0 ? [] : [slice(var.channels, 0, min(5, length(var.channels)))]
    content {
      monitoring_notification_channels = all_updates_rule.value
    }
  }
}
