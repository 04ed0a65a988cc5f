output "webhook_url" {
  description = "What Meta is given."
  value       = module.pombo.webhook_url
}

output "internal_url" {
  description = "Where tasks go."
  value       = module.pombo.internal_url
}

output "services" {
  description = "The name of each service in Cloud Run."
  value       = module.pombo.services
}

output "queues" {
  description = "The name of each queue."
  value       = module.pombo.queues
}

output "service_accounts" {
  description = "Who is who."
  value       = module.pombo.service_accounts
}

output "firestore_database" {
  description = "The database's ID."
  value       = module.pombo.firestore_database
}

output "image_repository" {
  description = "What an image's name begins with."
  value       = module.pombo.image_repository
}
