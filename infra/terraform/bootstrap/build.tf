# Where images are kept, and who tests, builds, scans and pushes them. It runs whatever a commit brings along, so it may
# deploy nothing and act as nobody (deploy.tf has who may).

resource "google_artifact_registry_repository" "images" {
  project       = var.project
  location      = var.region
  repository_id = "pombo"
  format        = "DOCKER"
  kms_key_name  = var.kms_key

  # Tags may move: what is deployed is named by its digest, and a repository whose tags are immutable may keep what is
  # tagged, which is everything, from the rules below. What serves and what served before it
  # (infra/release/registry.py), however old they are: a rollback deploys one, and the end of a failed deployment the
  # other. An image that a KEEP rule names is kept, whatever a DELETE rule says.
  cleanup_policies {
    id     = "keep-deployed"
    action = "KEEP"
    condition {
      tag_state    = "TAGGED"
      tag_prefixes = ["previous", "serving"]
    }
  }
  cleanup_policies {
    id     = "keep-recent"
    action = "KEEP"
    most_recent_versions {
      keep_count = 20
    }
  }
  cleanup_policies {
    id     = "delete-old"
    action = "DELETE"
    condition {
      older_than = "7776000s" # 90 days
    }
  }
  cleanup_policy_dry_run = false

  lifecycle {
    prevent_destroy = true
  }
  depends_on = [google_project_service.this]
}

resource "google_storage_bucket" "source" {
  project                     = var.project
  name                        = "${var.project}-build-source"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true # what was uploaded for a build, and is in the repository anyway

  dynamic "encryption" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      default_kms_key_name = encryption.value
    }
  }
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age = 30
    }
  }
  depends_on = [google_project_service.this]
}

resource "google_service_account" "build" {
  project      = var.project
  account_id   = "pombo-build"
  display_name = "Pombo: tests and builds"
  depends_on   = [google_project_service.this]
}

locals {
  # From the account's own argument: known before it exists, and still in order behind it.
  build = "serviceAccount:${google_service_account.build.account_id}@${var.project}.iam.gserviceaccount.com"
}

resource "google_artifact_registry_repository_iam_member" "build_pushes" {
  project    = var.project
  location   = var.region
  repository = google_artifact_registry_repository.images.repository_id
  role       = "roles/artifactregistry.writer"
  member     = local.build
}

resource "google_storage_bucket_iam_member" "build_reads_source" {
  bucket = google_storage_bucket.source.name
  role   = "roles/storage.objectViewer"
  member = local.build
}

resource "google_project_iam_member" "build_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = local.build
}

# The build scans an image before it pushes it. There is no lesser role that may start a scan.
resource "google_project_iam_member" "build_scans" {
  project = var.project
  role    = "roles/ondemandscanning.admin"
  member  = local.build
}
