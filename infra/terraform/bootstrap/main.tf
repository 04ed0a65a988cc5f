# Once a project: what an environment needs to be there before it.

terraform {
  required_version = ">= 1.11"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.7"
    }
  }
  # gcloud makes the bucket before the first init (README.md); from then on it is one of the resources below.
  backend "gcs" {
    prefix = "bootstrap"
  }
}

provider "google" {
  project = var.project
  region  = var.region
  # A person's own credentials carry no quota project; several of these APIs refuse a call without one.
  user_project_override = true
  billing_project       = var.project
}

locals {
  # cloudresourcemanager, serviceusage and storage have to be on before Terraform can look at a project at all (README.md).
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
  # Not for everybody: in a project outside an organization, compute makes a network "default" that lets SSH in.
  apis_of_redis = ["compute", "redis"]
  # Every secret of the services' configuration (shared/config/settings.py), also those that are not used yet.
  secrets = [
    "HANDLER_URL_SECRET",
    "INTERNAL_TASK_TOKEN",
    "META_APP_SECRET",
    "META_VERIFY_TOKEN",
    "REDIS_URL",
    "WHATSAPP_ACCESS_TOKEN",
  ]
}

resource "google_project_service" "this" {
  for_each = toset(concat(local.apis, var.redis ? local.apis_of_redis : []))

  project = var.project
  service = "${each.key}.googleapis.com"
  # Others may use it too, and to turn it off and on again loses what hangs on it.
  disable_on_destroy = false

  # An API is said to be on minutes before it answers, and the provider does not retry what is refused until then: whatever
  # depends on this waits. The program is run once, when the API is turned on.
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
