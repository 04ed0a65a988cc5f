output "name" {
  description = "The database's ID."
  value       = google_firestore_database.this.name
}
