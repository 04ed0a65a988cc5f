"""The codes that are about the sender or its account, for the webhook service, which needs nothing else of codes.py."""

SENDER_CODES = frozenset(
    {
        # our access
        *(0, 3, 10, 102, 190, 467, 131005),
        *range(200, 300),
        # the business number or its account
        *(33, 368, 131031, 131037, 131042, 131044, 131045, 131048, 131064, 133000, 133010, 134011),
    }
)
"""A test compares it with the classes of the table in codes.py."""


def concerns_sender(code: int) -> bool:
    """Whether a code in a failed receipt is about the sender or its account, so that further sends would fail too."""
    return code in SENDER_CODES
