output "warning_channels" {
  description = "The notification channels that receive warnings."
  value       = local.channels["WARNING"]
}
