"""The chaos run: send many messages through the whole stack, inject faults everywhere, account for each message."""
