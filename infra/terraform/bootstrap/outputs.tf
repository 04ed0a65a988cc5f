output "state_bucket" {
  description = "For terraform init -backend-config=bucket=…"
  value       = google_storage_bucket.state.name
}

output "source_bucket" {
  description = "For gcloud builds submit --gcs-source-staging-dir=gs://…/source"
  value       = google_storage_bucket.source.name
}

output "image_repository" {
  description = "The prefix of an image's name."
  value       = "${var.region}-docker.pkg.dev/${var.project}/${google_artifact_registry_repository.images.repository_id}"
}

output "build_account" {
  description = "The account that builds."
  value       = "${google_service_account.build.account_id}@${var.project}.iam.gserviceaccount.com"
}

output "deploy_account" {
  description = "The account that deploys."
  value       = "${google_service_account.deploy.account_id}@${var.project}.iam.gserviceaccount.com"
}

output "secrets" {
  description = "The secrets that an operator must now give values."
  value       = module.secrets.names
}
