variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "memory_size_gb" {
  description = "The memory in GB. A record takes about 2 KB while it is kept."
  type        = number
  default     = 5
}

variable "auth" {
  description = "Whether it requires a password."
  type        = bool
}

variable "kms_key" {
  description = "The key that encrypts its data; Google's if null. It cannot be changed."
  type        = string
}

variable "instances" {
  description = "The maximum number of instances of all services together."
  type        = number
}
