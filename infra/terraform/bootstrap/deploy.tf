# The account that deploys. It runs none of the repository's tests, takes images by digest, and cannot push any. Each
# environment defines which services it deploys, and as which accounts.

resource "google_service_account" "deploy" {
  project      = var.project
  account_id   = "pombo-deploy"
  display_name = "Pombo: deploys what was built"
  depends_on   = [google_project_service.this]
}

locals {
  deploy = "serviceAccount:${google_service_account.deploy.account_id}@${var.project}.iam.gserviceaccount.com"
}

resource "google_storage_bucket_iam_member" "deploy_reads_source" {
  bucket = google_storage_bucket.source.name
  role   = "roles/storage.objectViewer"
  member = local.deploy
}

resource "google_project_iam_member" "deploy_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = local.deploy
}

# Reading a build's images, and the number of requests that a revision failed. The predefined roles allow all of Cloud
# Build and all of Monitoring.
resource "google_project_iam_custom_role" "deploy" {
  project     = var.project
  role_id     = "pomboDeploy"
  title       = "Pombo: reads builds and metrics"
  permissions = ["cloudbuild.builds.get", "monitoring.timeSeries.list"]
  depends_on  = [google_project_service.this]
}

resource "google_project_iam_member" "deploy_reads" {
  project = var.project
  role    = "projects/${var.project}/roles/${google_project_iam_custom_role.deploy.role_id}"
  member  = local.deploy
}

# Cloud Run refuses to deploy an image that the deploying account cannot read.
resource "google_artifact_registry_repository_iam_member" "deploy_pulls" {
  project    = var.project
  location   = var.region
  repository = google_artifact_registry_repository.images.repository_id
  role       = "roles/artifactregistry.reader"
  member     = local.deploy
}

# Moving a tag. The predefined role for it also allows pushing.
resource "google_project_iam_custom_role" "tag_images" {
  project     = var.project
  role_id     = "pomboTagImages"
  title       = "Pombo: tags images that are there"
  permissions = ["artifactregistry.tags.create", "artifactregistry.tags.update"]
  depends_on  = [google_project_service.this]
}

resource "google_artifact_registry_repository_iam_member" "deploy_tags" {
  project    = var.project
  location   = var.region
  repository = google_artifact_registry_repository.images.repository_id
  role       = "projects/${var.project}/roles/${google_project_iam_custom_role.tag_images.role_id}"
  member     = local.deploy
}
