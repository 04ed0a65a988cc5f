"""The WhatsApp Cloud API on one machine: what Meta does to a business's requests, and what it sends to its webhook."""
