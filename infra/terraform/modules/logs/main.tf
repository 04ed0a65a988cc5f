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
