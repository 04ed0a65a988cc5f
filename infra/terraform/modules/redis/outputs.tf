output "network" {
  description = "Where the services have to be to reach it."
  value = {
    network    = google_compute_network.this.name
    subnetwork = google_compute_subnetwork.this.name
  }
}

output "url_version" {
  description = "The version of the secret REDIS_URL that holds its address."
  value       = google_secret_manager_secret_version.url.version
}

output "ca_certs" {
  description = "The authorities that sign for it alone, in PEM: the one of today, and the next one once there is one."
  value       = join("\n", google_redis_instance.this.server_ca_certs[*].cert)
}

output "written" {
  description = "What the version of the secret REDIS_URL is recognized by."
  value       = google_secret_manager_secret_version.url.secret_data_wo_version
}
