"""Registries of tenants: who owns a sender."""
