# The bucket for uploads of `gcloud run deploy --source` (make deploy). gcloud would create it by its name, keep objects
# for ever and leave it without rules; it uses an existing bucket if it belongs to this project.

locals {
  # gcloud 528's name for it (command_lib/run/sourcedeploys/sources.py): a bucket's name may not contain these.
  sources = "run-sources-${replace(replace(replace(var.project, ":", "_"), ".", "_"), "google", "elgoog")}-${var.region}"
}

resource "google_storage_bucket" "run_sources" {
  project                     = var.project
  name                        = local.sources
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

resource "google_storage_bucket_iam_member" "build_reads_run_sources" {
  bucket = google_storage_bucket.run_sources.name
  role   = "roles/storage.objectViewer"
  member = local.build
}
