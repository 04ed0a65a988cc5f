output "names" {
  description = "The name of each queue: of inbound, of outbound, of outbound-<tenant>."
  value       = { for key, it in google_cloud_tasks_queue.this : key => it.name }
}

output "at_once" {
  description = "How many tasks all queues together may run at once."
  value       = sum([for it in local.queues : it.at_once])
}
