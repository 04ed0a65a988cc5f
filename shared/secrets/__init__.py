"""Where secrets are kept: Google Cloud's Secret Manager, or a file on one machine."""
