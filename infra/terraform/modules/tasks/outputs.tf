# Names of the queues as the API returns them, so that what uses a name comes after its queue.

output "names" {
  description = "The name of each shared queue: of inbound, of outbound, of drain."
  value       = { for key in keys(local.shared) : key => google_cloud_tasks_queue.queue[key].name }
}

output "numbered" {
  description = "The names of the numbered queues, by the shared queue that each stands beside."
  value = {
    for kind, keys in local.pairs : kind => { for key in keys : key => google_cloud_tasks_queue.queue[key].name }
  }
}

output "patterns" {
  description = "The names of the numbered queues as the code forms them, by the shared queue that they stand beside."
  value       = { for kind in keys(local.numbered) : kind => "${kind}-t{n:03d}${var.suffix}" }
}

output "at_once" {
  description = "How many tasks all queues together may run at once."
  value       = sum([for it in local.queues : it.at_once])
}
