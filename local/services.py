"""The services: the names in services/names.txt, in the order in which they are built, released and rolled back.

No other list exists: the Makefile, the build, the stack on one machine, chaos and the tests read this one. A new
service needs a line in it, a folder, and its settings.
"""

from pathlib import Path

LIST = Path(__file__).parents[1] / "services" / "names.txt"

SERVICES: tuple[str, ...] = tuple(LIST.read_text().split())
