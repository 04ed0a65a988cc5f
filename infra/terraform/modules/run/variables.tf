variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "name" {
  description = "The short name of the service: webhook, api or internal."
  type        = string
}

variable "public" {
  description = "Whether everyone may call it."
  type        = bool
}

variable "url" {
  description = "Its address, which tokens are issued for."
  type        = string
}

variable "image" {
  type = string
}

variable "service_account" {
  description = "Its service account."
  type        = string
}

variable "invokers" {
  description = "If not everyone may call it, the accounts that may: name → account."
  type        = map(string)
}

variable "deploy_account" {
  description = "The account that may deploy it."
  type        = string
}

variable "env" {
  description = "Environment variables that are not secret."
  type        = map(string)
}

variable "secrets" {
  description = "Environment variables that are secrets: the name of both → version."
  type        = map(string)
}

variable "concurrency" {
  description = "How many requests Cloud Run sends one instance at once: as many as it works on."
  type        = number
}

variable "timeout" {
  description = "The timeout of a request, in seconds."
  type        = number
}

variable "cpu" {
  type    = string
  default = "1" # under one CPU, Cloud Run allows one request at a time
}

variable "memory" {
  type    = string
  default = "512Mi"
}

variable "min_instances" {
  type = number
}

variable "max_instances" {
  type = number
}

variable "dispatches_at_once" {
  description = "The maximum number of tasks that the queues send it at once."
  type        = number
  default     = 0
}

variable "network" {
  description = "The network through which it reaches private addresses; null if it reaches none."
  type        = object({ network = string, subnetwork = string })
  default     = null
}
