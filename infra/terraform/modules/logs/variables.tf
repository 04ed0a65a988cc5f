variable "project" {
  type = string
}

variable "location" {
  description = "The region in which logs are kept; where Google keeps them if null."
  type        = string
}

variable "audited" {
  description = "APIs whose reads and writes of data are logged."
  type        = set(string)
}

variable "exempted" {
  description = "Accounts whose calls are not."
  type        = list(string)
}
