output "network" {
  description = "Where the services have to be to reach it."
  value = {
    network    = google_compute_network.this.name
    subnetwork = google_compute_subnetwork.this.name
  }
}
