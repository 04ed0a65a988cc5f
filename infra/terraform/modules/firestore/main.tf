# The database, and of each collection: what is indexed, and what makes it expire. Everything else is exempt: each index
# makes each write slower. shared/stores/firestore_schema.py is the same table; a test holds the two together.

locals {
  collections = {
    records = {
      indexed   = ["sweep_at", "correlation_id", "id_hash", "pending_since"]
      composite = [["state", "tenant"], ["mark", "tenant"]]
      ttl       = "expire_at"
    }
    receipts = {
      indexed   = ["mark"]
      composite = []
      ttl       = "expire_at"
    }
    marks = {
      indexed   = []
      composite = []
      ttl       = null
    }
  }
  indexed = merge([for name, it in local.collections : {
    for field in it.indexed : "${name}.${field}" => { collection = name, field = field }
  }]...)
  composite = merge([for name, it in local.collections : {
    for fields in it.composite : "${name}.${join(".", fields)}" => { collection = name, fields = fields }
  }]...)
}

resource "google_firestore_database" "this" {
  project = var.project
  # Not (default): that may be there already, in Datastore mode even, and its location cannot be changed.
  name             = "pombo"
  location_id      = var.location
  type             = "FIRESTORE_NATIVE"
  database_edition = "STANDARD" # Enterprise has no index_config

  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_ENABLED"
  delete_protection_state           = "DELETE_PROTECTION_ENABLED"
  # The provider's default, ABANDON, leaves the database behind a destroy, and the next apply finds its name taken.
  # Three guards have to be taken away by hand before DELETE deletes: this block, the protection above, and this rule.
  deletion_policy = "DELETE"

  lifecycle {
    prevent_destroy = true
  }
}

# The three kinds below come one after the other: changes of one collection's fields at once refuse one another with 409
# (hashicorp/terraform-provider-google #16599). Within a kind the provider tries again where it knows the refusal by its
# words; where it does not, the apply ends, and the next one goes on from there.

# No field of a collection is indexed of itself. "*" takes no ttl_config (#17163).
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

  # A TTL policy takes ten minutes and more to come into force; the default wait is 20.
  timeouts {
    create = "60m"
    update = "60m"
  }
  depends_on = [google_firestore_field.exempt]
}

resource "google_firestore_field" "indexed" {
  for_each = local.indexed

  project    = var.project
  database   = google_firestore_database.this.name
  collection = each.value.collection
  field      = each.value.field

  index_config {
    indexes {
      order       = "ASCENDING"
      query_scope = "COLLECTION"
    }
  }
  depends_on = [google_firestore_field.expiring]
}

resource "google_firestore_index" "this" {
  for_each = local.composite

  project     = var.project
  database    = google_firestore_database.this.name
  collection  = each.value.collection
  query_scope = "COLLECTION"

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path = fields.value
      order      = "ASCENDING"
    }
  }
  depends_on = [google_firestore_field.indexed]
}
