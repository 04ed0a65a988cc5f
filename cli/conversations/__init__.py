"""The command pombo conversations: list and show."""
