# Copy to terraform.tfvars, put your own in, and commit it: it holds no secret, and whoever is on call needs it.
project                  = "my-project-prod"
region                   = "europe-west1"
whatsapp_phone_number_id = "100000000000001"
handler                  = "handlers.echo:handle"
alert_emails             = ["oncall@example.com"]
# Meta waits for the answer: one instance is always there.
min_instances = { webhook = 1 }
