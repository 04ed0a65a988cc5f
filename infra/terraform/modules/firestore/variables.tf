variable "project" {
  type = string
}

variable "location" {
  description = "The database's region, or a multi-region like eur3. It cannot be changed."
  type        = string
}

variable "kms_key" {
  description = "The key that encrypts it; Google's if null. It cannot be changed."
  type        = string
}

variable "backups" {
  description = "For how many days daily and weekly backups are kept."
  type        = map(number)
}
