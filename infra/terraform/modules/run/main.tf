# One service, who may call it, who may deploy it. The image, and which revision gets the traffic, belong to the
# deployment: Terraform names an image for the first apply only.

locals {
  # Cloud Run may hand a token that IAM has verified on without its signature. Only behind IAM may the service believe it.
  env = merge(var.env, var.public ? {} : { TRUST_CLOUD_RUN_IAM = "true" })
}

resource "google_cloud_run_v2_service" "this" {
  project  = var.project
  location = var.region
  name     = "pombo-${var.name}"

  # Internal lets in the project's own Cloud Tasks and Cloud Scheduler, and only by the run.app address, which must
  # therefore stay. IAM is asked besides.
  ingress              = var.public ? "INGRESS_TRAFFIC_ALL" : "INGRESS_TRAFFIC_INTERNAL_ONLY"
  default_uri_disabled = false
  # Not a binding for allUsers: organizations that restrict sharing by domain, all new ones do, refuse that.
  # Where it is false, TRUST_CLOUD_RUN_IAM is true (local.env), and nowhere else.
  invoker_iam_disabled = var.public
  # Tokens are made for this address, which is known before the service exists.
  custom_audiences = [var.url]
  # The default, and the word that a destroy stops at.
  deletion_protection = true

  # Of the service, so that a revision without traffic keeps no instance.
  scaling {
    min_instance_count = var.min_instances
  }

  template {
    service_account                  = var.service_account
    timeout                          = "${var.timeout}s"
    max_instance_request_concurrency = var.threads

    scaling {
      max_instance_count = var.max_instances
    }

    containers {
      # Named, or gcloud names it and the next plan wants to take the name away.
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
        # Left out beside limits, it means a CPU that is always paid for.
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

      # Asked while the CPU is boosted, which also opens the connection to the store. A revision that cannot reach its store
      # never gets traffic. Not /readyz: while Cloud Tasks is away, new instances must start all the same. (/healthz is kept
      # by Google's front end on some addresses.)
      startup_probe {
        http_get {
          path = "/startz"
        }
        period_seconds    = 2
        timeout_seconds   = 2
        failure_threshold = 60
      }
      # A probe waits for a thread like any request; every thread may be busy for as long as a request may take, and that
      # is no reason to end the instance.
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
    # gcloud, with which the build deploys, also leaves its name, its version, and a label on each revision; deployed from
    # source, where that source is and who built it. Not the revision's
    # name: were it ignored, the one that is there would be sent with each change, and refused with 409
    # (hashicorp/terraform-provider-google #14569).
    ignore_changes = [
      build_config,
      client,
      client_version,
      template[0].annotations,
      template[0].containers[0].image,
      template[0].labels,
      traffic,
    ]
    # 429 for want of an instance slows the whole queue down: leave a fifth to spare.
    precondition {
      condition     = var.dispatches_at_once <= 0.8 * var.max_instances * var.threads
      error_message = "The queues run ${var.dispatches_at_once} tasks at once, more than four fifths of ${var.max_instances} instances with ${var.threads} threads: raise max_instances of ${var.name}."
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
