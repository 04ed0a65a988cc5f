variable "project" {
  type = string
}

variable "names" {
  description = "Named as the environment variables that they fill."
  type        = list(string)
}
