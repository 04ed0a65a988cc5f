# Copy to terraform.tfvars, enter your own values, and commit it: it holds no secret, and the operator on call needs it.
project                  = "my-project-prod"
region                   = "europe-west1"
whatsapp_phone_number_id = "100000000000001"
handler                  = "handlers.echo:handle"
alert_emails             = ["oncall@example.com"]
# Meta waits for the answer, so one instance always runs.
min_instances = { webhook = 1 }
