variable "project" {
  type = string
}

variable "location" {
  type = string
}

variable "retention_days" {
  description = "How long a file is kept."
  type        = number
  default     = 35
}

variable "users" {
  description = "Who reads and writes: name → account."
  type        = map(string)
}

variable "kms_key" {
  description = "The key that files are encrypted with; one of Google's if null."
  type        = string
}
