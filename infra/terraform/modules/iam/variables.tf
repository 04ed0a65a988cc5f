variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "services" {
  description = "Each service: the secrets that it reads, the queues it puts tasks into, those whose state it asks for."
  type = map(object({
    secrets  = set(string)
    enqueues = set(string)
    looks_at = set(string)
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
