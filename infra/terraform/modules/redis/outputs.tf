output "network" {
  description = "The network that the services must be in to reach it."
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
  description = "The certificate authorities that sign only for it, in PEM: the current one, and the next once it exists."
  value       = join("\n", google_redis_instance.this.server_ca_certs[*].cert)
}

output "written" {
  description = "The value that identifies the version of the secret REDIS_URL."
  value       = google_secret_manager_secret_version.url.secret_data_wo_version
}
