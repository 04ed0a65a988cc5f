# terraform test, in this module's folder. The secret's value is in no plan and no state.

mock_provider "google" {
  override_during = plan

  mock_resource "google_redis_instance" {
    defaults = {
      host        = "10.0.0.3"
      port        = 6378
      auth_string = "0f3c2a64-8d11"
      server_ca_certs = [
        { cert = "of today", create_time = "", expire_time = "", serial_number = "", sha1_fingerprint = "" },
        { cert = "of tomorrow", create_time = "", expire_time = "", serial_number = "", sha1_fingerprint = "" },
      ]
    }
  }
}

variables {
  project   = "my-project-1"
  region    = "europe-west1"
  auth      = true
  kms_key   = null
  instances = 20
}

run "the_address_has_tls_and_the_password" {
  command = plan

  assert {
    condition     = local.address == "rediss://:0f3c2a64-8d11@10.0.0.3:6378/0"
    error_message = "The services are told ${nonsensitive(local.address)}."
  }
  assert {
    condition     = output.ca_certs == "of today\nof tomorrow"
    error_message = "The services trust ${output.ca_certs}."
  }
}

run "without_a_password_the_address_has_none" {
  command = plan
  variables {
    auth = false
  }
  assert {
    condition     = local.address == "rediss://10.0.0.3:6378/0"
    error_message = "The services are told ${nonsensitive(local.address)}."
  }
  assert {
    condition     = google_secret_manager_secret_version.url.secret_data_wo_version != run.the_address_has_tls_and_the_password.written
    error_message = "Another address is no other version of the secret."
  }
}

run "a_thousand_instances_find_an_address" {
  command = plan
  variables {
    instances = 1000
  }
}

run "more_instances_than_addresses_are_refused" {
  command = plan
  variables {
    instances = 1100
  }
  expect_failures = [google_compute_subnetwork.this]
}
