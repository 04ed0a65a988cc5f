variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "services" {
  description = "Each service: secrets that it reads, queues it puts tasks into, those it asks for, whether it lists records."
  type = map(object({
    secrets  = set(string)
    enqueues = set(string)
    looks_at = set(string)
    lists    = bool
  }))
}

variable "queues" {
  description = "The name of each queue."
  type        = map(string)
}

variable "database" {
  description = "The Firestore database's ID."
  type        = string
}

variable "deploy_account" {
  description = "Who deploys."
  type        = string
}
