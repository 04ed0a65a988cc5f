"""The services, from their one list, services/names.txt."""

from pathlib import Path

SERVICES: tuple[str, ...] = tuple((Path(__file__).parents[2] / "services" / "names.txt").read_text().split())
"""In the order in which they are rolled back: a newer internal service reads what an older webhook writes."""

AS_DEPLOYED = SERVICES[::-1]
"""In the order in which they are deployed, for the same reason."""
