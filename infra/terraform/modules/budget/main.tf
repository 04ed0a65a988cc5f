# What a month may cost before somebody is told. It stops nothing.

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
  # Before it is spent: what a month will come to, as Google reckons.
  threshold_rules {
    threshold_percent = 1
    spend_basis       = "FORECASTED_SPEND"
  }
  # Beside those who administer the billing account. The API takes five at most.
  dynamic "all_updates_rule" {
    for_each = length(var.channels) == 0 ? [] : [slice(var.channels, 0, min(5, length(var.channels)))]
    content {
      monitoring_notification_channels = all_updates_rule.value
    }
  }
}
