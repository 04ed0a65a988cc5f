"""python -m local [--once] [--store S] [--ports N]: the tour, which is what `make run` does; samples: `make try`."""

import sys

from shared.cli.main import INTERRUPTED, end_quietly

if __name__ == "__main__":
    if sys.argv[1:2] == ["samples"]:
        end_quietly(INTERRUPTED)
        del sys.argv[1]
        from local.samples import main
    else:
        end_quietly(0)
        from local.tour import main

    main()
