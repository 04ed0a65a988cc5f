output "webhook_url" {
  description = "The webhook URL to enter at Meta."
  value       = module.pombo.webhook_url
}

output "api_url" {
  description = "The URL of the API."
  value       = module.pombo.api_url
}

output "internal_url" {
  description = "The URL of the internal service, which tasks are sent to."
  value       = module.pombo.internal_url
}

output "services" {
  description = "The name of each service in Cloud Run."
  value       = module.pombo.services
}

output "queues" {
  description = "The name of each shared queue."
  value       = module.pombo.queues
}

output "service_accounts" {
  description = "The e-mail addresses of the service accounts."
  value       = module.pombo.service_accounts
}

output "firestore_database" {
  description = "The database's ID."
  value       = module.pombo.firestore_database
}

output "image_repository" {
  description = "The prefix of an image's name."
  value       = module.pombo.image_repository
}
