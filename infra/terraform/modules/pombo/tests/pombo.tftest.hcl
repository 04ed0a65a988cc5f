# terraform test, in this module's folder. What Terraform itself refuses, and the values that the modules pass on.

mock_provider "google" {
  override_data {
    target = data.google_project.this
    values = { number = "123456789012" }
  }
}

variables {
  environment              = "staging"
  project                  = "my-project-1"
  region                   = "europe-west1"
  firestore_location       = null
  scheduler_region         = null
  whatsapp_phone_number_id = "100000000000001"
  meta_app_id              = null
  handler                  = "handlers.echo:handle"
  handler_url              = null
  handler_variables        = {}
  handler_secrets          = []
  images                   = {}
  settings                 = {}
  secret_versions          = {}
  min_instances            = {}
  max_instances            = {}
  memory                   = {}
  queue_suffix             = ""
  queue_log_sampling       = 0
  store                    = "firestore"
  redis                    = false
  redis_auth               = true
  media_bucket             = false
  alert_emails             = []
  alert_thresholds         = {}
  runbook                  = "docs/runbook.md"
  outbound_rate            = 20
  critical_channels        = []
  warning_channels         = []
  log_location             = null
  audited_apis             = []
  kms_key                  = null
  firestore_backups        = {}
  budget                   = null

  tenant_queues                      = 1
  tenant_queue_per_second            = 80
  max_concurrency_per_tenant         = 2
  inbound_tenant_queue_per_second    = 80
  inbound_max_concurrency_per_tenant = 4
}

run "addresses_are_known_before_there_is_anything" {
  command = plan

  assert {
    condition     = output.webhook_url == "https://pombo-webhook-123456789012.europe-west1.run.app/webhooks/whatsapp"
    error_message = "Meta is given ${output.webhook_url}."
  }
  assert {
    condition     = output.internal_url == "https://pombo-internal-123456789012.europe-west1.run.app"
    error_message = "Tasks go to ${output.internal_url}."
  }
  assert {
    condition     = output.api_url == "https://pombo-api-123456789012.europe-west1.run.app"
    error_message = "Callers of the API are given ${output.api_url}."
  }
}

run "the_shared_queues_have_the_suffix" {
  command = plan
  variables {
    queue_suffix = "-2"
  }

  assert {
    condition = (
      jsonencode(output.queues) == "{\"drain\":\"drain-2\",\"inbound\":\"inbound-2\",\"outbound\":\"outbound-2\"}"
    )
    error_message = "The queues are ${jsonencode(output.queues)}."
  }
}

run "a_wrong_variable_is_refused" {
  command = plan
  variables {
    environment              = "local"
    whatsapp_phone_number_id = "+1 555 000"
    handler_url              = "http://backend.example.com"
    tenant_queues            = 481
    settings                 = { max_atempts = "5", handler_timeout = "60s" }
    queue_suffix             = "_2"
    store                    = "redis"
  }

  expect_failures = [
    var.environment,
    var.whatsapp_phone_number_id,
    var.handler_url,
    var.tenant_queues,
    var.settings,
    var.queue_suffix,
    var.store,
  ]
}

run "a_service_that_says_too_little_to_be_watched_is_refused" {
  command = plan
  variables {
    settings = { log_level = "WARNING" }
  }
  expect_failures = [var.settings]
}

# Separate from those above: Terraform skips a check that uses another variable if that one is wrong.
run "two_handlers_are_refused" {
  command = plan
  variables {
    handler_url = "https://backend.example.com"
  }
  expect_failures = [var.handler]
}

run "kinds_for_a_handler_in_the_process_are_refused" {
  command = plan
  variables {
    settings = { handler_kinds = "*" }
  }
  expect_failures = [var.handler]
}

run "no_handler_is_refused" {
  command = plan
  variables {
    handler = null
  }
  expect_failures = [var.handler]
}

run "a_variable_of_the_handler_has_no_name_of_pombo_s" {
  command = plan
  variables {
    handler_variables = { MAX_ATTEMPTS = "3" }
  }
  expect_failures = [var.handler_variables]
}

run "a_secret_of_the_handler_has_no_name_of_pombo_s" {
  command = plan
  variables {
    handler_secrets = ["INTERNAL_TASK_TOKEN"]
  }
  expect_failures = [var.handler_secrets]
}

run "a_variable_of_the_handler_is_named_as_a_variable" {
  command = plan
  variables {
    handler_variables = { "clinic-url" = "https://clinic.example.com" }
  }
  expect_failures = [var.handler_variables]
}

run "a_secret_of_the_handler_is_named_as_a_variable" {
  command = plan
  variables {
    handler_secrets = ["clinic key"]
  }
  expect_failures = [var.handler_secrets]
}

run "a_name_is_not_both_a_variable_and_a_secret_of_the_handler" {
  command = plan
  variables {
    handler_variables = { CLINIC_KEY = "x" }
    handler_secrets   = ["CLINIC_KEY"]
  }
  expect_failures = [var.handler_variables]
}

run "a_secret_of_the_handler_has_a_version_like_any_other" {
  command = plan
  variables {
    handler_secrets = ["CLINIC_KEY"]
    secret_versions = { CLINIC_KEY = 2 }
  }
}

run "a_version_of_a_secret_that_no_service_is_given_is_refused" {
  command = plan
  variables {
    secret_versions = { HANDLER_URL_SECRET = 2 }
  }
  expect_failures = [var.secret_versions]
}
