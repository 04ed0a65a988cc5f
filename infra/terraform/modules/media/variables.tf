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
  description = "The accounts that read and write: name → account."
  type        = map(string)
}

variable "kms_key" {
  description = "The key that encrypts the files; Google's if null."
  type        = string
}
