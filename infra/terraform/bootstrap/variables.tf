variable "project" {
  description = "The project's ID."
  type        = string
}

variable "region" {
  description = "The region of the images and of the state, and of the environment after them. It cannot be changed later."
  type        = string
}

variable "handler_secrets" {
  description = "Secrets of the handler's own, by the names of their variables."
  type        = set(string)
  default     = []
}

variable "redis" {
  description = "Whether the environment will have a Memorystore: turns its APIs on."
  type        = bool
  default     = false
}
