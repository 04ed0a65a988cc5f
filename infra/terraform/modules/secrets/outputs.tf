output "names" {
  value = [for it in google_secret_manager_secret.this : it.secret_id]
}
