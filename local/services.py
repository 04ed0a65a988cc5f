"""The services: the names in services/names.txt, in the order in which they are built, released and rolled back.

That list is the only one: the Makefile, the build, the stack on one machine, chaos and the tests read it, so that a
service more is a line in it, its folder, and its settings.
"""

from pathlib import Path

LIST = Path(__file__).parents[1] / "services" / "names.txt"

SERVICES: tuple[str, ...] = tuple(LIST.read_text().split())
