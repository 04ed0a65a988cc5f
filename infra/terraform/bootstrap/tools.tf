# Images that builds run in and build on: mirrored copies by digest (make mirror-images), and our builder image. They
# have a separate repository, which the build can only read: write access to it decides what runs as pombo-deploy.

resource "google_artifact_registry_repository" "tools" {
  project       = var.project
  location      = var.region
  repository_id = "pombo-tools"
  format        = "DOCKER"
  kms_key_name  = var.kms_key
  depends_on    = [google_project_service.this]
}

resource "google_artifact_registry_repository_iam_member" "tools_pulled" {
  for_each = { build = local.build, deploy = local.deploy }

  project    = var.project
  location   = var.region
  repository = google_artifact_registry_repository.tools.repository_id
  role       = "roles/artifactregistry.reader"
  member     = each.value
}

# The account that builds the builder image, only from infra/release/builder.
resource "google_service_account" "tools" {
  project      = var.project
  account_id   = "pombo-tools"
  display_name = "Pombo: makes the image that builds run in"
  depends_on   = [google_project_service.this]
}

locals {
  tools = "serviceAccount:${google_service_account.tools.account_id}@${var.project}.iam.gserviceaccount.com"
}

resource "google_artifact_registry_repository_iam_member" "tools_pushed" {
  project    = var.project
  location   = var.region
  repository = google_artifact_registry_repository.tools.repository_id
  role       = "roles/artifactregistry.writer"
  member     = local.tools
}

resource "google_storage_bucket_iam_member" "tools_reads_source" {
  bucket = google_storage_bucket.source.name
  role   = "roles/storage.objectViewer"
  member = local.tools
}

resource "google_project_iam_member" "tools_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = local.tools
}
