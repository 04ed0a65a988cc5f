output "emails" {
  description = "The account of each service, of tasks and of scheduler."
  value       = local.emails
}
