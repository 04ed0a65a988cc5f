# The database, and for each collection its indexes and expiry. All other fields are exempt: each index makes each write
# slower. shared/stores/firestore/schema.py is the same table; a test compares the two.

locals {
  collections = {
    records = {
      # -: descending
      indexed = ["sweep_at", "correlation_id", "id_hash", "pending_since", "dead_since", "-turn"]
      composite = [
        ["state", "tenant"], ["mark", "tenant"], ["tenant", "-received_at"], ["state", "kind", "tenant"],
        ["tenant", "pending_since"], ["conversation", "-received_at"],
      ]
      ttl = "expire_at"
    }
    receipts = {
      indexed   = ["mark"]
      composite = []
      ttl       = "expire_at"
    }
    marks = {
      indexed   = ["troubled"]
      composite = []
      ttl       = null
    }
    counters = {
      indexed   = ["flushed_at"]
      composite = []
      ttl       = "expire_at"
    }
    conversations = {
      indexed   = []
      composite = [["tenant", "-last_message_at"]]
      ttl       = null
    }
    registry_tenants = {
      indexed   = ["tenant"]
      composite = []
      ttl       = null
    }
    registry_senders = {
      indexed   = ["tenant"]
      composite = []
      ttl       = null
    }
    registry_accounts = {
      indexed   = ["tenant"]
      composite = []
      ttl       = null
    }
    registry_api_keys = {
      indexed   = ["tenant"]
      composite = []
      ttl       = null
    }
    registry_queue_use = {
      indexed   = ["tenant"]
      composite = []
      ttl       = null
    }
  }
  # Firestore refuses concurrent changes of one collection's fields or indexes (409, worded in more ways than the
  # provider retries: hashicorp/terraform-provider-google #16599, firebase/firebase-tools #1119). So a collection has
  # one change at a time: the first index of each collection, then the second of each, and so on.
  indexed = [for place in range(6) : {
    for name, it in local.collections :
    "${name}.${trimprefix(it.indexed[place], "-")}" => { collection = name, field = it.indexed[place] }
    if length(it.indexed) > place
  }]
  composite = [for place in range(6) : {
    for name, it in local.collections :
    "${name}.${replace(join(".", it.composite[place]), "-", "")}" => { collection = name, fields = it.composite[place] }
    if length(it.composite) > place
  }]
}

resource "google_firestore_database" "this" {
  project = var.project
  # Not (default): that may already exist, possibly in Datastore mode, and its location cannot be changed.
  name             = "pombo"
  location_id      = var.location
  type             = "FIRESTORE_NATIVE"
  database_edition = "STANDARD" # Enterprise has no index_config

  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_ENABLED"
  delete_protection_state           = "DELETE_PROTECTION_ENABLED"
  # The provider's default, ABANDON, would leave the database after a destroy, and the next apply would find its name
  # taken. Three guards must be removed by hand before DELETE deletes: this block, the protection above, and this rule.
  deletion_policy = "DELETE"

  dynamic "cmek_config" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      kms_key_name = cmek_config.value
    }
  }

  lifecycle {
    prevent_destroy = true
  }
}

# No field of a collection is indexed automatically. "*" takes no ttl_config (#17163). The resources below run one by
# one.
resource "google_firestore_field" "exempt" {
  for_each = local.collections

  project    = var.project
  database   = google_firestore_database.this.name
  collection = each.key
  field      = "*"

  index_config {}
}

# One resource holds all of a field's configuration: its TTL policy, and that it has no index.
resource "google_firestore_field" "expiring" {
  for_each = { for name, it in local.collections : name => it.ttl if it.ttl != null }

  project    = var.project
  database   = google_firestore_database.this.name
  collection = each.key
  field      = each.value

  ttl_config {}
  index_config {}

  # A TTL policy takes ten minutes or more to come into force; the default wait is 20.
  timeouts {
    create = "60m"
    update = "60m"
  }
  depends_on = [google_firestore_field.exempt]
}

resource "google_firestore_field" "indexed" {
  for_each = local.indexed[0]

  project    = var.project
  database   = google_firestore_database.this.name
  collection = each.value.collection
  field      = trimprefix(each.value.field, "-")

  index_config {
    indexes {
      order       = startswith(each.value.field, "-") ? "DESCENDING" : "ASCENDING"
      query_scope = "COLLECTION"
    }
  }
  depends_on = [google_firestore_field.expiring]
}

resource "google_firestore_field" "indexed_second" {
  for_each = local.indexed[1]

  project    = var.project
  database   = google_firestore_database.this.name
  collection = each.value.collection
  field      = trimprefix(each.value.field, "-")

  index_config {
    indexes {
      order       = startswith(each.value.field, "-") ? "DESCENDING" : "ASCENDING"
      query_scope = "COLLECTION"
    }
  }
  depends_on = [google_firestore_field.indexed]
}

resource "google_firestore_field" "indexed_third" {
  for_each = local.indexed[2]

  project    = var.project
  database   = google_firestore_database.this.name
  collection = each.value.collection
  field      = trimprefix(each.value.field, "-")

  index_config {
    indexes {
      order       = startswith(each.value.field, "-") ? "DESCENDING" : "ASCENDING"
      query_scope = "COLLECTION"
    }
  }
  depends_on = [google_firestore_field.indexed_second]
}

resource "google_firestore_field" "indexed_fourth" {
  for_each = local.indexed[3]

  project    = var.project
  database   = google_firestore_database.this.name
  collection = each.value.collection
  field      = trimprefix(each.value.field, "-")

  index_config {
    indexes {
      order       = startswith(each.value.field, "-") ? "DESCENDING" : "ASCENDING"
      query_scope = "COLLECTION"
    }
  }
  depends_on = [google_firestore_field.indexed_third]
}

resource "google_firestore_field" "indexed_fifth" {
  for_each = local.indexed[4]

  project    = var.project
  database   = google_firestore_database.this.name
  collection = each.value.collection
  field      = trimprefix(each.value.field, "-")

  index_config {
    indexes {
      order       = startswith(each.value.field, "-") ? "DESCENDING" : "ASCENDING"
      query_scope = "COLLECTION"
    }
  }
  depends_on = [google_firestore_field.indexed_fourth]
}

resource "google_firestore_field" "indexed_sixth" {
  for_each = local.indexed[5]

  project    = var.project
  database   = google_firestore_database.this.name
  collection = each.value.collection
  field      = trimprefix(each.value.field, "-")

  index_config {
    indexes {
      order       = startswith(each.value.field, "-") ? "DESCENDING" : "ASCENDING"
      query_scope = "COLLECTION"
    }
  }
  depends_on = [google_firestore_field.indexed_fifth]
}

resource "google_firestore_index" "this" {
  for_each = local.composite[0]

  project     = var.project
  database    = google_firestore_database.this.name
  collection  = each.value.collection
  query_scope = "COLLECTION"

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path = trimprefix(fields.value, "-")
      order      = startswith(fields.value, "-") ? "DESCENDING" : "ASCENDING"
    }
  }
  depends_on = [google_firestore_field.indexed_sixth]
}

resource "google_firestore_index" "second" {
  for_each = local.composite[1]

  project     = var.project
  database    = google_firestore_database.this.name
  collection  = each.value.collection
  query_scope = "COLLECTION"

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path = trimprefix(fields.value, "-")
      order      = startswith(fields.value, "-") ? "DESCENDING" : "ASCENDING"
    }
  }
  depends_on = [google_firestore_index.this]
}

resource "google_firestore_index" "third" {
  for_each = local.composite[2]

  project     = var.project
  database    = google_firestore_database.this.name
  collection  = each.value.collection
  query_scope = "COLLECTION"

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path = trimprefix(fields.value, "-")
      order      = startswith(fields.value, "-") ? "DESCENDING" : "ASCENDING"
    }
  }
  depends_on = [google_firestore_index.second]
}

resource "google_firestore_index" "fourth" {
  for_each = local.composite[3]

  project     = var.project
  database    = google_firestore_database.this.name
  collection  = each.value.collection
  query_scope = "COLLECTION"

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path = trimprefix(fields.value, "-")
      order      = startswith(fields.value, "-") ? "DESCENDING" : "ASCENDING"
    }
  }
  depends_on = [google_firestore_index.third]
}

resource "google_firestore_index" "fifth" {
  for_each = local.composite[4]

  project     = var.project
  database    = google_firestore_database.this.name
  collection  = each.value.collection
  query_scope = "COLLECTION"

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path = trimprefix(fields.value, "-")
      order      = startswith(fields.value, "-") ? "DESCENDING" : "ASCENDING"
    }
  }
  depends_on = [google_firestore_index.fourth]
}

resource "google_firestore_index" "sixth" {
  for_each = local.composite[5]

  project     = var.project
  database    = google_firestore_database.this.name
  collection  = each.value.collection
  query_scope = "COLLECTION"

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path = trimprefix(fields.value, "-")
      order      = startswith(fields.value, "-") ? "DESCENDING" : "ASCENDING"
    }
  }
  depends_on = [google_firestore_index.fifth]
}

# In addition to the seven days of point-in-time recovery: a backup outlives the database.
resource "google_firestore_backup_schedule" "this" {
  for_each = var.backups

  project   = var.project
  database  = google_firestore_database.this.name
  retention = "${each.value * 86400}s"

  dynamic "daily_recurrence" {
    for_each = each.key == "daily" ? [true] : []
    content {}
  }
  dynamic "weekly_recurrence" {
    for_each = each.key == "weekly" ? ["SUNDAY"] : []
    content {
      day = weekly_recurrence.value
    }
  }
}
