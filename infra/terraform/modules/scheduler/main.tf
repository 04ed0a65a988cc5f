# The sweep. Its call carries an identity, not the internal token: a header would be stored in the state.

resource "google_cloud_scheduler_job" "sweep" {
  project     = var.project
  region      = var.region
  name        = "pombo-sweep"
  description = "Gives whatever is overdue another task, and logs the counts that the alerts look at."
  schedule    = "* * * * *"
  time_zone   = "Etc/UTC"
  # Longer than a sweep takes (45 s plus the current page), so that a slow one does not count as failed.
  attempt_deadline = "120s"

  # None: the next minute is a retry, and sweeps may overlap.
  retry_config {
    retry_count = 0
  }
  http_target {
    http_method = "POST"
    uri         = "${var.internal_url}/internal/sweep"

    oidc_token {
      service_account_email = var.service_account
      # The service's address; the default would be the whole URI.
      audience = var.internal_url
    }
  }
}
