variable "project" {
  description = "The project's ID."
  type        = string
}

variable "region" {
  description = "The region of the images and of the state, and of the environment after them. It cannot be changed later."
  type        = string
}

variable "handler_secrets" {
  description = "The handler's own secrets, by the names of their variables."
  type        = set(string)
  default     = []
}

variable "redis" {
  description = "Whether the environment will have a Memorystore; enables its APIs."
  type        = bool
  default     = false
}

variable "secret_locations" {
  description = "The regions that store the secrets; Google chooses if empty. It cannot be changed later."
  type        = list(string)
  default     = []
}

variable "kms_key" {
  description = "Your own key in the region for the images, the buckets and the secrets. It cannot be changed later."
  type        = string
  default     = null
  validation {
    condition     = var.kms_key == null ? true : can(regex("^projects/[^/]+/locations/${var.region}/keyRings/[^/]+/cryptoKeys/[^/]+$", var.kms_key))
    error_message = "kms_key must be the full name of a key in ${var.region}: projects/…/locations/${var.region}/keyRings/…/cryptoKeys/…"
  }
  validation {
    condition     = var.kms_key == null ? true : length(var.secret_locations) == 1 && contains(var.secret_locations, var.region)
    error_message = "With a kms_key, secret_locations must be only the region: a secret needs a key in its own region."
  }
}
