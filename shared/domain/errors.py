"""Errors: one tree of classes that say what went wrong. Those of a send are in send_errors.py.

The docstring of a class is the sentence that an operator reads. No message here holds a phone number, a name or a text.
"""

from typing import ClassVar


class PomboError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    is_usage: ClassVar[bool] = False
    """Whether what was given can never be right, whatever is stored."""
    retryable: ClassVar[bool] = False
    scope: ClassVar[str] = "us"  # message, contact, sender, tenant, provider or us
    alert: ClassVar[bool] = False

    @property
    def sentence(self) -> str:
        """The sentence for the operator."""
        return str(self) or (type(self).__doc__ or "").strip().splitlines()[0]


# ---- ours


class StoreUnavailable(PomboError):
    """The store cannot be reached."""

    code = "store_unavailable"
    retryable = True


class ConversationChanged(Exception):
    """A conversation, an alias or a lane is no longer as it was read, so nothing was written: read it and decide again.
    It never reaches a user.
    """


class QueueUnavailable(PomboError):
    """The task queue cannot be reached."""

    code = "queue_unavailable"
    retryable = True


class RegistryUnavailable(PomboError):
    """The registry of tenants cannot be reached."""

    code = "registry_unavailable"
    retryable = True


class RegistryUnreadable(RegistryUnavailable):
    """An entry of the registry cannot be read: a newer version of Pombo wrote it, or it was damaged."""

    code = "registry_unreadable"
    scope = "tenant"


class SecretsUnavailable(PomboError):
    """The secrets cannot be read or written."""

    code = "secrets_unavailable"
    retryable = True


class CredentialsUnavailable(SecretsUnavailable):
    """A sender's access token cannot be read."""

    code = "credentials_unavailable"


class CertificatesUnavailable(PomboError):
    """The certificates that verify callers cannot be fetched."""

    code = "certificates_unavailable"
    retryable = True


class UnknownState(PomboError):
    """This record cannot be read: a newer version of Pombo wrote it, or it was damaged."""

    code = "state_unknown"
    retryable = True


class Forbidden(PomboError):
    """The caller could not be authenticated."""

    code = "forbidden"

    def __init__(self, cause: str = "") -> None:
        super().__init__()
        self.cause = cause
        """What was wrong: a code for the log, not for the caller."""


class TaskInvalid(PomboError):
    """The request is not a valid task."""

    code = "task_invalid"


class TokenCheck(TaskInvalid):
    """The request only checks the token; it carries no task."""


# ---- of a webhook


class SignatureInvalid(PomboError):
    """The webhook is not signed by the provider."""

    code = "signature_invalid"


class ItemUnparsable(PomboError):
    """The provider sent an item that Pombo cannot parse."""

    code = "unparsable"
    scope = "message"
    alert = True
