variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "name" {
  description = "What the service is called among ours: webhook, internal."
  type        = string
}

variable "public" {
  description = "Whether anybody may call it."
  type        = bool
}

variable "url" {
  description = "Its address, for which tokens are made."
  type        = string
}

variable "image" {
  type = string
}

variable "service_account" {
  description = "What it is."
  type        = string
}

variable "invokers" {
  description = "Who may call it where not everybody may: name → account."
  type        = map(string)
}

variable "deploy_account" {
  description = "Who may deploy it."
  type        = string
}

variable "env" {
  description = "Environment variables in plain sight."
  type        = map(string)
}

variable "secrets" {
  description = "Environment variables that are secrets: name of both → version."
  type        = map(string)
}

variable "threads" {
  description = "Requests at once in one instance."
  type        = number
}

variable "timeout" {
  description = "Of a request, in seconds."
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
  description = "How many tasks the queues may send it at once."
  type        = number
  default     = 0
}

variable "network" {
  description = "The network through which it reaches private addresses, if it does."
  type        = object({ network = string, subnetwork = string })
  default     = null
}
