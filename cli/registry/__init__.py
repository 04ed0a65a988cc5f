"""pombo tenants, senders and keys: the registry on the command line."""
