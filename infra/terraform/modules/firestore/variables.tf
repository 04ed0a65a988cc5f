variable "project" {
  type = string
}

variable "location" {
  description = "Of the database: a region, or a multi-region like eur3. It cannot be changed."
  type        = string
}

variable "kms_key" {
  description = "The key that it is encrypted with; one of Google's if null. It cannot be changed."
  type        = string
}

variable "backups" {
  description = "daily and weekly: for how many days each is kept."
  type        = map(number)
}
