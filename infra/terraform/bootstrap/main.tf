# Once per project: what an environment needs before it can be created.

terraform {
  required_version = ">= 1.11"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.7"
    }
  }
  # gcloud creates the bucket before the first init (README.md); from then on it is one of the resources below.
  backend "gcs" {
    prefix = "bootstrap"
  }
}

provider "google" {
  project = var.project
  region  = var.region
  # A user's own credentials have no quota project, and several of these APIs refuse a call without one.
  user_project_override = true
  billing_project       = var.project
}

locals {
  # cloudresourcemanager, serviceusage and storage must be enabled before Terraform can read a project at all
  # (README.md).
  apis = [
    "artifactregistry",
    "billingbudgets", # for budget
    "cloudbuild",
    "cloudkms", # for kms_key
    "cloudresourcemanager",
    "cloudscheduler",
    "cloudtasks",
    "firestore",
    "iam",
    "iamcredentials",
    "logging",
    "monitoring",
    "ondemandscanning",
    "run",
    "secretmanager",
    "serviceusage",
    "storage",
  ]
  # Only if needed: in a project without an organization, compute creates a network "default" that allows SSH.
  apis_of_redis = ["compute", "redis"]
  # Every secret in the services' configuration (shared/config/settings.py), including those that are not used yet.
  secrets = [
    "HANDLER_URL_SECRET",
    "INTERNAL_TASK_TOKEN",
    "META_APP_SECRET",
    "META_VERIFY_TOKEN",
    "ID_KEY",
    "REDIS_URL",
    "WHATSAPP_ACCESS_TOKEN",
  ]
}

resource "google_project_service" "this" {
  for_each = toset(concat(local.apis, var.redis ? local.apis_of_redis : []))

  project = var.project
  service = "${each.key}.googleapis.com"
  # Other programs may use the API, and disabling it loses what depends on it.
  disable_on_destroy = false

  # An API counts as enabled minutes before it answers, and the provider does not retry a refusal meanwhile: whatever
  # depends on this resource waits. The program runs once, when the API is enabled.
  provisioner "local-exec" {
    command = "python3 \"${path.module}/../../release/wait_for_apis.py\" --project=\"${var.project}\" --region=\"${var.region}\" ${each.key}"
  }
}

import {
  to = google_storage_bucket.state
  id = "${var.project}/${var.project}-terraform-state"
}

resource "google_storage_bucket" "state" {
  project                     = var.project
  name                        = "${var.project}-terraform-state"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false

  dynamic "encryption" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      default_kms_key_name = encryption.value
    }
  }
  versioning {
    enabled = true
  }
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      num_newer_versions = 50
      with_state         = "ARCHIVED"
    }
  }
  lifecycle {
    prevent_destroy = true
  }
  depends_on = [google_project_service.this]
}

module "secrets" {
  source     = "../modules/secrets"
  project    = var.project
  names      = concat(local.secrets, tolist(var.handler_secrets))
  locations  = var.secret_locations
  kms_key    = var.kms_key
  depends_on = [google_project_service.this]
}
