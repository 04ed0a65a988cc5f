output "webhook_url" {
  description = "The webhook URL to enter at Meta."
  value       = "${local.urls["webhook"]}/webhooks/whatsapp"
}

output "api_url" {
  description = "The URL of the API."
  value       = local.urls["api"]
}

output "internal_url" {
  description = "The URL of the internal service, which tasks are sent to."
  value       = local.urls["internal"]
}

output "services" {
  description = "The name of each service in Cloud Run."
  value       = { for name, it in module.run : name => it.name }
}

output "queues" {
  description = "The name of each shared queue."
  value       = module.tasks.names
}

output "service_accounts" {
  description = "The e-mail addresses of the service accounts."
  value       = local.accounts
}

output "firestore_database" {
  description = "The database's ID."
  value       = module.firestore.name
}

output "image_repository" {
  description = "The prefix of an image's name."
  value       = "${var.region}-docker.pkg.dev/${var.project}/pombo"
}
