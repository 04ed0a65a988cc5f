variable "project" {
  description = "The project's ID."
  type        = string
}

variable "region" {
  description = "The region of the images and of the state, and of the environment after them. It cannot be changed later."
  type        = string
}

variable "redis" {
  description = "Whether the environment will have a Memorystore: turns its APIs on."
  type        = bool
  default     = false
}
