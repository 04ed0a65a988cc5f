"""What stops a benchmark, as the sentence that the user reads."""


class BenchError(Exception):
    """The run cannot go on, or its figures would be wrong."""
