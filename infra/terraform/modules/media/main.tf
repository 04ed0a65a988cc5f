# A private bucket for media that customers send.

resource "google_storage_bucket" "this" {
  project                     = var.project
  name                        = "${var.project}-pombo-media"
  location                    = var.location
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false

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
      age = var.retention_days
    }
  }
  # Deleted files cannot be restored: they are personal data.
  soft_delete_policy {
    retention_duration_seconds = 0
  }
  lifecycle {
    prevent_destroy = true
  }
}

resource "google_storage_bucket_iam_member" "use" {
  for_each = var.users

  bucket = google_storage_bucket.this.name
  role   = "roles/storage.objectUser"
  member = "serviceAccount:${each.value}"
}
