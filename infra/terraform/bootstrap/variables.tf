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

variable "secret_locations" {
  description = "The regions in which secrets lie; wherever Google likes if none. It cannot be changed later."
  type        = list(string)
  default     = []
}

variable "kms_key" {
  description = "A key of yours in the region for the images, the buckets and the secrets. It cannot be changed later."
  type        = string
  default     = null
  validation {
    condition     = var.kms_key == null ? true : can(regex("^projects/[^/]+/locations/${var.region}/keyRings/[^/]+/cryptoKeys/[^/]+$", var.kms_key))
    error_message = "kms_key is the full name of a key in ${var.region}: projects/…/locations/${var.region}/keyRings/…/cryptoKeys/…"
  }
  validation {
    condition     = var.kms_key == null ? true : length(var.secret_locations) == 1 && contains(var.secret_locations, var.region)
    error_message = "With a kms_key, secret_locations is the region alone: a secret needs a key where it lies."
  }
}
