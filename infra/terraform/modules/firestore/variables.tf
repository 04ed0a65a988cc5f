variable "project" {
  type = string
}

variable "location" {
  description = "Of the database: a region, or a multi-region like eur3. It cannot be changed."
  type        = string
}
