# One environment: joins the other modules, in the order of their dependencies: accounts, queues and database, their
# bindings, the services, and then what calls the services.

terraform {
  required_providers {
    google = {
      source = "hashicorp/google"
    }
  }
}

data "google_project" "this" {
  project_id = var.project
}

module "tasks" {
  source          = "../tasks"
  project         = var.project
  region          = var.region
  suffix          = var.queue_suffix
  log_sampling    = var.queue_log_sampling
  internal_host   = local.hosts["internal"]
  service_account = module.iam.emails["tasks"]
  outbound_rate   = var.outbound_rate

  tenant_queues                      = var.tenant_queues
  tenant_queue_per_second            = var.tenant_queue_per_second
  max_concurrency_per_tenant         = var.max_concurrency_per_tenant
  inbound_tenant_queue_per_second    = var.inbound_tenant_queue_per_second
  inbound_max_concurrency_per_tenant = var.inbound_max_concurrency_per_tenant
}

module "firestore" {
  source   = "../firestore"
  project  = var.project
  location = coalesce(var.firestore_location, var.region)
  kms_key  = var.kms_key
  backups  = var.firestore_backups
}

module "iam" {
  source         = "../iam"
  project        = var.project
  project_number = data.google_project.this.number
  region         = var.region
  services       = local.services
  queues         = module.tasks.names
  numbered       = module.tasks.numbered
  database       = module.firestore.name
  deploy_account = local.accounts["deploy"]
}

module "redis" {
  source    = "../redis"
  count     = var.redis ? 1 : 0
  instances = sum([for name, most in local.max_instances : lookup(var.max_instances, name, most)])
  project   = var.project
  region    = var.region
  auth      = var.redis_auth
  kms_key   = var.kms_key
}

module "run" {
  source   = "../run"
  for_each = local.services

  project            = var.project
  region             = var.region
  name               = each.key
  public             = each.value.public
  url                = local.urls[each.key]
  image              = lookup(var.images, each.key, local.placeholder)
  service_account    = local.accounts[each.key]
  invokers           = { for name in each.value.invokers : name => local.accounts[name] }
  deploy_account     = local.accounts["deploy"]
  env                = merge(local.common_env, local.store_env, each.value.env)
  secrets            = { for secret in each.value.secrets : secret => lookup(local.secret_versions, secret, "1") }
  concurrency        = each.value.concurrency
  timeout            = each.value.timeout
  memory             = lookup(var.memory, each.key, "512Mi")
  min_instances      = lookup(var.min_instances, each.key, 0)
  max_instances      = lookup(var.max_instances, each.key, local.max_instances[each.key])
  dispatches_at_once = contains(each.value.invokers, "tasks") ? module.tasks.at_once : 0
  network            = var.redis ? module.redis[0].network : null

  # Cloud Run refuses a service that may not read its secrets, and a service must not start before its store exists. New
  # bindings come into force during the minutes that the database takes.
  depends_on = [module.iam, module.firestore, module.redis]
}

# Cloud Run's own agent pulls images; it exists once a service does. The first image is public.
resource "google_artifact_registry_repository_iam_member" "run_pulls" {
  project    = var.project
  location   = var.region
  repository = "pombo"
  role       = "roles/artifactregistry.reader"
  member     = "serviceAccount:service-${data.google_project.this.number}@serverless-robot-prod.iam.gserviceaccount.com"
  depends_on = [module.run]
}

module "scheduler" {
  source          = "../scheduler"
  project         = var.project
  region          = coalesce(var.scheduler_region, var.region)
  internal_url    = local.urls["internal"]
  service_account = local.accounts["scheduler"]
  depends_on      = [module.run]
}

module "media" {
  source     = "../media"
  count      = var.media_bucket ? 1 : 0
  project    = var.project
  location   = var.region
  kms_key    = var.kms_key
  users      = { internal = local.accounts["internal"] }
  depends_on = [module.iam]
}
