variable "project_number" {
  type = string
}

variable "environment" {
  type = string
}

variable "billing_account" {
  type = string
}

variable "amount" {
  description = "The monthly amount, in whole units of the billing account's currency."
  type        = number
}

variable "channels" {
  description = "The notification channels that it notifies besides the billing account's administrators."
  type        = list(string)
}
