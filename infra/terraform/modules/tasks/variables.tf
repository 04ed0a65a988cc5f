variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "tenants" {
  description = "Tenants with an outbound queue of their own."
  type        = set(string)
}

variable "tenant_at_once" {
  description = "How many messages of such a tenant are sent at once."
  type        = number
  default     = 2
}

variable "suffix" {
  description = "Behind each queue's name."
  type        = string
}

variable "log_sampling" {
  description = "The part of the queues' operations that Cloud Logging keeps: 0 to 1."
  type        = number
}

variable "internal_host" {
  description = "The host of the internal service, to which alone the queues lead."
  type        = string
}

variable "service_account" {
  description = "Whose identity the calls carry. It has to be there before the queues."
  type        = string
}

variable "outbound_rate" {
  description = "Messages a second of the queue outbound."
  type        = number
}

variable "tenant_rate" {
  description = "Messages a second of a tenant's own queue."
  type        = number
}
