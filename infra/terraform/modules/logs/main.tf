# What Cloud Logging keeps for the project, and what it must not keep.

locals {
  # Meta's handshake has the verify token in its query. The webhook decodes the query first, so each character of the
  # parameter's name may be literal or percent-encoded, in either case.
  parameter = {
    characters = split("", "hub.verify_token")
    codes = {
      "." = "2e", "_" = "5f", b = "62", e = "65", f = "66", h = "68", i = "69", k = "6b", n = "6e", o = "6f", r = "72"
      t   = "74", u = "75", v = "76", y = "79"
    }
  }
  handshake = {
    name        = "pombo-handshakes"
    description = "Requests with Meta's verify token in their URL. Every other request is kept."
    # Any resource: a load balancer in front of the webhook logs the same URL.
    filter = "httpRequest.requestUrl=~\"(?i)${join("", [
      for character in local.parameter.characters : "([${character}]|%${local.parameter.codes[character]})"
    ])}\""
  }
}

# A project's exclusion is one of its sink _Default, whose other exclusions and filter stay unchanged.
# https://cloud.google.com/logging/docs/reference/v2/rest/v2/projects.exclusions
resource "google_logging_project_exclusion" "handshake" {
  project     = var.project
  name        = local.handshake.name
  description = local.handshake.description
  filter      = local.handshake.filter
}

# The bucket _Default cannot be moved: so there is a bucket in the region, and the sink writes to it. Terraform takes
# over the existing sink, so all its settings are repeated here. https://cloud.google.com/logging/docs/regionalized-logs
resource "google_logging_project_bucket_config" "regional" {
  for_each = var.location == null ? toset([]) : toset([var.location])

  project        = var.project
  location       = each.key
  bucket_id      = "pombo"
  retention_days = 30

  lifecycle {
    # Logs that go to a deleted bucket are lost.
    prevent_destroy = true
  }
}

resource "google_logging_project_sink" "default" {
  for_each = google_logging_project_bucket_config.regional

  project     = var.project
  name        = "_Default"
  destination = "logging.googleapis.com/${each.value.id}"
  # Google's own filter: audit logs that cannot be turned off go to a separate bucket, _Required.
  filter = join(" AND ", [
    for log in ["activity", "system_event", "access_transparency"] :
    "NOT LOG_ID(\"cloudaudit.googleapis.com/${log}\") AND NOT LOG_ID(\"externalaudit.googleapis.com/${log}\")"
  ])
  unique_writer_identity = true

  # The same exclusion as above, with equal name and text, so that neither resource removes the other's.
  exclusions {
    name        = local.handshake.name
    description = local.handshake.description
    filter      = local.handshake.filter
  }
  depends_on = [google_logging_project_exclusion.handshake]
}

resource "google_project_iam_audit_config" "this" {
  for_each = var.audited

  project = var.project
  service = each.key

  dynamic "audit_log_config" {
    for_each = ["ADMIN_READ", "DATA_READ", "DATA_WRITE"]
    content {
      log_type         = audit_log_config.value
      exempted_members = var.exempted
    }
  }
}
