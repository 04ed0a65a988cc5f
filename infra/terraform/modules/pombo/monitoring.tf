# What the environment tells of itself, and what it keeps of that. Of the queues only the two that every environment has: another tenant changes
# nothing here.

module "monitoring" {
  source           = "../monitoring"
  project          = var.project
  environment      = var.environment
  services         = { for name, it in module.run : name => it.name }
  queues           = { for kind in ["inbound", "outbound"] : kind => module.tasks.names[kind] }
  sweep_job        = module.scheduler.name
  webhook_host     = local.hosts["webhook"]
  alert_emails     = var.alert_emails
  alert_thresholds = var.alert_thresholds
  runbook          = var.runbook
}

module "logs" {
  source  = "../logs"
  project = var.project
}
