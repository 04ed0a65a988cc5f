# Copy to terraform.tfvars, which git leaves alone, and put your own in.
project                  = "my-project-staging"
whatsapp_phone_number_id = "100000000000001"
handler                  = "handlers.echo:handle"
alert_emails             = ["oncall@example.com"]
