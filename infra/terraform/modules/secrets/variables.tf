variable "project" {
  type = string
}

variable "names" {
  description = "The names of the secrets, equal to the environment variables that they fill."
  type        = list(string)
}

variable "locations" {
  description = "The regions that store their values; Google chooses if empty. It cannot be changed."
  type        = list(string)
}

variable "kms_key" {
  description = "The key that encrypts them, in each of the locations; Google's if null."
  type        = string
}
