variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "tenant_queues" {
  description = "The number of pairs of queues for tenants."
  type        = number
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

variable "tenant_queue_per_second" {
  description = "The rate of each numbered outbound queue, in messages a second."
  type        = number
}

variable "max_concurrency_per_tenant" {
  description = "The maximum number of messages of a numbered outbound queue that are sent at once."
  type        = number
}

variable "inbound_tenant_queue_per_second" {
  description = "The rate of each numbered inbound queue, in events a second."
  type        = number
}

variable "inbound_max_concurrency_per_tenant" {
  description = "The maximum number of events of a numbered inbound queue that are handled at once."
  type        = number
}
