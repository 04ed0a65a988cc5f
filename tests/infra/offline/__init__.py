"""The google provider without a network: its real schema, from a package that was generated from it, behind a stand-in
that speaks Terraform's plugin protocol. Terraform itself does the checks.
"""
