variable "project" {
  type = string
}

variable "region" {
  description = "The region of the job. Cloud Scheduler does not exist in every region of Cloud Run."
  type        = string
}

variable "internal_url" {
  type = string
}

variable "service_account" {
  description = "The account whose identity the call carries."
  type        = string
}
