# What `gcloud run deploy --source` uploads (make deploy). gcloud would make this bucket by its name, kept for ever and read by
# nobody; it takes one that is there, if it is of this project.

locals {
  # As gcloud 528 names it (command_lib/run/sourcedeploys/sources.py): no bucket's name may hold these.
  sources = "run-sources-${replace(replace(replace(var.project, ":", "_"), ".", "_"), "google", "elgoog")}-${var.region}"
}

resource "google_storage_bucket" "run_sources" {
  project                     = var.project
  name                        = local.sources
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

resource "google_storage_bucket_iam_member" "build_reads_run_sources" {
  bucket = google_storage_bucket.run_sources.name
  role   = "roles/storage.objectViewer"
  member = local.build
}
