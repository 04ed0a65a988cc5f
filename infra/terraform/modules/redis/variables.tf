variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "memory_size_gb" {
  description = "A record takes about 2 KB for as long as it is kept."
  type        = number
  default     = 5
}

variable "auth" {
  description = "Whether it asks for a password."
  type        = bool
}

variable "kms_key" {
  description = "The key that its data is encrypted with; one of Google's if null. It cannot be changed."
  type        = string
}

variable "instances" {
  description = "How many instances of all services there are at most."
  type        = number
}
