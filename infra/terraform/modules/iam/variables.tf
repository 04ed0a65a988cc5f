variable "project" {
  type = string
}

variable "project_number" {
  type = string
}

variable "region" {
  type = string
}

variable "services" {
  description = "Each service: the secrets that it reads, the prefixes of those of tenants that it reads and of those that it adds values to, the queues that it creates tasks in, the queues that it checks, whether it lists records, whether it also deletes some."
  type = map(object({
    secrets  = set(string)
    prefixes = optional(set(string), [])
    adds     = optional(set(string), [])
    enqueues = set(string)
    looks_at = set(string)
    lists    = bool
    deletes  = optional(bool, false)
  }))
}

variable "queues" {
  description = "The name of each shared queue."
  type        = map(string)
}

variable "numbered" {
  description = "The names of the numbered queues, by the shared queue that each stands beside."
  type        = map(map(string))
}

variable "database" {
  description = "The Firestore database's ID."
  type        = string
}

variable "deploy_account" {
  description = "The account that deploys."
  type        = string
}
