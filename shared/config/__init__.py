"""Configuration: every environment variable, in one table, read once at the start.

All faults are reported together, each in a sentence that says what to do. Nothing falls back to an insecure default: in
staging and prod, addresses, secrets and the store are required.
"""

from shared.config.environment import Config, ConfigError, load, misspelt
from shared.config.settings import (
    ALL,
    API,
    CLI,
    CLOUD_RUN,
    DATA_DIRECTORY,
    DEPLOYED,
    ENVIRONMENTS,
    INTERNAL,
    LEAST_DOUBT_WINDOW,
    LOCAL_SECRETS,
    QUEUE_SETTINGS,
    SERVICES,
    SETTINGS,
    STORE_SETTINGS,
    STORES,
    WEBHOOK,
    Setting,
)

__all__ = [
    "ALL",
    "API",
    "CLI",
    "CLOUD_RUN",
    "DATA_DIRECTORY",
    "DEPLOYED",
    "ENVIRONMENTS",
    "INTERNAL",
    "LEAST_DOUBT_WINDOW",
    "LOCAL_SECRETS",
    "QUEUE_SETTINGS",
    "SERVICES",
    "SETTINGS",
    "STORES",
    "STORE_SETTINGS",
    "WEBHOOK",
    "Config",
    "ConfigError",
    "Setting",
    "load",
    "misspelt",
]
