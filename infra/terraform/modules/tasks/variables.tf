variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "tenants" {
  description = "Tenants with their own outbound queue."
  type        = set(string)
}

variable "tenant_at_once" {
  description = "The maximum number of such a tenant's messages sent at once."
  type        = number
  default     = 2
}

variable "suffix" {
  description = "A suffix for each queue's name."
  type        = string
}

variable "log_sampling" {
  description = "The share of the queues' operations that Cloud Logging keeps, 0 to 1."
  type        = number
}

variable "internal_host" {
  description = "The host of the internal service, the only target of the queues."
  type        = string
}

variable "service_account" {
  description = "The account whose identity the calls carry. It must exist before the queues."
  type        = string
}

variable "outbound_rate" {
  description = "The rate of the queue outbound, in messages a second."
  type        = number
}

variable "tenant_rate" {
  description = "The rate of a tenant's own queue, in messages a second."
  type        = number
}
