# Who is who, and each edge from a service to what it uses. Who may call a service stands with the service (modules/run).
#
# The service agents need nothing here: an API that is enabled today gives its agent its role (Cloud Tasks and Cloud
# Scheduler: to make OIDC tokens). Agents come into being late, and a binding that names one too early fails.

locals {
  accounts = merge(
    { for name in keys(var.services) : name => "Pombo: the ${name} service" },
    {
      tasks     = "Pombo: calls of the queues carry its identity"
      scheduler = "Pombo: calls of the scheduler carry its identity"
    },
  )
  # From the account's own argument, not from its email: known in a plan, and still in order behind the account.
  emails = {
    for name, it in google_service_account.this : name => "${it.account_id}@${var.project}.iam.gserviceaccount.com"
  }
  secrets = merge([for service, it in var.services : {
    for secret in it.secrets : "${service}.${secret}" => { service = service, secret = secret }
  }]...)
  enqueues = merge([for service, it in var.services : {
    for queue in it.enqueues : "${service}.${queue}" => { service = service, queue = queue }
  }]...)
  looks_at = merge([for service, it in var.services : {
    for queue in it.looks_at : "${service}.${queue}" => { service = service, queue = queue }
  }]...)
}

resource "google_service_account" "this" {
  for_each = local.accounts

  project      = var.project
  account_id   = "pombo-${each.key}"
  display_name = each.value
}

# One database, and no other of the project.
resource "google_project_iam_member" "store" {
  for_each = var.services

  project = var.project
  role    = "roles/datastore.user"
  member  = "serviceAccount:${local.emails[each.key]}"

  condition {
    title      = "database-${var.database}"
    expression = "resource.name == \"projects/${var.project}/databases/${var.database}\""
  }
}

resource "google_secret_manager_secret_iam_member" "read" {
  for_each = local.secrets

  project   = var.project
  secret_id = each.value.secret
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${local.emails[each.value.service]}"
}

resource "google_cloud_tasks_queue_iam_member" "enqueue" {
  for_each = local.enqueues

  project  = var.project
  location = var.region
  name     = var.queues[each.value.queue]
  role     = "roles/cloudtasks.enqueuer"
  member   = "serviceAccount:${local.emails[each.value.service]}"
}

# /readyz asks whether both queues are there, and the enqueuer's role does not allow that.
resource "google_cloud_tasks_queue_iam_member" "look" {
  for_each = local.looks_at

  project  = var.project
  location = var.region
  name     = var.queues[each.value.queue]
  role     = "roles/cloudtasks.viewer"
  member   = "serviceAccount:${local.emails[each.value.service]}"
}

# Whoever makes a task that carries an identity must be allowed to act as it: as this one, and as no other.
resource "google_service_account_iam_member" "act_as_tasks" {
  for_each = { for service, it in var.services : service => it if length(it.enqueues) > 0 }

  service_account_id = "projects/${var.project}/serviceAccounts/${local.emails["tasks"]}"
  role               = "roles/iam.serviceAccountUser"
  member             = "serviceAccount:${local.emails[each.key]}"
}

# Whoever deploys a service must be allowed to act as it.
resource "google_service_account_iam_member" "deploy_acts_as" {
  for_each = var.services

  service_account_id = "projects/${var.project}/serviceAccounts/${local.emails[each.key]}"
  role               = "roles/iam.serviceAccountUser"
  member             = "serviceAccount:${var.deploy_account}"
}
