# One service, who may call it, and who may deploy it. The image and the traffic belong to the deployment: Terraform
# sets an image only at the first apply.

locals {
  # Cloud Run may pass on a token that IAM has verified without its signature. The service may trust it only behind IAM.
  env = merge(var.env, var.public ? {} : { TRUST_CLOUD_RUN_IAM = "true" })
}

resource "google_cloud_run_v2_service" "this" {
  project  = var.project
  location = var.region
  name     = "pombo-${var.name}"

  # "Internal" admits the project's own Cloud Tasks and Cloud Scheduler, but only by the run.app address, which must
  # therefore stay. IAM checks the caller as well.
  ingress              = var.public ? "INGRESS_TRAFFIC_ALL" : "INGRESS_TRAFFIC_INTERNAL_ONLY"
  default_uri_disabled = false
  # Not a binding for allUsers: organizations that restrict sharing by domain refuse it, and all new ones do. Only where
  # this is false, TRUST_CLOUD_RUN_IAM is true (local.env).
  invoker_iam_disabled = var.public
  # Tokens are issued for this address, which is known before the service exists.
  custom_audiences = [var.url]
  # The default, which stops a destroy.
  deletion_protection = true

  # For the service, not the revision: a revision without traffic keeps no instance.
  scaling {
    min_instance_count = var.min_instances
  }

  template {
    service_account                  = var.service_account
    timeout                          = "${var.timeout}s"
    max_instance_request_concurrency = var.concurrency

    scaling {
      max_instance_count = var.max_instances
    }

    containers {
      # Named here: otherwise gcloud names it, and the next plan would remove the name.
      name  = var.name
      image = var.image

      ports {
        container_port = 8080
      }
      resources {
        limits = {
          cpu    = var.cpu
          memory = var.memory
        }
        # If omitted next to limits, the CPU is always allocated and paid for.
        cpu_idle          = true
        startup_cpu_boost = true
      }

      dynamic "env" {
        for_each = local.env
        content {
          name  = env.key
          value = env.value
        }
      }
      dynamic "env" {
        for_each = var.secrets
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret = env.key
              # A number: "latest" is read when an instance starts, so instances of one revision would differ.
              version = env.value
            }
          }
        }
      }

      # Asked while the CPU is boosted; also opens the connection to the store. A revision that cannot reach its store
      # never gets traffic. Not /readyz: new instances must start even while Cloud Tasks is down. (On some addresses
      # Google's front end reserves /healthz.)
      startup_probe {
        http_get {
          path = "/startz"
        }
        period_seconds    = 2
        timeout_seconds   = 2
        failure_threshold = 60
      }
      # In the internal service a probe waits for a thread like any request. Every thread may be busy for a whole request
      # timeout, which is not a reason to end the instance.
      liveness_probe {
        http_get {
          path = "/livez"
        }
        period_seconds    = 60
        timeout_seconds   = 30
        failure_threshold = ceil(var.timeout / 60) + 1
      }
    }

    dynamic "vpc_access" {
      for_each = var.network == null ? [] : [var.network]
      content {
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = vpc_access.value.network
          subnetwork = vpc_access.value.subnetwork
        }
      }
    }
  }

  lifecycle {
    # The deployment's gcloud also sets its name, its version, and a label on each revision; a deployment from source
    # sets where the source is and who built it. Do not ignore the revision's name: the existing name would be sent with
    # each change, and refused with 409 (hashicorp/terraform-provider-google #14569).
    ignore_changes = [
      build_config,
      client,
      client_version,
      template[0].annotations,
      template[0].containers[0].image,
      template[0].labels,
      traffic,
    ]
    # A 429 for lack of an instance slows the whole queue down: leave a fifth to spare.
    precondition {
      condition     = var.dispatches_at_once <= 0.8 * var.max_instances * var.concurrency
      error_message = "The queues run ${var.dispatches_at_once} tasks at once, more than four fifths of ${var.max_instances} instances with ${var.concurrency} requests each: raise max_instances of ${var.name}."
    }
  }
}

resource "google_cloud_run_v2_service_iam_member" "invoke" {
  for_each = var.invokers

  project  = var.project
  location = var.region
  name     = google_cloud_run_v2_service.this.name
  role     = "roles/run.invoker"
  member   = "serviceAccount:${each.value}"
}

resource "google_cloud_run_v2_service_iam_member" "deploy" {
  project  = var.project
  location = var.region
  name     = google_cloud_run_v2_service.this.name
  role     = "roles/run.developer"
  member   = "serviceAccount:${var.deploy_account}"
}
