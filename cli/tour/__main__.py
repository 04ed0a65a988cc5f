"""python -m cli.tour [--once] [--store S] [--ports N]: the tour of `make run`; with `samples`, that of `make try`."""

import sys

from cli.main import INTERRUPTED, end_at_once, end_quietly

if __name__ == "__main__":
    is_samples = sys.argv[1:2] == ["samples"]
    code = INTERRUPTED if is_samples else 0
    end_at_once(code)
    if is_samples:
        del sys.argv[1]
        from cli.tour.samples import main
    else:
        from cli.tour.hello import main

    end_quietly(code)
    main()
