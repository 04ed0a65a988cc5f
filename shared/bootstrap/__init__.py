"""Bootstrap: builds every provider, store and queue. It is the only package that knows all adapters."""
