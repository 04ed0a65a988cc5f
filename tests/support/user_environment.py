"""Variables of a user's shell, meant for the stack that runs next to the tests, which no test may see."""

from collections.abc import MutableMapping

from shared import config

OF_CLOUD_RUN = frozenset({"CLOUD_RUN_JOB", "K_SERVICE", "K_REVISION", "K_CONFIGURATION"})
OF_PROGRAMS = frozenset(
    {
        "APPOINTMENTS_FILE",
        "AUDIT_CACHE",
        "AUDIT_URL",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING",
        "FAKE_CLOUD",
        "FAKE_PROJECT",
        "GOOGLE_OAUTH_ACCESS_TOKEN",
        "HANDLER_CALLS",
        "POMBO_API_KEY",
        "POMBO_CALLED_BY",
        "_PYTHON_IMAGE",
    }
)
"""Read by .ci/audit.py, by infra/release, by `pombo send`, by an example handler, and by programs that tests start."""

OF_LIBRARIES = frozenset(
    {
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLUMNS",
        "FLASK_DEBUG",
        "FORCE_COLOR",
        "FORWARDED_ALLOW_IPS",
        "FUNCTION_SIGNATURE_TYPE",
        "FUNCTION_SOURCE",
        "FUNCTION_TARGET",
        "GCE_METADATA_HOST",
        "GCLOUD_PROJECT",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_QUOTA_PROJECT",
        "GRPC_TRACE",
        "GRPC_VERBOSITY",
        "GUNICORN_CMD_ARGS",
        "LINES",
        "NO_COLOR",
        "TERM",
        "WEB_CONCURRENCY",
    }
)
"""Read by gunicorn, uvicorn, functions-framework, Flask, click, argparse, gRPC and Google's clients."""

CLEARED = frozenset(setting.name for setting in config.SETTINGS) | OF_CLOUD_RUN | OF_PROGRAMS | OF_LIBRARIES


def clear(environ: MutableMapping[str, str]) -> None:
    """Remove the variables that would change a test's result."""
    for name in CLEARED:
        environ.pop(name, None)
