variable "project" {
  description = "The project's ID."
  type        = string
}

variable "region" {
  description = "The region of the images and of the state, and of the environment after them."
  type        = string
  default     = "europe-west1"
}
