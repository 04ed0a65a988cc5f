"""Explore a setting, and print what breaks with the shortest way there.

python -m tests.model                                            what there is to explore, and to plant
python -m tests.model "resend: receipts in time"                 explore it
python -m tests.model --mutant "the policy hold resends too"     plant a mistake, explore the setting that shows it
python -m tests.model --mutant "the policy hold resends too" "reply: killed, answer lost"
"""

import argparse
import json
import sys
from dataclasses import asdict

from tests.model.mutants import BY_NAME, MUTANTS
from tests.model.planting import forget, plant

AT_MOST = 2_000_000
"""Beyond it a machine of 8 GiB has no room left."""


def main() -> int:
    """0 where every invariant holds, 1 where one is broken."""
    parser = argparse.ArgumentParser(
        "python -m tests.model", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("setting", nargs="?", help="its name; without one all are listed")
    parser.add_argument("--mutant", metavar="NAME", help="a mistake to plant first")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()
    if asked.mutant and asked.mutant not in BY_NAME:
        parser.error(f"there is no mutant {asked.mutant!r}")
    if asked.mutant:
        forget([patch.module for patch in BY_NAME[asked.mutant].patches])  # test_mutants.py forks this program
        plant(BY_NAME[asked.mutant].patches)
    from tests.model import settings  # only now: the mistake has to be there first
    from tests.model.explorer import report

    name = asked.setting or (BY_NAME[asked.mutant].setting if asked.mutant else None)
    if name is None:
        print("\n".join(["Settings:", *settings.BY_NAME, "", "Mutants:", *(mutant.name for mutant in MUTANTS)]))
        return 0
    if name not in settings.BY_NAME:
        parser.error(f"there is no setting {name!r}")
    found = report(settings.BY_NAME[name], AT_MOST)
    print(json.dumps(asdict(found)) if asked.json else found)
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
