"""python -m local [--once] [--ports N]: the tour, which is what `make run` does."""

from shared.cli.main import end_quietly

if __name__ == "__main__":
    end_quietly(0)
    from local.tour import main

    main()
