"""The types of outbound messages and calls that Pombo checks."""

from shared.domain.calls import CALLS

MEDIA = ("image", "video", "audio", "document", "sticker")

TYPES = CALLS | {"text", *MEDIA, "location", "contacts", "interactive", "template", "reaction"}
