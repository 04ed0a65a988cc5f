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
    pomboRecordsListsAndDeletes = {
      title       = "Pombo: the same, and deletes what is removed from the registry"
      permissions = concat(local.records, ["datastore.entities.list", "datastore.entities.delete"])
    }
    pomboTaskMaker = {
      title       = "Pombo: makes tasks"
      permissions = ["cloudtasks.tasks.create"]
    }
    pomboQueueReader = {
      title       = "Pombo: sees that a queue is there"
      permissions = ["cloudtasks.queues.get"]
    }
    pomboSecretReader = {
      title       = "Pombo: reads the newest enabled version of a secret"
      permissions = ["secretmanager.versions.access", "secretmanager.versions.list"]
    }
    pomboSecretWriter = {
      title       = "Pombo: adds a version to a secret"
      permissions = ["secretmanager.versions.add"]
    }
    pomboSecretMaker = {
      title       = "Pombo: creates a secret without a version"
      permissions = ["secretmanager.secrets.create"]
    }
  }
  # From the role's own argument, like the emails.
  role_names = {
    for id, it in google_project_iam_custom_role.this : id => "projects/${var.project}/roles/${it.role_id}"
  }
  secrets = merge([for service, it in var.services : {
    for secret in it.secrets : "${service}.${secret}" => { service = service, secret = secret }
  }]...)
  # Secret Manager names its resources by the project's number.
  named = { for service, it in var.services : service => {
    for what, prefixes in { reads = it.prefixes, adds = it.adds } : what => join(" || ", [
      for prefix in sort(prefixes) : "resource.name.startsWith(\"projects/${var.project_number}/secrets/${prefix}\")"
    ])
  } }
  enqueues = merge([for service, it in var.services : {
    for queue in it.enqueues : "${service}.${queue}" => { service = service, queue = queue }
  }]...)
  # A service that creates tasks in a shared queue does so in the numbered queues beside it.
  makers = {
    for kind in keys(var.numbered) : kind => sort([for service, it in var.services : service if contains(it.enqueues, kind)])
  }
  numbered = merge([for kind, names in var.numbered : {
    for key, name in names : key => { kind = kind, name = name }
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
  role    = local.role_names[each.value.deletes ? "pomboRecordsListsAndDeletes" : each.value.lists ? "pomboRecordsAndLists" : "pomboRecords"]
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

# Tenants' secrets, which come and go without an apply: only those whose names begin with one of these prefixes. Only
# operators change and delete them.
resource "google_project_iam_member" "tenant_secrets" {
  for_each = { for service, it in local.named : service => it.reads if it.reads != "" }

  project = var.project
  role    = local.role_names["pomboSecretReader"]
  member  = "serviceAccount:${local.emails[each.key]}"

  condition {
    title      = "tenant-secrets"
    expression = each.value
  }
}

resource "google_project_iam_member" "tenant_secrets_added" {
  for_each = { for service, it in local.named : service => it.adds if it.adds != "" }

  project = var.project
  role    = local.role_names["pomboSecretWriter"]
  member  = "serviceAccount:${local.emails[each.key]}"

  condition {
    title      = "tenant-secrets"
    expression = each.value
  }
}

# No condition: a secret is created in the project, so its own name is not yet that of a resource
# (https://cloud.google.com/iam/docs/conditions-resource-attributes). It is empty, and only one of the prefixes above can
# be given a value.
resource "google_project_iam_member" "tenant_secrets_made" {
  for_each = { for service, it in local.named : service => it.adds if it.adds != "" }

  project = var.project
  role    = local.role_names["pomboSecretMaker"]
  member  = "serviceAccount:${local.emails[each.key]}"
}

resource "google_cloud_tasks_queue_iam_member" "enqueue_shared" {
  for_each = local.enqueues

  project  = var.project
  location = var.region
  name     = var.queues[each.value.queue]
  role     = local.role_names["pomboTaskMaker"]
  member   = "serviceAccount:${local.emails[each.value.service]}"
}

# All accounts that create tasks in a numbered queue in one resource, because there may be 960 such queues. It is the
# only grant of this role there, so nothing else can be lost to it. A condition on the queues' names at the project is not
# possible: Cloud Tasks has no resource attributes (https://cloud.google.com/iam/docs/conditions-resource-attributes).
resource "google_cloud_tasks_queue_iam_binding" "enqueue_numbered" {
  for_each = local.numbered

  project  = var.project
  location = var.region
  name     = each.value.name
  role     = local.role_names["pomboTaskMaker"]
  members  = [for service in local.makers[each.value.kind] : "serviceAccount:${local.emails[service]}"]
}

# An earlier version had `enqueue`, also for the queues that modules/tasks gives up: a grant stays with its queue.
moved {
  from = google_cloud_tasks_queue_iam_member.enqueue["webhook.inbound"]
  to   = google_cloud_tasks_queue_iam_member.enqueue_shared["webhook.inbound"]
}

moved {
  from = google_cloud_tasks_queue_iam_member.enqueue["internal.inbound"]
  to   = google_cloud_tasks_queue_iam_member.enqueue_shared["internal.inbound"]
}

moved {
  from = google_cloud_tasks_queue_iam_member.enqueue["internal.outbound"]
  to   = google_cloud_tasks_queue_iam_member.enqueue_shared["internal.outbound"]
}

removed {
  from = google_cloud_tasks_queue_iam_member.enqueue
  lifecycle {
    destroy = false
  }
}

# /readyz checks that both shared queues exist.
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
