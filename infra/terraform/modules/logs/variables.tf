variable "project" {
  type = string
}

variable "location" {
  description = "The region that stores the logs; Google chooses if null."
  type        = string
}

variable "audited" {
  description = "APIs whose data reads and writes are audited."
  type        = set(string)
}

variable "exempted" {
  description = "Accounts whose calls are not audited."
  type        = list(string)
}
