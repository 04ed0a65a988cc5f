output "warning_channels" {
  description = "Who is told of what is not urgent."
  value       = local.channels["WARNING"]
}
