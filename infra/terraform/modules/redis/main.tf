# A Memorystore and its network. docs/stores.md says how durable Redis is as the store: less than Firestore.

resource "google_compute_network" "this" {
  project                 = var.project
  name                    = "pombo"
  auto_create_subnetworks = false
}

# An instance of a service takes two addresses and keeps them for a while after its end, so a deployment needs four: /20
# is enough for 1,000 instances. A subnetwork can grow but not shrink.
resource "google_compute_subnetwork" "this" {
  project                  = var.project
  region                   = var.region
  name                     = "pombo"
  network                  = google_compute_network.this.id
  ip_cidr_range            = local.range
  private_ip_google_access = true

  lifecycle {
    precondition {
      condition     = 4 * var.instances <= pow(2, 32 - tonumber(split("/", local.range)[1])) - 4
      error_message = "The subnetwork has addresses for 1,023 instances, and max_instances are ${var.instances} together."
    }
  }
}

resource "google_redis_instance" "this" {
  project            = var.project
  region             = var.region
  name               = "pombo"
  tier               = "STANDARD_HA" # BASIC loses its data on maintenance, also which messages were answered
  memory_size_gb     = var.memory_size_gb
  redis_version      = "REDIS_7_0" # the version that the store is tested with
  authorized_network = google_compute_network.this.id
  connect_mode       = "DIRECT_PEERING"
  # The password is an attribute of this resource, and so in the state:
  # docs/decisions/0063-redis-with-tls-and-a-password.md.
  auth_enabled = var.auth
  # It cannot be changed on an existing instance.
  transit_encryption_mode = "SERVER_AUTHENTICATION"
  deletion_protection     = true
  customer_managed_key    = var.kms_key

  # The store refuses any other policy: volatile-lru, the default, evicts records.
  redis_configs = {
    "maxmemory-policy" = "noeviction"
  }
  persistence_config {
    persistence_mode    = "RDB"
    rdb_snapshot_period = "ONE_HOUR"
  }
  lifecycle {
    prevent_destroy = true
  }
}

locals {
  range = "10.80.0.0/20"
  # The password consists of random letters, digits and hyphens: it needs no encoding.
  user    = var.auth ? ":${google_redis_instance.this.auth_string}@" : ""
  address = "rediss://${local.user}${google_redis_instance.this.host}:${google_redis_instance.this.port}/0"
}

# The address as the services read it. Write-only: this resource adds nothing to the state. Terraform does not compare
# write-only values, so the version number is derived from it: another instance or password makes another version.
resource "google_secret_manager_secret_version" "url" {
  secret                 = "projects/${var.project}/secrets/REDIS_URL"
  secret_data_wo         = local.address
  secret_data_wo_version = nonsensitive(parseint(substr(sha256(local.address), 0, 7), 16))

  lifecycle {
    create_before_destroy = true
  }
}
