# What Cloud Logging keeps of the project, and what it must not keep.

locals {
  # Meta's handshake has the verify token in its query. The webhook decodes the query before it looks, so each character
  # of the parameter's name may come as itself or percent-encoded, in capitals or not.
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
    # Of any resource: a load balancer in front of the webhook logs the same URL.
    filter = "httpRequest.requestUrl=~\"(?i)${join("", [
      for character in local.parameter.characters : "([${character}]|%${local.parameter.codes[character]})"
    ])}\""
  }
}

# An exclusion of the project is one of its sink _Default, whose other exclusions and filter stay as they are.
# https://cloud.google.com/logging/docs/reference/v2/rest/v2/projects.exclusions
resource "google_logging_project_exclusion" "handshake" {
  project     = var.project
  name        = local.handshake.name
  description = local.handshake.description
  filter      = local.handshake.filter
}

# The bucket _Default cannot be moved: a bucket in the region, and the sink led to it. The sink is taken over as it is, so
# everything that it does is said here. https://cloud.google.com/logging/docs/regionalized-logs
resource "google_logging_project_bucket_config" "regional" {
  for_each = var.location == null ? toset([]) : toset([var.location])

  project        = var.project
  location       = each.key
  bucket_id      = "pombo"
  retention_days = 30

  lifecycle {
    # What goes to a bucket that is gone is lost.
    prevent_destroy = true
  }
}

resource "google_logging_project_sink" "default" {
  for_each = google_logging_project_bucket_config.regional

  project     = var.project
  name        = "_Default"
  destination = "logging.googleapis.com/${each.value.id}"
  # As Google makes it: audit logs that cannot be turned off have a bucket of their own, _Required.
  filter = join(" AND ", [
    for log in ["activity", "system_event", "access_transparency"] :
    "NOT LOG_ID(\"cloudaudit.googleapis.com/${log}\") AND NOT LOG_ID(\"externalaudit.googleapis.com/${log}\")"
  ])
  unique_writer_identity = true

  # The exclusion above is this one: the same name and the same words, so that neither takes the other's away.
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
