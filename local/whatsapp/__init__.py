"""The WhatsApp Cloud API on one machine: how Meta handles a business's requests, and what it sends to its webhook."""
