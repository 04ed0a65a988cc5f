"""Programs that a machine may lack."""

import os
from typing import NoReturn

import pytest


def missing(sentence: str) -> NoReturn:
    """Skip the test because the sentence's program is missing; in CI, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(sentence)
    pytest.skip(sentence)
