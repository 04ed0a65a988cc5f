# The accounts, and the binding from each service to everything it uses. Who may call a service is in modules/run.  The
# service agents need no binding here: when an API is enabled, its agent gets its role (Cloud Tasks and Cloud Scheduler:
# to create OIDC tokens). Agents are created late, and a binding that names one too early fails.

locals {
  accounts = merge(
    { for name in keys(var.services) : name => "Pombo: the ${name} service" },
    {
      tasks     = "Pombo: calls of the queues carry its identity"
      scheduler = "Pombo: calls of the scheduler carry its identity"
    },
  )
  # From the account's own argument, not from its email: known in a plan, and still ordered after the account.
  emails = {
    for name, it in google_service_account.this : name => "${it.account_id}@${var.project}.iam.gserviceaccount.com"
  }
  records = ["datastore.entities.create", "datastore.entities.get", "datastore.entities.update"]
  roles = {
    pomboRecords = {
      title       = "Pombo: reads, creates and changes records by their names"
      permissions = local.records
    }
    pomboRecordsAndLists = {
      title       = "Pombo: the same, and lists and counts records"
      permissions = concat(local.records, ["datastore.entities.list"])
    }
    pomboTaskMaker = {
      title       = "Pombo: makes tasks"
      permissions = ["cloudtasks.tasks.create"]
    }
    pomboQueueReader = {
      title       = "Pombo: sees that a queue is there"
      permissions = ["cloudtasks.queues.get"]
    }
  }
  # From the role's own argument, like the emails.
  role_names = {
    for id, it in google_project_iam_custom_role.this : id => "projects/${var.project}/roles/${it.role_id}"
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

# Custom roles, each with exactly the permissions of the calls that the code makes: Google's predefined roles also allow
# deleting every record and listing every task. A test compares them with the code (tests/support/permissions.py). The
# name of a deleted role is taken for some weeks; the provider restores such a role.
resource "google_project_iam_custom_role" "this" {
  for_each = local.roles

  project     = var.project
  role_id     = each.key
  title       = each.value.title
  permissions = each.value.permissions
  stage       = "GA"
}

# Only this database of the project.
resource "google_project_iam_member" "store" {
  for_each = var.services

  project = var.project
  role    = local.role_names[each.value.lists ? "pomboRecordsAndLists" : "pomboRecords"]
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
  role     = local.role_names["pomboTaskMaker"]
  member   = "serviceAccount:${local.emails[each.value.service]}"
}

# /readyz checks that both queues exist.
resource "google_cloud_tasks_queue_iam_member" "look" {
  for_each = local.looks_at

  project  = var.project
  location = var.region
  name     = var.queues[each.value.queue]
  role     = local.role_names["pomboQueueReader"]
  member   = "serviceAccount:${local.emails[each.value.service]}"
}

# An account that deploys a service must be allowed to act as it.
resource "google_service_account_iam_member" "deploy_acts_as" {
  for_each = var.services

  service_account_id = "projects/${var.project}/serviceAccounts/${local.emails[each.key]}"
  role               = "roles/iam.serviceAccountUser"
  member             = "serviceAccount:${var.deploy_account}"
}
