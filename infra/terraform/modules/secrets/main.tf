# Secrets without their values: a person adds those with gcloud, and they are in no state.

resource "google_secret_manager_secret" "this" {
  for_each = toset(var.names)

  project   = var.project
  secret_id = each.key
  # A version that is destroyed by mistake can be brought back for a day.
  version_destroy_ttl = "86400s"
  deletion_protection = true

  replication {
    auto {}
  }
  lifecycle {
    prevent_destroy = true
  }
}
