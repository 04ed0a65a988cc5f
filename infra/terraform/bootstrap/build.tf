# The image repository, and the account that tests, builds, scans and pushes. It runs any code that a commit contains,
# so it may not deploy, and may not act as another account (deploy.tf defines who may).

resource "google_artifact_registry_repository" "images" {
  project       = var.project
  location      = var.region
  repository_id = "pombo"
  format        = "DOCKER"
  kms_key_name  = var.kms_key

  # Tags may move, because deployments name an image by its digest. With immutable tags, the cleanup rules below might
  # keep every tagged image, and all are tagged. The serving image and the previous one (infra/release/registry.py) are
  # kept at any age: a rollback deploys the previous one, and a failed deployment ends with the serving one. A KEEP rule
  # wins over a DELETE rule.
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
  force_destroy               = true # uploads for builds, whose source is in the repository anyway

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
  # From the account's own argument: known before the account exists, and still ordered after it.
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

# The build scans an image before it pushes it. No smaller role allows to start a scan.
resource "google_project_iam_member" "build_scans" {
  project = var.project
  role    = "roles/ondemandscanning.admin"
  member  = local.build
}
