# Secrets without values: an operator adds those with gcloud, so no state contains them.

resource "google_secret_manager_secret" "this" {
  for_each = toset(var.names)

  project   = var.project
  secret_id = each.key
  # A version that was destroyed by mistake can be restored for a day.
  version_destroy_ttl = "86400s"
  deletion_protection = true

  replication {
    # Google chooses the locations unless they are named.
    dynamic "auto" {
      for_each = length(var.locations) == 0 ? [true] : []
      content {}
    }
    dynamic "user_managed" {
      for_each = length(var.locations) == 0 ? [] : [true]
      content {
        dynamic "replicas" {
          for_each = var.locations
          content {
            location = replicas.value

            dynamic "customer_managed_encryption" {
              for_each = var.kms_key == null ? [] : [var.kms_key]
              content {
                kms_key_name = customer_managed_encryption.value
              }
            }
          }
        }
      }
    }
  }
  lifecycle {
    prevent_destroy = true
  }
}
