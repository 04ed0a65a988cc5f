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
  description = "A month, in whole units of the billing account's currency."
  type        = number
}

variable "channels" {
  description = "Whom it tells beside those who administer the billing account."
  type        = list(string)
}
