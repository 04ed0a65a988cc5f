variable "project" {
  type = string
}

variable "region" {
  description = "Where the job runs. Cloud Scheduler is not in every region of Cloud Run's."
  type        = string
}

variable "internal_url" {
  type = string
}

variable "service_account" {
  description = "Whose identity the call carries."
  type        = string
}
