"""The wire: exchanges data with untrusted parties, within bounds on time, size and depth."""
