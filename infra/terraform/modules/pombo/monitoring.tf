# The environment's monitoring and logs. Queues are watched together, so that more of them change nothing here.

module "monitoring" {
  source           = "../monitoring"
  project          = var.project
  environment      = var.environment
  services         = { for name, it in module.run : name => it.name }
  queues           = { for kind in ["inbound", "outbound"] : kind => "${kind}(-t[0-9]+)?${var.queue_suffix}" }
  sweep_job        = module.scheduler.name
  hosts            = local.hosts
  alert_emails     = var.alert_emails
  alert_thresholds = var.alert_thresholds
  runbook          = var.runbook

  critical_channels = var.critical_channels
  warning_channels  = var.warning_channels
}

module "logs" {
  source   = "../logs"
  project  = var.project
  location = var.log_location
  audited  = var.audited_apis
  # The services log their own calls; an audit is about people.
  exempted = [for name in keys(local.services) : "serviceAccount:${local.accounts[name]}"]
  # An audit can exempt only existing accounts.
  depends_on = [module.iam]
}

module "budget" {
  source          = "../budget"
  count           = var.budget == null ? 0 : 1
  project_number  = data.google_project.this.number
  environment     = var.environment
  billing_account = var.budget.billing_account
  amount          = var.budget.amount
  channels        = module.monitoring.warning_channels
}
