variable "project" {
  type = string
}

variable "names" {
  description = "Named as the environment variables that they fill."
  type        = list(string)
}

variable "locations" {
  description = "Where their values lie; wherever Google likes if none. It cannot be changed."
  type        = list(string)
}

variable "kms_key" {
  description = "The key that they are encrypted with, in each of the locations; one of Google's if null."
  type        = string
}
