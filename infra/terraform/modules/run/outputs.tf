output "name" {
  description = "Its name in Cloud Run."
  value       = google_cloud_run_v2_service.this.name
}
