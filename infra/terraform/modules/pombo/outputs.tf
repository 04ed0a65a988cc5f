output "webhook_url" {
  description = "What Meta is given."
  value       = "${local.urls["webhook"]}/webhooks/whatsapp"
}

output "internal_url" {
  description = "Where tasks go."
  value       = local.urls["internal"]
}

output "services" {
  description = "The name of each service in Cloud Run."
  value       = { for name, it in module.run : name => it.name }
}

output "queues" {
  description = "The name of each queue."
  value       = module.tasks.names
}

output "service_accounts" {
  description = "Who is who."
  value       = local.accounts
}

output "firestore_database" {
  description = "The database's ID."
  value       = module.firestore.name
}

output "image_repository" {
  description = "What an image's name begins with."
  value       = "${var.region}-docker.pkg.dev/${var.project}/pombo"
}
