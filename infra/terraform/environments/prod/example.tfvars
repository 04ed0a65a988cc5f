# Copy to terraform.tfvars, which git leaves alone, and put your own in.
project                  = "my-project-prod"
whatsapp_phone_number_id = "100000000000001"
handler                  = "handlers.echo:handle"
alert_emails             = ["oncall@example.com"]
# Meta waits for the answer: one instance is always there.
min_instances = { webhook = 1 }
# Each has a queue of its own, so that one's backlog does not delay the other's messages.
tenants = ["clinic", "shop"]
