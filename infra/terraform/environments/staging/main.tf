terraform {
  required_version = ">= 1.11"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.7"
    }
  }
  # The bucket is named at init: -backend-config=bucket=<project>-terraform-state
  backend "gcs" {
    prefix = "staging"
  }
}

provider "google" {
  project = var.project
  region  = var.region
  # A user's own credentials have no quota project, and several of these APIs refuse a call without one.
  user_project_override = true
  billing_project       = var.project
}

module "pombo" {
  source      = "../../modules/pombo"
  environment = "staging"

  project                  = var.project
  region                   = var.region
  firestore_location       = var.firestore_location
  scheduler_region         = var.scheduler_region
  whatsapp_phone_number_id = var.whatsapp_phone_number_id
  meta_app_id              = var.meta_app_id
  handler                  = var.handler
  handler_url              = var.handler_url
  handler_variables        = var.handler_variables
  handler_secrets          = var.handler_secrets
  images                   = var.images
  settings                 = var.settings
  secret_versions          = var.secret_versions
  min_instances            = var.min_instances
  max_instances            = var.max_instances
  memory                   = var.memory
  queue_suffix             = var.queue_suffix
  queue_log_sampling       = var.queue_log_sampling
  store                    = var.store
  redis                    = var.redis
  redis_auth               = var.redis_auth
  media_bucket             = var.media_bucket
  alert_emails             = var.alert_emails
  alert_thresholds         = var.alert_thresholds
  runbook                  = var.runbook
  outbound_rate            = var.outbound_rate
  critical_channels        = var.critical_channels
  warning_channels         = var.warning_channels
  log_location             = var.log_location
  audited_apis             = var.audited_apis
  kms_key                  = var.kms_key
  firestore_backups        = var.firestore_backups
  budget                   = var.budget

  tenant_queues                      = var.tenant_queues
  tenant_queue_per_second            = var.tenant_queue_per_second
  max_concurrency_per_tenant         = var.max_concurrency_per_tenant
  inbound_tenant_queue_per_second    = var.inbound_tenant_queue_per_second
  inbound_max_concurrency_per_tenant = var.inbound_max_concurrency_per_tenant
}
