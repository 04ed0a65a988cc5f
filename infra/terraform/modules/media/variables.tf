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
